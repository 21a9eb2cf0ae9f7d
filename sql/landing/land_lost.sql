-- Writes off the ranges of the relation `gone`: sequences that nobody has landed and the stream no longer has.
insert into lost_messages by name
select
    $stream as stream, $stream_created as stream_created, gone.from_seq, gone.to_seq, $reason as reason,
    $run_id as run_id, $now as noticed_at
from gone
anti join lost_messages as known
    on known.stream = $stream and known.stream_created = $stream_created
    and known.from_seq <= gone.from_seq and known.to_seq >= gone.to_seq;
