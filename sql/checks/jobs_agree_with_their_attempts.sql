-- Which jobs disagree with what was recorded of them: more attempts than are counted, a claim or a result although it
-- is finished, or not?
with attempts as (
    select job_id, max(attempt) as last_attempt
    from completions
    group by job_id
)

select job_id, status, 'attempt ' || last_attempt || ' recorded, ' || attempts || ' counted' as problem
from jobs
inner join attempts using (job_id)
where last_attempt > attempts and status <> 'pending'
union all
select job_id, jobs.status, 'an attempt without a job'
from attempts
left join jobs using (job_id)
where jobs.job_id is null
union all
select job_id, status, 'finished and still claimed'
from jobs
semi join job_claims using (job_id)
where status <> 'pending'
union all
select job_id, status, 'finished without a time'
from jobs
where (status <> 'pending') <> (finished_at is not null);
