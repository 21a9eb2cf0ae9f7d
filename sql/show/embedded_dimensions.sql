-- How many of a model's chunks are embedded, by the vectors' length, and how many are not?
select dimensions, count(*) as chunks, count(distinct source) as notes
from embeddings
where model = $model
group by dimensions
order by dimensions is null, chunks desc, dimensions;
