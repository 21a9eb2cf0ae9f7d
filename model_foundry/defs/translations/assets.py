"""``article_translations``, partitioned by day and lane as prompts are.

Belongs here: the partition, calling one domain function, showing the outcome. No text of an article or a translation is
ever put into metadata or logs.
"""

from collections import Counter
from typing import Any

import dagster as dg

from model_foundry.config import FoundryConfig
from model_foundry.defs.externals import worker_key
from model_foundry.defs.prompts.partitions import prompt_partitions
from model_foundry.defs.prompts.runs import partition_run
from model_foundry.defs.prompts.show import MAX_LINKS
from model_foundry.defs.resources import FoundryResource, LakeResource
from model_foundry.defs.streams import OWNERS, RETRY
from model_foundry.defs.tables import records_table
from model_foundry.translating import TranslationReport, translate_partition
from model_foundry.warehouse.engine import Rows


class TranslateConfig(dg.Config):
    """Whether paragraphs that failed are asked for again."""

    retry_failed: bool = False


def translations_asset(config: FoundryConfig) -> dg.AssetsDefinition:
    """The asset."""

    @dg.asset(
        partitions_def=prompt_partitions(config),
        deps=["prompt_inbox", *map(worker_key, config.model_servers)],
        group_name="translations",
        retry_policy=RETRY,
        kinds={"http", "duckdb"},
        owners=OWNERS,
        description=(
            "Articles of one day and lane, in every language that they were asked in (`translate`). Each paragraph is "
            "a request to the translator; code, images and front matter stay as they are. A run that dies leaves what "
            "it had, and the next one goes on from there.\n\n"
            "Materialize by hand to go on; set `retry_failed` to ask again for paragraphs that failed.\n\n"
            "Table: `translations`; view `article_translations` has the texts put together."
        ),
    )
    def article_translations(
        context: dg.AssetExecutionContext, config: TranslateConfig, foundry: FoundryResource, lake: LakeResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        run = partition_run(context, foundry, "paragraphs", retry_failed=config.retry_failed)
        report = translate_partition(run)
        with lake.warehouse.snapshot() as now:
            found = now.show("run_translations", {"day": run.day, "lane": run.lane, "ids": report.job_ids})
            return dg.MaterializeResult(metadata=translations_metadata(report, found))

    return article_translations


def translations_metadata(report: TranslationReport, rows: Rows) -> dict[str, Any]:
    """Counts, a line an article and language, why others wait."""
    metadata: dict[str, Any] = {
        "status": report.status,
        "articles": len(report.job_ids),
        "translated": report.by_status.get("answered", 0),
        "incomplete_or_failed": sum(n for status, n in report.by_status.items() if status != "answered"),
        "paragraphs": report.paragraphs.get("answered", 0),
        "kept": report.paragraphs.get("kept", 0),
        "failed": report.paragraphs.get("failed", 0) + report.paragraphs.get("incomplete", 0),
        "waiting": report.paragraphs.get("waiting", 0),
        "unchanged": report.unchanged,
        "results_published": report.published,
        "dagster/row_count": sum(report.paragraphs.values()),
    }
    if report.put_off:
        reasons = Counter(report.put_off.values())
        metadata["waits_because"] = records_table(
            [{"articles": n, "reason": reason} for reason, n in reasons.most_common(MAX_LINKS)]
        )
    if rows:
        metadata["by_article"] = records_table(rows[:100])
    return metadata
