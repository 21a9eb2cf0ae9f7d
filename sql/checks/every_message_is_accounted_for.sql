-- Which landed messages are not exactly one of: the job of that sequence, a duplicate of an existing job, a reject?
select m.stream, m.stream_created, m.seq, m.outcome, m.job_id
from stream_messages as m
left join jobs as j on m.job_id = j.job_id
left join rejects as r
    on (m.stream, m.stream_created, m.seq, m.published_at) = (r.stream, r.stream_created, r.seq, r.published_at)
where
    not (
        (m.outcome = 'job' and (j.stream, j.stream_created, j.seq) = (m.stream, m.stream_created, m.seq))
        or (m.outcome = 'duplicate' and j.job_id is not null)
        or (m.outcome = 'duplicate' and m.stream in (select stream from retired_messages)) -- its job is forgotten
        or (m.outcome = 'reject' and r.reason is not null)
    ) is true
union all
select stream, stream_created, seq, 'landed ' || count(*) || ' times', null
from stream_messages
group by stream, stream_created, seq, published_at
having count(*) > 1;
