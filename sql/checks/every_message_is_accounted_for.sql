-- Which landed messages are not exactly one of: the job or event of that sequence, a duplicate of one, a reject?
with records as (
    select job_id as record_id, 'job' as kind, stream, stream_created, seq from jobs
    union all
    select event_key, 'event', stream, stream_created, seq from events
)

select m.stream, m.stream_created, m.seq, m.outcome, m.record_id
from stream_messages as m
left join records as j on m.record_id = j.record_id
left join rejects as r
    on (m.stream, m.stream_created, m.seq, m.published_at) = (r.stream, r.stream_created, r.seq, r.published_at)
where
    not (
        (m.outcome = j.kind and (j.stream, j.stream_created, j.seq) = (m.stream, m.stream_created, m.seq))
        or (m.outcome = 'duplicate' and j.record_id is not null)
        or (m.outcome = 'duplicate' and m.stream in (select stream from retired_messages)) -- its record is forgotten
        or (m.outcome = 'reject' and r.reason is not null)
    ) is true
union all
select stream, stream_created, seq, 'landed ' || count(*) || ' times', null
from stream_messages
group by stream, stream_created, seq, published_at
having count(*) > 1;
