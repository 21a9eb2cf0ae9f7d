-- Does an answer take long because it waited, or because it was worked on? Median waiting and service, hour by hour.
select
    time_bucket(interval 1 hour, published_at) as hour,
    lane,
    count(*) as answers,
    quantile_cont(queue_s, 0.5) as p50_queue_s,
    quantile_cont(e2e_s, 0.5) as p50_service_s,
    sum(queue_s) / nullif(sum(queue_s) + sum(e2e_s), 0) as waiting_share
from last_attempts
where status = 'answered'
group by hour, lane
order by hour, lane;
