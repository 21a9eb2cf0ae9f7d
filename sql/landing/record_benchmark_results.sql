-- Records what came of requests of sweeps (relation `incoming`); what is recorded already stays as it is.
insert into benchmark_results by name
select * from incoming
anti join (
    select sweep_id, request_id
    from benchmark_results
    where sweep_id in (select sweep_id from incoming)
) using (sweep_id, request_id);
