-- What did one run's answers cost, and how fast did they come? Percentiles over warm answers only; p95 needs 59.
with attempts as (
    select *, status = 'answered' and cold is not true as counted
    from completions
    where run_id = $run_id
)

select
    sum(prompt_tokens)::bigint as prompt_tokens,
    sum(completion_tokens)::bigint as completion_tokens,
    sum(decode_tps * decode_s) filter (counted)
    / nullif(sum(decode_s) filter (counted and decode_tps is not null), 0) as decode_tps,
    sum(completion_tokens)
    / nullif(date_diff('millisecond', min(sent_at), max(finished_at)) / 1000.0, 0) as wall_tps,
    count(*) filter (counted) as n,
    quantile_cont(e2e_s, 0.5) filter (counted) as p50_e2e_s,
    case when count(*) filter (counted) >= 59 then quantile_cont(e2e_s, 0.95) filter (counted) end as p95_e2e_s,
    case
        when count(*) filter (counted) < 59
            then 'n too small (' || count(*) filter (counted) || ' < 59)'
    end as p95_note,
    max(e2e_s) filter (counted) as max_e2e_s,
    quantile_cont(ttft_s, 0.5) filter (counted) as p50_ttft_s
from attempts;
