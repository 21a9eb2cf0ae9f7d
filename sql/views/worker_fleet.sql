-- How is each worker, as of the last time it was looked at? One row a worker: state, since when, slots, GPU memory, models
-- in memory. One that is in no newer snapshot than others was taken out of the configuration, or left.
with ranked as (
    select *, row_number() over (partition by worker order by taken_at desc) as age
    from fleet_snapshots
),

changed as (
    select worker, max(taken_at) as since
    from fleet_snapshots
    where previous_state is distinct from state
    group by worker
)

select
    r.worker, r.state, c.since, r.taken_at, r.reasons, r.supports, r.models, r.loaded, r.slots, r.server_slots,
    r.slots_held, r.running, r.waiting, r.stalled_s, r.heartbeat_age_s, r.version, r.gpu_name, r.gpu_util_percent,
    r.vram_used_mb, r.vram_total_mb, r.vram_used_mb / nullif(r.vram_total_mb, 0) as vram_ratio, r.temperature_c,
    r.power_w, r.url, r.api, r.has_agent, r.in_file
from ranked as r
left join changed as c on r.worker = c.worker
where r.age = 1
