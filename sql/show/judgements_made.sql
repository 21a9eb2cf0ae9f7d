-- Which of a judge's ($judge_model, $prompt_version) judgements are there, of a suite ($suite, $suite_digest)?
select judgement_id, prompt_id, verdict_ab, verdict_ba, outcome, planted, decided_by, model_a, model_b, chars_a, chars_b
from judgements
where
    judge_model = $judge_model
    and prompt_version = $prompt_version
    and suite = $suite
    and suite_digest = $suite_digest;
