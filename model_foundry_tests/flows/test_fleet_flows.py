"""Answering with a fleet that changes: on real NATS and a real lake, with scripted model servers."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from model_foundry.answering import AnswerReport, answer_partition
from model_foundry.fleet.board import cancel_job
from model_foundry.intake import land_partition
from model_foundry.jetstream.client import with_jetstream
from model_foundry.partition_run import PartitionRun
from model_foundry.prompt_intake import PromptIntake
from model_foundry_tests.flows.conftest import Scene, Servers
from model_foundry_tests.inference.scripted import HANG, refusal, sse_answer
from model_foundry_tests.parts import wait_for

TODAY = datetime.now(UTC).date()
CPU, GPU = "cpu_inference", "gpu_inference"
NOBODY = "http://127.0.0.1:9"


def landed(scene: Scene, *prompts: dict[str, Any], lane: str = CPU) -> None:
    scene.publish(*({"prompt": "hi", "model": "small" if lane == CPU else "big", **p} for p in prompts))
    land_partition(scene.foundry, PromptIntake, (TODAY, lane), run_id="land")


def answered(scene: Scene, lane: str = CPU, run_id: str = "run-1", **more: Any) -> AnswerReport:
    return answer_partition(PartitionRun(scene.foundry, TODAY, lane, run_id=run_id, **more))


def workers_of(scene: Scene) -> dict[str, str]:
    return {
        r["job_id"]: r["worker"] for r in scene.foundry.warehouse.rows("from completions where status = 'answered'")
    }


def test_a_job_that_nobody_can_do_waits_visibly_and_is_answered_when_a_worker_joins(
    scene: Scene, servers: Servers
) -> None:
    landed(scene, {"job_id": "j"}, lane=GPU)
    report = answered(scene, GPU)
    assert (report.status, report.put_off) == ("waiting", {"j": "no worker serves its model and capability"})
    [row] = scene.foundry.warehouse.rows("from waiting_jobs")
    assert (row["job_id"], row["lane"], row["reason"]) == ("j", GPU, "no worker serves its model and capability")
    scene.beats("newcomer", servers.start(sse_answer("here")).url, supports=[GPU], models=["big", "another"], slots=2)
    assert answered(scene, GPU, "run-2", dead_runs=["run-1"]).by_status == {"answered": 1}
    assert workers_of(scene) == {"j": "newcomer"}
    assert scene.foundry.warehouse.rows("from waiting_jobs") == []


def test_a_worker_that_joins_by_heartbeat_can_be_shut_out(scene: Scene, servers: Servers) -> None:
    scene.raw["fleet"]["accept_unknown"] = False
    server = servers.start(sse_answer())
    scene.beats("stranger", server.url, supports=[CPU])
    landed(scene, {"job_id": "j"})
    assert answered(scene).status == "waiting"
    assert server.received == []


def test_a_worker_whose_agent_is_silent_gets_nothing_and_another_takes_over(scene: Scene, servers: Servers) -> None:
    """The card serves the CPU lane when the CPU machine is gone."""
    scene.raw["fleet"] |= {"heartbeat_s": 0.2, "gone_after_s": 0.4}
    moon, card = servers.start(sse_answer("moon")), servers.start(sse_answer("card"))
    scene.worker("moon", moon.url, supports=[CPU], models=["small"])
    scene.worker("card", card.url, supports=[GPU, CPU], models=["small", "big"])
    scene.beats("moon", moon.url)
    landed(scene, {"job_id": "j"})
    wait_for("the heartbeat to be old", lambda: "is gone" in str(scene_unusable(scene, "moon")))
    assert answered(scene).by_status == {"answered": 1}
    assert workers_of(scene) == {"j": "card"}
    assert moon.received == []


def scene_unusable(scene: Scene, name: str) -> str | None:
    from model_foundry.fleet.board import read_board

    board = with_jetstream(scene.foundry.nats, lambda js: read_board(js, scene.foundry.config))
    return board.roster.members[name].unusable()


def test_a_worker_that_joins_while_a_batch_is_answered_takes_part(scene: Scene, servers: Servers) -> None:
    release = asyncio.Event()
    slow, quick = servers.start([release, *sse_answer("slow")]), servers.start(sse_answer("quick"))
    scene.worker("slow", slow.url)
    landed(scene, *({"job_id": f"j{n}"} for n in range(5)))
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(answered, scene)
        wait_for("the first request", lambda: slow.received)
        scene.beats("quick", quick.url, models=["small"])
        wait_for("the others to be answered", lambda: len(quick.received) == 4)
        servers._loop.call_soon_threadsafe(release.set)
        assert run.result(30).by_status == {"answered": 5}


def test_runs_of_two_lanes_and_a_third_holder_never_exceed_a_workers_slots(scene: Scene, servers: Servers) -> None:
    server = servers.start([0.02, *sse_answer()])
    scene.worker("card", server.url, supports=[GPU, CPU], slots=3, models=["small", "big"])
    landed(scene, *({"job_id": f"c{n}"} for n in range(20)))
    landed(scene, *({"job_id": f"g{n}"} for n in range(20)), lane=GPU)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(answered, scene, lane, f"run-{lane}") for lane in (CPU, GPU)]
        assert [run.result(60).by_status for run in runs] == [{"answered": 20}] * 2
    assert server.most_in_flight == 3
    assert len(server.received) == 40


def test_a_workers_own_lane_goes_before_what_it_helps_out_with(scene: Scene, servers: Servers) -> None:
    release = asyncio.Event()
    server = servers.start([release, *sse_answer()], sse_answer())
    scene.worker("card", server.url, supports=[GPU, CPU], models=["small", "big"])
    landed(scene, *({"job_id": f"c{n}", "prompt": "cpu"} for n in range(6)))
    landed(scene, *({"job_id": f"g{n}", "prompt": "gpu"} for n in range(6)), lane=GPU)
    with ThreadPoolExecutor(2) as pool:
        cpu = pool.submit(answered, scene, CPU, "run-cpu")
        wait_for("the first request", lambda: server.received)
        gpu = pool.submit(answered, scene, GPU, "run-gpu")
        wait_for("the other lane to want the slot", lambda: wants(scene) == 2)
        servers._loop.call_soon_threadsafe(release.set)
        assert (cpu.result(60).status, gpu.result(60).status) == ("done", "done")
    order = [r.body["messages"][0]["content"] for r in server.received]
    assert order == ["cpu", *["gpu"] * 6, *["cpu"] * 5]


def wants(scene: Scene) -> int:
    from model_foundry.fleet.leases import slots_bucket

    async def look(js: Any) -> int:
        entries = await (await js.bucket(slots_bucket(scene.foundry.config.fleet))).entries()
        return len([key for key in entries if ".want." in key])

    return int(with_jetstream(scene.foundry.nats, look))


def test_a_job_is_cancelled_in_flight_and_while_it_waits_and_its_result_says_so(scene: Scene, servers: Servers) -> None:
    server = servers.start([HANG])
    scene.worker("w", server.url)
    landed(scene, {"job_id": "a"}, {"job_id": "b"})
    fleet = scene.foundry.config.fleet
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(answered, scene)
        wait_for("the first request", lambda: server.received)
        for job_id in ("b", "a"):
            with_jetstream(scene.foundry.nats, lambda js, job_id=job_id: cancel_job(js, fleet, job_id))  # type: ignore[misc]
        assert run.result(30).by_status == {"cancelled": 2}
    assert {i: r["status"] for i, r in scene.results().items()} == {"a": "cancelled", "b": "cancelled"}


def test_a_job_cancelled_before_it_came_is_never_sent(scene: Scene, servers: Servers) -> None:
    server = servers.start(sse_answer())
    scene.worker("w", server.url)
    with_jetstream(scene.foundry.nats, lambda js: cancel_job(js, scene.foundry.config.fleet, "ü.j"))
    landed(scene, {"job_id": "ü.j"}, {"job_id": "other"})
    assert answered(scene).by_status["answered"] >= 1
    assert scene.results()["other"]["status"] == "answered"


def test_a_dead_fleet_costs_no_job_its_attempts(scene: Scene, servers: Servers) -> None:
    """Nothing listens there: the jobs wait with the reason, and are answered by the first run after it is back."""
    scene.worker("w", NOBODY, slots=2)
    landed(scene, *({"job_id": f"j{n}"} for n in range(10)))
    from model_foundry.inference import dispatch

    impatient = dispatch.Cooling(base_s=0.02, max_s=0.05, down_after_s=0.3)
    original, dispatch._COOLING = dispatch._COOLING, impatient
    try:
        dispatch.dispatch.__kwdefaults__["cooling"] = impatient
        report = answered(scene)
    finally:
        dispatch._COOLING = dispatch.dispatch.__kwdefaults__["cooling"] = original
    assert report.status == "waiting"
    assert len(report.put_off) == 10
    assert "can't be reached" in report.put_off["j9"]
    assert report.attempts <= 2
    scene.worker("w", servers.start(sse_answer()).url, slots=2)
    assert answered(scene, run_id="run-2", dead_runs=["run-1"]).by_status == {"answered": 10}


def test_attempts_of_an_earlier_run_count_and_a_person_can_give_new_ones(scene: Scene, servers: Servers) -> None:
    scene.raw["limits"]["max_attempts"] = 2
    server = servers.start(refusal(500), refusal(500), sse_answer("at last"))
    scene.worker("w", server.url)
    landed(scene, {"job_id": "j"})
    assert answered(scene).by_status == {"failed": 1}
    assert answered(scene, run_id="run-2", retry_failed=True).by_status == {"answered": 1}


def test_measured_rates_decide_who_gets_a_job(scene: Scene, servers: Servers) -> None:
    """Both are free and equal by the file; one has shown that it takes ten times as long."""
    slow, quick = servers.start([0.3, *sse_answer("slow")]), servers.start(sse_answer("quick"))
    scene.worker("slow", slow.url, models=["small"]).worker("quick", quick.url, models=["small"])
    landed(scene, {"job_id": "a"}, {"job_id": "b"})
    answered(scene)
    assert sorted(workers_of(scene).values()) == ["quick", "slow"], "nothing is known, so both are tried"
    for n in range(3):
        landed(scene, {"job_id": f"c{n}"})
        answered(scene, run_id=f"run-c{n}")
    assert len(quick.received) == 4


def test_threads_of_a_run_are_gone_when_it_ends(scene: Scene, servers: Servers) -> None:
    scene.worker("w", servers.start(sse_answer()).url)
    landed(scene, {"job_id": "j"})
    before = threading.active_count()
    answered(scene)
    assert threading.active_count() <= before + 1
