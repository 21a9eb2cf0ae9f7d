-- What became of a day's messages of the event stream, by subject? Those that one run landed, or those of a range,
-- whoever landed them, or (neither given) all of them. A duplicate counts under its event's subject, whatever day that
-- came.
select
    coalesce(e.subject, m.subject) as subject,
    count(*) as messages,
    count(*) filter (m.outcome = 'event') as events,
    count(*) filter (m.outcome = 'duplicate') as duplicates,
    count(*) filter (m.outcome = 'reject') as rejects,
    min(m.seq) as from_seq,
    max(m.seq) as to_seq
from stream_messages as m
left join events as e on m.record_id = e.event_key
where
    m.lane = 'events' and m.partition_date = $day
    and ($run_id is null or m.run_id = $run_id)
    and (
        $from_seq is null
        or (coalesce(m.stream_created = $stream_created, true) and m.seq between $from_seq and $to_seq)
    )
group by 1
order by messages desc, subject;
