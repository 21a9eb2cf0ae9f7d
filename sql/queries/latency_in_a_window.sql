-- How fast was each domain answered in the last 24 hours? Put your own two times in.
select domain, jobs, n, error_rate, p50_e2e_s, p95_e2e_s, p95_note
from domain_latency_between(now() - interval 24 hours, now())
where level = 'domain'
order by jobs desc;
