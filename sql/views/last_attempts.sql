-- How did each job end? One row a job with its last attempt, if it was ever sent: the ground of every figure below.
-- `counted`: a model's warm answer, which is what percentiles are computed from. `cold` answers, searches and articles are
-- kept apart.
select
    j.job_id, j.stream, j.stream_created, j.seq, j.partition_date, j.published_at, j.correlation_id, j.domain,
    j.language, j.lane, j.model, j.role, j.status, j.error_kind, j.attempts, j.finished_at,
    c.worker, c.sent_at, c.queue_s, c.ttft_s, c.ttfo_s, c.tpot_s, c.e2e_s, c.load_s, c.prefill_s, c.decode_s,
    c.unattributed_s, c.prefill_tps, c.decode_tps, c.cold, c.prompt_tokens, c.completion_tokens,
    j.status = 'answered' and c.cold is not true and j.task = 'answer' as counted
from jobs as j
left join completions as c
    on j.partition_date = c.partition_date and j.job_id = c.job_id and j.attempts = c.attempt
