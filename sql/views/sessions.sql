-- Which sessions were there, what did each consist of, and where was its longest silence? One row a correlation id.
select
    correlation_id,
    min(happened_at) as first_at,
    max(happened_at) as last_at,
    epoch(max(happened_at) - min(happened_at)) as wall_s,
    count(*) as moments,
    count(*) filter (moment = 'published') as prompts,
    count(*) filter (moment = 'ended') as attempts,
    count(*) filter (moment = 'event') as events,
    count(*) filter (status not in ('answered', 'ok', 'declared', 'started', 'finished')) as failures,
    max(gap_s) as longest_gap_s
from session_timeline
group by correlation_id
