-- Which jobs asked for sources, what was searched for, and which sources was each answer given?
select
    g.job_id,
    g.partition_date,
    g.lane,
    j.correlation_id,
    g.query,
    g.grounds,
    g.status as sources_status,
    g.sources,
    j.status,
    (select list({'number': s.number, 'kind': s.kind, 'source': s.source, 'title': s.title} order by s.number)
     from job_sources as s
     where s.job_id = g.job_id) as given,
    w.took_s as search_s,
    coalesce(g.error_message, w.error_message) as reason
from job_grounding as g
inner join jobs as j on g.job_id = j.job_id
left join web_searches as w on g.job_id = w.job_id
