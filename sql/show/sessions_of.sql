-- What did each of these sessions consist of?
select * from sessions where correlation_id in (select unnest($sessions::varchar [])) order by last_at desc;
