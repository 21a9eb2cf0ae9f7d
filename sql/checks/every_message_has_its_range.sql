-- Which landed messages lie in no range of the ledger? Rows and range are committed together, so there should be none.
select m.stream, m.stream_created, m.seq, m.lane, m.partition_date
from stream_messages as m
where not exists (
    from ingest_ledger as r
    where
        (r.stream, r.stream_created, r.lane, r.partition_date) = (m.stream, m.stream_created, m.lane, m.partition_date)
        and m.seq between r.from_seq and r.to_seq
);
