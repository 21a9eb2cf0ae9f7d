-- Of each of the jobs $ids: the number of its last attempt, and how many count against its budget. A worker that could
-- not be reached, and a request that we stopped, say nothing about the job.
select
    job_id,
    max(attempt) as last_attempt,
    count(*) filter (status <> 'cancelled' and error_kind is distinct from 'connection') as spent
from completions
where lane = $lane and partition_date = $day and job_id in (select unnest($ids::varchar []))
group by job_id;
