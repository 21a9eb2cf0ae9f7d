"""Energy of requests: a GPU's power over their time, shared among those that ran together.

Belongs here: the integral (a pure function), gathering power while a sweep runs. Does not belong here: reading a GPU
(``fleet.gpu``), heartbeats' form (``fleet.heartbeat``).

Power is that of the whole card as its driver says, what it draws when idle included; host, fans and other cards are not
in it. Of a worker on this host it is read every second, of others it comes with their agents' heartbeats. Between two
readings it is taken to go straight from one to the other. Readings from before a stage are of another load and don't
count; before its first and after its last reading of a stage, that reading stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from model_foundry.config import FleetConfig
from model_foundry.errors import NatsUnavailableError, StreamError
from model_foundry.fleet.gpu import GpuReader
from model_foundry.fleet.heartbeat import Heartbeat, read_heartbeat, workers_bucket
from model_foundry.jetstream.client import JetStream

READ_EVERY_S = 1.0


def shared_energy_j(
    readings: Sequence[tuple[float, float]], flights: Sequence[tuple[float, int]], start: float, end: float
) -> float | None:
    """The energy of one request, in joules: the integral of power / requests in flight. None without a reading.

    Args:
        readings: (moment, watts) of its stage, ascending.
        flights: (moment, requests in flight from then on), ascending.
        start: when it was sent, on the same clock.
        end: when it ended.
    """
    if not readings or end < start:
        return None
    moments = [moment for moment, _ in readings]
    changes = [moment for moment, _ in flights]
    inside = {m for m in (*moments, *changes) if start < m < end}
    knots = sorted({start, end, *inside})
    return sum(
        (b - a) * (_power(readings, moments, a) + _power(readings, moments, b)) / 2 / _in_flight(flights, changes, a)
        for a, b in itertools.pairwise(knots)
    )


def _power(readings: Sequence[tuple[float, float]], moments: Sequence[float], at: float) -> float:
    place = bisect_left(moments, at)
    if place == 0:
        return readings[0][1]
    if place == len(readings):
        return readings[-1][1]
    (before, low), (after, high) = readings[place - 1], readings[place]
    return low if after == before else low + (high - low) * (at - before) / (after - before)


def _in_flight(flights: Sequence[tuple[float, int]], changes: Sequence[float], at: float) -> int:
    place = bisect_right(changes, at)
    return max(1, flights[place - 1][1]) if place else 1


@dataclass(slots=True)
class Stretch:
    """A stage's time at a worker, with what was seen meanwhile. ``end`` is None while it goes on."""

    worker: str
    start: float
    end: float | None = None
    flights: list[tuple[float, int]] = field(default_factory=list)

    def flying(self, number: int, now: float) -> None:
        """Notes how many requests are in flight from now on."""
        self.flights.append((now, number))


class PowerMeter:
    """The power of workers' GPUs while it is watched.

    Args:
        local: worker -> index of its GPU on this host.
        remote: workers whose agents tell.
        clock: monotonic seconds.
    """

    def __init__(
        self, local: Mapping[str, int], remote: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._local, self._remote, self._clock = local, [w for w in remote if w not in local], clock
        self._readings: dict[str, list[tuple[float, float]]] = {w: [] for w in (*local, *self._remote)}

    def took(self, worker: str, watts: float) -> None:
        """Notes a reading."""
        self._readings.setdefault(worker, []).append((self._clock(), watts))

    def is_settled(self, stretch: Stretch, end: float) -> bool:
        """Whether all that will be known of a request that ended then is known now."""
        readings = self._readings.get(stretch.worker)
        return readings is None or stretch.end is not None or bool(readings and readings[-1][0] >= end)

    def energy_j(self, stretch: Stretch, start: float, end: float) -> float | None:
        """The energy of a request of a stage; None where no power is known."""
        readings = self._readings.get(stretch.worker, [])
        until = self._clock() if stretch.end is None else stretch.end
        inside = [(moment, watts) for moment, watts in readings if stretch.start <= moment <= until]
        return shared_energy_j(inside, stretch.flights, start, end)

    async def watch(self, js: JetStream, fleet: FleetConfig) -> None:
        """Gathers until it is cancelled."""
        await asyncio.gather(self._watch_here(), self._watch_beats(js, fleet))

    async def _watch_here(self) -> None:
        reader = GpuReader()
        while self._local:
            by_index = {gpu.index: gpu.power_w for gpu in (await reader.read()).gpus}
            for worker, index in self._local.items():
                if (watts := by_index.get(index)) is not None:
                    self.took(worker, watts)
            if not by_index:
                return  # no GPU that can be seen from here, now or later
            await asyncio.sleep(READ_EVERY_S)

    async def _watch_beats(self, js: JetStream, fleet: FleetConfig) -> None:
        wake, changed = asyncio.Event(), set[str]()

        def on_change(key: str) -> None:
            if key in self._remote:
                changed.add(key)
                wake.set()

        while self._remote:
            with contextlib.suppress(NatsUnavailableError, StreamError):  # it is tried again in a moment
                bucket = await js.bucket(workers_bucket(fleet.bucket, fleet.replicas))
                async with bucket.changes(">", on_change):
                    while True:
                        await wake.wait()
                        wake.clear()
                        for key in list(changed):
                            changed.discard(key)
                            entry = (await bucket.entries(key)).get(key)
                            beat = None if entry is None else read_heartbeat(entry.value or b"", key)
                            if isinstance(beat, Heartbeat) and beat.gpu and beat.gpu.power_w is not None:
                                self.took(key, beat.gpu.power_w)
            await asyncio.sleep(1.0)
