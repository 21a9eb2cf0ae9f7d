-- By which names do a session's events call its agents? One row a name that a declared agent goes by: its node, its
-- `agent`, its `name`. A name is one agent's, so that nothing counts twice: the one whose node it is, else whose
-- `agent`, else whose `name`, else the first.
select correlation_id, alias, min_by(node_id, (rank, node_id)) as agent_id
from (
    select correlation_id, node_id as alias, 1 as rank, node_id from flow_nodes where node_type = 'agent'
    union all
    select correlation_id, agent, 2, node_id from flow_nodes where node_type = 'agent' and agent is not null
    union all
    select correlation_id, name, 3, node_id from flow_nodes where node_type = 'agent' and name is not null
)
group by correlation_id, alias
