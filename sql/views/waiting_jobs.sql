-- Which jobs wait, for how long, and for what? One row a job that is pending; `reason` is why nobody could answer it when
-- a run last had it, NULL when none had it yet.
select
    j.job_id, j.partition_date, j.lane, j.model, j.role, j.domain, j.priority, j.deadline, j.attempts, j.published_at,
    epoch(now() - j.published_at) as waits_s,
    w.reason,
    w.since as put_off_at,
    c.run_id as run_at_work
from jobs as j
left join job_waits as w on j.job_id = w.job_id
left join job_claims as c on j.job_id = c.job_id and w.job_id is null
where j.status = 'pending'
