-- What does loading a model cost? Cold answers beside warm ones, by model and worker.
select
    model,
    worker,
    count(*) filter (cold) as cold,
    count(*) filter (counted) as warm,
    quantile_cont(load_s, 0.5) filter (cold) as p50_load_s,
    quantile_cont(e2e_s, 0.5) filter (cold) as p50_cold_e2e_s,
    quantile_cont(e2e_s, 0.5) filter (counted) as p50_warm_e2e_s
from last_attempts
where status = 'answered'
group by model, worker
order by cold desc, model;
