-- Which of the incoming jobs are there already, and with what content?
create or replace temp table known as
select job_id as record_id, content_digest
from jobs
where job_id in (select record_id from incoming where record_id is not null);
