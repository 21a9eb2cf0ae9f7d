"""``web_results`` and ``job_sources``, partitioned by day and lane as the jobs are that want them.

Belongs here: the partition, calling one domain function, showing the outcome. Neither queries nor what was found are
put into metadata or logs: Dagster's event log keeps what it is given for ever.
"""

from typing import Any

import dagster as dg

from model_foundry.answering import answer_partition
from model_foundry.config import SEARCH_API, FoundryConfig
from model_foundry.defs.externals import worker_key
from model_foundry.defs.prompts.partitions import prompt_partitions
from model_foundry.defs.prompts.runs import partition_run
from model_foundry.defs.prompts.show import completions_metadata
from model_foundry.defs.resources import FoundryResource, LakeResource
from model_foundry.defs.streams import OWNERS, RETRY
from model_foundry.defs.tables import records_table
from model_foundry.grounding import GroundingReport, give_sources
from model_foundry.records import Task
from model_foundry.searching import SearchReport, search_for_sources

MAX_LISTED = 20


class SearchAgainConfig(dg.Config):
    """Whether searches that failed, and jobs that failed for want of them, are tried again."""

    retry_failed: bool = False


def source_assets(config: FoundryConfig) -> list[dg.AssetsDefinition]:
    """What comes between a prompt and its answer when it asks for sources."""
    partitions = prompt_partitions(config)
    searchers = [name for name, worker in config.workers.items() if worker.api == SEARCH_API]

    @dg.asset(
        partitions_def=partitions,
        deps=["prompt_inbox", *(worker_key(name) for name in searchers)],
        group_name="sources",
        retry_policy=RETRY,
        kinds={"http", "duckdb"},
        owners=OWNERS,
        description=(
            "What search servers found for the jobs of one day and lane: for those that ask for sources "
            "(`ground: [web]`), and, in a lane of searches, for the jobs that are searches themselves. An empty result "
            "is a normal outcome. A server that can't be used now makes its jobs wait.\n\n"
            "Tables: `web_searches`, `web_results`; view `grounded_jobs`."
        ),
    )
    def web_results(
        context: dg.AssetExecutionContext, config: SearchAgainConfig, foundry: FoundryResource, lake: LakeResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        run = partition_run(context, foundry, "searches", retry_failed=config.retry_failed)
        metadata = searches_metadata(search_for_sources(run))
        if run.lane in foundry.parts.config.search_lanes:
            jobs = answer_partition(run, Task.SEARCH)
            with lake.warehouse.snapshot() as now:
                shown = completions_metadata(now, jobs, run.day, run.lane, run.run_id)
            metadata |= {"search_jobs": len(jobs.job_ids)} | shown
        return dg.MaterializeResult(metadata=metadata)

    @dg.asset(
        partitions_def=partitions,
        deps=[
            "prompt_inbox",
            web_results,
            "embeddings",
        ],  # the inbox too: a run without a web search has no web_results
        group_name="sources",
        retry_policy=RETRY,
        kinds={"duckdb"},
        owners=OWNERS,
        description=(
            "The sources that the jobs of one day and lane are given, for those that ask for some (`ground`): the "
            "first results of the web search, and the notes that are nearest in meaning. The answer cites them by "
            "number; its result message lists them.\n\n"
            "Tables: `job_sources`, `job_grounding`; view `grounded_jobs`."
        ),
    )
    def job_sources(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        return dg.MaterializeResult(metadata=sources_metadata(give_sources(partition_run(context, foundry))))

    return [web_results, job_sources]


def searches_metadata(report: SearchReport) -> dict[str, Any]:
    """Counts, servers, why searches wait or failed. Ids and reasons, no queries."""
    status = "empty"
    if report.by_status:
        status = "done" if set(report.by_status) != {"waiting"} else "waiting"
    metadata: dict[str, Any] = {
        "status": status,
        "searches": sum(report.by_status.values()),
        "results": report.results,
        "nothing_found": report.nothing_found,
        "failed": report.by_status.get("failed", 0),
        "waiting": report.by_status.get("waiting", 0),
        "dagster/row_count": report.results,
    }
    if report.by_worker:
        metadata["by_worker"] = records_table([{"worker": w, "searches": n} for w, n in report.by_worker.items()])
    return metadata | _reasons(report.waiting, "waits_because") | _reasons(report.failed, "failed_because")


def sources_metadata(report: GroundingReport) -> dict[str, Any]:
    """Counts, kinds, why jobs wait or failed."""
    metadata: dict[str, Any] = {
        "status": report.status,
        "jobs": report.given,
        "without_any": report.without,
        "waiting": len(report.waiting),
        "failed": len(report.failed),
        "dagster/row_count": sum(report.sources.values()),
    }
    metadata |= {f"from_{kind}": n for kind, n in sorted(report.sources.items())}
    return metadata | _reasons(report.waiting, "waits_because") | _reasons(report.failed, "failed_because")


def _reasons(by_job: dict[str, str], name: str) -> dict[str, Any]:
    rows = [{"job_id": job_id, "reason": reason} for job_id, reason in list(by_job.items())[:MAX_LISTED]]
    return {name: records_table(rows)} if rows else {}
