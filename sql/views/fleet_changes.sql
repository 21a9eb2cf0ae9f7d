-- When did which worker change its state, and why? One row a change, and for how long the state before had lasted.
select
    taken_at, worker, previous_state, state, reasons,
    epoch(taken_at - lag(taken_at) over (partition by worker order by taken_at)) as lasted_s
from fleet_snapshots
where previous_state is distinct from state
