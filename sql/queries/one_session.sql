-- What happened in one session? Put your correlation id in; here: the newest one.
select published_at, job_id, domain, model, worker, status, queue_s, e2e_s, prompt, text
from job_overview
where correlation_id = (select correlation_id from jobs where correlation_id is not null order by published_at desc limit 1)
order by published_at;
