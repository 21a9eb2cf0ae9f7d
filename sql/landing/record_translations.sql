-- Records translated paragraphs, in place of what was recorded of them before. All are of one partition.
delete from translations
where
    partition_date = $day
    and lane = $lane
    and (job_id, language, paragraph) in (select (job_id, language, paragraph) from translated);
insert into translations by name
select *, $day as partition_date, $lane as lane, $now as translated_at, $run_id as run_id from translated;
