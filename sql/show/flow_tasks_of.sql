-- When did each task of one session run, and whose was it?
with owners as (
    select task_id, min(agent_id) as agent_id
    from flow_assignments
    where correlation_id = $session and task_id is not null
    group by task_id
)

select
    t.node_id, t.name, t.state, t.started_at, t.ended_at, t.busy_s,
    coalesce(o.agent_id, t.agent, t.role, '(nobody)') as agent
from flow_nodes as t
left join owners as o on t.node_id = o.task_id
where t.correlation_id = $session and t.node_type = 'task'
order by t.started_at nulls last, t.node_id;
