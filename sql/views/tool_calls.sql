-- Which tools were called, by whom, for how long, and did it go well? Equal digests are equal arguments. A duration
-- beyond 10^12 ms is none, and NULL.
select
    event_key, correlation_id, happened_at, source as agent, payload ->> 'task' as task,
    payload ->> 'call_id' as call_id, payload ->> 'tool' as tool,
    coalesce(payload ->> 'arguments_digest', derived ->> 'arguments_digest') as arguments_digest,
    case when said_ms <= 1e12 then said_ms end as duration_ms,
    try_cast(payload ->> 'ok' as boolean) as ok, partition_date
from (
    select *, try_cast(payload ->> 'duration_ms' as double) as said_ms from events where payload_type = 'tool_call'
)
