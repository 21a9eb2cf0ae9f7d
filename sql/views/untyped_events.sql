-- Which events have no typed table, and why? Subjects that nobody modelled, and payloads that don't fit their subject's.
select
    subject,
    coalesce(payload_problem, 'no model for this subject') as reason,
    count(*) as events,
    min(happened_at) as first_at,
    max(happened_at) as last_at,
    max_by(event_id, (published_at, seq)) as for_example
from events
where payload_type is null
group by subject, payload_problem
