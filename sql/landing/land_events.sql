-- Lands the events of the relation `landing`, and what came `again`; see land_messages.
insert into events by name
select
    record_id as event_key, event_id, source, current_subject as subject, subject as received_subject, envelope, type,
    correlation_id, occurred_at, happened_at, payload, payload_encoding, payload_type, payload_problem, derived,
    traceparent, replay_of, extra, notes, content_digest, stream, stream_created, seq, published_at, partition_date,
    size_bytes as bytes, 0 as duplicates, false as conflict, $run_id as run_id, $now as landed_at
from landing
where outcome = 'event'
order by seq;

update events
set duplicates = events.duplicates + again.n, conflict = events.conflict or again.conflicting
from again
where events.event_key = again.record_id;
