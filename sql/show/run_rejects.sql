-- Which messages of one run could not be read, and why? (The bytes stay in the table `rejects`.)
select seq, subject, octet_length(bytes) as bytes, reason
from rejects
where run_id = $run_id
order by seq
limit 20;
