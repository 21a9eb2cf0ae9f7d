"""Runs that claimed jobs. Belongs here: which of them can't come back, by Dagster's own word."""

from datetime import date

import dagster as dg

from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.landing import claimants


def claiming_runs_that_ended(instance: dg.DagsterInstance, warehouse: Warehouse, day: date, lane: str) -> list[str]:
    """Among the runs that hold claims on a partition's jobs, those that can't come back: finished, or unknown here."""
    run_ids = claimants(warehouse, lane=lane, partition_date=day)
    runs = {run_id: instance.get_run_by_id(run_id) for run_id in run_ids}
    return [run_id for run_id, run in runs.items() if run is None or run.is_finished]
