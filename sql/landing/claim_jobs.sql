-- Claims a partition's jobs for a run: those that wait, and that no living run has claimed.
update jobs
set status = 'pending', error_kind = null, error_message = null, finished_at = null
where
    $retry_failed
    and lane = $lane
    and partition_date = $day
    and status in ('failed', 'incomplete', 'cancelled');

delete from job_claims
where lane = $lane and partition_date = $day and run_id in (select unnest($dead_runs::varchar []));

-- why they waited is said anew by this run
delete from job_waits where lane = $lane and partition_date = $day;

insert into job_claims
select job_id, partition_date, lane, $run_id, $now
from jobs
anti join (select job_id from job_claims where lane = $lane and partition_date = $day) using (job_id)
where lane = $lane and partition_date = $day and status = 'pending';

-- Which jobs has the run claimed, in the order in which they should be answered?
select
    stream, stream_created, seq, subject, published_at, partition_date, job_id, correlation_id, domain, domain_source,
    language, lane, model, role, capability, prompt, messages, params, priority, deadline, reply_to, metadata,
    traceparent, extra, notes, route_reason, status, error_kind, error_message
from jobs
semi join (select job_id from job_claims where lane = $lane and partition_date = $day and run_id = $run_id)
    using (job_id)
where lane = $lane and partition_date = $day and status = 'pending'
order by priority desc, published_at, seq;
