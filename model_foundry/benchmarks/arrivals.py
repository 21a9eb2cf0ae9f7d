"""When the conversations of an open loop begin: moments that don't wait for answers. Pure.

Belongs here: Poisson, constant and recorded arrivals. Does not belong here: which prompt comes when (``plan``), the
forms of recorded traces (``importers``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count, takewhile

from model_foundry.benchmarks.settings import Arrival
from model_foundry.errors import ConfigError

MAX_ARRIVALS = 200_000
"""Of one repeat; more is most likely a slip in rate or duration."""


def arrivals(
    arrival: Arrival,
    *,
    rate_rps: float | None,
    duration_s: float | None,
    number: int,
    trace_s: Sequence[float],
    seed: str,
) -> tuple[float, ...]:
    """The moments, ascending, in seconds after the load's start.

    Args:
        arrival: ``poisson``: gaps are exponential with mean 1 / rate, the first one too; ``constant``: one each
            1 / rate, the first at once; ``trace``: as recorded.
        rate_rps: of the first two.
        duration_s: later ones are left out; None: as many as ``number``, or the whole trace.
        number: how many, without a duration.
        trace_s: the recorded moments.
        seed: of the gaps.

    Raises:
        ConfigError: when there are none, or more than ``MAX_ARRIVALS``.
    """
    if arrival == "trace":
        moments: Iterator[float] = iter([moment - trace_s[0] for moment in trace_s])
    else:
        moments = _poisson(rate_rps or 1.0, seed) if arrival == "poisson" else _constant(rate_rps or 1.0)
    found: list[float] = []
    for moment in takewhile(lambda m: duration_s is None or m < duration_s, moments):
        if duration_s is None and arrival != "trace" and len(found) == number:
            break
        if len(found) == MAX_ARRIVALS:
            raise ConfigError(f"more than {MAX_ARRIVALS} arrivals in one repeat; lower the rate or the duration")
        found.append(moment)
    if not found:
        raise ConfigError(f"nothing arrives within {duration_s:g} s at this rate; allowed: a longer duration")
    return tuple(found)


def _poisson(rate_rps: float, seed: str) -> Iterator[float]:
    dice, moment = random.Random(seed), 0.0  # noqa: S311 (no secret)
    while True:
        moment += dice.expovariate(rate_rps)
        yield moment


def _constant(rate_rps: float) -> Iterator[float]:
    return (n / rate_rps for n in count())
