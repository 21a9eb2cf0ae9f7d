-- How far did the agents of one session that got the same plan diverge? The widest first.
select plan, agent_a, agent_b, task_a, task_b, calls_a, calls_b, divergence, busy_s_a, busy_s_b
from flow_divergence
where correlation_id = $session
order by divergence desc nulls last, plan, task_a, task_b;
