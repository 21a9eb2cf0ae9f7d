-- Which nodes did a session's flow have, what became of each, and when? One row a node: the session, its agents, its tasks.
-- `plan` is the payload's, else the node's name: tasks of one plan can be compared. `busy_s` is started to ended.
with steps as (
    select
        correlation_id, payload ->> 'node_id' as node_id, payload ->> 'node_type' as node_type,
        payload ->> 'state' as state, payload ->> 'role' as role, derived ->> 'role_kind' as role_kind,
        payload ->> 'agent' as agent, payload ->> 'name' as name,
        coalesce(payload ->> 'plan', payload ->> 'name') as plan, happened_at, seq
    from events
    where payload_type = 'flow_node' and correlation_id is not null
),

nodes as (
    select
        correlation_id,
        node_id,
        max_by(node_type, (happened_at, seq)) as node_type,
        max_by(role, (happened_at, seq)) filter (role is not null) as role,
        max_by(role_kind, (happened_at, seq)) filter (role_kind is not null) as role_kind,
        max_by(agent, (happened_at, seq)) filter (agent is not null) as agent,
        max_by(name, (happened_at, seq)) filter (name is not null) as name,
        max_by(plan, (happened_at, seq)) filter (plan is not null) as plan,
        max_by(state, (happened_at, seq)) filter (state in ('finished', 'failed')) as end_state,
        min(happened_at) filter (state = 'declared') as declared_at,
        min(happened_at) filter (state = 'started') as started_at,
        max(happened_at) filter (state in ('finished', 'failed')) as ended_at,
        count(*) as events
    from steps
    group by correlation_id, node_id
)

select
    correlation_id, node_id, node_type, role, role_kind, agent, name, plan,
    coalesce(end_state, case when started_at is null then 'declared' else 'started' end) as state,
    declared_at, started_at, ended_at,
    greatest(epoch(ended_at - started_at), 0) as busy_s,
    events
from nodes
