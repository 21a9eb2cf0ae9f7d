-- Which nodes did a session's flow have, what became of each, and when? One row a node: the session, its agents, its
-- tasks. `plan` is the payload's, else the node's name: tasks of one plan can be compared. `state` is the last by time:
-- a node that failed and was started again is `started`, and has not ended; at one time, an end comes after a start.
-- `busy_s` is started to ended, NULL while either is unknown; `last_at` is its last event.
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
        coalesce(
            max_by(state, (happened_at, state <> 'started', seq)) filter (state <> 'declared'), 'declared'
        ) as state,
        min(happened_at) filter (state = 'declared') as declared_at,
        min(happened_at) filter (state = 'started') as started_at,
        max(happened_at) filter (state in ('finished', 'failed')) as last_end_at,
        max(happened_at) as last_at,
        count(*) as events
    from steps
    group by correlation_id, node_id
)

select
    correlation_id, node_id, node_type, role, role_kind, agent, name, plan, state, declared_at, started_at,
    case when state in ('finished', 'failed') then last_end_at end as ended_at,
    case
        when ended_at < started_at then 0 -- greatest() would make 0 of what is unknown, too
        else epoch(ended_at - started_at)
    end as busy_s,
    last_at, events
from nodes
