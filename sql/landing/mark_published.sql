-- Records that the results of the relation `published` are in the stream of results.
insert into job_results by name
select published.*, $now as published_at
from published
anti join (select job_id, finished_at from job_results where partition_date = $day) using (job_id, finished_at);
