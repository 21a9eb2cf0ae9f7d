-- Which model is faster or better, on which worker, for which work, and is it sure? The last comparison of each suite, pair
-- by pair: `words` says it; `estimate` is b / a for times and rates and b - a for shares, with its 95% interval; `p_holm`
-- is corrected over all pairs of the suite, domain, figure and level. How: docs/benchmarks-comparison.md.
select *
from benchmark_comparisons
where level in ('model', 'model_worker')
qualify compared_at = max(compared_at) over (partition by suite)
