-- How did each model do at each worker, by suite and domain, in its newest sweep of the suite? Warm answers of an idle worker
-- count for times (n); a p95 needs 59 of them. Workers are never put together.
select
    r.suite,
    r.domain,
    r.model,
    r.worker,
    any_value(r.sweep_id) as sweep_id,
    count(*) as requests,
    count(*) filter (r.status <> 'answered') / count(*) as error_rate,
    count(*) filter (r.status = 'answered' and r.disturbed) as disturbed,
    count(*) filter (r.counted) as n,
    quantile_cont(r.e2e_s, 0.5) filter (r.counted) as p50_e2e_s,
    case when count(*) filter (r.counted) >= 59 then quantile_cont(r.e2e_s, 0.95) filter (r.counted) end as p95_e2e_s,
    quantile_cont(r.ttft_s, 0.5) filter (r.counted) as p50_ttft_s,
    quantile_cont(r.tpot_s, 0.5) filter (r.counted) as p50_tpot_s,
    quantile_cont(r.prefill_tps, 0.5) filter (r.counted) as p50_prefill_tps,
    quantile_cont(r.decode_tps, 0.5) filter (r.counted) as p50_decode_tps,
    sum(r.completion_tokens) filter (r.counted and r.energy_j is not null)
    / nullif(sum(r.energy_j) filter (r.counted), 0) as tokens_per_joule,
    count(r.passed) as checked,
    count(*) filter (r.passed) / nullif(count(r.passed), 0) as passed_share
from (
    select
        b.*,
        b.status = 'answered' and b.cold is not true and b.disturbed is not true as counted
    from benchmark_results as b
    inner join benchmark_sweeps as s on b.sweep_id = s.sweep_id
    where b.phase = 'measured'
    qualify s.started_at = max(s.started_at) over (partition by b.suite, b.model, b.worker)
) as r
group by r.suite, r.domain, r.model, r.worker
