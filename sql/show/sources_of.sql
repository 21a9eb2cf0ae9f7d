-- Which sources were these jobs given?
select job_id, number, kind, source, title, text, score
from job_sources
where lane = $lane and partition_date = $day and job_id in (select unnest($ids::varchar []))
order by job_id, number;
