-- Records searches and their results, in place of what was recorded of the same jobs before. All are of one partition.
delete from web_results
where partition_date = $day and lane = $lane and job_id in (select job_id from searched);
delete from web_searches
where partition_date = $day and lane = $lane and job_id in (select job_id from searched);
insert into web_searches by name
select *, $day as partition_date, $lane as lane, $run_id as run_id from searched;
insert into web_results by name
select *, $day as partition_date, $lane as lane, $run_id as run_id from found;
