-- What happened in one session, and where were the gaps? Put your correlation id in; here: the newest prompt's.
from session_timeline
where correlation_id = (select correlation_id from jobs where correlation_id is not null order by published_at desc limit 1)
order by nth;
