-- How many events came in each minute, by subject? Of all time; over a window, and what the columns are:
-- macros/event_volume_between.
from event_volume_between('-infinity', 'infinity')
