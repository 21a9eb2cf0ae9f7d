-- Forgets the rejects before $before, and remembers up to which sequence; see retire_jobs.
insert into retired_messages
select stream, stream_created, max(seq) as to_seq, $now as retired_at
from rejects
where partition_date < $before
group by stream, stream_created;

delete from stream_messages where partition_date < $before and outcome = 'reject';
delete from rejects where partition_date < $before;
