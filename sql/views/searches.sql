-- What was searched for in the notes, what was found, and how long did it take?
select
    event_key, correlation_id, happened_at, source as agent, payload ->> 'query' as query,
    (payload ->> 'hits')::double::bigint as hits, (payload ->> 'latency_ms')::double as latency_ms, partition_date
from events
where payload_type = 'search'
