-- What did the web searches of these jobs find, the first results first?
select job_id, rank, url, title, content, score
from web_results
where lane = $lane and partition_date = $day and job_id in (select unnest($ids::varchar [])) and rank <= $most
order by job_id, rank;
