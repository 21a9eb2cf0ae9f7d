-- Who gave what to whom, and what had to wait for what? One row an edge of a session's flow. Work goes from
-- `upstream_id` to `downstream_id`: from the one who assigned to what was assigned, from what was depended on to what
-- depends on it. An end that names no node but an agent, by its `agent` or its `name`, is that agent's node.
with edges as (
    select
        correlation_id,
        payload ->> 'edge_id' as edge_id,
        min_by(payload ->> 'relation', (happened_at, seq)) as relation,
        min_by(payload ->> 'from', (happened_at, seq)) as from_name,
        min_by(payload ->> 'to', (happened_at, seq)) as to_name,
        min(happened_at) as happened_at,
        count(*) as events
    from events
    where payload_type = 'flow_edge' and correlation_id is not null
    group by correlation_id, payload ->> 'edge_id'
),

called as (
    select correlation_id, alias, min_by(node_id, rank) as node_id
    from (
        select correlation_id, node_id as alias, 1 as rank, node_id from flow_nodes
        union all
        select correlation_id, alias, 2, agent_id from flow_aliases
    )
    group by correlation_id, alias
)

select
    e.correlation_id, e.edge_id, e.relation,
    coalesce(f.node_id, e.from_name) as from_id,
    coalesce(t.node_id, e.to_name) as to_id,
    case e.relation when 'depends_on' then to_id else from_id end as upstream_id,
    case e.relation when 'depends_on' then from_id else to_id end as downstream_id,
    e.happened_at, e.events
from edges as e
left join called as f on e.correlation_id = f.correlation_id and e.from_name = f.alias
left join called as t on e.correlation_id = t.correlation_id and e.to_name = t.alias
