-- Which notes are nearest in meaning to a query's vector? Each by its nearest chunk.
select source, chunk, heading, text, list_cosine_similarity(vector, $query::float []) as score
from note_vectors
where model = $model and dimensions = $dimensions
qualify row_number() over (partition by source order by score desc, chunk) = 1
order by score desc, source
limit $top;
