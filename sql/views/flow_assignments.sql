-- Which agent was given which task? From edges `assigned` between an agent and a task, either way round (an
-- orchestrator's edge to a task says who gave it, not who got it), between two agents (no task is named), and from the
-- agent that a task names. An agent may be named by any of its flow_aliases; one that was never declared counts under
-- its name.
with agents as (
    select correlation_id, node_id, role_kind from flow_nodes where node_type = 'agent'
),

tasks as (
    select correlation_id, node_id, agent from flow_nodes where node_type = 'task'
),

assigned as (
    select correlation_id, from_id, to_id from flow_edges where relation = 'assigned'
)

select e.correlation_id, a.node_id as agent_id, t.node_id as task_id
from assigned as e
inner join agents as a on e.correlation_id = a.correlation_id and e.from_id = a.node_id
inner join tasks as t on e.correlation_id = t.correlation_id and e.to_id = t.node_id
where a.role_kind is distinct from 'orchestrator'
union
select e.correlation_id, a.node_id, t.node_id
from assigned as e
inner join agents as a on e.correlation_id = a.correlation_id and e.to_id = a.node_id
inner join tasks as t on e.correlation_id = t.correlation_id and e.from_id = t.node_id
union
select e.correlation_id, a.node_id, null
from assigned as e
inner join agents as a on e.correlation_id = a.correlation_id and e.to_id = a.node_id
inner join agents as b on e.correlation_id = b.correlation_id and e.from_id = b.node_id
union
select t.correlation_id, coalesce(n.agent_id, t.agent), t.node_id
from tasks as t
left join flow_aliases as n on t.correlation_id = n.correlation_id and t.agent = n.alias
where t.agent is not null
