-- Forgets the jobs before $before, with everything that belongs to them, and remembers up to which sequence, so that
-- what the stream still holds is not taken for missing.
insert into retired_messages
select stream, stream_created, max(seq) as to_seq, $now as retired_at
from stream_messages
where partition_date < $before and lane <> 'events'
group by stream, stream_created;

delete from completions where partition_date < $before;
delete from job_results where partition_date < $before;
delete from job_claims where partition_date < $before;
delete from job_waits where partition_date < $before;
delete from job_grounding where partition_date < $before;
delete from job_sources where partition_date < $before;
delete from web_searches where partition_date < $before;
delete from web_results where partition_date < $before;
delete from translations where partition_date < $before;
delete from stream_messages where partition_date < $before and outcome <> 'reject' and lane <> 'events';
delete from jobs where partition_date < $before;
