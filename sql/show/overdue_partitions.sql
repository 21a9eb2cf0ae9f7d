-- Which partitions have jobs that should have ended, or results that should have been published, before $since?
select
    partition_date,
    lane,
    count(*) filter (status = 'pending') as pending,
    count(*) filter (status <> 'pending') as unpublished
from jobs
anti join job_results using (job_id, finished_at)
where (status = 'pending' and landed_at < $since) or (status <> 'pending' and finished_at < $since)
group by partition_date, lane
order by partition_date, lane;
