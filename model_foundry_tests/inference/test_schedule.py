"""Which job goes to which slot."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from model_foundry.inference.schedule import OVERTAKING_WINDOW, Assignment, Waiting, WorkerState, plan


def job(position: int, *workers: str, **changes: Any) -> Waiting:
    ranks = changes.pop("ranks", tuple(0 for _ in workers))
    return Waiting(position, workers, ranks, **changes)


def planned(waiting: list[Waiting], now: float = 0.0, **fleet: WorkerState) -> list[tuple[int, str]]:
    return [(a.position, a.worker) for a in plan(waiting, fleet, now)]


def test_jobs_go_out_in_published_order_until_the_slots_are_full() -> None:
    jobs = [job(n, "moon") for n in (2, 0, 1)]
    assert planned(jobs, moon=WorkerState(slots=3, in_flight=1)) == [(0, "moon"), (1, "moon")]


def test_a_higher_priority_goes_first() -> None:
    assert planned([job(0, "moon"), job(1, "moon", priority=5)], moon=WorkerState(1)) == [(1, "moon")]


def test_a_job_that_can_not_go_holds_no_other_back() -> None:
    jobs = [job(0, "full", priority=9), job(1, "moon")]
    assert planned(jobs, full=WorkerState(1, in_flight=1), moon=WorkerState(1)) == [(1, "moon")]


def test_a_worse_rank_is_used_only_when_the_better_is_full_or_cooling() -> None:
    jobs = [job(n, "card", "moon", ranks=(0, 1)) for n in range(3)]
    assert planned(jobs, card=WorkerState(2), moon=WorkerState(9)) == [(0, "card"), (1, "card"), (2, "moon")]
    assert planned(jobs[:1], card=WorkerState(2, cooling_until=1.0), moon=WorkerState(9)) == [(0, "moon")]


def test_among_equal_ranks_the_worker_with_the_largest_free_share_is_next() -> None:
    fleet = {"a": WorkerState(4, in_flight=3), "b": WorkerState(2, in_flight=1), "c": WorkerState(8, in_flight=5)}
    assert plan([job(0, "a", "b", "c")], fleet, 0.0) == [Assignment(0, "b")]


def test_a_cooling_worker_takes_nothing_until_its_time() -> None:
    cooling = WorkerState(1, cooling_until=5.0)
    assert planned([job(0, "moon")], now=4.9, moon=cooling) == []
    assert planned([job(0, "moon")], now=5.0, moon=cooling) == [(0, "moon")]


def test_a_worker_that_failed_the_job_is_left_out_while_another_could_take_it() -> None:
    tried = job(0, "moon", "card", tried=frozenset({"moon"}))
    assert planned([tried], moon=WorkerState(1), card=WorkerState(1)) == [(0, "card")]
    assert planned([tried], moon=WorkerState(1), card=WorkerState(1, in_flight=1)) == [], (
        "the untried one is waited for"
    )
    assert planned([tried], moon=WorkerState(1), card=WorkerState(1, cooling_until=9.0)) == [(0, "moon")]


def test_a_job_without_a_known_worker_waits() -> None:
    assert planned([job(0, "nowhere"), job(1)], moon=WorkerState(1)) == []


def test_jobs_of_the_model_used_last_are_taken_together() -> None:
    jobs = [job(0, "moon", model="a"), job(1, "moon", model="b"), job(2, "moon", model="a"), job(3, "moon", model="b")]
    assert planned(jobs, moon=WorkerState(4, last_model="b")) == [(1, "moon"), (3, "moon"), (0, "moon"), (2, "moon")]


def test_a_model_does_not_outweigh_a_priority() -> None:
    jobs = [job(0, "moon", model="a", priority=1), job(1, "moon", model="b")]
    assert planned(jobs, moon=WorkerState(1, last_model="b")) == [(0, "moon")]


def test_a_job_is_not_overtaken_for_ever() -> None:
    jobs = [job(0, "moon", model="a"), *(job(n, "moon", model="b") for n in range(1, 200))]
    order = [p for p, _ in planned(jobs, moon=WorkerState(200, last_model="b"))]
    assert order.index(0) == OVERTAKING_WINDOW - 1


names = st.sampled_from(["a", "b", "c", "d"])
fleets = st.dictionaries(
    names,
    st.builds(
        WorkerState,
        slots=st.integers(1, 4),
        in_flight=st.integers(0, 5),
        cooling_until=st.sampled_from([0.0, 10.0]),
        last_model=st.sampled_from([None, "m", "n"]),
    ),
)


@st.composite
def waiting_jobs(draw: st.DrawFn) -> list[Waiting]:
    jobs = []
    for position in range(draw(st.integers(0, 12))):
        workers = tuple(draw(st.lists(names, unique=True, max_size=4)))
        ranks = tuple(draw(st.lists(st.integers(0, 2), min_size=len(workers), max_size=len(workers))))
        tried = draw(st.frozensets(names, max_size=2))
        priority, model = draw(st.integers(-2, 2)), draw(st.sampled_from(["m", "n", None]))
        jobs.append(Waiting(position, workers, ranks, priority, model, tried))
    return draw(st.permutations(jobs))


def could_take(waiting: Waiting, fleet: dict[str, WorkerState], free: dict[str, int], now: float) -> set[str]:
    """The workers that the rules allow, written differently from the code under test."""
    ready = {w for w in waiting.workers if w in fleet and fleet[w].cooling_until <= now}
    return {w for w in (ready - waiting.tried or ready) if free[w] > 0}


@given(waiting_jobs(), fleets, st.sampled_from([0.0, 20.0]))
def test_every_plan_keeps_the_rules(jobs: list[Waiting], fleet: dict[str, WorkerState], now: float) -> None:
    assignments = plan(jobs, fleet, now)
    by_position = {j.position: j for j in jobs}
    assert len({a.position for a in assignments}) == len(assignments), "a job is sent twice"
    free = {name: w.slots - w.in_flight for name, w in fleet.items()}
    left = dict(by_position)
    for assignment in assignments:
        sent = left.pop(assignment.position)
        able = could_take(sent, fleet, free, now)
        assert assignment.worker in able, "cooling, full, tried or not its worker"
        rank = dict(zip(sent.workers, sent.ranks, strict=True))
        assert rank[assignment.worker] == min(rank[w] for w in able), "a better rank was free"
        passed_over = [j for j in left.values() if j.priority > sent.priority and could_take(j, fleet, free, now)]
        assert not passed_over, "a higher priority had to wait"
        free[assignment.worker] -= 1
    assert not [j for j in left.values() if could_take(j, fleet, free, now)], "a free slot was left to a job that waits"


@given(waiting_jobs(), fleets)
def test_a_plan_depends_on_nothing_but_its_input(jobs: list[Waiting], fleet: dict[str, WorkerState]) -> None:
    expected: list[Assignment] = plan(jobs, fleet, 0.0)
    assert plan(sorted(jobs, key=lambda j: -j.position), fleet, 0.0) == expected
