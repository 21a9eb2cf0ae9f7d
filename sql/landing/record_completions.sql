-- Records the attempts of the relation `attempted` and the outcomes of the relation `outcomes`, together.
insert into completions by name
select * from attempted
anti join (select job_id, attempt from completions where job_id in (select job_id from attempted)) using (job_id, attempt);

update jobs
set
    status = outcomes.status,
    error_kind = outcomes.error_kind,
    error_message = outcomes.error_message,
    attempts = outcomes.attempts,
    finished_at = outcomes.finished_at,
    claimed_by = null,
    claimed_at = null
from outcomes
where jobs.job_id = outcomes.job_id;
