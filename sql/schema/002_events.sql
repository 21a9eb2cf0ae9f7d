-- Events, and the names of what a stream message became: not only a job any more.

-- The job_id of a prompt, the event_key of an event.
alter table stream_messages rename column job_id to record_id;
-- Of a range: the jobs of prompts, the events of events.
alter table ingest_ledger rename column jobs to records;

-- One row an event. Key: event_key, which stands for source and id.
create table events (
    event_key varchar not null,
    event_id varchar not null,
    source varchar, -- who says so: the acting agent or system
    subject varchar not null, -- today's name
    received_subject varchar not null,
    envelope varchar not null, -- own, cloudevents_structured, cloudevents_binary
    type varchar, -- a CloudEvent's
    correlation_id varchar,
    occurred_at timestamptz, -- as the sender says
    happened_at timestamptz not null, -- occurred_at, or published_at where that is missing or earlier
    payload json,
    payload_encoding varchar, -- json, text, base64
    payload_type varchar, -- chat_turn, tool_call, search, flow_node, flow_edge
    payload_problem varchar, -- why it is none of these, although its subject has one
    derived json not null, -- what was told from the payload before it was redacted
    traceparent varchar,
    replay_of varchar, -- the reject, as stream-created-seq, whose corrected form this is
    extra json not null,
    notes json not null,
    content_digest varchar not null,
    stream varchar not null,
    stream_created bigint not null,
    seq bigint not null,
    published_at timestamptz not null,
    partition_date date not null,
    bytes bigint not null, -- of the message's body
    duplicates integer not null,
    conflict boolean not null,
    run_id varchar not null,
    landed_at timestamptz not null
);
