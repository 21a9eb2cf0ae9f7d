"""Asking the fleet: a batch of jobs goes to the workers as they are now, and as they come, go and change meanwhile.

Belongs here: what every flow that asks models or search servers has in common: measured rates, placing, sharing slots,
news of the fleet, cancelling. Does not belong here: what is asked and what becomes of it (``answering``,
``searching``, ``translating``), who gets what (``inference.dispatch``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from model_foundry.errors import NatsUnavailableError, StreamError
from model_foundry.fleet.board import cancellation_key, cancellations_bucket, read_board
from model_foundry.fleet.estimates import Rates, rates_from_rows
from model_foundry.fleet.leases import Slots, sharing_slots
from model_foundry.fleet.roster import without_beats
from model_foundry.inference.client import new_client
from model_foundry.inference.dispatch import Control, WorkerTarget, WorkItem, dispatch
from model_foundry.inference.probe import probe
from model_foundry.jetstream.client import JetStream
from model_foundry.placing import Placement
from model_foundry.records import Completion, Job, JobOutcome
from model_foundry.runtime import Foundry
from model_foundry.tasks import end

RATES_DAYS = 7
LOOK_TIMEOUT_S = 5.0


def measured_rates(foundry: Foundry) -> dict[tuple[str, str], Rates]:
    """What each worker has shown with each model in the last days."""
    since = datetime.now(UTC) - timedelta(days=RATES_DAYS)
    return rates_from_rows(foundry.warehouse.show("service_rates", {"since": since}))


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job of this run, with the number of its last attempt and how many count against its budget.

    ``part_of`` is the job that it is a part of: when that one is cancelled, so is it.
    """

    job: Job
    last_attempt: int = 0
    spent: int = 0
    part_of: str | None = None


class AskedFleet:
    """The fleet as one run uses it, kept up to date while it is asked; see :func:`asked_fleet`."""

    def __init__(self, js: JetStream, foundry: Foundry, rates: Mapping[tuple[str, str], Rates], slots: Slots) -> None:
        self._js, self._foundry, self._rates, self._slots = js, foundry, rates, slots
        self._control = Control()
        self._items: list[WorkItem] = []
        self._cancelled_by: dict[str, list[str]] = {}
        self._placement = Placement(foundry, without_beats(foundry.config), rates)

    async def place(self, claimed: Sequence[Claimed]) -> None:
        """Reads the fleet and places the jobs in it."""
        self._placement = await self._look()
        self._items = [self._placement.item(c.job, c.last_attempt, c.spent) for c in claimed]
        for c in claimed:
            self._cancelled_by.setdefault(cancellation_key(c.part_of or c.job.job_id), []).append(c.job.job_id)

    async def _look(self) -> Placement:
        board = await read_board(self._js, self._foundry.config)
        return Placement(self._foundry, board.roster, self._rates)

    async def dispatch(
        self,
        on_attempt: Callable[[WorkItem, Completion], None],
        on_done: Callable[[WorkItem, JobOutcome], None],
        put_off: Callable[[str, str], None],
    ) -> None:
        """Answers what was placed."""
        async with new_client() as client:

            async def look(target: WorkerTarget) -> str | None:
                found = await probe(client, target, LOOK_TIMEOUT_S)
                return None if found.reachable and not found.loading else found.detail

            await dispatch(
                self._items,
                self._placement.targets,
                self._foundry.config.limits,
                on_attempt=on_attempt,
                on_done=on_done,
                on_put_off=lambda item, reason: put_off(item.job.job_id, reason),
                control=self._control,
                slots=self._slots,
                look=look,
                client=client,
            )

    async def keep_up(self) -> None:
        """Tells the dispatch of workers that come, go or change, and of jobs that are cancelled, until cancelled."""

        def on_cancelled(key: str) -> None:
            self._control.cancel(self._cancelled_by.get(key, ()))

        while True:
            with contextlib.suppress(NatsUnavailableError, StreamError):  # it is looked at again in a moment
                bucket = await self._js.bucket(cancellations_bucket(self._foundry.config.fleet))
                async with bucket.changes(">", on_cancelled):
                    while True:
                        for key in await bucket.entries():
                            on_cancelled(key)
                        self._renew(await self._look())
                        await asyncio.sleep(self._foundry.config.fleet.heartbeat_s / 2)
            await asyncio.sleep(1.0)

    def _renew(self, placement: Placement) -> None:
        """Tells the dispatch of the fleet, if it is not what it was."""
        was, self._placement = self._placement, placement
        if was.targets != placement.targets or was.roster.config.workers != placement.roster.config.workers:
            self._control.renew(placement.targets, placement.again)


@contextlib.asynccontextmanager
async def asked_fleet(
    js: JetStream, foundry: Foundry, rates: Mapping[tuple[str, str], Rates], claimed: Sequence[Claimed], run_id: str
) -> AsyncIterator[AskedFleet]:
    """The fleet, with slots of its own, while it is open.

    Raises:
        NatsUnavailableError, StreamError: when the fleet's buckets can't be used.
    """
    async with sharing_slots(js, foundry.config.fleet, run_id) as slots:
        fleet = AskedFleet(js, foundry, rates, slots)
        await fleet.place(claimed)
        news = asyncio.create_task(fleet.keep_up())
        try:
            yield fleet
        finally:
            await end(news)
