"""How long what is left will take, from what it has taken so far. Pure.

Belongs here: that. Does not belong here: what is left (``plan``), showing it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from model_foundry.benchmarks.plan import Pair


class Pace:
    """Seconds a request, by model and worker, warm-up and loading included, waits for the worker left out."""

    def __init__(self) -> None:
        self._seconds: Counter[Pair] = Counter()
        self._requests: Counter[Pair] = Counter()

    def took(self, pair: Pair, seconds: float, requests: int = 1) -> None:
        """Notes that so many requests took so long, one after another or at once."""
        self._seconds[pair] += seconds  # type: ignore[assignment]
        self._requests[pair] += requests

    def left_s(self, left: Mapping[str, Mapping[Pair, int]]) -> float | None:
        """Seconds until the slowest line is done; None while nothing is known of any that has something left.

        Args:
            left: line -> requests left by pair. A pair that was not asked yet is taken to be as fast as the others of
                its line, and a line of which nothing is known as all lines.
        """
        every = self._mean(list(self._requests))
        lines = []
        for pairs in left.values():
            here = self._mean([pair for pair in pairs if pair in self._requests]) or every
            if here is None and any(pairs.values()):
                return None
            lines.append(sum(n * (self._mean([pair]) or here or 0.0) for pair, n in pairs.items()))
        return max(lines, default=0.0)

    def _mean(self, pairs: list[Pair]) -> float | None:
        requests = sum(self._requests[pair] for pair in pairs)
        return sum(self._seconds[pair] for pair in pairs) / requests if requests else None
