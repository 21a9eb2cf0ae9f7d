"""Jobs over real llama.cpp servers of which one fails in every way that machines do; jobs counted before and after."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from model_foundry.answering import answer_partition
from model_foundry.intake import land_partition
from model_foundry.partition_run import PartitionRun
from model_foundry.prompt_intake import PromptIntake
from model_foundry_tests.faulty import Fault, FaultyProxy
from model_foundry_tests.flows.conftest import Scene, Servers
from model_foundry_tests.inference.conftest import LLAMA_MODEL
from model_foundry_tests.inference.conftest import llama_url as llama_url  # a fixture
from model_foundry_tests.parts import wait_for

TODAY = datetime.now(UTC).date()
JOBS = 12


class Fleet:
    """Two workers, each a door of its own to one real server."""

    def __init__(self, scene: Scene, servers: Servers, llama: str) -> None:
        self._loop = servers._loop
        self.bad, self.good = FaultyProxy(llama), FaultyProxy(llama)
        for proxy in (self.bad, self.good):
            self.do(proxy.start())
        for name, proxy in (("bad", self.bad), ("good", self.good)):
            scene.worker(name, proxy.url, models={"small": LLAMA_MODEL}, slots=1)
        scene.raw["limits"] |= {
            "request_idle_timeout_s": 4,
            "request_first_token_timeout_s": 20,
            "default_max_tokens": 8,
        }
        scene.publish(*({"prompt": f"Count to {n}", "model": "small", "job_id": f"j{n}"} for n in range(JOBS)))
        land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="land")

    def do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)  # type: ignore[arg-type]


@pytest.fixture
def fleet(scene: Scene, servers: Servers, llama_url: str) -> Iterator[Fleet]:
    made = Fleet(scene, servers, llama_url)
    yield made
    made.do(made.bad.refuse())
    made.do(made.good.refuse())


def all_are_answered_once(scene: Scene) -> Counter[str]:
    jobs = scene.foundry.warehouse.rows("select job_id, status, attempts from jobs")
    assert Counter(row["status"] for row in jobs) == {"answered": JOBS}
    attempts = scene.foundry.warehouse.rows("select job_id, attempt, status, error_kind from completions")
    assert len(attempts) == sum(row["attempts"] for row in jobs), "each attempt is its own row"
    assert Counter(r["job_id"] for r in attempts if r["status"] == "answered") == {f"j{n}": 1 for n in range(JOBS)}
    assert set(scene.results()) == {f"j{n}" for n in range(JOBS)}
    return Counter(row["error_kind"] for row in attempts if row["error_kind"])


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("pass", set()),
        ("slow", set()),
        ("reset", {"truncated_stream", "connection"}),
        ("truncate", {"truncated_stream"}),
        ("stall", {"stalled"}),
        ("429", {"rate_limited"}),
        ("503", {"server_error"}),
        ("lie", {"server_error"}),
    ],
)
def test_every_job_is_answered_whatever_one_worker_does(
    scene: Scene, fleet: Fleet, fault: Fault, kinds: set[str]
) -> None:
    fleet.bad.fault = fault
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    found = all_are_answered_once(scene)
    assert set(found) <= kinds
    assert bool(found) == bool(kinds)
    assert max(fleet.bad.most_in_flight, fleet.good.most_in_flight) == 1
    assert fleet.bad.posts < JOBS, "a worker that fails is spared"


def test_a_worker_that_dies_and_comes_back_loses_no_job(scene: Scene, fleet: Fleet) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(answer_partition, PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
        wait_for("both to work", lambda: fleet.bad.posts and fleet.good.posts)
        fleet.do(fleet.bad.refuse())
        fleet.do(fleet.good.refuse())
        before = fleet.good.posts
        fleet.do(fleet.good.start())
        wait_for("the one that is back to work", lambda: fleet.good.posts > before)
        assert run.result(90).status == "done"
    assert set(all_are_answered_once(scene)) <= {"connection"}


def test_a_fleet_that_is_all_gone_keeps_its_jobs(scene: Scene, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    from model_foundry.inference import dispatch

    impatient = dispatch.Cooling(base_s=0.05, max_s=0.1, down_after_s=0.5)
    monkeypatch.setitem(dispatch.dispatch.__kwdefaults__, "cooling", impatient)
    fleet.do(fleet.bad.refuse())
    fleet.do(fleet.good.refuse())
    report = answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    assert (report.status, len(report.put_off)) == ("waiting", JOBS)
    waiting = scene.foundry.warehouse.rows("from waiting_jobs")
    assert len(waiting) == JOBS
    assert all("can't be reached" in row["reason"] for row in waiting)
    fleet.do(fleet.good.start())
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-2", dead_runs=["run-1"]))
    all_are_answered_once(scene)
