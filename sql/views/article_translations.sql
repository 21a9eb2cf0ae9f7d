-- How far is each article in each language, and what does it say there? One row an article and language; `text` is whole
-- only where every paragraph is there, and has the source where one is missing.
select
    t.job_id,
    any_value(t.partition_date) as partition_date,
    any_value(j.correlation_id) as correlation_id,
    t.language,
    any_value(j.status) as status,
    count(*) as paragraphs,
    count(*) filter (t.status in ('answered', 'kept')) as done,
    count(*) filter (t.status in ('failed', 'incomplete')) as failed,
    count(*) filter (t.status = 'waiting') as waiting,
    string_agg(coalesce(t.text, t.source_text), e'\n\n' order by t.paragraph) as text,
    sum(t.e2e_s) as sum_e2e_s,
    sum(t.completion_tokens) as completion_tokens
from translations as t
inner join jobs as j on t.job_id = j.job_id
group by t.job_id, t.language
