"""When the notes are embedded: every hour, once there is a folder of them. Belongs here: the job and the schedule."""

from datetime import UTC, datetime

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.config import FoundryConfig
from model_foundry.defs.embeddings.assets import EMBEDDINGS
from model_foundry.defs.resources import FoundryResource
from model_foundry.defs.streams import UNFINISHED


def embeddings_job() -> UnresolvedAssetJobDefinition:
    """The job that brings the embeddings up to date."""
    return dg.define_asset_job(
        "embed_notes",
        selection=dg.AssetSelection.assets(EMBEDDINGS),
        description="Embed the notes that are new or changed, take out those that are gone.",
    )


def embeddings_schedule(job: UnresolvedAssetJobDefinition, config: FoundryConfig) -> dg.ScheduleDefinition:
    """Every hour; on by itself only where `notes` is configured."""
    on = dg.DefaultScheduleStatus.STOPPED if config.notes is None else dg.DefaultScheduleStatus.RUNNING

    @dg.schedule(
        job=job,
        name="notes",
        cron_schedule="7 * * * *",
        default_status=on,
        description="Embeds new and changed notes every hour, if the configuration has `notes`.",
    )
    def notes(context: dg.ScheduleEvaluationContext, foundry: FoundryResource) -> dg.RunRequest | dg.SkipReason:
        if foundry.parts.config.notes is None:
            return dg.SkipReason("The configuration has no section `notes`.")
        if context.instance.get_runs(dg.RunsFilter(job_name=job.name, statuses=UNFINISHED), limit=1):
            return dg.SkipReason("A run is under way.")
        return dg.RunRequest(partition_key=datetime.now(UTC).date().isoformat())

    return notes
