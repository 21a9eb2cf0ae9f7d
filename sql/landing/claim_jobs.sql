-- Claims a partition's jobs of some tasks for a run: those that wait, and that no living run has claimed. Of those that
-- ask for sources, either ($sourceless) the ones that were not given them yet, or ones that were, and all others.
create or replace temp table of_task as
select job_id
from jobs
where
    lane = $lane
    and partition_date = $day
    and task = any($tasks::varchar [])
    and (ground is not null or not $sourceless)
    and (status = 'pending' or ($retry_failed and status in ('failed', 'incomplete', 'cancelled')));

update jobs
set status = 'pending', error_kind = null, error_message = null, finished_at = null
where
    lane = $lane
    and partition_date = $day
    and status <> 'pending'
    and job_id in (select job_id from of_task);

delete from job_claims
where lane = $lane and partition_date = $day and run_id in (select unnest($dead_runs::varchar []));

create or replace temp table claimable as
select job_id
from jobs
where
    lane = $lane
    and partition_date = $day
    and status = 'pending'
    and job_id in (select job_id from of_task)
    and $sourceless = (
        ground is not null
        and job_id not in (
            select g.job_id
            from job_grounding as g
            where g.lane = $lane and g.partition_date = $day and g.status = 'given'
        )
    );

-- why they waited is said anew by this run
delete from job_waits
where lane = $lane and partition_date = $day and job_id in (select job_id from claimable);

insert into job_claims
select job_id, $day, $lane, $run_id, $now
from claimable
anti join (select job_id from job_claims where lane = $lane and partition_date = $day) using (job_id);

-- Which jobs has the run claimed, in the order in which they should be answered?
select
    stream, stream_created, seq, subject, published_at, partition_date, job_id, correlation_id, domain, domain_source,
    language, lane, model, role, capability, prompt, messages, params, priority, deadline, reply_to, metadata,
    traceparent, extra, notes, route_reason, status, error_kind, error_message, task, ground, query, translate
from jobs
semi join (select job_id from job_claims where lane = $lane and partition_date = $day and run_id = $run_id)
    using (job_id)
where lane = $lane and partition_date = $day and status = 'pending' and job_id in (select job_id from claimable)
order by priority desc, published_at, seq;
