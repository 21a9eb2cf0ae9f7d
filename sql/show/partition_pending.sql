-- How many jobs of a partition still wait for an answer?
select count(*) as pending
from jobs
where partition_date = $day and lane = $lane and status = 'pending';
