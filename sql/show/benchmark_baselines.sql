-- Which baselines are there, and of what?
with named as (
    select *, unnest(from_json(sweep_ids, '["VARCHAR"]')) as sweep_id
    from benchmark_baselines
)

select
    n.name, n.created_at, n.snapshot_id, n.note, n.sweep_ids,
    coalesce(list(distinct s.suite) filter (s.suite is not null), []) as suites
from named as n
left join benchmark_sweeps as s on n.sweep_id = s.sweep_id
group by n.name, n.created_at, n.snapshot_id, n.note, n.sweep_ids
order by n.created_at desc;
