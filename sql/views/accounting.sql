-- Is every message accounted for? A stream's landed messages = jobs + duplicates + rejects.
select
    stream,
    stream_created,
    min(seq) as first_seq,
    max(seq) as last_seq,
    count(*) as messages,
    count(*) filter (outcome = 'job') as jobs,
    count(*) filter (outcome = 'duplicate') as duplicates,
    count(*) filter (outcome = 'reject') as rejects
from stream_messages
group by stream, stream_created
