-- Which notes are nearest in meaning to a query's vector? Each by its nearest chunk.
with comparable as materialized (
    select source, chunk, heading, text, vector
    from embeddings
    where model = $model and status = 'embedded' and dimensions = $dimensions
)

select source, chunk, heading, text, list_cosine_similarity(vector, $query::float []) as score
from comparable
qualify row_number() over (partition by source order by score desc, chunk) = 1
order by score desc, source
limit $top;
