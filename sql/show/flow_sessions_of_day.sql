-- Which sessions had a flow on a day, the one with the most of it first?
select correlation_id
from events
where partition_date = $day and payload_type in ('flow_node', 'flow_edge') and correlation_id is not null
group by correlation_id
order by count(*) desc, correlation_id
limit $most;
