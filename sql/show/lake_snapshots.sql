-- At which moments can the lake be read, and what was done to it then? The newest hundred.
select snapshot_id as snapshot, snapshot_time as at, changes::varchar as changes
from ducklake_snapshots(current_database())
order by snapshot_id desc
limit 100;
