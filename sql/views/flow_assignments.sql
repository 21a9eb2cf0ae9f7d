-- Which agent was given which task? From edges `assigned` between an agent and a task, either way round (an orchestrator's
-- edge to a task says who gave it, not who got it), between two agents (no task is named), and from the agent that a task
-- names. An agent may be named by its node, its `agent` or its `name`; one that was never declared counts under its name.
with agents as (
    select correlation_id, node_id, role_kind, agent, name from flow_nodes where node_type = 'agent'
),

aliases as (
    select correlation_id, alias, min_by(node_id, (rank, node_id)) as agent_id
    from (
        select correlation_id, node_id as alias, 1 as rank, node_id from agents
        union all
        select correlation_id, agent, 2, node_id from agents where agent is not null
        union all
        select correlation_id, name, 3, node_id from agents where name is not null
    )
    group by correlation_id, alias
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
left join aliases as n on t.correlation_id = n.correlation_id and t.agent = n.alias
where t.agent is not null
