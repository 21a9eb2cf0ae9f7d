-- How did the articles of this run go, by language?
select
    t.job_id,
    t.language,
    count(*) as paragraphs,
    count(*) filter (t.status = 'answered') as translated,
    count(*) filter (t.status = 'kept') as kept,
    count(*) filter (t.status in ('failed', 'incomplete')) as failed,
    count(*) filter (t.status = 'waiting') as waiting,
    count(*) filter (t.notes <> '[]' and t.status = 'answered') as doubtful,
    round(sum(t.e2e_s), 2) as sum_e2e_s,
    sum(t.completion_tokens) as tokens,
    string_agg(distinct t.worker, ', ' order by t.worker) as workers
from translations as t
where t.lane = $lane and t.partition_date = $day and t.job_id in (select unnest($ids::varchar []))
group by t.job_id, t.language
order by t.job_id, t.language;
