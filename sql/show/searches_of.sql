-- What became of the web searches of these jobs?
select job_id, query, status, results, worker, error_kind, error_message
from web_searches
where lane = $lane and partition_date = $day and job_id in (select unnest($ids::varchar []));
