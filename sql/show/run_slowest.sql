-- Which jobs of one run took longest, and where did the time go?
select
    job_id, e2e_s, ttft_s, queue_s, worker, status, domain, model, completion_tokens, decode_tps, attempt, correlation_id
from completions
where run_id = $run_id
order by e2e_s desc nulls last
limit 10;
