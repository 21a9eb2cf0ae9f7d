"""``benchmark_results``, partitioned by model and suite, and ``model_comparison``, by suite.

Belongs here: the partition, calling one domain function, showing the outcome. No prompt or answer text is ever put into
metadata or logs.

A partition of ``benchmark_results`` is one model: materializing several asks for each by itself, one after the other at
a worker, and they are compared over their sweeps. To have models interleaved, which is what a comparison should rest
on, give the others in the launchpad (``with_models``), use ``foundry bench run``, or a schedule: all ask for all of
their models in one sweep.
"""

from typing import Any

import dagster as dg
from pydantic import Field

from model_foundry.benchmarks.comparing import (
    Compared,
    compare_suite,
    compare_with_baseline,
    newest_baseline,
    regressions,
)
from model_foundry.benchmarks.comparison import ALL_DOMAINS, Comparison
from model_foundry.benchmarks.library import load_suite, suite_names
from model_foundry.benchmarks.runner import Progress, SweepReport, run_sweep
from model_foundry.benchmarks.settings import sweep_settings
from model_foundry.benchmarks.sweep import chat_models
from model_foundry.config import FoundryConfig
from model_foundry.defs.externals import worker_key
from model_foundry.defs.resources import FoundryResource, LakeResource
from model_foundry.defs.streams import OWNERS
from model_foundry.defs.tables import chart, records_table
from model_foundry.warehouse.engine import Rows
from model_foundry.warehouse.lake import Snapshot

MAX_SHOWN = 60
MAX_POINTS = 3000


class SweepConfig(dg.Config):
    """How a sweep is run. What is left out is as in ``foundry bench run``."""

    with_models: list[str] = Field(default_factory=list, description="others that are asked in the same sweep")
    workers: list[str] = Field(default_factory=list, description="all that serve the models when empty")
    repeats: int = 3
    concurrency: list[int] = Field(default_factory=lambda: [1])
    rate_rps: float | None = Field(None, description="of an open loop: conversations a second")
    arrival: str = Field("poisson", description="of an open loop: poisson or constant")
    duration_s: float | None = Field(None, description="of one repeat of an open loop")
    limit: int | None = Field(None, description="so many prompts, spread over the suite")
    seed: int | None = None
    anew: bool = Field(False, description="begin a new sweep, whatever was broken off")


class ComparisonConfig(dg.Config):
    """The seed of the bootstrap and of the random flips."""

    seed: int = 0


def benchmark_partitions(config: FoundryConfig) -> dg.MultiPartitionsDefinition:
    """One partition a model that answers prompts, and suite."""
    return dg.MultiPartitionsDefinition(
        {
            "model": dg.StaticPartitionsDefinition(chat_models(config)),
            "suite": dg.StaticPartitionsDefinition(suite_names(config)),
        }
    )


