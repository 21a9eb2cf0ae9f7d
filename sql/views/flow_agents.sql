-- How much did each agent of a session do, and was it ever given anything? One row an agent: those declared, and those that
-- a task or an event names. `busy_s` adds up its tasks; `open` tasks never ended.
with work as (
    select
        a.correlation_id,
        a.agent_id,
        count(t.node_id) as tasks,
        count(*) filter (t.state = 'finished') as finished,
        count(*) filter (t.state = 'failed') as failed,
        count(*) filter (t.state in ('declared', 'started')) as open,
        sum(t.busy_s) as busy_s,
        min_by(t.role, t.node_id) filter (t.role is not null) as role,
        min_by(t.role_kind, t.node_id) filter (t.role_kind is not null) as role_kind
    from flow_assignments as a
    left join flow_nodes as t on a.correlation_id = t.correlation_id and a.task_id = t.node_id
    group by a.correlation_id, a.agent_id
),

calls as (
    select correlation_id, agent, count(*) as tool_calls, count(*) filter (not ok) as tool_errors,
        sum(duration_ms) / 1000 as tool_s
    from tool_calls
    where correlation_id is not null and agent is not null
    group by correlation_id, agent
),

turns as (
    select correlation_id, agent, count(*) as chat_turns, sum(tokens)::bigint as tokens
    from chat_turns
    where correlation_id is not null and agent is not null
    group by correlation_id, agent
),

declared as (
    select correlation_id, node_id as agent_id, agent, name, role, role_kind, state
    from flow_nodes
    where node_type = 'agent'
)

select
    coalesce(d.correlation_id, w.correlation_id) as correlation_id,
    coalesce(d.agent_id, w.agent_id) as agent_id,
    coalesce(d.role, w.role) as role,
    coalesce(d.role_kind, w.role_kind, 'worker') as role_kind,
    d.agent_id is not null as declared,
    w.agent_id is not null as assigned,
    coalesce(w.tasks, 0) as tasks,
    coalesce(w.finished, 0) as finished,
    coalesce(w.failed, 0) as failed,
    coalesce(w.open, 0) as open,
    coalesce(w.busy_s, 0) as busy_s,
    coalesce(c.tool_calls, 0) as tool_calls,
    coalesce(c.tool_errors, 0) as tool_errors,
    coalesce(c.tool_s, 0) as tool_s,
    coalesce(u.chat_turns, 0) as chat_turns,
    coalesce(u.tokens, 0) as tokens
from declared as d
full join work as w on d.correlation_id = w.correlation_id and d.agent_id = w.agent_id
left join calls as c
    on coalesce(d.correlation_id, w.correlation_id) = c.correlation_id
    and c.agent in (coalesce(d.agent_id, w.agent_id), d.agent, d.name)
left join turns as u
    on coalesce(d.correlation_id, w.correlation_id) = u.correlation_id
    and u.agent in (coalesce(d.agent_id, w.agent_id), d.agent, d.name)
