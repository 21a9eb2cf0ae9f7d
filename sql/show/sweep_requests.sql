-- Which requests of a sweep ($sweep_id) are recorded?
select request_id
from benchmark_results
where sweep_id = $sweep_id;
