-- How fast was each domain answered, and how often not at all, in a window of time? As the view domain_latency, over the
-- prompts published from `from_time` (included) to `to_time` (excluded):
--     from domain_latency_between(timestamptz '2026-12-01', now());
-- Within a level the column `jobs` adds up to all jobs. Seconds. Percentiles are over warm answers (n of them), from
-- raw rows; a p95 needs n >= 59, the least for which a distribution-free 95% upper bound exists (1 - 0.95^59 > 0.95).
create or replace macro domain_latency_between(from_time, to_time) as table
select
    case grouping_id(model, worker)
        when 3 then 'domain'
        when 1 then 'domain_model'
        else 'domain_model_worker'
    end as level,
    domain,
    model,
    worker,
    count(*) as jobs,
    count(*) filter (status = 'answered') as answered,
    count(*) filter (status not in ('answered', 'pending')) as failed,
    count(*) filter (status = 'pending') as pending,
    count(*) filter (status not in ('answered', 'pending'))
    / nullif(count(*) filter (status <> 'pending'), 0) as error_rate,
    count(*) filter (counted) as n,
    count(*) filter (status = 'answered' and cold) as cold,
    avg(e2e_s) filter (counted) as avg_e2e_s,
    quantile_cont(e2e_s, 0.5) filter (counted) as p50_e2e_s,
    case when count(*) filter (counted) >= 59 then quantile_cont(e2e_s, 0.95) filter (counted) end as p95_e2e_s,
    case
        when count(*) filter (counted) < 59
            then 'n too small (' || count(*) filter (counted) || ' < 59)'
    end as p95_note,
    max(e2e_s) filter (counted) as max_e2e_s,
    quantile_cont(ttft_s, 0.5) filter (counted) as p50_ttft_s,
    case when count(*) filter (counted) >= 59 then quantile_cont(ttft_s, 0.95) filter (counted) end as p95_ttft_s,
    quantile_cont(queue_s, 0.5) filter (counted) as p50_queue_s,
    quantile_cont(decode_tps, 0.5) filter (counted) as p50_decode_tps,
    sum(prompt_tokens)::bigint as prompt_tokens,
    sum(completion_tokens)::bigint as completion_tokens
from last_attempts
where published_at >= from_time::timestamptz and published_at < to_time::timestamptz
group by grouping sets ((domain), (domain, model), (domain, model, worker));
