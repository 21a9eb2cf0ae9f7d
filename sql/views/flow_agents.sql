-- How much did each agent of a session do, and was it ever given anything? One row an agent of a session with a flow:
-- those declared, those that a task names, and those that only the source of a tool call or chat turn names (neither
-- `declared` nor `assigned`). Events under any of an agent's flow_aliases are its own. `busy_s` adds up its tasks;
-- `open` tasks never ended.
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

declared as (
    select correlation_id, node_id as agent_id, role, role_kind from flow_nodes where node_type = 'agent'
),

flows as (
    select correlation_id from flow_nodes
    union
    select correlation_id from flow_edges
),

said as (
    select correlation_id, agent, 1 as calls, if(ok, 0, 1) as errors, duration_ms / 1000 as seconds, 0 as turns,
        null::bigint as tokens
    from tool_calls
    union all
    select correlation_id, agent, 0, 0, null, 1, tokens from chat_turns
),

acts as (
    select
        s.correlation_id,
        coalesce(n.agent_id, s.agent) as agent_id,
        sum(s.calls)::bigint as tool_calls,
        sum(s.errors)::bigint as tool_errors,
        sum(s.seconds) as tool_s,
        sum(s.turns)::bigint as chat_turns,
        least(coalesce(sum(s.tokens), 0), 9223372036854775807)::bigint as tokens
    from said as s
    semi join flows as f on s.correlation_id = f.correlation_id
    left join flow_aliases as n on s.correlation_id = n.correlation_id and s.agent = n.alias
    where s.agent is not null
    group by s.correlation_id, coalesce(n.agent_id, s.agent)
),

agents as (
    select correlation_id, agent_id from declared
    union
    select correlation_id, agent_id from work
    union
    select correlation_id, agent_id from acts
)

select
    a.correlation_id, a.agent_id,
    coalesce(d.role, w.role) as role,
    coalesce(d.role_kind, w.role_kind, 'worker') as role_kind,
    d.agent_id is not null as declared,
    w.agent_id is not null as assigned,
    coalesce(w.tasks, 0) as tasks,
    coalesce(w.finished, 0) as finished,
    coalesce(w.failed, 0) as failed,
    coalesce(w.open, 0) as open,
    coalesce(w.busy_s, 0) as busy_s,
    coalesce(e.tool_calls, 0) as tool_calls,
    coalesce(e.tool_errors, 0) as tool_errors,
    coalesce(e.tool_s, 0) as tool_s,
    coalesce(e.chat_turns, 0) as chat_turns,
    coalesce(e.tokens, 0) as tokens
from agents as a
left join declared as d on a.correlation_id = d.correlation_id and a.agent_id = d.agent_id
left join work as w on a.correlation_id = w.correlation_id and a.agent_id = w.agent_id
left join acts as e on a.correlation_id = e.correlation_id and a.agent_id = e.agent_id
