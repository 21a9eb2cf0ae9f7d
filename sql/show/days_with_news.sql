-- Of which days did something land since then, or end?
select distinct partition_date
from ingest_ledger
where landed_at >= $since and messages > 0
union
select distinct partition_date
from completions
where finished_at >= $since
order by partition_date;
