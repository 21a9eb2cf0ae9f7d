-- Which sessions had events or prompts on a day, the busiest first?
select correlation_id
from (
    select correlation_id from events where partition_date = $day
    union all
    select correlation_id from jobs where partition_date = $day
)
where correlation_id is not null
group by correlation_id
order by count(*) desc, correlation_id
limit $most;
