-- What did judges find between two models, of judges that passed their gate? Others: note says "judge not trusted".
with gates as (
    select
        judge_model,
        prompt_version,
        suite_digest,
        count(*) filter (outcome <> 'error') as n,
        count(*) filter (outcome = planted) as k
    from judgements
    where planted is not null
    group by judge_model, prompt_version, suite_digest
    qualify row_number() over (partition by judge_model, prompt_version order by max(judged_at) desc) = 1
),

tails as (
    -- The exact test that is the lower bound of a Clopper-Pearson interval of 95%: P(X >= k) at a share of 0.7.
    select
        judge_model,
        prompt_version,
        n >= 20 and list_sum([
            exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) + i * ln(0.7) + (n - i) * ln(0.3))
            for i in range(k, n + 1)
        ]) <= 0.025 as is_trusted
    from gates
)

select
    j.suite,
    j.domain,
    j.model_a,
    j.model_b,
    j.judge_model,
    j.prompt_version,
    count(*) as pairs,
    case when t.is_trusted then count(*) filter (j.outcome = 'a') end as wins_a,
    case when t.is_trusted then count(*) filter (j.outcome = 'b') end as wins_b,
    case when t.is_trusted then count(*) filter (j.outcome = 'tie') end as ties,
    count(*) filter (j.outcome = 'inconsistent') as inconsistent,
    count(*) filter (j.outcome = 'unparsable') as unparsable,
    count(*) filter (j.outcome = 'error') as errors,
    count(*) filter (j.decided_by <> 'judge') as decided_without_judge,
    bool_or(j.same_family) as same_family,
    case when t.is_trusted then null else 'judge not trusted' end as note
from judgements as j
left join tails as t using (judge_model, prompt_version)
where j.planted is null
group by j.suite, j.domain, j.model_a, j.model_b, j.judge_model, j.prompt_version, t.is_trusted;
