-- The notes' embeddings.

-- One row a chunk of a note and model, as the notes are now: those of deleted and changed notes are taken out when the
-- folder is read. Key: source, chunk, model. A chunk that has its row with the same digest is not embedded again.
create table embeddings (
    source varchar not null, -- the note's path below notes.folder
    chunk integer not null, -- from 0, in the note's order
    heading varchar, -- the nearest one at or before its beginning
    text varchar not null, -- as it stands in the note; empty where the note can't be read
    digest varchar not null, -- of what is embedded: notes.document_prefix and the text
    model varchar not null,
    worker varchar, -- who embedded it
    dimensions integer, -- the vector's length
    vector float [], -- finite, not all zero; NULL unless the status is embedded
    status varchar not null, -- embedded, failed (not tried again by itself), waiting (tried by every run)
    error_kind varchar,
    error_message varchar,
    partition_date date not null, -- the UTC day of embedded_at
    embedded_at timestamptz not null, -- or when it failed, or was put off
    run_id varchar not null
);
