-- Records judgements (relation `incoming`); one that is there stays as it is, unless it was an error.
delete from judgements
where outcome = 'error' and judgement_id in (select judgement_id from incoming);

insert into judgements by name
select * from incoming
anti join judgements using (judgement_id);
