-- Records the fleet as it was found at one moment.
insert into fleet_snapshots by name
select * from incoming
anti join (select taken_at, worker from fleet_snapshots where taken_at >= (select min(taken_at) from incoming))
    using (taken_at, worker);
