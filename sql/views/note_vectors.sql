-- Which vectors have the notes' chunks, ready to be compared? The table's own are not: Parquet keeps a NULL for a row
-- without one, and list_cosine_similarity trips over it even where that row is filtered out; a slice leaves it behind.
select source, chunk, heading, text, model, worker, dimensions, vector [:] as vector, embedded_at
from embeddings
where status = 'embedded'
