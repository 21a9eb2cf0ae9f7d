-- How many events came in each minute, by subject, and how long until they were in the lake? Over the events published
-- from `from_time` (included) to `to_time` (excluded):
--     from event_volume_between(timestamptz '2026-12-01', now());
-- `lag_s` is from the stream's timestamp to the landing; `bytes` is of the messages' bodies.
create or replace macro event_volume_between(from_time, to_time) as table
select
    time_bucket(interval 1 minute, published_at) as minute,
    subject,
    count(*) as events,
    sum(duplicates)::bigint as duplicates,
    count(*) filter (payload_type is null) as untyped,
    sum(bytes)::bigint as bytes,
    quantile_cont(epoch(landed_at - published_at), 0.5) as p50_lag_s,
    max(epoch(landed_at - published_at)) as max_lag_s
from events
where published_at >= from_time::timestamptz and published_at < to_time::timestamptz
group by minute, subject;
