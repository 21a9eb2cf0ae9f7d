-- Which of these jobs got no answer, and why?
select job_id, correlation_id, domain, model, status, error_kind, error_message, attempts
from jobs
where job_id in (select unnest($job_ids::varchar [])) and status <> 'answered'
order by published_at, seq
limit 20;
