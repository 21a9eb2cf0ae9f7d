-- Which model answers best, and where? Of all time; over a window, and how: macros/model_comparison_between.
from model_comparison_between('-infinity', 'infinity')
