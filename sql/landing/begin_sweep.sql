-- Records a sweep that begins (relation `incoming`, one row), or that goes on: then only who runs it changes.
insert into benchmark_sweeps by name
select * from incoming
anti join benchmark_sweeps using (sweep_id);

update benchmark_sweeps
set status = 'running', finished_at = null, run_id = incoming.run_id
from incoming
where benchmark_sweeps.sweep_id = incoming.sweep_id;
