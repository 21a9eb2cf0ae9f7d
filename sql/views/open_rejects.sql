-- Which messages could not be read, and nobody has sent a corrected form of (foundry events replay)?
select
    r.stream || '-' || r.stream_created || '-' || r.seq as reject, r.stream, r.seq, r.subject, r.published_at, r.reason,
    octet_length(r.bytes) as bytes, r.partition_date
from rejects as r
anti join events as e on e.replay_of = r.stream || '-' || r.stream_created || '-' || r.seq
