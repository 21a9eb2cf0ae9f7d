-- Claims a partition's jobs for a run: those that wait and that no living run has claimed.
update jobs
set status = 'pending', claimed_by = $run_id, claimed_at = $now, error_kind = null, error_message = null,
    finished_at = null, result_seq = null
where
    lane = $lane
    and partition_date = $day
    and (status = 'pending' or ($retry_failed and status in ('failed', 'incomplete', 'cancelled')))
    and (claimed_by is null or claimed_by = $run_id or claimed_by in (select unnest($dead_runs::varchar [])))
    and ($from_seq is null or (seq between $from_seq and $to_seq and stream = $stream and stream_created = $stream_created));
