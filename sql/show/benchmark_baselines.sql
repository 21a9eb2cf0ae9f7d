-- Which baselines are there, and of what?
select
    b.name,
    b.created_at,
    b.snapshot_id,
    b.note,
    b.sweep_ids,
    list(distinct s.suite) as suites
from benchmark_baselines as b
left join benchmark_sweeps as s on s.sweep_id in (select unnest(from_json(b.sweep_ids, '["VARCHAR"]')))
group by all
order by b.created_at desc;
