-- How did the agents of these sessions work together?
select * from event_flow_of($sessions::varchar []) order by last_at desc, correlation_id;
