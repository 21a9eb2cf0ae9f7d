-- Names sweeps as a baseline, in place of an earlier one of that name.
delete from benchmark_baselines where name = $name;
insert into benchmark_baselines
select $name, $sweep_ids::json, $snapshot_id, $note, $now;
