-- Which messages did a stream drop before they were read? They can't be had any more; ask their senders.
select stream, stream_created, from_seq, to_seq, to_seq - from_seq + 1 as messages, reason, noticed_at
from lost_messages
order by noticed_at desc, from_seq;
