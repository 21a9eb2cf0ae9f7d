-- Records that a sweep ($sweep_id) ended: done, or stopped with something left.
update benchmark_sweeps
set status = $status, finished_at = $now
where sweep_id = $sweep_id;
