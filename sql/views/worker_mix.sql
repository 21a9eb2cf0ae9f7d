-- Which worker makes the slowest 5%? Of all time; over a window, and how: macros/worker_mix_between.
from worker_mix_between('-infinity', 'infinity')
