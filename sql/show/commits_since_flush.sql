-- How many commits may have left rows in the catalog since they were last written to files?
with history as (
    select snapshot_id, map_contains(changes, 'flushed_inlined') as flushed
    from ducklake_snapshots(current_database())
)

select count(*) as n
from history
where snapshot_id > (select coalesce(max(snapshot_id) filter (flushed), 0) from history);