def benchmark_assets(config: FoundryConfig) -> list[dg.AssetsDefinition]:
    """Results and comparisons."""
    suites = dg.StaticPartitionsDefinition(suite_names(config))

    @dg.asset(
        partitions_def=benchmark_partitions(config),
        deps=[worker_key(name) for name in config.model_servers],
        group_name="benchmarks",
        kinds={"http", "duckdb"},
        owners=OWNERS,
        description=(
            "A model asked a suite, at every worker that serves it, one model at a time on a worker and with all of "
            "its slots: cold starts apart, then warm-up, then each prompt at least three times. What a run that died "
            "left is gone on with. Give other models in `with_models` to have them interleaved.\n\n"
            "Tables: `benchmark_results`, `benchmark_sweeps`; view `benchmark_overview`."
        ),
    )
    def benchmark_results(
        context: dg.AssetExecutionContext, config: SweepConfig, foundry: FoundryResource, lake: LakeResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        keys = dg.MultiPartitionKey.keys_by_dimension.fget(context.partition_key)  # type: ignore[attr-defined]
        parts = foundry.parts
        report = run_sweep(
            parts,
            load_suite(parts.config, keys["suite"]),
            run_id=context.run_id,
            models=list(dict.fromkeys([keys["model"], *config.with_models])),
            workers=config.workers,
            settings=_settings(config),
            seed=config.seed,
            anew=config.anew,
            wait_s=parts.config.benchmarks.wait_s,
            on_progress=_Log(context).take,
        )
        with lake.warehouse.snapshot() as now:
            return dg.MaterializeResult(metadata=sweep_metadata(now, report))

    @dg.asset(
        partitions_def=suites,
        deps=[benchmark_results],
        group_name="benchmarks",
        kinds={"duckdb"},
        owners=OWNERS,
        check_specs=[
            dg.AssetCheckSpec(
                "nothing_got_worse",
                asset="model_comparison",
                description="Is any model at any worker shown to be worse than in the suite's newest baseline?",
            )
        ],
        description=(
            "Which model is faster or better, on which worker, for which work, and is it sure? Every pair of models, "
            "and of models on workers, on the same prompts: ratio with its 95% interval, corrected test, effect size, "
            "and a sentence. Models on different workers are compared worker by worker, or not at all.\n\n"
            "Table: `benchmark_comparisons`; view `model_comparison`."
        ),
    )
    def model_comparison(
        context: dg.AssetExecutionContext, config: ComparisonConfig, foundry: FoundryResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        parts, suite = foundry.parts, context.partition_key
        found = compare_suite(parts, suite, run_id=context.run_id, seed=config.seed)
        return dg.MaterializeResult(
            metadata=comparison_metadata(found), check_results=[_check_regression(foundry, suite, config.seed)]
        )

    return [benchmark_results, model_comparison]


def _settings(config: SweepConfig) -> Any:
    given: dict[str, Any] = {"repeats": config.repeats, "concurrency": config.concurrency, "limit": config.limit}
    if config.rate_rps is not None:
        given |= {"rate_rps": config.rate_rps, "arrival": config.arrival, "duration_s": config.duration_s}
    return sweep_settings({k: v for k, v in given.items() if v is not None}, source="the run's configuration")


class _Log:
    """Progress as lines of the run's log, each tenth of the way once."""

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._context, self._tenth = context, -1

    def take(self, progress: Progress) -> None:
        """Logs how far it is, when that is news."""
        tenth = 10 * progress.done // progress.total if progress.total else 10
        if tenth > self._tenth:
            self._tenth = tenth
            left = "" if progress.left_s is None else f", about {progress.left_s:.0f} s left"
            self._context.log.info(f"{progress.done} of {progress.total} requests done{left}")


def sweep_metadata(lake: Snapshot, report: SweepReport) -> dict[str, Any]:
    """Counts, a table by model, worker and load, a picture of all the times, what is left and why."""
    params = {"sweep_id": report.sweep_id}
    [sweep] = lake.show("sweep", params)
    figures, points = lake.show("sweep_figures", params), lake.show("sweep_points", params)
    metadata: dict[str, Any] = {
        "status": report.status,
        "sweep": report.sweep_id,
        "seed": sweep["seed"],
        "suite_digest": sweep["suite_digest"],
        "planned": sweep["planned"],
        "dagster/row_count": sum(row["requests"] for row in figures),
    }
    if figures:
        metadata["figures"] = records_table(figures)
    errors = lake.show("sweep_errors", params)
    if errors:
        metadata["errors"] = records_table(errors)
    if points:
        metadata["times"] = chart(times_chart(points[:MAX_POINTS]), alt="every answer's time")
    return metadata


def times_chart(points: Rows) -> dict[str, Any]:
    """Every measured answer as a tick, with the quartiles, by model and worker, as a Vega-Lite specification. Pure."""
    values = [{"who": f"{p['model']} @ {p['worker']}", "e2e_s": p["e2e_s"]} for p in points]
    y = {"field": "who", "type": "nominal", "title": None, "axis": {"labelLimit": 260}}
    x = {"field": "e2e_s", "type": "quantitative", "title": "seconds from sending to the last token"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": values},
        "width": 480,
        "layer": [
            {"mark": {"type": "boxplot", "size": 22, "opacity": 0.35, "outliers": False}, "encoding": {"y": y, "x": x}},
            {"mark": {"type": "tick", "opacity": 0.5, "size": 14}, "encoding": {"y": y, "x": x}},
        ],
    }


def comparison_metadata(found: Compared) -> dict[str, Any]:
    """What is shown, in words; then the figures; then the intervals as a picture."""
    shown = [c for c in found.comparisons if c.verdict in ("faster", "slower", "better", "worse")]
    metadata: dict[str, Any] = {
        "status": "done" if found.comparisons else "empty",
        "results": found.rows,
        "comparisons": len(found.comparisons),
        "differences_shown": len(shown),
        "too_few": sum(c.verdict == "too_few" for c in found.comparisons),
        "sweeps": ", ".join(found.sweeps),
        "dagster/row_count": len(found.comparisons),
    }
    if not found.comparisons:
        metadata["do"] = "Materialize benchmark_results for two models or workers first."
        return metadata
    by_weight = sorted(found.comparisons, key=lambda c: (c.domain != ALL_DOMAINS, c not in shown, c.figure))
    metadata["in_words"] = records_table(
        [{"domain": c.domain, "level": c.level, "what": c.words} for c in by_weight[:MAX_SHOWN]]
    )
    metadata["figures"] = records_table(
        [
            {
                name: getattr(c, name)
                for name in ("domain", "a", "b", "figure", "n_prompts", "estimate", "low", "high", "p_holm", "verdict")
            }
            for c in by_weight[:MAX_SHOWN]
        ]
    )
    ratios = [c for c in by_weight if c.figure == "e2e_s" and c.low is not None and c.high is not None]
    if ratios:
        metadata["intervals"] = chart(intervals_chart(ratios[:MAX_SHOWN]), alt="ratios with their intervals")
    return metadata


def intervals_chart(found: list[Comparison]) -> dict[str, Any]:
    """Ratios b / a of the whole time with their intervals, as a Vega-Lite specification. Pure."""
    values = [
        {"pair": f"{c.b} / {c.a}", "domain": c.domain, "ratio": c.estimate, "low": c.low, "high": c.high} for c in found
    ]
    y = {"field": "pair", "type": "nominal", "title": None, "axis": {"labelLimit": 300}}
    scale, title = {"type": "log"}, "time, b / a (1: the same)"
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": values},
        "facet": {"row": {"field": "domain", "type": "nominal", "title": None}},
        "spec": {
            "width": 420,
            "layer": [
                {
                    "mark": {"type": "rule", "strokeWidth": 2},
                    "encoding": {
                        "y": y,
                        "x": {
                            "field": "low",
                            "type": "quantitative",
                            "scale": scale,
                            "title": title,
                        },
                        "x2": {"field": "high"},
                    },
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 70},
                    "encoding": {"y": y, "x": {"field": "ratio", "type": "quantitative", "scale": scale}},
                },
                {
                    "mark": {"type": "rule", "strokeDash": [4, 4], "color": "#888"},
                    "encoding": {"x": {"datum": 1, "type": "quantitative"}},
                },
            ],
        },
    }


def _check_regression(foundry: FoundryResource, suite: str, seed: int) -> dg.AssetCheckResult:
    parts = foundry.parts
    limits = parts.config.benchmarks.regression
    severity = dg.AssetCheckSeverity.WARN if limits.severity == "warn" else dg.AssetCheckSeverity.ERROR
    name = newest_baseline(parts, suite)
    if name is None:
        return dg.AssetCheckResult(
            passed=True,
            check_name="nothing_got_worse",
            metadata={"status": "no baseline", "do": "foundry bench baseline set NAME SWEEP"},
        )
    found = compare_with_baseline(parts, name, suite, seed=seed)
    worse = regressions(found, limits.worse_by)
    metadata: dict[str, Any] = {"baseline": name, "compared": len(found), "worse": len(worse)}
    if worse:
        metadata["what"] = records_table([{"domain": c.domain, "what": c.words} for c in worse[:MAX_SHOWN]])
    return dg.AssetCheckResult(passed=not worse, check_name="nothing_got_worse", severity=severity, metadata=metadata)
