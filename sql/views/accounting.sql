-- Is every message accounted for? A stream's landed messages = records (jobs or events) + duplicates + rejects.
select
    stream,
    stream_created,
    min(seq) as first_seq,
    max(seq) as last_seq,
    count(*) as messages,
    count(*) filter (outcome in ('job', 'event')) as records,
    count(*) filter (outcome = 'duplicate') as duplicates,
    count(*) filter (outcome = 'reject') as rejects
from stream_messages
group by stream, stream_created
