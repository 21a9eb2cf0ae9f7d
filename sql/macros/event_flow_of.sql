-- How did an orchestrator and its workers work together? One row a session with a flow, for some sessions or, NULL, all:
--     from event_flow_of(['session-7']);
-- `depth`: edges on the longest chain of work; NULL when the edges go round in a circle, see `has_cycle`. `fan_out`: what
-- follows directly on one node, at most. `max_parallel`: tasks between started and ended at one time, the end excluded;
-- `avg_parallel`: their seconds over the seconds in which there were any. `roles_without_work`: declared, and never given a
-- task (orchestrators aside). `unknown_nodes`: named by an edge, never declared. `divergence`: the mean of flow_divergence.
create or replace macro event_flow_of(sessions) as table
with recursive

some_nodes as (
    select * from flow_nodes where sessions is null or list_contains(sessions, correlation_id)
),

some_edges as (
    select * from flow_edges where sessions is null or list_contains(sessions, correlation_id)
),

some_agents as (
    select * from flow_agents where sessions is null or list_contains(sessions, correlation_id)
),

some_pairs as (
    select * from flow_divergence where sessions is null or list_contains(sessions, correlation_id)
),

nodes as (
    select
        correlation_id,
        min(least(declared_at, started_at, ended_at)) as first_at,
        max(last_at) as last_at,
        sum(events)::bigint as node_events,
        count(*) as nodes,
        count(*) filter (node_type = 'agent') as agents,
        count(*) filter (node_type = 'task') as tasks,
        count(*) filter (node_type = 'task' and state = 'finished') as finished,
        count(*) filter (node_type = 'task' and state = 'failed') as failed,
        count(*) filter (node_type = 'task' and state in ('declared', 'started')) as open,
        sum(busy_s) filter (node_type = 'task') as busy_s
    from some_nodes
    group by correlation_id
),

points as ( -- a node of an edge need not be declared
    select correlation_id, node_id, true as declared from some_nodes
    union all
    select correlation_id, from_id, false from some_edges
    union all
    select correlation_id, to_id, false from some_edges
),

all_nodes as (
    select correlation_id, node_id, bool_or(declared) as declared
    from points
    group by correlation_id, node_id
),

counts as (
    select correlation_id, count(*) as known, count(*) filter (not declared) as unknown_nodes
    from all_nodes
    group by correlation_id
),

edges as (
    select
        correlation_id, count(*) as edges, count(*) filter (relation = 'assigned') as assigned,
        sum(events)::bigint as edge_events
    from some_edges
    group by correlation_id
),

fans as (
    select correlation_id, max(following) as fan_out
    from (
        select correlation_id, upstream_id, count(distinct downstream_id) as following
        from some_edges
        group by correlation_id, upstream_id
    )
    group by correlation_id
),

walk (correlation_id, node_id, depth) as ( -- from every node on which nothing has to wait; a circle never ends
    select correlation_id, node_id, 0
    from all_nodes
    anti join some_edges as e on all_nodes.correlation_id = e.correlation_id and all_nodes.node_id = e.downstream_id
    union
    select w.correlation_id, e.downstream_id, w.depth + 1
    from walk as w
    inner join some_edges as e on w.correlation_id = e.correlation_id and w.node_id = e.upstream_id
    inner join counts as c on w.correlation_id = c.correlation_id
    where w.depth < c.known
),

depths as (
    select all_nodes.correlation_id, max(walk.depth) as depth, bool_or(walk.depth is null) as unreached
    from all_nodes
    left join walk using (correlation_id, node_id)
    group by all_nodes.correlation_id
),

running as (
    select correlation_id, sum(step) over (partition by correlation_id order by happened_at, step rows unbounded preceding)
            as at_once,
        epoch(lead(happened_at) over (partition by correlation_id order by happened_at, step) - happened_at) as for_s
    from (
        select correlation_id, started_at as happened_at, 1 as step
        from some_nodes
        where node_type = 'task' and started_at is not null
        union all
        select correlation_id, greatest(ended_at, started_at), -1
        from some_nodes
        where node_type = 'task' and started_at is not null and ended_at is not null
    )
),

parallel as (
    select correlation_id, max(at_once) as max_parallel,
        sum(at_once * for_s) / nullif(sum(for_s) filter (at_once > 0), 0) as avg_parallel
    from running
    group by correlation_id
),

roles as (
    select
        correlation_id,
        list(role order by role) filter (not worked and role_kind <> 'orchestrator') as roles_without_work
    from (
        select correlation_id, role, any_value(role_kind) as role_kind, bool_or(assigned) as worked
        from some_agents
        where role is not null
        group by correlation_id, role
    )
    group by correlation_id
),

divergences as (
    select correlation_id, avg(divergence) as divergence
    from some_pairs
    group by correlation_id
)

select
    c.correlation_id, n.first_at, n.last_at, epoch(n.last_at - n.first_at) as wall_s,
    coalesce(n.nodes, 0) as nodes, coalesce(n.agents, 0) as agents, coalesce(n.tasks, 0) as tasks,
    coalesce(n.finished, 0) as finished, coalesce(n.failed, 0) as failed, coalesce(n.open, 0) as open,
    coalesce(e.edges, 0) as edges, coalesce(e.assigned, 0) as assigned, c.unknown_nodes,
    d.unreached or d.depth >= c.known as has_cycle,
    case when not has_cycle then d.depth end as depth,
    coalesce(f.fan_out, 0) as fan_out, coalesce(p.max_parallel, 0) as max_parallel, p.avg_parallel,
    coalesce(n.busy_s, 0) as busy_s, coalesce(r.roles_without_work, []) as roles_without_work, v.divergence,
    coalesce(n.node_events, 0) as node_events, coalesce(e.edge_events, 0) as edge_events
from counts as c
left join nodes as n using (correlation_id)
left join edges as e using (correlation_id)
left join fans as f using (correlation_id)
left join depths as d using (correlation_id)
left join parallel as p using (correlation_id)
left join roles as r using (correlation_id)
left join divergences as v using (correlation_id);
