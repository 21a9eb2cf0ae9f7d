"""A run's work on one partition of jobs.

Belongs here: what every flow over a partition's jobs is told, and claiming them. Does not belong here: what is done
with them (``answering``, ``searching``, ``grounding``, ``translating``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from model_foundry.records import Job, Task
from model_foundry.runtime import Foundry
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.landing import claim_jobs


def _silent(done: int, total: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """One run on one partition.

    Attributes:
        foundry: the parts.
        day: the partition's date.
        lane: the partition's lane.
        run_id: who works; jobs are claimed under it.
        dead_runs: runs known to have ended; jobs that they claimed and left are taken over.
        retry_failed: jobs that failed, are incomplete or were cancelled wait again.
        on_progress: called with (done, total).
    """

    foundry: Foundry
    day: date
    lane: str
    run_id: str
    dead_runs: Collection[str] = ()
    retry_failed: bool = False
    on_progress: Callable[[int, int], None] = _silent

    @property
    def warehouse(self) -> Warehouse:
        """The lake."""
        return self.foundry.warehouse

    @property
    def partition(self) -> dict[str, Any]:
        """The partition, as ``warehouse`` is told it."""
        return {"lane": self.lane, "partition_date": self.day}

    @property
    def where(self) -> dict[str, Any]:
        """The partition and the run, likewise."""
        return {**self.partition, "run_id": self.run_id}

    def claim(self, task: Task = Task.ANSWER, *, sourceless: bool = False) -> list[Job]:
        """Claims the partition's waiting jobs of a task, in the order to take them; see ``landing.claim_jobs``.

        Raises:
            LakeError: when the lake can't be used.
        """
        self.warehouse.migrate()
        return claim_jobs(
            self.warehouse,
            **self.where,
            now=datetime.now(UTC),
            tasks=[task],
            sourceless=sourceless,
            dead_runs=self.dead_runs,
            retry_failed=self.retry_failed,
        )
