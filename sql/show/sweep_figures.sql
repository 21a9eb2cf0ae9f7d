-- How did each model do at each worker under each load, in one sweep ($sweep_id)? Measured requests and cold starts apart,
-- warm-up left out. Medians from raw rows over what was answered while nobody else was at work on the same hardware (n of
-- them; `disturbed` is the rest); seconds, tokens a second, joules a completion token. A p95 needs n >= 59.
select
    model,
    worker,
    load,
    count(*) as requests,
    count(*) filter (status <> 'answered') as errors,
    count(*) filter (status = 'answered' and disturbed) as disturbed,
    count(*) filter (counted) as n,
    quantile_cont(ttft_s, 0.5) filter (counted) as p50_ttft_s,
    quantile_cont(tpot_s, 0.5) filter (counted) as p50_tpot_s,
    quantile_cont(e2e_s, 0.5) filter (counted) as p50_e2e_s,
    case when count(*) filter (counted) >= 59 then quantile_cont(e2e_s, 0.95) filter (counted) end as p95_e2e_s,
    quantile_cont(prefill_tps, 0.5) filter (counted) as p50_prefill_tps,
    quantile_cont(decode_tps, 0.5) filter (counted) as p50_decode_tps,
    quantile_cont(load_s, 0.5) filter (counted) as p50_load_s,
    quantile_cont(send_delay_s, 0.5) as p50_send_delay_s,
    max(send_delay_s) as max_send_delay_s,
    count(passed) as checked,
    count(*) filter (passed) as passed,
    sum(energy_j) filter (counted)
    / nullif(sum(completion_tokens) filter (counted and energy_j is not null), 0) as joules_per_token
from (
    select
        *,
        case
            when phase = 'cold' then 'cold'
            when loop = 'closed' then concurrency || ' at once'
            else trim(arrival || ' ' || coalesce(rate_rps || '/s', ''))
        end as load,
        status = 'answered' and disturbed is not true as counted
    from benchmark_results
    where sweep_id = $sweep_id and phase <> 'warmup'
)
group by model, worker, load
order by model, worker, load = 'cold', load;
