-- Which of the incoming events are there already, and with what content?
create or replace temp table known as
select event_key as record_id, content_digest
from events
where event_key in (select record_id from incoming where record_id is not null);
