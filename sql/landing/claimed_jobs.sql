-- The jobs that a run has claimed in a partition, in the order in which they should be answered.
select
    stream, stream_created, seq, subject, published_at, partition_date, job_id, correlation_id, domain, domain_source,
    language, lane, model, role, capability, prompt, messages, params, priority, deadline, reply_to, metadata,
    traceparent, extra, notes, route_reason, status, error_kind, error_message
from jobs
where lane = $lane and partition_date = $day and status = 'pending' and claimed_by = $run_id
order by priority desc, published_at, seq;
