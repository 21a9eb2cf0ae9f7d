-- Up to which sequence were a stream's messages forgotten on purpose?
select max(to_seq) as to_seq
from retired_messages
where stream = $stream and stream_created = $stream_created;
