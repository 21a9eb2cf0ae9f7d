-- The finished jobs of a partition whose result has not been published, each with its last attempt.
select j.*, c.worker, c.text, c.reasoning, c.tool_calls, c.finish_reason, c.prompt_tokens, c.completion_tokens,
    c.queue_s, c.ttft_s, c.ttfo_s, c.tpot_s, c.e2e_s, c.load_s, c.prefill_s, c.decode_s, c.unattributed_s,
    c.prefill_tps, c.decode_tps
from jobs as j
left join completions as c on j.job_id = c.job_id and j.attempts = c.attempt
anti join (select job_id, finished_at from job_results where partition_date = $day) as r
    on j.job_id = r.job_id and j.finished_at = r.finished_at
where j.lane = $lane and j.partition_date = $day and j.status <> 'pending'
order by j.published_at, j.seq;
