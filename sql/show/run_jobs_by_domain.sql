-- Which domains, models and statuses did the jobs have that one run landed?
select domain, domain_source, model, status, count(*) as jobs
from jobs
semi join (select distinct stream, stream_created, seq from stream_messages where run_id = $run_id) as landed
    using (stream, stream_created, seq)
group by all
order by jobs desc, domain, model;
