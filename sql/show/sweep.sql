-- What is known of one sweep ($sweep_id)?
from benchmark_sweeps
where sweep_id = $sweep_id;
