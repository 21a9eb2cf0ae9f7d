-- At which rate does each worker answer with each model, from a time on? Medians over warm answered attempts (n of
-- them; the server's own tokens a second), and the median load of the cold ones. NULL where nothing is known.
select
    worker,
    model,
    count(*) filter (cold is not true) as n,
    quantile_cont(prefill_tps, 0.5) filter (cold is not true) as prefill_tps,
    quantile_cont(decode_tps, 0.5) filter (cold is not true) as decode_tps,
    quantile_cont(completion_tokens, 0.5) filter (cold is not true) as completion_tokens,
    quantile_cont(prompt_tokens, 0.5) filter (cold is not true) as prompt_tokens,
    quantile_cont(e2e_s, 0.5) filter (cold is not true) as e2e_s,
    quantile_cont(load_s, 0.5) filter (cold) as load_s
from completions
where status = 'answered' and worker is not null and model is not null and sent_at >= $since
group by worker, model
order by worker, model;
