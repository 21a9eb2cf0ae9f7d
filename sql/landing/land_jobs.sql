-- Lands the jobs of the relation `landing`, and what came `again`; see land_messages.
insert into jobs by name
select
    record_id as job_id, stream, stream_created, seq, subject, published_at, partition_date, correlation_id, domain,
    domain_source, language, lane, model, role, capability, prompt, messages, params, priority, deadline, reply_to,
    metadata, traceparent, extra, notes, route_reason, content_digest, status, error_kind, error_message, task,
    ground, query, translate, 0 as attempts, 0 as duplicates, false as conflict,
    case when status <> 'pending' then $now end as finished_at,
    $now as landed_at
from landing
where outcome = 'job'
order by seq;

update jobs
set duplicates = jobs.duplicates + again.n, conflict = jobs.conflict or again.conflicting
from again
where jobs.job_id = again.record_id;
