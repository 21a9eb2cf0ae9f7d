-- The tables of the prompt path. DuckLake has no keys: natural keys are kept by the writer lock and anti-joins
-- (sql/landing). Times are TIMESTAMPTZ, so that no reader has to guess a zone.

-- One row a stream message that was landed: what became of it. Key: stream, stream_created, seq, published_at; the last
-- tells a message from one that had its number before the stream was restored from a backup, or made anew within a
-- second.
create table stream_messages (
    stream varchar not null,
    stream_created bigint not null,
    seq bigint not null,
    subject varchar not null,
    published_at timestamptz not null,
    partition_date date not null,
    lane varchar not null,
    outcome varchar not null, -- job, duplicate, reject
    job_id varchar,
    conflict boolean not null, -- a duplicate id with other content
    run_id varchar not null,
    landed_at timestamptz not null
);

-- One row a prompt. Key: job_id.
create table jobs (
    job_id varchar not null,
    stream varchar not null,
    stream_created bigint not null,
    seq bigint not null,
    subject varchar not null,
    published_at timestamptz not null,
    partition_date date not null,
    correlation_id varchar,
    domain varchar not null,
    domain_source varchar not null, -- message, subject, classified
    language varchar not null,
    lane varchar not null,
    model varchar,
    role varchar,
    capability varchar,
    prompt varchar not null, -- the last user text
    messages json not null,
    params json not null,
    priority integer not null,
    deadline timestamptz,
    reply_to varchar,
    metadata json,
    traceparent varchar,
    extra json not null,
    notes json not null,
    route_reason varchar not null,
    content_digest varchar not null,
    status varchar not null, -- pending, answered, incomplete, failed, rejected, expired, cancelled
    error_kind varchar,
    error_message varchar,
    attempts integer not null,
    duplicates integer not null,
    conflict boolean not null,
    finished_at timestamptz,
    landed_at timestamptz not null
);

-- Which run works on which job now. Key: job_id. Apart from jobs, because a claim must not write a prompt again.
create table job_claims (
    job_id varchar not null,
    partition_date date not null,
    lane varchar not null,
    run_id varchar not null,
    claimed_at timestamptz not null
);

-- Results that were published. Key: job_id, finished_at (a job asked again finishes again).
create table job_results (
    job_id varchar not null,
    partition_date date not null,
    finished_at timestamptz not null,
    result_seq bigint not null, -- in the stream of results
    published_at timestamptz not null
);

-- One row an attempt at a job. Key: job_id, attempt.
create table completions (
    job_id varchar not null,
    attempt integer not null,
    stream varchar not null,
    stream_created bigint not null,
    seq bigint not null,
    partition_date date not null,
    correlation_id varchar,
    domain varchar not null,
    lane varchar not null,
    role varchar,
    model varchar,
    worker varchar,
    api varchar,
    status varchar not null,
    sent_at timestamptz not null,
    finished_at timestamptz not null,
    queue_s double,
    ttft_s double,
    ttfo_s double,
    tpot_s double,
    e2e_s double,
    load_s double,
    prefill_s double,
    decode_s double,
    unattributed_s double,
    prefill_tps double,
    decode_tps double,
    cold boolean,
    prompt_tokens bigint,
    completion_tokens bigint,
    cached_tokens bigint,
    tokens_source varchar not null, -- server, missing
    chunks integer not null,
    text varchar not null,
    reasoning varchar not null,
    tool_calls json not null,
    finish_reason varchar,
    error_kind varchar,
    error_message varchar,
    http_status integer,
    server_stats json, -- the server's own final statistics, as received
    notes json not null,
    run_id varchar not null
);

-- Messages that could not be read, whole. Key: as of stream_messages.
create table rejects (
    stream varchar not null,
    stream_created bigint not null,
    seq bigint not null,
    subject varchar not null,
    published_at timestamptz not null,
    partition_date date not null,
    headers json not null,
    bytes blob not null,
    reason varchar not null,
    run_id varchar not null,
    landed_at timestamptz not null
);

-- One row a landed range of a partition. Key: stream, stream_created, lane, partition_date, from_seq, to_seq.
create table ingest_ledger (
    stream varchar not null,
    stream_created bigint not null,
    lane varchar not null,
    partition_date date not null,
    from_seq bigint not null,
    to_seq bigint not null,
    messages bigint not null,
    jobs bigint not null,
    duplicates bigint not null,
    rejects bigint not null,
    config_digest varchar not null,
    run_id varchar not null,
    landed_at timestamptz not null
);

-- Sequences that were never landed and that the stream no longer has. Key: stream, stream_created, from_seq, to_seq.
create table lost_messages (
    stream varchar not null,
    stream_created bigint not null,
    from_seq bigint not null,
    to_seq bigint not null,
    reason varchar not null, -- dropped (before the stream's first message), deleted, recreated
    run_id varchar not null,
    noticed_at timestamptz not null
);

-- Up to which sequence a stream's messages were forgotten on purpose (lake.retention_days): what lies before is not
-- missing. The greatest to_seq of a stream counts.
create table retired_messages (
    stream varchar not null,
    stream_created bigint not null,
    to_seq bigint not null,
    retired_at timestamptz not null
);
