-- Which correlation ids do these jobs carry, and how many of their jobs are answered?
select correlation_id, count(*) as jobs, count(*) filter (status = 'answered') as answered
from jobs
where job_id in (select unnest($job_ids::varchar [])) and correlation_id is not null
group by correlation_id
order by jobs desc, correlation_id;
