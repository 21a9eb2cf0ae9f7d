"""When the figures are refreshed. Belongs here: that. Does not belong here: what they are (``assets``)."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.lake.checks import checks_of
from model_foundry.defs.recency import newest, seen_until


def figures_job() -> UnresolvedAssetJobDefinition:
    """The job that materializes every figure and looks whether anything was rejected or lost."""
    return dg.define_asset_job(
        "refresh_figures",
        selection=dg.AssetSelection.groups("analytics") | dg.AssetSelection.checks(*checks_of("prompt_inbox")),
        description="Bring the tables and charts of the figures, and the inbox's checks, up to date.",
    )


def figures_schedule(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Every minute in which something came in: not after every run, so that many small runs cost one refresh."""

    @dg.schedule(
        job=job,
        name="figures",
        cron_schedule="* * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Refreshes the figures and the inbox's checks once a minute, when something came in since.",
    )
    def figures(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if newest(context.instance, "prompt_inbox", "completions") <= seen_until(context.instance, "domain_latency"):
            return dg.SkipReason("Nothing came in since.")
        return dg.RunRequest()

    return figures
