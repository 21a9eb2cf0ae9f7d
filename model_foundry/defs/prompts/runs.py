"""Runs over a partition of jobs. Belongs here: what the domain is told of one, and which others can't come back."""

import dagster as dg

from model_foundry.defs.prompts.partitions import day_and_lane
from model_foundry.defs.resources import FoundryResource
from model_foundry.partition_run import PartitionRun
from model_foundry.warehouse.landing import claimants


def partition_run(
    context: dg.AssetExecutionContext, foundry: FoundryResource, what: str = "jobs", *, retry_failed: bool = False
) -> PartitionRun:
    """The run of a step, as the domain is told of it; its progress goes to the run's log.

    Args:
        context: the step's.
        foundry: the parts.
        what: is counted in the log.
        retry_failed: as a person asked.
    """
    day, lane = day_and_lane(context)
    run_ids = claimants(foundry.parts.warehouse, lane=lane, partition_date=day)
    return PartitionRun(
        foundry.parts,
        day,
        lane,
        context.run_id,
        dead_runs=runs_that_ended(context.instance, run_ids),
        retry_failed=retry_failed,
        on_progress=lambda done, total: context.log.info(f"{done} of {total} {what} done"),
    )


def runs_that_ended(instance: dg.DagsterInstance, run_ids: list[str]) -> list[str]:
    """The runs among these that can't come back: finished, or unknown to this instance."""
    runs = {run_id: instance.get_run_by_id(run_id) for run_id in run_ids}
    return [run_id for run_id, run in runs.items() if run is None or run.is_finished]
