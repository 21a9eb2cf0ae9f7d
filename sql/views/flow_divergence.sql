-- How far did agents that got the same plan diverge in what they did? One row a pair of tasks of one plan and session, done
-- by different agents. `divergence` compares the tools they called, in order: 0 the same calls, 1 nothing in common (the
-- edit distance over the longer sequence; a plan with over 126 tools counts the rarest as one). NULL where neither called
-- any.
with sequences as (
    select
        t.correlation_id, t.plan, t.node_id as task_id, a.agent_id, t.state, t.busy_s,
        count(c.tool) as calls,
        count(distinct c.tool) as tools,
        coalesce(string_agg(chr(least(1 + c.nth, 127)::integer), '' order by c.happened_at, c.event_key), '') as sequence
    from flow_nodes as t
    inner join flow_assignments as a on t.correlation_id = a.correlation_id and t.node_id = a.task_id
    left join (
        select correlation_id, task, tool, happened_at, event_key,
            dense_rank() over (partition by correlation_id order by tool) - 1 as nth
        from tool_calls
    ) as c on t.correlation_id = c.correlation_id and t.node_id = c.task
    where t.node_type = 'task' and t.plan is not null
    group by all
)

select
    l.correlation_id, l.plan, l.task_id as task_a, r.task_id as task_b, l.agent_id as agent_a, r.agent_id as agent_b,
    l.calls as calls_a, r.calls as calls_b, l.state as state_a, r.state as state_b, l.busy_s as busy_s_a,
    r.busy_s as busy_s_b,
    levenshtein(l.sequence, r.sequence) / nullif(greatest(l.calls, r.calls), 0) as divergence
from sequences as l
inner join sequences as r
    on l.correlation_id = r.correlation_id and l.plan = r.plan and l.task_id < r.task_id and l.agent_id <> r.agent_id
