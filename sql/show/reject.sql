-- Which message is this reject, whole? By its number in the stream, or by its full name.
select stream, stream_created, seq, subject, published_at, headers, bytes, reason
from rejects
where
    stream = $stream
    and (stream || '-' || stream_created || '-' || seq = $reject or seq::varchar = $reject)
order by published_at desc
limit 1;
