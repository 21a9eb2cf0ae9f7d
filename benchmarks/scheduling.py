"""How long do jobs wait under this project's scheduler, and under simpler ones? A simulated fleet, the real decision.

    python benchmarks/scheduling.py                  three workers, bursts and lulls, models that must be swapped
    python benchmarks/scheduling.py --trace day.csv  arrivals of your own: arrived_s, prompt_tokens, answer_tokens

The decision is ``inference.schedule.plan`` itself; time, slots, model loads and how long a request really takes (the
estimate times a log-normal error) are simulated. Every strategy gets the same jobs. Prints, for each, how long jobs
took from their arrival to their end, and the ratio to ours.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import random
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from model_foundry.inference.schedule import Assignment, Waiting, WorkerState, plan

Strategy = Callable[[Sequence[Waiting], dict[str, WorkerState], float], list[Assignment]]


@dataclass(frozen=True)
class Machine:
    """A worker: slots, tokens a second read and written by model, seconds to load a model (0: all fit together)."""

    slots: int
    prefill_tps: float
    decode_tps: dict[str, float]
    load_s: float = 0.0

    def service_s(self, model: str, prompt_tokens: int, answer_tokens: int) -> float:
        return prompt_tokens / self.prefill_tps + answer_tokens / self.decode_tps[model]


FLEET = {
    "workstation": Machine(4, 2000, {"large": 40, "small": 120}),
    "card": Machine(2, 800, {"large": 20, "small": 70}, load_s=8),
    "minipc": Machine(1, 60, {"small": 8}),
}


@dataclass(frozen=True)
class Arrival:
    """A job."""

    at: float
    model: str
    prompt_tokens: int
    answer_tokens: int


@dataclass
class Busy:
    """A worker while time passes."""

    machine: Machine
    ends: list[tuple[float, float]] = field(default_factory=list)  # (real end, expected end)
    model: str | None = None


def a_day(seed: int, jobs: int) -> list[Arrival]:
    """Bursts and lulls: the rate changes between a third and three times the mean; answers are of log-normal length."""
    rng, now, found = random.Random(seed), 0.0, []
    rate = 0.9
    for n in range(jobs):
        now += rng.expovariate(rate * (3 if (n // 200) % 2 else 1 / 3))
        model = "large" if rng.random() < 0.25 else "small"
        found.append(Arrival(now, model, int(rng.lognormvariate(5.5, 1)), max(1, int(rng.lognormvariate(4.8, 0.8)))))
    return found


def of_trace(file: Path) -> list[Arrival]:
    """Arrivals from a CSV file."""
    with file.open(newline="", encoding="utf-8") as rows:
        return [
            Arrival(float(r["arrived_s"]), r.get("model") or "small", int(r["prompt_tokens"]), int(r["answer_tokens"]))
            for r in csv.DictReader(rows)
        ]


def first_come(waiting: Sequence[Waiting], fleet: dict[str, WorkerState], now: float) -> list[Assignment]:
    """First in, first out, to the first listed worker with a free slot."""
    return _greedy(waiting, fleet, lambda job, free: next(w for w in job.workers if w in free))


def least_busy(waiting: Sequence[Waiting], fleet: dict[str, WorkerState], now: float) -> list[Assignment]:
    """First in, first out, to the worker with the largest share of its slots free."""

    def choose(job: Waiting, free: dict[str, int]) -> str:
        return max((w for w in job.workers if w in free), key=lambda w: free[w] / fleet[w].slots)

    return _greedy(waiting, fleet, choose)


def at_random(seed: int) -> Strategy:
    """First in, first out, to any worker with a free slot."""
    rng = random.Random(seed)
    return lambda waiting, fleet, now: _greedy(
        waiting, fleet, lambda job, free: rng.choice([w for w in job.workers if w in free])
    )


def _greedy(
    waiting: Sequence[Waiting], fleet: dict[str, WorkerState], choose: Callable[[Waiting, dict[str, int]], str]
) -> list[Assignment]:
    free = {name: w.slots - w.in_flight for name, w in fleet.items() if w.slots > w.in_flight}
    found = []
    for job in sorted(waiting, key=lambda j: j.position):
        if any(w in free for w in job.workers):
            worker = choose(job, free)
            found.append(Assignment(job.position, worker))
            free[worker] -= 1
            if not free[worker]:
                del free[worker]
        if not free:
            break
    return found


def simulate(arrivals: Sequence[Arrival], strategy: Strategy, seed: int) -> list[float]:
    """Seconds from each job's arrival to its end."""
    rng = random.Random(seed)
    noise = [rng.lognormvariate(0, 0.3) for _ in arrivals]
    workers = {name: Busy(machine) for name, machine in FLEET.items()}
    coming = deque(enumerate(arrivals))
    waiting: dict[int, Waiting] = {}
    took: list[float] = []
    events = [job.at for job in arrivals]
    heapq.heapify(events)
    while events:
        now = heapq.heappop(events)
        for worker in workers.values():
            worker.ends = [e for e in worker.ends if e[0] > now]
        while coming and coming[0][1].at <= now:
            number, job = coming.popleft()
            able = tuple(n for n, m in FLEET.items() if job.model in m.decode_tps)
            service = tuple(FLEET[n].service_s(job.model, job.prompt_tokens, job.answer_tokens) for n in able)
            waiting[number] = Waiting(number, able, tuple(range(len(able))), model=job.model, service_s=service)
        fleet = {
            name: WorkerState(
                w.machine.slots,
                len(w.ends),
                last_model=w.model,
                ends_at=tuple(expected if expected > now else now + 1 for _, expected in w.ends),
                load_s=dict.fromkeys(w.machine.decode_tps, w.machine.load_s) if w.machine.load_s else {},
            )
            for name, w in workers.items()
        }
        for assignment in strategy(list(waiting.values()), fleet, now):
            job = arrivals[assignment.position]
            worker = workers[assignment.worker]
            waited = waiting.pop(assignment.position)
            service = waited.service_s[waited.workers.index(assignment.worker)] or 0.0
            load = worker.machine.load_s if worker.model not in (None, job.model) else 0.0
            worker.model = job.model
            end = now + load + service * noise[assignment.position]
            worker.ends.append((end, now + load + service))
            heapq.heappush(events, end)
            took.append(end - job.at)
    return took


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    arrivals = of_trace(args.trace) if args.trace else a_day(args.seed, args.jobs)
    strategies: dict[str, Strategy] = {
        "expected end (ours)": plan,  # type: ignore[dict-item]
        "first in, first out": first_come,
        "least busy": least_busy,
        "random": at_random(args.seed),
    }
    print(f"{len(arrivals)} jobs in {arrivals[-1].at / 60:.0f} minutes; seconds from arrival to end")
    print(f"{'strategy':<22}{'mean':>8}{'p50':>8}{'p95':>8}{'slowest':>9}{'mean ×':>8}{'p95 ×':>8}")
    ours: tuple[float, float] | None = None
    for name, strategy in strategies.items():
        took = sorted(simulate(arrivals, strategy, args.seed))
        mean, p95 = statistics.fmean(took), took[int(0.95 * len(took))]
        ours = ours or (mean, p95)
        print(
            f"{name:<22}{mean:>8.1f}{statistics.median(took):>8.1f}{p95:>8.1f}{took[-1]:>9.0f}"
            f"{mean / ours[0]:>8.2f}{p95 / ours[1]:>8.2f}"
        )


if __name__ == "__main__":
    main()
