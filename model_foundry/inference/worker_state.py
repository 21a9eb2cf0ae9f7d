"""What a batch knows of a worker: how many requests are at it, whether it cools down, what it takes to trust it again.

Belongs here: the state of one worker and how outcomes change it; nothing here waits or sends. Does not belong here: the
loop that asks (``dispatch``), which job is next (``schedule``), how the fleet looks to people (``fleet.health``).

- A failure cools the worker, longer each time it fails in a row, jittered, or for as long as its Retry-After asks.
  Requests that were under way when the first of them failed count once.
- After cooling, a worker that could not be reached is looked at before it gets a job again; then one request alone
  tries it, until one succeeds.
- One that refuses our credentials is misconfigured: it gets nothing more, since a person has to see to it.
- One that does nothing but fail for ``down_after_s`` is down, and sooner one that can't be reached. Being full is a
  sign of life and no failure in that sense. Time-outs count only when several jobs have them, because one job may
  simply be too long.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from model_foundry.inference.failures import CREDENTIALS_REFUSED
from model_foundry.inference.schedule import WorkerState
from model_foundry.inference.target import WorkerTarget
from model_foundry.records import Completion, ErrorKind

COOLS = frozenset(
    {
        ErrorKind.CONNECTION,
        ErrorKind.TIMEOUT,
        ErrorKind.STALLED,
        ErrorKind.SERVER_ERROR,
        ErrorKind.RATE_LIMITED,
        ErrorKind.TRUNCATED_STREAM,
    }
)
"""Failures that are the worker's: another may do better, and this one is left alone for a while."""
_TOO_SLOW = frozenset({ErrorKind.TIMEOUT, ErrorKind.STALLED})


def refuses_us(kind: ErrorKind | None, http_status: int | None) -> bool:
    """Whether a failure is that of our credentials."""
    return kind is ErrorKind.INVALID_REQUEST and http_status in CREDENTIALS_REFUSED


def may_go_on(kind: ErrorKind | None, http_status: int | None) -> bool:
    """Whether another worker may do better after such a failure."""
    return kind in COOLS or kind is ErrorKind.MODEL_NOT_FOUND or refuses_us(kind, http_status)


@dataclass(frozen=True, slots=True)
class Cooling:
    """How long a failing worker is left alone.

    The n-th failure in a row cools for ``base_s * 2**(n-1)``, at most ``max_s``, plus up to ``jitter`` of it.
    ``down_after_s``: how long it may fail without one success in between before it counts as down;
    ``unreachable_after_s``: how long it may not be there at all; ``down_after_timeouts``: of how many different jobs,
    where it fails by being too slow.
    ``max_wait_s``: the longest that a job waits for its workers to have cooled.
    """

    base_s: float = 1.0
    max_s: float = 30.0
    jitter: float = 0.25
    down_after_s: float = 60.0
    unreachable_after_s: float = 10.0
    down_after_timeouts: int = 3
    max_wait_s: float = 300.0


@dataclass(slots=True)
class Flight:
    """A request at a worker: when it was sent, when it should end (None: no idea), and what its slot is wanted for."""

    position: int
    sent: float
    ends_at: float | None
    kind: tuple[int, int]


@dataclass(slots=True)
class Worker:
    """A worker's state in one batch. ``failures`` counts those in a row."""

    target: WorkerTarget
    flights: dict[int, Flight] = field(default_factory=dict)
    failures: int = 0
    failing_since: float | None = None
    timed_out: set[int] = field(default_factory=set)
    cooled_at: float = float("-inf")
    cooling_until: float = float("-inf")
    last_model: str | None = None
    last_error: tuple[ErrorKind, str] | None = None
    down: bool = False
    misconfigured: str | None = None
    unreachable: bool = False

    @property
    def in_flight(self) -> int:
        """Requests at it now."""
        return len(self.flights)

    @property
    def slots(self) -> int:
        """Those it may be trusted with now: one after a failure, until a request succeeds."""
        return min(1, self.target.slots) if self.failures else self.target.slots

    def why_not(self) -> str | None:
        """Why it gets nothing at all; None when it may."""
        if self.target.unusable or self.misconfigured:
            return self.target.unusable or self.misconfigured
        return f"worker {self.target.name} is down: {self.last_error[1]}" if self.down and self.last_error else None

    def view(self, now: float, slots: int | None = None) -> WorkerState:
        """What the decision sees, with as many slots as it is trusted with, or fewer."""
        return WorkerState(
            slots=self.slots if slots is None else min(self.slots, slots),
            in_flight=self.in_flight,
            cooling_until=self.cooling_until,
            last_model=self.last_model,
            ends_at=tuple(end for f in self.flights.values() if (end := _expected(f, now)) is not None),
            load_s=self.target.load_s,
        )

    def kinds(self) -> Counter[tuple[int, int]]:
        """How many slots its requests have, by what they are wanted for."""
        return Counter(flight.kind for flight in self.flights.values())

    def succeeded(self) -> None:
        """A request ended as it should."""
        self.failures, self.failing_since, self.down, self.unreachable = 0, None, False, False
        self.timed_out.clear()

    def refused_credentials(self, completion: Completion) -> None:
        """It answered, and will not have us."""
        self.misconfigured = completion.error_message or f"worker {self.target.name} refuses our credentials"

    def failed(
        self, completion: Completion, position: int, sent: float, now: float, cooling: Cooling, jitter: float
    ) -> None:
        """A request ended in one of the ways of ``COOLS``. ``jitter`` is between 0 and 1."""
        kind = completion.error_kind or ErrorKind.SERVER_ERROR
        self.unreachable |= kind is ErrorKind.CONNECTION and completion.http_status is None
        if kind in _TOO_SLOW:
            self.timed_out.add(position)
        again = sent < self.cooled_at  # one of several that were under way when the first of them failed
        self._cool(kind, completion.error_message or kind, completion.retry_after_s, again, now, cooling, jitter)

    def still_unreachable(self, reason: str, now: float, cooling: Cooling, jitter: float) -> None:
        """A look at it, after it had cooled, found nothing."""
        self._cool(ErrorKind.CONNECTION, reason, None, False, now, cooling, jitter)

    def reachable_again(self) -> None:
        """A look at it found it there; one request alone tries it now."""
        self.unreachable = False

    def _cool(
        self,
        kind: ErrorKind,
        message: str,
        wait_s: float | None,
        again: bool,
        now: float,
        cooling: Cooling,
        jitter: float,
    ) -> None:
        self.last_error = kind, message
        if not again:
            self.failures += 1
            self.failing_since = now if self.failing_since is None else self.failing_since
            grown = min(cooling.max_s, cooling.base_s * 2 ** min(self.failures - 1, 30))
            wait_s = max(wait_s or 0.0, grown * (1 + cooling.jitter * jitter))
        self.cooled_at = now
        self.cooling_until = max(self.cooling_until, now + (wait_s or 0.0))
        if kind is ErrorKind.RATE_LIMITED:
            self.failing_since = None
        failing_s = 0.0 if self.failing_since is None else now - self.failing_since
        enough = kind not in _TOO_SLOW or len(self.timed_out) >= cooling.down_after_timeouts
        allowed_s = cooling.down_after_s
        if self.unreachable:
            allowed_s = min(allowed_s, cooling.unreachable_after_s)
        self.down = enough and failing_s >= allowed_s


def _expected(flight: Flight, now: float) -> float | None:
    """When a request should end. One that is overdue is expected to need half as long again, so that nobody waits for
    ever for a worker that has stalled.
    """
    if flight.ends_at is None or flight.ends_at > now:
        return flight.ends_at
    return now + (now - flight.sent) / 2
