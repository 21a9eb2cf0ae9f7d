-- Which finished jobs of a partition have no published result, each with its last attempt? The narrow columns tell which
-- (mostly none); only theirs are then read whole.
with unpublished as (
    select job_id
    from jobs
    anti join (select job_id, finished_at from job_results where partition_date = $day) using (job_id, finished_at)
    where lane = $lane and partition_date = $day and status <> 'pending'
)

select j.*, c.worker, c.text, c.reasoning, c.tool_calls, c.finish_reason, c.prompt_tokens, c.completion_tokens,
    c.queue_s, c.ttft_s, c.ttfo_s, c.tpot_s, c.e2e_s, c.load_s, c.prefill_s, c.decode_s, c.unattributed_s,
    c.prefill_tps, c.decode_tps
from jobs as j
semi join unpublished as u on j.job_id = u.job_id
left join completions as c
    on j.job_id = c.job_id and j.attempts = c.attempt and c.partition_date = $day
where j.lane = $lane and j.partition_date = $day
order by j.published_at, j.seq;
