-- Which worker makes the slowest 5%? For all answers, by model, and by domain × model: each worker's part of all
-- answers (share), its part of the slowest 5% (slow_share), and its own percentiles beside the pooled ones. A model
-- that is fast on a GPU and slow on a CPU has a pooled p95 that fits neither worker; here it comes apart. Warm answers;
-- the slowest 5% is ceil(n / 20) rows, at least one.
-- Over the prompts published from `from_time` (included) to `to_time` (excluded).
create or replace macro worker_mix_between(from_time, to_time) as table
with scoped as (
    select
        unnest([
            {'level': 'all', 'domain': null, 'model': null},
            {'level': 'model', 'domain': null, 'model': model},
            {'level': 'domain_model', 'domain': domain, 'model': model}
        ]) as scope,
        worker,
        job_id,
        e2e_s
    from last_attempts
    where
        counted and e2e_s is not null
        and published_at >= from_time::timestamptz and published_at < to_time::timestamptz
),

ranked as (
    select
        scope.level as level,
        scope.domain as domain,
        scope.model as model,
        worker,
        e2e_s,
        count(*) over pool as pooled_n,
        quantile_cont(e2e_s, 0.5) over pool as pooled_p50_e2e_s,
        quantile_cont(e2e_s, 0.95) over pool as pooled_p95_e2e_s,
        row_number() over (partition by scope order by e2e_s desc, job_id) as nth
    from scoped
    window pool as (partition by scope)
)

select
    level,
    domain,
    model,
    worker,
    count(*) as n,
    count(*) / any_value(pooled_n) as share,
    count(*) filter (nth <= ceil(pooled_n / 20)) as slow_n,
    count(*) filter (nth <= ceil(pooled_n / 20)) / ceil(any_value(pooled_n) / 20) as slow_share,
    quantile_cont(e2e_s, 0.5) as p50_e2e_s,
    case when count(*) >= 59 then quantile_cont(e2e_s, 0.95) end as p95_e2e_s,
    max(e2e_s) as max_e2e_s,
    any_value(pooled_n) as pooled_n,
    any_value(pooled_p50_e2e_s) as pooled_p50_e2e_s,
    case when any_value(pooled_n) >= 59 then any_value(pooled_p95_e2e_s) end as pooled_p95_e2e_s
from ranked
group by level, domain, model, worker;
