"""When the figures are refreshed. Belongs here: that. Does not belong here: what they are (``assets``)."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.lake.checks import LAKE_CHECKS


def figures_job() -> UnresolvedAssetJobDefinition:
    """The job that materializes every figure and looks whether anything was rejected or lost."""
    inbox = dg.AssetKey("prompt_inbox")
    checks = [dg.AssetCheckKey(inbox, check.name) for check in LAKE_CHECKS if check.asset == "prompt_inbox"]
    return dg.define_asset_job(
        "refresh_figures",
        selection=dg.AssetSelection.groups("analytics") | dg.AssetSelection.checks(*checks),
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
        newest = max(_latest(context.instance, asset) for asset in ("prompt_inbox", "completions"))
        if newest <= _latest(context.instance, "domain_latency"):
            return dg.SkipReason("Nothing came in since.")
        return dg.RunRequest()

    return figures


def _latest(instance: dg.DagsterInstance, asset: str) -> float:
    """When the asset was last materialized, in epoch seconds; 0 when never."""
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    return event.timestamp if event else 0.0
