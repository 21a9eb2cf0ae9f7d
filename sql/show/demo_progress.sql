-- How many of these messages have landed, and how many are done (answered, failed, rejected, or a reject)?
select
    count(*) as landed,
    count(*) filter (m.outcome <> 'job' or j.status <> 'pending') as done
from stream_messages as m
left join jobs as j using (stream, stream_created, seq)
where m.stream = $stream and m.seq in (select unnest($seqs::bigint []));
