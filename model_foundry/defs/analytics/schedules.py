"""When the figures are refreshed. Belongs here: that. Does not belong here: what they are (``assets``)."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def figures_job() -> UnresolvedAssetJobDefinition:
    """The job that materializes every figure."""
    return dg.define_asset_job(
        "refresh_figures",
        selection=dg.AssetSelection.groups("analytics"),
        description="Bring the tables and charts of the figures up to date. The SQL views always are.",
    )


def figures_schedule(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Every minute in which something was answered: not after every run, so that many small runs cost one refresh."""

    @dg.schedule(
        job=job,
        name="figures",
        cron_schedule="* * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Refreshes the figures once a minute, when something was answered since.",
    )
    def figures(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        answered = _latest(context.instance, "completions")
        if answered is None or answered <= (_latest(context.instance, "domain_latency") or 0.0):
            return dg.SkipReason("Nothing was answered since.")
        return dg.RunRequest()

    return figures


def _latest(instance: dg.DagsterInstance, asset: str) -> float | None:
    """When the asset was last materialized, in epoch seconds."""
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    return event.timestamp if event else None
