-- What happened in one session, in order?
select * from session_timeline where correlation_id = $session order by nth limit $most;
