-- Lands the relation `incoming` (one row a stream message, jobs and rejects) so that landing any message again, in any
-- order or overlap, changes nothing. Runs inside one transaction under the writer lock, which is what makes the
-- anti-joins safe.

-- What is new, and what each new message is. The first message of a job id is the job, whoever landed it.
create or replace temp table landing as
with fresh as (
    select * from incoming
    anti join (
        select stream, stream_created, seq, published_at
        from stream_messages
        where stream = $stream and stream_created = $stream_created and seq between $from_seq and $to_seq
    ) using (stream, stream_created, seq, published_at)
),

known as (
    select job_id, content_digest
    from jobs
    where job_id in (select job_id from fresh where job_id is not null)
),

ranked as (
    select
        fresh.*,
        known.content_digest as known_digest,
        row_number() over (partition by fresh.kind, fresh.job_id order by fresh.seq) as nth,
        first_value(fresh.content_digest) over (partition by fresh.kind, fresh.job_id order by fresh.seq) as first_digest
    from fresh
    left join known on fresh.kind = 'job' and fresh.job_id = known.job_id
)

select
    *,
    case
        when kind = 'reject' then 'reject'
        when known_digest is not null or nth > 1 then 'duplicate'
        else 'job'
    end as outcome,
    coalesce(kind = 'job' and coalesce(known_digest, first_digest) <> content_digest, false) as conflicting
from ranked;

insert into jobs by name
select
    job_id, stream, stream_created, seq, subject, published_at, partition_date, correlation_id, domain, domain_source,
    language, lane, model, role, capability, prompt, messages, params, priority, deadline, reply_to, metadata,
    traceparent, extra, notes, route_reason, content_digest, status, error_kind, error_message,
    0 as attempts, 0 as duplicates, false as conflict,
    case when status <> 'pending' then $now end as finished_at,
    $now as landed_at
from landing
where outcome = 'job'
order by seq;

insert into rejects by name
select
    stream, stream_created, seq, subject, published_at, partition_date, headers, bytes, reason,
    $run_id as run_id, $now as landed_at
from landing
where outcome = 'reject'
order by seq;

insert into stream_messages by name
select
    stream, stream_created, seq, subject, published_at, partition_date, lane, outcome, job_id,
    conflicting as conflict, $run_id as run_id, $now as landed_at
from landing
order by seq;

update jobs
set duplicates = jobs.duplicates + again.n, conflict = jobs.conflict or again.conflicting
from (
    select job_id, count(*) as n, bool_or(conflicting) as conflicting
    from landing
    where outcome = 'duplicate'
    group by job_id
) as again
where jobs.job_id = again.job_id;

-- The range, once; what it held is what it added when it first landed.
insert into ingest_ledger by name
select
    $stream as stream, $stream_created as stream_created, $lane as lane, $partition_date::date as partition_date,
    $from_seq as from_seq, $to_seq as to_seq,
    count(*) as messages,
    count(*) filter (outcome = 'job') as jobs,
    count(*) filter (outcome = 'duplicate') as duplicates,
    count(*) filter (outcome = 'reject') as rejects,
    $config_digest as config_digest, $run_id as run_id, $now as landed_at
from landing
having
    not exists (
        from ingest_ledger
        where
            stream = $stream and stream_created = $stream_created and lane = $lane
            and partition_date = $partition_date::date and from_seq = $from_seq and to_seq = $to_seq
    );

-- What did this landing add?
select
    count(*) as messages,
    count(*) filter (outcome = 'job') as jobs,
    count(*) filter (outcome = 'duplicate') as duplicates,
    count(*) filter (outcome = 'reject') as rejects
from landing;
