-- Which jobs of one run took longest, and where did the time go?
select
    job_id, correlation_id, domain, model, worker, attempt, status, queue_s, ttft_s, e2e_s, completion_tokens,
    decode_tps
from completions
where run_id = $run_id
order by e2e_s desc nulls last
limit 10;
