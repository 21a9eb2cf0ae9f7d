-- Which natural keys stand more than once? DuckLake has no primary keys; the writer lock and the anti-joins keep these.
select 'jobs' as table_name, job_id as key, count(*) as times
from jobs
group by job_id
having count(*) > 1
union all
select 'events', event_key, count(*)
from events
group by event_key
having count(*) > 1
union all
select 'completions', job_id || ' attempt ' || attempt, count(*)
from completions
group by job_id, attempt
having count(*) > 1
union all
select 'rejects', stream || ' ' || seq, count(*)
from rejects
group by stream, stream_created, seq, published_at
having count(*) > 1
union all
select 'job_results', job_id || ' finished ' || finished_at, count(*)
from job_results
group by job_id, finished_at
having count(*) > 1
union all
select 'job_claims', job_id, count(*)
from job_claims
group by job_id
having count(*) > 1
union all
select 'job_waits', job_id, count(*)
from job_waits
group by job_id
having count(*) > 1
union all
select 'fleet_snapshots', worker || ' ' || taken_at, count(*)
from fleet_snapshots
group by worker, taken_at
having count(*) > 1
union all
select 'embeddings', source || ' chunk ' || chunk || ' by ' || model, count(*)
from embeddings
group by source, chunk, model
having count(*) > 1
union all
select 'ingest_ledger', stream || ' ' || lane || ' ' || partition_date || ' ' || from_seq || '-' || to_seq, count(*)
from ingest_ledger
group by stream, stream_created, lane, partition_date, from_seq, to_seq
having count(*) > 1
union all
select 'benchmark_sweeps', sweep_id, count(*)
from benchmark_sweeps
group by sweep_id
having count(*) > 1
union all
select 'benchmark_results', sweep_id || ' ' || request_id, count(*)
from benchmark_results
group by sweep_id, request_id
having count(*) > 1
union all
select 'judgements', judgement_id, count(*)
from judgements
group by judgement_id
having count(*) > 1
union all
select 'web_searches', job_id, count(*)
from web_searches
group by job_id
having count(*) > 1
union all
select 'job_sources', job_id || ' source ' || number, count(*)
from job_sources
group by job_id, number
having count(*) > 1
union all
select 'translations', job_id || ' ' || language || ' ' || paragraph, count(*)
from translations
group by job_id, language, paragraph
having count(*) > 1
union all
select 'benchmark_comparisons', comparison_id, count(*)
from benchmark_comparisons
group by comparison_id
having count(*) > 1;
