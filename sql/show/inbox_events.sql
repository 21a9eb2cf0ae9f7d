-- Which are the events of inbox_messages? In the order in which the stream took them, a bounded number.
select event_id, subject, correlation_id
from events
where
    partition_date = $day
    and ($run_id is null or run_id = $run_id)
    and ($from_seq is null or (coalesce(stream_created = $stream_created, true) and seq between $from_seq and $to_seq))
order by published_at, seq
limit $most;
