"""Energy of requests: the integral, and power that comes with heartbeats while a sweep runs."""

from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.benchmarks import runner
from model_foundry.benchmarks.energy import PowerMeter, Stretch, shared_energy_j
from model_foundry_tests.benchmarks.conftest import Bench, a_suite


def test_constant_power_is_power_times_time() -> None:
    assert shared_energy_j([(0, 200), (10, 200)], [], 2, 5) == pytest.approx(600)


def test_between_two_readings_power_goes_straight_and_beyond_them_the_last_one_stands() -> None:
    assert shared_energy_j([(0, 100), (10, 300)], [], 0, 10) == pytest.approx(2000)
    assert shared_energy_j([(5, 100)], [], 0, 10) == pytest.approx(1000)


def test_requests_that_ran_together_share_the_power() -> None:
    assert shared_energy_j([(0, 100)], [(0, 1), (2, 2), (4, 1)], 0, 6) == pytest.approx(2 * 100 + 2 * 50 + 2 * 100)


def test_without_a_reading_nothing_is_known() -> None:
    assert shared_energy_j([], [(0, 1)], 0, 6) is None


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 700)), min_size=1, max_size=9).map(sorted),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 50)), min_size=1, max_size=6),
)
def test_the_shares_of_all_requests_are_the_energy_of_the_time_in_which_any_ran(
    readings: list[tuple[float, float]], spans: list[tuple[float, float]]
) -> None:
    """Whoever shares, nothing is counted twice and nothing is lost."""
    requests = [(start, start + length) for start, length in spans]
    edges = sorted({moment for request in requests for moment in request})
    flights = [(edge, sum(a <= edge < b for a, b in requests)) for edge in edges]
    shares = sum(shared_energy_j(readings, flights, a, b) or 0.0 for a, b in requests)
    busy = [(a, b) for a, b in itertools.pairwise(edges) if any(s <= a and b <= e for s, e in requests)]
    assert shares == pytest.approx(sum(shared_energy_j(readings, [], a, b) or 0.0 for a, b in busy), rel=1e-6, abs=1e-6)


def test_a_reading_of_another_load_does_not_count() -> None:
    now = 0.0
    meter = PowerMeter({}, ["card"], clock=lambda: now)
    meter.took("card", 50)
    now = 10.0
    stretch = Stretch("card", start=10.0)
    assert not meter.is_settled(stretch, 12.0)
    now = 13.0
    meter.took("card", 300)
    assert meter.is_settled(stretch, 12.0)
    assert meter.energy_j(stretch, 11.0, 12.0) == pytest.approx(300)
    assert meter.energy_j(Stretch("moon", start=0.0), 1.0, 2.0) is None
    assert meter.is_settled(Stretch("moon", start=0.0), 2.0), "what is never known is not waited for"


def test_a_sweep_takes_the_power_from_heartbeats(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "is_here", lambda target: False)
    card = bench.worker("card", "a")
    card.pause_s = 0.05
    done = threading.Event()

    def beat() -> None:
        while not done.wait(0.02):
            bench.scene.beats("card", card.url, gpu={"index": 0, "name": "H", "power_w": 120.0})

    bench.scene.beats("card", card.url, gpu={"index": 0, "name": "H", "power_w": 120.0})
    foundry = bench.scene.foundry
    monkeypatch.setattr(type(bench.scene), "foundry", foundry)
    beater = threading.Thread(target=beat)
    beater.start()
    bench.run(a_suite(2), models=["a"], foundry=foundry)
    done.set()
    beater.join()
    rows = bench.rows("from benchmark_results where phase = 'measured'")
    assert [r["energy_j"] for r in rows] == [
        pytest.approx(120 * (r["finished_at"] - r["sent_at"]).total_seconds(), rel=0.5) for r in rows
    ]
    [figures] = foundry.warehouse.show("sweep_figures", {"sweep_id": rows[0]["sweep_id"]})
    assert figures["joules_per_token"] == pytest.approx(sum(r["energy_j"] for r in rows) / (4 * len(rows)))
