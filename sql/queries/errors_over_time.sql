-- When did which errors come, hour by hour? Attempts count, also those that another worker made good.
select
    time_bucket(interval 1 hour, sent_at) as hour,
    error_kind,
    count(*) as attempts,
    count(distinct worker) as workers,
    count(distinct job_id) as jobs
from completions
where error_kind is not null
group by hour, error_kind
order by hour, attempts desc;
