-- What was searched for in the notes, what was found, and how long did it take? Hits beyond 2^53 and times beyond 10^12
-- ms are none, and NULL.
select
    event_key, correlation_id, happened_at, source as agent, payload ->> 'query' as query,
    case when said_hits <= 9007199254740992 then said_hits::bigint end as hits,
    case when said_ms <= 1e12 then said_ms end as latency_ms, partition_date
from (
    select
        *, try_cast(payload ->> 'hits' as double) as said_hits,
        try_cast(payload ->> 'latency_ms' as double) as said_ms
    from events
    where payload_type = 'search'
)
