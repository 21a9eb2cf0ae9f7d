-- What became of each of these messages?
select
    m.seq,
    m.outcome,
    coalesce(j.status, m.outcome) as status,
    j.error_kind,
    coalesce(j.error_message, r.reason) as reason
from stream_messages as m
left join jobs as j on m.record_id = j.job_id
left join rejects as r on (m.stream, m.stream_created, m.seq) = (r.stream, r.stream_created, r.seq)
where m.stream = $stream and m.seq in (select unnest($seqs::bigint []))
order by m.seq;
