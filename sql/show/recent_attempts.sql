-- How did each worker do since $since? Failures are those that are the worker's own, not the job's.
select
    worker,
    count(*) as n,
    count(*) filter (
        error_kind in ('connection', 'timeout', 'stalled', 'server_error', 'truncated_stream', 'model_not_found')
    ) as failed,
    max(finished_at) filter (status = 'answered') as last_answered_at,
    max_by(error_message, finished_at) filter (error_message is not null) as last_error
from completions
where worker is not null and sent_at >= $since and partition_date >= $since::date - 1
group by worker;
