-- The tables of the fleet.

-- Why a pending job waits: nobody could answer it when a run last had it. Key: job_id. Written anew by every run of the
-- partition.
create table job_waits (
    job_id varchar not null,
    partition_date date not null,
    lane varchar not null,
    reason varchar not null,
    since timestamptz not null,
    run_id varchar not null
);

-- The fleet over time: one row a worker and moment. Key: taken_at, worker. Unknown is NULL.
create table fleet_snapshots (
    taken_at timestamptz not null,
    worker varchar not null,
    state varchar not null, -- healthy, busy, warming, degraded, down, gone, misconfigured
    previous_state varchar, -- of the snapshot before; NULL when there was none
    reasons json not null,
    in_file boolean not null,
    has_agent boolean not null,
    url varchar not null,
    api varchar not null,
    supports json not null,
    models json not null, -- ours: the server's name
    loaded json not null, -- models in memory, by the server's names
    slots integer not null,
    server_slots integer,
    slots_held integer not null, -- leased at that moment, by whoever
    running integer,
    waiting integer,
    generated_tokens_total double,
    stalled_s double,
    heartbeat_age_s double,
    version varchar,
    gpu_index integer,
    gpu_name varchar,
    gpu_util_percent double,
    vram_used_mb double,
    vram_total_mb double,
    temperature_c double,
    power_w double,
    run_id varchar not null
);
