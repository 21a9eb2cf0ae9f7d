-- Which answers took longest, and where did their time go? What the server can't explain is unattributed.
select
    job_id, domain, model, worker, queue_s, load_s, prefill_s, decode_s, unattributed_s, ttft_s, e2e_s,
    completion_tokens
from last_attempts
where status = 'answered'
order by e2e_s desc
limit 20;
