-- What happened in a session, in order, and where were the gaps? One row for each moment of everything with one
-- correlation id: a prompt published, an attempt sent, an attempt ended, an event. `gap_s` is the time since the moment
-- before; events stand at their happened_at; `detail` says in a few words what it was, and holds no text of anybody's.
-- Ask for one session: from session_timeline where correlation_id = '…' order by nth
with moments as (
    select
        correlation_id, published_at as happened_at, 'published' as moment, job_id, null as event_id, domain, model,
        null as worker, null as source, subject, null as status, null::double as seconds, lane as detail, stream, seq
    from jobs
    where correlation_id is not null
    union all
    select
        correlation_id, sent_at, 'sent', job_id, null, domain, model, worker, null, null, null, queue_s,
        'attempt ' || attempt, stream, seq
    from completions
    where correlation_id is not null
    union all
    select
        correlation_id, finished_at, 'ended', job_id, null, domain, model, worker, null, null, status, e2e_s,
        coalesce(error_kind, completion_tokens || ' tokens'), stream, seq
    from completions
    where correlation_id is not null
    union all
    select
        correlation_id, happened_at, 'event', null, event_id, null, null, null, source, subject,
        case payload_type
            when 'flow_node' then payload ->> 'state'
            when 'tool_call' then if(try_cast(payload ->> 'ok' as boolean), 'ok', 'failed')
        end,
        case
            when payload_type in ('tool_call', 'search')
                then try_cast(coalesce(payload ->> 'duration_ms', payload ->> 'latency_ms') as double) / 1000
        end,
        case payload_type
            when 'flow_node' then concat_ws(' ', payload ->> 'node_type', payload ->> 'node_id')
            when 'flow_edge' then concat_ws(' ', payload ->> 'from', payload ->> 'relation', payload ->> 'to')
            when 'tool_call' then payload ->> 'tool'
            when 'chat_turn' then concat_ws(' ', payload ->> 'role', payload ->> 'task')
            when 'search' then (payload ->> 'hits') || ' hits'
            else type
        end,
        stream, seq
    from events
    where correlation_id is not null
)

select
    correlation_id,
    row_number() over in_order as nth,
    happened_at, moment, job_id, event_id, domain, model, worker, source, subject, status, seconds, detail,
    epoch(happened_at - lag(happened_at) over in_order) as gap_s
from moments
window in_order as (
    partition by correlation_id
    order by
        happened_at,
        case moment when 'published' then 1 when 'event' then 2 when 'sent' then 3 else 4 end,
        stream, seq, job_id, event_id
)
