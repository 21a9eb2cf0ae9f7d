-- What was measured of a suite ($suite), to compare? With $sweep_ids empty: by its prompts as they were last asked, of each
-- model and worker the newest sweep that has it; else what these sweeps have.
with measured as (
    select r.*, s.started_at
    from benchmark_results as r
    inner join benchmark_sweeps as s on r.sweep_id = s.sweep_id
    where
        r.suite = $suite
        and r.phase = 'measured'
        and (len($sweep_ids::varchar []) = 0 or r.sweep_id in (select unnest($sweep_ids::varchar [])))
),

asked_last as (
    select arg_max(suite_digest, started_at) as suite_digest from measured
),

newest as (
    select model, worker, arg_max(sweep_id, started_at) as sweep_id
    from measured
    semi join asked_last using (suite_digest)
    group by model, worker
)

select
    sweep_id, suite, suite_digest, prompt_id, turn, domain, model, worker, phase, repeat, loop, concurrency, rate_rps,
    arrival, status, error_kind, ttft_s, ttfo_s, tpot_s, e2e_s, prefill_tps, decode_tps, completion_tokens, energy_j,
    cold, disturbed, passed, score
from measured
semi join newest using (model, worker, sweep_id)
order by sweep_id, position;
