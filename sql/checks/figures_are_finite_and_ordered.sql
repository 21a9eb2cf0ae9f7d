-- Which answers have figures that can't be: NaN, infinite, negative, or a first token after the last?
select job_id, attempt, worker, ttft_s, ttfo_s, tpot_s, e2e_s, prefill_tps, decode_tps
from completions
where
    (status = 'answered' and chunks > 0 and (ttft_s > 0 and ttft_s <= e2e_s) is not true)
    or list_bool_or([
        not isfinite(x) or x < 0
        for x in [ttft_s, ttfo_s, tpot_s, e2e_s, load_s, prefill_s, decode_s, prefill_tps, decode_tps]
        if x is not null
    ]);
