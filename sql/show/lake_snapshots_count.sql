-- How many snapshots can the lake be read at, and since when?
select count(*) as n, min(snapshot_time) as since
from ducklake_snapshots(current_database());
