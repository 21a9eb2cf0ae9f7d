-- Records which sources jobs were given, in place of what was recorded of them before. All are of one partition.
delete from job_sources
where partition_date = $day and lane = $lane and job_id in (select job_id from grounded);
delete from job_grounding
where partition_date = $day and lane = $lane and job_id in (select job_id from grounded);
insert into job_grounding by name
select *, $day as partition_date, $lane as lane, $now as grounded_at, $run_id as run_id from grounded;
insert into job_sources by name
select *, $day as partition_date, $lane as lane, $now as given_at, $run_id as run_id from given;
