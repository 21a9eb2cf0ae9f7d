-- What goes wrong, where, and since when? Attempts count, so a failure that another worker made good is here too.
select worker, model, error_kind, http_status, count(*) as attempts, min(sent_at) as first_at, max(sent_at) as last_at,
    any_value(error_message) as for_example
from completions
where status <> 'answered'
group by worker, model, error_kind, http_status
order by attempts desc;
