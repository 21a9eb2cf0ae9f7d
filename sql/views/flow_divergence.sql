-- How far did agents that got the same plan diverge in what they did? One row a pair of tasks of one plan and session,
-- done by different agents; a task that several were given is the first one's. `divergence` compares the tools they
-- called, in order: 0 the same calls, 1 nothing in common (the edit distance over the longer sequence; a plan with over
-- 126 tools counts the rarest as one). NULL where neither called any.
with owners as (
    select correlation_id, task_id, min(agent_id) as agent_id
    from flow_assignments
    where task_id is not null
    group by correlation_id, task_id
),

tasks as (
    select t.correlation_id, t.plan, t.node_id as task_id, o.agent_id, t.state, t.busy_s
    from flow_nodes as t
    inner join owners as o on t.correlation_id = o.correlation_id and t.node_id = o.task_id
    where t.node_type = 'task' and t.plan is not null
),

calls as (
    select t.correlation_id, t.plan, t.task_id, c.tool, c.happened_at, c.event_key
    from tasks as t
    inner join tool_calls as c on t.correlation_id = c.correlation_id and t.task_id = c.task
    where c.tool is not null
),

letters as ( -- of a plan's tools: levenshtein compares bytes, and there are 127 of one byte
    select correlation_id, plan, tool,
        chr(case when row_number() over by_use < 127 then row_number() over by_use else 127 end::integer) as letter
    from calls
    group by correlation_id, plan, tool
    window by_use as (partition by correlation_id, plan order by count(*) desc, tool)
),

words as (
    select correlation_id, task_id, count(*) as calls,
        string_agg(letter, '' order by happened_at, event_key) as word
    from calls
    inner join letters using (correlation_id, plan, tool)
    group by correlation_id, task_id
),

sequences as (
    select tasks.*, coalesce(words.calls, 0) as calls, coalesce(words.word, '') as word
    from tasks
    left join words using (correlation_id, task_id)
)

select
    l.correlation_id, l.plan, l.task_id as task_a, r.task_id as task_b, l.agent_id as agent_a, r.agent_id as agent_b,
    l.calls as calls_a, r.calls as calls_b, l.state as state_a, r.state as state_b, l.busy_s as busy_s_a,
    r.busy_s as busy_s_b,
    levenshtein(l.word, r.word) / nullif(greatest(l.calls, r.calls), 0) as divergence
from sequences as l
inner join sequences as r
    on l.correlation_id = r.correlation_id and l.plan = r.plan and l.task_id < r.task_id and l.agent_id <> r.agent_id
