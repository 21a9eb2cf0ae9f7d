-- What went wrong in a sweep ($sweep_id), how often, at whom? No server's words: they may quote a prompt.
select model, worker, status, error_kind, count(*) as requests
from benchmark_results
where sweep_id = $sweep_id and status <> 'answered'
group by all
order by requests desc, model, worker, status, error_kind;
