"""Which job goes to which slot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from model_foundry.inference.schedule import OVERTAKING_WINDOW, Assignment, Waiting, WorkerState, expected_ends, plan


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


def test_a_job_waits_for_the_busy_worker_that_ends_it_first() -> None:
    quick_and_slow = job(0, "card", "moon", service_s=(2.0, 60.0))
    card = WorkerState(1, in_flight=1, ends_at=(5.0,))
    assert planned([quick_and_slow], card=card, moon=WorkerState(1)) == []
    assert planned([quick_and_slow], card=card, moon=WorkerState(0)) == []
    busy_for_long = WorkerState(1, in_flight=1, ends_at=(59.0,))
    assert planned([quick_and_slow], card=busy_for_long, moon=WorkerState(1)) == [(0, "moon")]


def test_a_job_further_back_takes_the_slow_worker_when_the_fast_ones_queue_is_too_long() -> None:
    jobs = [job(n, "card", "moon", service_s=(2.0, 9.0)) for n in range(20)]
    assert planned(jobs, card=WorkerState(1), moon=WorkerState(1)) == [(0, "card"), (4, "moon")]


def test_loading_a_model_counts_as_time() -> None:
    swaps = {"a": 8.0, "b": 8.0}
    card = WorkerState(1, last_model="b", load_s=swaps)
    one = job(0, "card", "moon", model="a", service_s=(2.0, 9.0))
    assert planned([one], card=card, moon=WorkerState(1)) == [(0, "moon")]
    assert planned([one], card=WorkerState(1, last_model="a", load_s=swaps), moon=WorkerState(1)) == [(0, "card")]
    assert planned([one], card=WorkerState(1, last_model="b", load_s={}), moon=WorkerState(1)) == [(0, "card")]


def test_models_that_fit_together_are_not_grouped() -> None:
    jobs = [job(0, "moon", model="a"), job(1, "moon", model="b")]
    assert planned(jobs, moon=WorkerState(1, last_model="b", load_s={})) == [(0, "moon")]
    assert planned(jobs, moon=WorkerState(1, last_model="b", load_s={"a": 3.0, "b": 3.0})) == [(1, "moon")]


def test_a_worker_that_was_never_measured_is_tried() -> None:
    unknown = job(0, "known", "new", service_s=(3.0, None), ranks=(0, 0))
    assert planned([unknown], known=WorkerState(1, in_flight=1, ends_at=(1.0,)), new=WorkerState(1)) == [(0, "new")]


def test_a_near_deadline_goes_before_the_published_order_but_not_before_a_priority() -> None:
    jobs = [job(0, "moon"), job(1, "moon", urgent=True), job(2, "moon", priority=1)]
    assert planned(jobs, moon=WorkerState(2)) == [(2, "moon"), (1, "moon")]


def test_the_worker_of_a_role_gets_its_jobs_whenever_it_is_free() -> None:
    own = job(0, "card", "moon", service_s=(1.0, 9.0), first="moon")
    assert planned([own], card=WorkerState(1), moon=WorkerState(1)) == [(0, "moon")]
    assert planned([own], card=WorkerState(1), moon=WorkerState(1, in_flight=1)) == [(0, "card")]


def test_the_expected_end_can_be_shown_for_every_worker() -> None:
    one = job(0, "card", "moon", "new", "gone", service_s=(2.0, 9.0, None, 1.0), model="a")
    fleet = {
        "card": WorkerState(1, in_flight=1, ends_at=(5.0,), last_model="b", load_s={"a": 4.0}),
        "moon": WorkerState(1),
        "new": WorkerState(1),
    }
    assert expected_ends(one, fleet, 1.0) == {"card": 10.0, "moon": 9.0, "new": None, "gone": None}


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


@given(waiting_jobs(), fleets, st.data())
def test_no_plan_with_expected_times_fills_more_than_the_slots(
    jobs: list[Waiting], fleet: dict[str, WorkerState], data: st.DataObject
) -> None:
    seconds = st.one_of(st.none(), st.floats(0, 100))
    timed = [replace(j, service_s=tuple(data.draw(seconds) for _ in j.workers)) for j in jobs]
    assignments = plan(timed, fleet, 0.0)
    assert len({a.position for a in assignments}) == len(assignments)
    for name, state in fleet.items():
        sent = [a for a in assignments if a.worker == name]
        assert len(sent) <= max(0, state.slots - state.in_flight)
        assert not (sent and state.cooling_until > 0)
