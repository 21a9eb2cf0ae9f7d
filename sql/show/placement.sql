-- How long did each model take on each worker, by domain, from a time on? One row a domain × model × worker: the
-- seconds of every warm answered attempt (request sent -> last token), ascending, and how many attempts ran out of time
-- (`timeout`, `stalled`): those were too slow for any budget. Cold attempts and other failures say nothing about the
-- place.
select
    domain,
    model,
    worker,
    coalesce(list(e2e_s order by e2e_s) filter (status = 'answered'), []) as seconds,
    count(*) filter (status <> 'answered') as timeouts
from completions
where
    sent_at >= $since and worker is not null and model is not null and cold is not true
    and (
        (status = 'answered' and e2e_s is not null)
        or (status in ('failed', 'incomplete') and error_kind in ('timeout', 'stalled'))
    )
group by domain, model, worker
order by domain, model, worker;
