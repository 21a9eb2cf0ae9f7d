-- Which chunks as they are now (relation `chunks`) has the model not embedded yet, or failed at and should try again?
select c.source, c.chunk
from chunks as c
anti join (
    from embeddings
    where model = $model and (status = 'embedded' or (status = 'failed' and not $retry_failed)) and not $again
) as done on (c.source, c.chunk, c.digest) = (done.source, done.chunk, done.digest)
order by c.source, c.chunk;
