-- Which tools were called, by whom, for how long, and did it go well? Equal digests are equal arguments.
select
    event_key, correlation_id, happened_at, source as agent, payload ->> 'task' as task, payload ->> 'call_id' as call_id,
    payload ->> 'tool' as tool,
    coalesce(payload ->> 'arguments_digest', derived ->> 'arguments_digest') as arguments_digest,
    (payload ->> 'duration_ms')::double as duration_ms, (payload ->> 'ok')::boolean as ok, partition_date
from events
where payload_type = 'tool_call'
