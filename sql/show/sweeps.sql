-- Which sweeps were there last ($n of them), and how far are they?
select
    sweep_id,
    suite,
    status,
    models,
    workers,
    seed,
    planned,
    (
        select count(*)
        from benchmark_results as r
        where r.sweep_id = s.sweep_id
    ) as recorded,
    started_at,
    finished_at
from benchmark_sweeps as s
order by started_at desc
limit $n;
