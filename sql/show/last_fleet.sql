-- How was the fleet when it was looked at last? One row a worker of that moment.
from worker_fleet
where taken_at = (select max(taken_at) from fleet_snapshots)
order by worker;
