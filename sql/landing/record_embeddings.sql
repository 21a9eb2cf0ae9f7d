-- Records what became of chunks (relation `incoming`); what was recorded of them before goes.
delete from embeddings
where (source, chunk, model) in (select (source, chunk, model) from incoming);

insert into embeddings by name from incoming;
