-- What happened in a session, in order, and where were the gaps? One row for each moment of everything with one
-- correlation id: a prompt published, an attempt sent, an attempt ended. `gap_s` is the time since the moment before.
-- Ask for one session: from session_timeline where correlation_id = '…' order by happened_at
with moments as (
    select correlation_id, published_at as happened_at, 'published' as moment, job_id, domain, model, null as worker,
        null as status, null as seconds
    from jobs
    where correlation_id is not null
    union all
    select correlation_id, sent_at, 'sent', job_id, domain, model, worker, null, queue_s
    from completions
    where correlation_id is not null
    union all
    select correlation_id, finished_at, 'ended', job_id, domain, model, worker, status, e2e_s
    from completions
    where correlation_id is not null
)

select
    *,
    epoch(happened_at - lag(happened_at) over (partition by correlation_id order by happened_at, job_id)) as gap_s
from moments
