"""When benchmarks are run by themselves: nightly and weekly, once a person has switched it on.

Belongs here: the job and the schedules. Does not belong here: what they measure, which is ``benchmarks.nightly`` and
``benchmarks.weekly`` of the configuration.
"""

from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.benchmarks.library import suite_names
from model_foundry.benchmarks.sweep import chat_models
from model_foundry.config import BenchmarkScheduleConfig, FoundryConfig
from model_foundry.defs.resources import FoundryResource
from model_foundry.defs.streams import UNFINISHED


def benchmark_job() -> UnresolvedAssetJobDefinition:
    """The job of one sweep."""
    return dg.define_asset_job(
        "benchmark",
        selection=dg.AssetSelection.assets("benchmark_results"),
        description="Ask models a suite; others beside the partition's own in `with_models`, interleaved.",
    )


def benchmark_schedules(job: UnresolvedAssetJobDefinition, config: FoundryConfig) -> list[dg.ScheduleDefinition]:
    """Nightly and weekly; off until switched on."""
    benchmarks = config.benchmarks
    return [
        _schedule(job, "benchmark_nightly", benchmarks.nightly, "A short look at every suite, each night."),
        _schedule(job, "benchmark_weekly", benchmarks.weekly, "Every suite whole, each week."),
    ]


def _schedule(
    job: UnresolvedAssetJobDefinition, name: str, settings: BenchmarkScheduleConfig, description: str
) -> dg.ScheduleDefinition:
    @dg.schedule(
        job=job,
        name=name,
        cron_schedule=settings.cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=(
            f"{description} Off until you switch it on; what it measures is `benchmarks` in the configuration. Models "
            "are interleaved: each suite is one run, under the partition of the first model."
        ),
    )
    def schedule(
        context: dg.ScheduleEvaluationContext, foundry: FoundryResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        config = foundry.parts.config
        models = settings.models or chat_models(config)
        if not models:
            yield dg.SkipReason("No model answers prompts.")
            return
        if context.instance.get_runs(dg.RunsFilter(job_name=job.name, statuses=UNFINISHED), limit=1):
            yield dg.SkipReason("A benchmark is under way.")
            return
        for suite in settings.suites or suite_names(config):
            given = {
                "with_models": models[1:],
                "workers": settings.workers,
                "repeats": settings.repeats,
                "concurrency": settings.concurrency,
                **({"limit": settings.limit} if settings.limit is not None else {}),
            }
            yield dg.RunRequest(
                run_key=f"{name} {suite} {context.scheduled_execution_time:%Y-%m-%dT%H:%M}",
                partition_key=dg.MultiPartitionKey({"model": models[0], "suite": suite}),
                run_config={"ops": {"benchmark_results": {"config": given}}},
            )

    return schedule
