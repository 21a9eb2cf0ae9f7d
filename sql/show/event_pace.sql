-- How long has each subject been silent, and how long was it silent at most in the week before? The silence since its last
-- event is no pause yet.
with recent as (
    select subject, published_at,
        epoch(published_at - lag(published_at) over (partition by subject order by published_at)) as pause_s
    from events
    where partition_date >= $day::date - 7
)

select
    subject,
    count(*) as events,
    max(published_at) as last_at,
    epoch($now::timestamptz - max(published_at)) as silent_s,
    max(pause_s) as longest_pause_s
from recent
group by subject
order by silent_s desc;
