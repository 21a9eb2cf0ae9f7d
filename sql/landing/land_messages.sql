-- Lands the messages of the relation `incoming` (one row a stream message: a record, or a reject), given the relation
-- `known`, so that landing any message again, in any order or overlap, changes nothing. Runs inside one transaction under
-- the writer lock, which is what makes the anti-joins safe. What the records themselves are is landed by land_jobs and
-- land_events, from the relation `landing` made here.

-- What is new, and what each new message is. The first message of an id is the record, whoever landed it.
create or replace temp table landing as
with fresh as (
    select * from incoming
    anti join (
        select stream, stream_created, seq, published_at
        from stream_messages
        where stream = $stream and stream_created = $stream_created and seq between $from_seq and $to_seq
    ) using (stream, stream_created, seq, published_at)
),

ranked as (
    select
        fresh.*,
        known.content_digest as known_digest,
        row_number() over (partition by fresh.reason is null, fresh.record_id order by fresh.seq) as nth,
        first_value(fresh.content_digest)
            over (partition by fresh.reason is null, fresh.record_id order by fresh.seq) as first_digest
    from fresh
    left join known on fresh.record_id = known.record_id
)

select
    *,
    case
        when reason is not null then 'reject'
        when known_digest is not null or nth > 1 then 'duplicate'
        else $kind
    end as outcome,
    coalesce(reason is null and coalesce(known_digest, first_digest) <> content_digest, false) as conflicting
from ranked;

insert into rejects by name
select
    stream, stream_created, seq, subject, published_at, partition_date, headers, bytes, reason,
    $run_id as run_id, $now as landed_at
from landing
where outcome = 'reject'
order by seq;

insert into stream_messages by name
select
    stream, stream_created, seq, subject, published_at, partition_date, lane, outcome, record_id,
    conflicting as conflict, $run_id as run_id, $now as landed_at
from landing
order by seq;

-- The range, once; what it held is what it added when it first landed.
insert into ingest_ledger by name
select
    $stream as stream, $stream_created as stream_created, $lane as lane, $partition_date::date as partition_date,
    $from_seq as from_seq, $to_seq as to_seq,
    count(*) as messages,
    count(*) filter (outcome = $kind) as records,
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

-- Which records came again, and did they say something else?
create or replace temp table again as
select record_id, count(*) as n, bool_or(conflicting) as conflicting
from landing
where outcome = 'duplicate'
group by record_id;

-- What did this landing add?
select
    count(*) as messages,
    count(*) filter (outcome = $kind) as records,
    count(*) filter (outcome = 'duplicate') as duplicates,
    count(*) filter (outcome = 'reject') as rejects
from landing;
