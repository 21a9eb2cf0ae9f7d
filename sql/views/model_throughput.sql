-- How many tokens a second does each worker read (PP, prefill) and write (TG, decode), by model? Of all time; over a
-- window, and how: macros/model_throughput_between.
from model_throughput_between('-infinity', 'infinity')
