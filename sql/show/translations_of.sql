-- What is there of the translations of these articles, paragraph by paragraph?
select
    job_id, language, paragraph, source_text, source_digest, text, status, worker, model, attempts, e2e_s,
    prompt_tokens, completion_tokens, error_kind, error_message, notes
from translations
where lane = $lane and partition_date = $day and job_id in (select unnest($ids::varchar []))
order by job_id, language, paragraph;
