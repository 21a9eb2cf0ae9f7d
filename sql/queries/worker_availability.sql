-- For which share of the last 7 days could each worker be used, by the snapshots? Each counts until the next one.
with spans as (
    select
        worker, state,
        epoch(
            coalesce(lead(taken_at) over (partition by worker order by taken_at), now()) - taken_at
        ) as seconds
    from fleet_snapshots
    where taken_at >= now() - interval 7 days
)

select
    worker,
    coalesce(sum(seconds) filter (state in ('healthy', 'busy', 'degraded')), 0) / sum(seconds) as usable,
    coalesce(sum(seconds) filter (state = 'degraded'), 0) / sum(seconds) as degraded,
    sum(seconds) / 3600 as hours
from spans
group by worker
order by worker;
