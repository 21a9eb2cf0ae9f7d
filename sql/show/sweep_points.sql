-- How long did each measured, answered request of a sweep ($sweep_id) take? One row a request, for a picture.
select model, worker, domain, repeat, e2e_s, ttft_s
from benchmark_results
where sweep_id = $sweep_id and phase = 'measured' and status = 'answered' and e2e_s is not null
order by model, worker, position;
