-- What did each agent of one session do?
select * from flow_agents where correlation_id = $session order by tasks desc, busy_s desc, agent_id;
