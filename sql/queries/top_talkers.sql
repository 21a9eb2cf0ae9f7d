-- Who keeps the servers busy? Sessions (correlation ids) by the seconds of work they made, and their share of all.
select
    coalesce(correlation_id, '(none)') as session,
    count(*) as jobs,
    sum(prompt_tokens)::bigint as prompt_tokens,
    sum(completion_tokens)::bigint as completion_tokens,
    sum(e2e_s) as service_s,
    sum(e2e_s) / sum(sum(e2e_s)) over () as share,
    min(published_at) as first_at,
    max(published_at) as last_at
from last_attempts
group by correlation_id
order by service_s desc nulls last
limit 20;
