-- Who of one session gave work to whom, and how often? The giver of a task is the other end of its edge `assigned`, else
-- the session's orchestrator.
with orchestrator as (
    select min(agent_id) as agent_id from flow_agents where correlation_id = $session and role_kind = 'orchestrator'
),

edges as (
    select from_id, to_id from flow_edges where correlation_id = $session and relation = 'assigned'
),

agents as (
    select agent_id from flow_agents where correlation_id = $session
),

direct as ( -- agent to agent
    select e.from_id as giver, e.to_id as taker
    from edges as e
    semi join agents as a on e.from_id = a.agent_id
    semi join agents as b on e.to_id = b.agent_id
),

tasks as (
    select coalesce(min(e.from_id), (select agent_id from orchestrator), '(session)') as giver, a.agent_id as taker
    from flow_assignments as a
    left join edges as e
        on a.task_id = e.to_id and e.from_id <> a.agent_id and e.from_id in (select agent_id from agents)
    where a.correlation_id = $session and a.task_id is not null
    group by a.task_id, a.agent_id
)

select giver, taker, count(*) as times
from (from direct union all from tasks)
where giver <> taker
group by giver, taker
order by giver, taker;
