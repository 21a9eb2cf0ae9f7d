-- Who said what, when? One row a turn of a conversation. `content` is NULL where the sender left it out or it was
-- redacted, `tokens` where nobody said, or said a number beyond 2^53.
select
    event_key, correlation_id, happened_at, source as agent, payload ->> 'task' as task, payload ->> 'role' as role,
    payload ->> 'content' as content, case when said_tokens <= 9007199254740992 then said_tokens::bigint end as tokens,
    partition_date
from (
    select *, try_cast(payload ->> 'tokens' as double) as said_tokens from events where payload_type = 'chat_turn'
)
