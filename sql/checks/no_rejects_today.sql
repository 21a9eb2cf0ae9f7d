-- Which of today's messages could not be read, and why? Those that were sent again, corrected, are not among them.
select stream, seq, subject, published_at, reason
from open_rejects
where partition_date = (now() at time zone 'UTC')::date
order by stream, seq desc;
