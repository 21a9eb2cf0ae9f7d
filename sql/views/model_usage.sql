-- Which model answers best, and where? Of all time; over a window, and how: macros/model_usage_between.
from model_usage_between('-infinity', 'infinity')
