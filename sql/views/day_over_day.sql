-- What changed since the day before? Jobs, errors and medians by day and domain, each beside that domain's day before
-- (the last one that had any); `p50_change` 0.10 is ten percent slower.
with days as (
    select
        partition_date,
        domain,
        count(*) as jobs,
        count(*) filter (status not in ('answered', 'pending'))
        / nullif(count(*) filter (status <> 'pending'), 0) as error_rate,
        count(*) filter (counted) as n,
        quantile_cont(e2e_s, 0.5) filter (counted) as p50_e2e_s,
        quantile_cont(queue_s, 0.5) filter (counted) as p50_queue_s
    from last_attempts
    group by partition_date, domain
)

select
    *,
    jobs - lag(jobs) over domain_days as jobs_change,
    error_rate - lag(error_rate) over domain_days as error_rate_change,
    p50_e2e_s / lag(p50_e2e_s) over domain_days - 1 as p50_change
from days
window domain_days as (partition by domain order by partition_date)
