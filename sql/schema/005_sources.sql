-- What a job may ask for beside an answer: sources that are searched first, or a translation.

alter table jobs add column task varchar default 'answer'; -- answer, search (a lane of search servers), translate
alter table jobs add column ground json; -- where its sources are searched, a list of web and notes; NULL: none
alter table jobs add column query varchar; -- what is searched for; NULL: the prompt
alter table jobs add column translate json; -- {"to": [languages], "from": language}; NULL: nothing

-- One row a search of the web. Key: job_id. A search that is made again replaces its row. An empty result is an outcome.
create table web_searches (
    job_id varchar not null, -- who asked
    partition_date date not null, -- of that job
    lane varchar not null, -- of that job
    search_lane varchar not null, -- whose workers searched
    query varchar not null,
    status varchar not null, -- answered, failed, waiting (nobody could search; every run tries again)
    results integer not null,
    worker varchar,
    engines_failed json not null, -- the server's own list of engines that did not answer, with its reasons
    took_s double,
    error_kind varchar,
    error_message varchar,
    searched_at timestamptz not null,
    run_id varchar not null
);

-- One row a result. Key: job_id, rank.
create table web_results (
    job_id varchar not null,
    partition_date date not null,
    lane varchar not null,
    query varchar not null,
    rank integer not null, -- from 1, as the server put them
    url varchar not null,
    title varchar not null,
    content varchar not null, -- the snippet
    engine varchar,
    score double,
    published_at timestamptz,
    worker varchar not null,
    searched_at timestamptz not null,
    run_id varchar not null
);

-- One row a job that asks for sources: what became of it. Key: job_id. Written anew each time they are searched.
create table job_grounding (
    job_id varchar not null,
    partition_date date not null,
    lane varchar not null,
    grounds json not null, -- a list of web and notes
    query varchar not null,
    status varchar not null, -- given (maybe none were found), waiting (nobody could search), failed
    sources integer not null,
    error_kind varchar,
    error_message varchar,
    notes json not null,
    grounded_at timestamptz not null,
    run_id varchar not null
);

-- The sources that a job's answer was given. Key: job_id, number.
create table job_sources (
    job_id varchar not null,
    partition_date date not null,
    lane varchar not null,
    number integer not null, -- from 1, as the answer cites it
    kind varchar not null, -- web, notes
    source varchar not null, -- the URL, or the note's path
    title varchar,
    text varchar not null, -- as it was given
    score double,
    chunk integer, -- of the note
    given_at timestamptz not null,
    run_id varchar not null
);

-- The translations of articles, by paragraph. Key: job_id, language, paragraph.
create table translations (
    job_id varchar not null,
    partition_date date not null,
    lane varchar not null,
    language varchar not null, -- into which
    paragraph integer not null, -- from 0
    source_text varchar not null,
    source_digest varchar not null, -- of the text and of how it is asked for; the same is not asked for again
    text varchar, -- NULL unless the status is answered or kept
    status varchar not null, -- answered, kept (code, a rule, an image: as it stands), incomplete, failed, waiting
    model varchar,
    worker varchar,
    attempts integer not null,
    e2e_s double,
    prompt_tokens bigint,
    completion_tokens bigint,
    error_kind varchar,
    error_message varchar,
    notes json not null,
    translated_at timestamptz not null,
    run_id varchar not null
);
