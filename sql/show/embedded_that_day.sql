-- What was embedded, or failed, on a day, of what is still so?
select status, count(*) as chunks, count(distinct source) as notes
from embeddings
where partition_date = $day
group by status
order by status;
