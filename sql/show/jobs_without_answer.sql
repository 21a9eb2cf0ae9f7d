-- Which of these jobs got no answer, and of which kind is the error? Its text may quote the prompt, so it stays in jobs.
select job_id, correlation_id, domain, model, status, error_kind, attempts
from jobs
where job_id in (select unnest($job_ids::varchar [])) and status <> 'answered'
order by published_at, seq
limit 20;
