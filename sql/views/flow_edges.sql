-- Who gave what to whom, and what had to wait for what? One row an edge of a session's flow. Work goes from `upstream_id`
-- to `downstream_id`: from the one who assigned to what was assigned, from what was depended on to what depends on it.
select
    correlation_id,
    payload ->> 'edge_id' as edge_id,
    min_by(payload ->> 'relation', (happened_at, seq)) as relation,
    min_by(payload ->> 'from', (happened_at, seq)) as from_id,
    min_by(payload ->> 'to', (happened_at, seq)) as to_id,
    case relation when 'depends_on' then to_id else from_id end as upstream_id,
    case relation when 'depends_on' then from_id else to_id end as downstream_id,
    min(happened_at) as happened_at,
    count(*) as events
from events
where payload_type = 'flow_edge' and correlation_id is not null
group by correlation_id, payload ->> 'edge_id'
