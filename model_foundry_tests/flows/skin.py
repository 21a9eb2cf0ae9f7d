"""A scene's definitions, and running them in this process."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import dagster as dg

from model_foundry.defs.definitions import build_definitions
from model_foundry_tests.flows.conftest import Scene


class Skin:
    """A scene's definitions, and running them in this process."""

    def __init__(self, scene: Scene, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.defs = build_definitions(scene.foundry)
        self._resources = {name: (self.defs.resources or {})[name] for name in ("foundry", "lake")}

    def run(
        self, job: str, lane: str | None = None, config: dict[str, Any] | None = None, *, key: str | None = None
    ) -> dg.ExecuteInProcessResult:
        """Runs a job: of today and a lane, of a partition key, or of none."""
        if lane is not None:
            key = str(dg.MultiPartitionKey({"date": datetime.now(UTC).date().isoformat(), "lane": lane}))
        found = self.defs.resolve_job_def(job)
        return found.execute_in_process(instance=self.instance, partition_key=key, run_config=config)

    def sense(self, sensor: str, cursor: str | None = None) -> tuple[list[dg.RunRequest], str | None]:
        """What a sensor asks for, and its next cursor."""
        found = self.defs.get_repository_def().get_sensor_def(sensor)
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            resources=self._resources,
            repository_def=self.defs.get_repository_def(),
        ) as context:
            data = found.evaluate_tick(context)
        return list(data.run_requests or []), data.cursor

    def tick(self, schedule: str) -> list[dg.RunRequest]:
        """What a schedule asks for now."""
        found = self.defs.resolve_schedule_def(schedule)
        with dg.build_schedule_context(
            instance=self.instance,
            resources=self._resources,
            repository_def=self.defs.get_repository_def(),
            scheduled_execution_time=datetime.now(UTC),
        ) as context:
            return list(found.evaluate_tick(context).run_requests or [])


def metadata(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    [event] = result.asset_materializations_for_node(asset)
    return {name: value.value for name, value in event.metadata.items()}
