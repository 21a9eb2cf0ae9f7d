-- Benchmarks: sweeps, what each request of them took, what judges said, what was published elsewhere.

-- One row a sweep: one suite, some models on some workers, one set of settings. Key: sweep_id.
create table benchmark_sweeps (
    sweep_id varchar not null,
    suite varchar not null,
    suite_digest varchar not null, -- of its prompts, checks and parameters
    models json not null, -- a list
    workers json not null, -- a list
    settings json not null, -- repeats, loop, concurrency, rate, arrival, params; what the plan was made of
    seed bigint not null,
    versions json not null, -- model_foundry, python, duckdb, servers by worker
    hardware json not null, -- by worker: GPU, VRAM, stand-in; of the client: CPU, memory
    planned integer not null, -- requests
    status varchar not null, -- running, done, stopped
    started_at timestamptz not null,
    finished_at timestamptz,
    run_id varchar not null
);

-- One row a request of a sweep. Key: sweep_id, request_id. Unknown is NULL, never NaN.
create table benchmark_results (
    sweep_id varchar not null,
    request_id varchar not null, -- model, worker, prompt, turn, repeat and load, as text: the same again is the same request
    suite varchar not null,
    suite_digest varchar not null,
    prompt_id varchar not null,
    turn integer not null, -- from 0
    domain varchar not null,
    language varchar,
    model varchar not null,
    worker varchar not null,
    api varchar,
    served_name varchar,
    phase varchar not null, -- cold (the model was not loaded), warmup, measured
    repeat integer not null, -- from 0
    loop varchar not null, -- closed, open
    concurrency integer, -- of a closed loop
    rate_rps double, -- of an open loop
    arrival varchar, -- of an open loop: poisson, constant, trace
    position integer not null, -- in the sweep's random order
    planned_at_s double, -- of an open loop: after the load's start
    send_delay_s double, -- of an open loop: sent after planned
    sent_at timestamptz not null,
    finished_at timestamptz not null,
    status varchar not null, -- answered, incomplete, failed, cancelled
    error_kind varchar,
    error_message varchar,
    finish_reason varchar,
    text varchar not null,
    reasoning varchar not null,
    tool_calls json not null,
    prompt_tokens bigint,
    completion_tokens bigint,
    cached_tokens bigint,
    tokens_source varchar not null,
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
    disturbed boolean, -- others had requests on the same hardware meanwhile, so its times are not those of an idle worker
    energy_j double, -- its share of the GPU's power over its time, where that is known
    checks json not null, -- a list of {"check", "passed", "detail"}
    passed boolean, -- all checks; NULL: the prompt has none
    score double, -- share of checks passed; NULL as above
    notes json not null,
    run_id varchar not null
);

-- One row a pair of answers that a judge compared, in both orders. Key: judgement_id.
create table judgements (
    judgement_id varchar not null,
    suite varchar not null,
    suite_digest varchar not null,
    prompt_id varchar not null,
    turn integer not null,
    domain varchar not null,
    sweep_a varchar, -- NULL for a planted pair
    sweep_b varchar,
    model_a varchar not null,
    model_b varchar not null,
    judge_model varchar not null,
    judge_worker varchar,
    prompt_version varchar not null, -- of what the judge is asked
    decided_by varchar not null, -- judge, checks (one passed, the other did not), answers (one is missing)
    same_family boolean not null, -- the judge is of a judged model's family
    verdict_ab varchar not null, -- a, b, tie, unparsable, error: with a shown first
    verdict_ba varchar not null, -- with b shown first, as a, b
    outcome varchar not null, -- a, b, tie, inconsistent, unparsable, error
    words_ab varchar not null, -- what the judge said
    words_ba varchar not null,
    chars_a bigint not null,
    chars_b bigint not null,
    planted varchar, -- which answer of a planted pair is the good one, a or b; NULL: no planted pair
    judged_at timestamptz not null,
    run_id varchar not null
);

-- Scores that somebody else published, such as a model card's. Key: model, benchmark.
create table published_scores (
    model varchar not null,
    benchmark varchar not null, -- AIME 2024, MMLU-Pro
    score double not null,
    unit varchar not null, -- share, percent, elo
    source varchar not null, -- a URL or a document
    noted_at timestamptz not null
);

-- Named moments of the lake to compare with. Key: name.
create table benchmark_baselines (
    name varchar not null,
    sweep_ids json not null, -- a list
    snapshot_id bigint not null, -- of the lake: the rows as they were
    note varchar,
    created_at timestamptz not null
);

-- What comparing two models, or two model × worker, showed; see model_foundry.benchmarks.comparison. Key: comparison_id.
create table benchmark_comparisons (
    comparison_id varchar not null,
    suite varchar not null,
    domain varchar not null, -- or (all)
    level varchar not null, -- model, model_worker
    a varchar not null,
    b varchar not null,
    figure varchar not null, -- e2e_s, ttft_s, tpot_s, prefill_tps, decode_tps, goodput, energy_j_per_token, passed, …
    n_prompts integer not null, -- that both have
    estimate double, -- ratio b / a for durations and rates, difference b - a for shares
    low double, -- of the 95% interval
    high double,
    p double,
    p_holm double,
    effect_size double,
    verdict varchar not null, -- faster, slower, better, worse, no_difference_shown, too_few
    words varchar not null,
    method json not null,
    seed bigint not null,
    sweeps json not null,
    snapshot_id bigint,
    compared_at timestamptz not null,
    run_id varchar not null
);
