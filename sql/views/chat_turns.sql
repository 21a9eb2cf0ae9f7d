-- Who said what, when? One row a turn of a conversation. `content` is NULL where the sender left it out or it was redacted.
select
    event_key, correlation_id, happened_at, source as agent, payload ->> 'task' as task, payload ->> 'role' as role,
    payload ->> 'content' as content, (payload ->> 'tokens')::double::bigint as tokens, partition_date
from events
where payload_type = 'chat_turn'
