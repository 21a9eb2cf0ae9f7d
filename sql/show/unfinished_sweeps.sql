-- Which sweeps of a suite ($suite) were begun after a moment ($since) and have something left, the newest first?
from benchmark_sweeps
where suite = $suite and status <> 'done' and started_at >= $since
order by started_at desc;
