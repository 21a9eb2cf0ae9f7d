-- Which of today's messages could not be read, and why?
select seq, subject, published_at, reason
from rejects
where partition_date = (now() at time zone 'UTC')::date
order by seq desc;
