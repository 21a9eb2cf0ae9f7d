-- Which chunks have no vector, by note and kind? Neither texts nor servers' words, which may quote them.
select source, count(*) as chunks, status, error_kind
from embeddings
where model = $model and status <> 'embedded'
group by source, status, error_kind
order by source, status, error_kind;
