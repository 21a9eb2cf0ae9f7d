"""When the fleet is recorded, and what happens when a worker comes back.

Belongs here: the sensor, the jobs and the schedule. Does not belong here: what a change is (``fleet.snapshots``).
"""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.fleet.assets import WORKER_FLEET
from model_foundry.defs.prompts.partitions import partition_key
from model_foundry.defs.resources import FoundryResource
from model_foundry.defs.streams import UNFINISHED
from model_foundry.fleet.snapshots import FleetCursor, plan_fleet_tick

LOOK_EVERY_S = 20


def record_fleet_job() -> UnresolvedAssetJobDefinition:
    """The job that records the fleet and checks it."""
    return dg.define_asset_job(
        "record_fleet",
        selection=dg.AssetSelection.assets(WORKER_FLEET),
        description="Look at every worker, record what was found, warn.",
    )


def placement_job() -> UnresolvedAssetJobDefinition:
    """The job that weighs what was measured against the budgets."""
    return dg.define_asset_job(
        "advise_placement",
        selection=dg.AssetSelection.assets("placement_advice"),
        description="Weigh what was measured against `fleet.budgets`.",
    )


def placement_schedule(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Once a day: what it weighs are days."""

    @dg.schedule(
        job=job,
        name="placement",
        cron_schedule="30 5 * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Proposes once a day what should be served where, if `fleet.budgets` says what is too slow.",
    )
    def placement(foundry: FoundryResource) -> dg.RunRequest | dg.SkipReason:
        if not foundry.parts.config.fleet.budgets:
            return dg.SkipReason("fleet.budgets names no budget.")
        return dg.RunRequest()

    return placement


def fleet_sensor_for(
    fleet_job: UnresolvedAssetJobDefinition, answer_job: UnresolvedAssetJobDefinition
) -> dg.SensorDefinition:
    """The sensor over the two jobs."""

    @dg.sensor(
        name="fleet_sensor",
        jobs=[fleet_job, answer_job],
        minimum_interval_seconds=LOOK_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Looks at every worker. A change of state is recorded at once, everything every few minutes; when a "
            "worker comes to life, the jobs that waited for one like it are answered."
        ),
    )
    def fleet_sensor(context: dg.SensorEvaluationContext, foundry: FoundryResource) -> dg.SensorResult | dg.SkipReason:
        tick = plan_fleet_tick(foundry.parts, FleetCursor.of_text(context.cursor))
        requests = []
        if tick.record_because:
            requests.append(dg.RunRequest(job_name=fleet_job.name, tags={"foundry/because": tick.record_because[:250]}))
        mine = dg.RunsFilter(job_name=answer_job.name, statuses=UNFINISHED)
        busy = {run.tags.get("dagster/partition") for run in context.instance.get_runs(mine)} if tick.answer else set()
        requests += [
            dg.RunRequest(
                job_name=answer_job.name, partition_key=key, tags={"foundry/because": "a worker came to life"}
            )
            for day, lane in tick.answer
            if str(key := partition_key(day, lane)) not in busy
        ]
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else "Nothing changed.",
            cursor=tick.cursor.to_text(),
        )

    return fleet_sensor
