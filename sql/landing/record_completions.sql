-- Records the attempts of the relation `attempted` and the outcomes of the relation `outcomes`, together. All are of one
-- partition ($day, $lane), so that the files of other days are not looked at.
insert into completions by name
select * from attempted
anti join (
    select job_id, attempt
    from completions
    where partition_date = $day and job_id in (select job_id from attempted)
) using (job_id, attempt);

update jobs
set
    status = outcomes.status,
    error_kind = outcomes.error_kind,
    error_message = outcomes.error_message,
    attempts = outcomes.attempts,
    finished_at = outcomes.finished_at
from outcomes
where jobs.job_id = outcomes.job_id and jobs.lane = $lane and jobs.partition_date = $day;

delete from job_claims
where partition_date = $day and lane = $lane and job_id in (select job_id from outcomes);
