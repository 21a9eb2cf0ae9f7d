-- Says why jobs wait.
delete from job_waits where lane = $lane and partition_date = $day and job_id in (select job_id from incoming);
insert into job_waits
select job_id, $day, $lane, reason, $now, $run_id from incoming;
