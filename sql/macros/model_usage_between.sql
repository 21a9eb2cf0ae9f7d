-- Which model answers best, and where? By model, and by model × worker: how often, how fast, how many tokens a second.
-- Warm answers count (n); a p95 needs 59 of them. Rates are from the server's own counts and seconds.
-- Over the prompts published from `from_time` (included) to `to_time` (excluded).
create or replace macro model_usage_between(from_time, to_time) as table
select
    case grouping_id(worker) when 1 then 'model' else 'model_worker' end as level,
    model,
    worker,
    count(*) as jobs,
    count(*) filter (counted) as n,
    count(*) filter (status not in ('answered', 'pending'))
    / nullif(count(*) filter (status <> 'pending'), 0) as error_rate,
    count(*) filter (status = 'answered' and cold) as cold,
    avg(e2e_s) filter (counted) as avg_e2e_s,
    quantile_cont(e2e_s, 0.5) filter (counted) as p50_e2e_s,
    case when count(*) filter (counted) >= 59 then quantile_cont(e2e_s, 0.95) filter (counted) end as p95_e2e_s,
    quantile_cont(ttft_s, 0.5) filter (counted) as p50_ttft_s,
    quantile_cont(tpot_s, 0.5) filter (counted) as p50_tpot_s,
    quantile_cont(prefill_tps, 0.5) filter (counted) as p50_prefill_tps,
    quantile_cont(decode_tps, 0.5) filter (counted) as p50_decode_tps,
    avg(completion_tokens) filter (counted) as avg_completion_tokens
from last_attempts
where model is not null and published_at >= from_time::timestamptz and published_at < to_time::timestamptz
group by grouping sets ((model), (model, worker));
