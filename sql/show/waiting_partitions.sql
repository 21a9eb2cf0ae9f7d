-- Which partitions have jobs that were put off, of which models?
select partition_date, lane, list(distinct model) as models, count(*) as jobs
from waiting_jobs
where reason is not null and model is not null
group by partition_date, lane
order by partition_date, lane;
