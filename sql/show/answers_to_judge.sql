-- What did the models ($models) answer to a suite ($suite, $suite_digest)? Of each model's newest sweep that is done, one
-- conversation; one under way may have turns that were not asked yet.
select r.model, r.sweep_id, r.prompt_id, r.turn, r.domain, r.status, r.text, r.passed
from benchmark_results as r
inner join benchmark_sweeps as s using (sweep_id)
where
    r.suite = $suite
    and r.suite_digest = $suite_digest
    and r.phase = 'measured'
    and s.status = 'done'
    and r.model in (select unnest($models::varchar[]))
qualify rank() over (
    partition by r.model, r.prompt_id
    order by s.started_at desc, r.sweep_id, r.repeat, r.loop, r.concurrency, r.rate_rps, r.arrival, r.worker
) = 1
order by r.model, r.prompt_id, r.turn;
