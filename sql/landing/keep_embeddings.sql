-- Makes the embeddings those of the chunks as they are now (relation `chunks`: source, chunk, heading, text, digest).
-- A text that only moved, within a note or to another, takes its vector along; what is of no chunk any more goes.
create or replace temp table moved as
select
    c.source, c.chunk, c.heading, c.text, c.digest, e.model, e.worker, e.dimensions, e.vector, e.status, e.error_kind,
    e.error_message, e.partition_date, e.embedded_at, e.run_id
from chunks as c
inner join (
    from embeddings
    where status = 'embedded'
    qualify row_number() over (partition by digest, model order by embedded_at desc, source, chunk) = 1
) as e using (digest)
anti join embeddings as own
    on (c.source, c.chunk, c.digest, e.model, 'embedded') = (own.source, own.chunk, own.digest, own.model, own.status);

-- stale: another text stands there now, or none
create or replace temp table gone as
select e.source, e.chunk, e.model
from embeddings as e
anti join chunks as c on (e.source, e.chunk, e.digest) = (c.source, c.chunk, c.digest)
union
select source, chunk, model from moved;

delete from embeddings
where (source, chunk, model) in (select (source, chunk, model) from gone);

insert into embeddings by name from moved;

-- How many chunks were moved, and how many rows of how many notes went?
select
    (select count(*) from moved) as moved,
    (select count(*) from (from gone anti join moved using (source, chunk, model))) as removed,
    (
        select count(distinct source) from gone anti join chunks using (source)
    ) as notes_removed;
