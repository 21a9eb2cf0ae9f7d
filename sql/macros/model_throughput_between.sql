-- How many tokens a second does each worker read (PP, prefill) and write (TG, decode), by model? From the server's own
-- counts and seconds: once as all tokens / all seconds, once as the median of the answers' own rates.
-- Over the prompts published from `from_time` (included) to `to_time` (excluded).
create or replace macro model_throughput_between(from_time, to_time) as table
select
    model,
    worker,
    count(*) as answers,
    sum(prompt_tokens)::bigint as prompt_tokens,
    sum(completion_tokens)::bigint as completion_tokens,
    sum(prefill_tps * prefill_s) / nullif(sum(prefill_s) filter (prefill_tps is not null), 0) as prefill_tps,
    sum(decode_tps * decode_s) / nullif(sum(decode_s) filter (decode_tps is not null), 0) as decode_tps,
    quantile_cont(prefill_tps, 0.5) as p50_prefill_tps,
    quantile_cont(decode_tps, 0.5) as p50_decode_tps
from last_attempts
where counted and published_at >= from_time::timestamptz and published_at < to_time::timestamptz
group by model, worker;
