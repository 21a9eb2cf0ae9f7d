-- What became of each prompt? One row a job with its last attempt: open this first. `waits_for` is why a pending one
-- could not be answered when a run last had it.
select
    j.job_id, j.published_at, j.partition_date, j.lane, j.domain, j.domain_source, j.language, j.model, j.role,
    j.correlation_id, j.status, j.error_kind, j.error_message, j.attempts, j.duplicates, c.worker, c.queue_s, c.ttft_s,
    c.e2e_s, c.prompt_tokens, c.completion_tokens, c.decode_tps, c.finish_reason, j.prompt, c.text, j.route_reason,
    case j.status when 'pending' then w.reason end as waits_for
from jobs as j
left join completions as c
    on j.partition_date = c.partition_date and j.job_id = c.job_id and j.attempts = c.attempt
left join job_waits as w on j.partition_date = w.partition_date and j.job_id = w.job_id
