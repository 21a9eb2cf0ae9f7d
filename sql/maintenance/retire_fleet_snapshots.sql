-- Forgets the snapshots of the fleet before $before.
delete from fleet_snapshots where taken_at < $before::date;
