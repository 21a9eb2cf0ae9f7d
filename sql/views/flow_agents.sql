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
),

agents as (
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
        d.agent,
        d.name
    from declared as d
    full join work as w on d.correlation_id = w.correlation_id and d.agent_id = w.agent_id
),

names as (
    select distinct correlation_id, agent_id, unnest([agent_id, agent, name]) as called from agents
),

-- An agent's events may come under its node, its `agent` and its `name`: they add up, and the agent stays one row.
acts as (
    select
        n.correlation_id,
        n.agent_id,
        sum(c.tool_calls) as tool_calls,
        sum(c.tool_errors) as tool_errors,
        sum(c.tool_s) as tool_s,
        sum(u.chat_turns) as chat_turns,
        sum(u.tokens)::bigint as tokens
    from names as n
    left join calls as c on n.correlation_id = c.correlation_id and n.called = c.agent
    left join turns as u on n.correlation_id = u.correlation_id and n.called = u.agent
    group by n.correlation_id, n.agent_id
)

select
    a.correlation_id, a.agent_id, a.role, a.role_kind, a.declared, a.assigned,
    a.tasks, a.finished, a.failed, a.open, a.busy_s,
    coalesce(e.tool_calls, 0)::bigint as tool_calls,
    coalesce(e.tool_errors, 0)::bigint as tool_errors,
    coalesce(e.tool_s, 0) as tool_s,
    coalesce(e.chat_turns, 0)::bigint as chat_turns,
    coalesce(e.tokens, 0) as tokens
from agents as a
left join acts as e on a.correlation_id = e.correlation_id and a.agent_id = e.agent_id
