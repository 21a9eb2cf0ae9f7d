"""A sweep, run: on servers that answer by rule, over a real nats-server and a real lake."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pytest

from model_foundry.benchmarks import exclusive, runner
from model_foundry.benchmarks.results import NOT_UNLOADED
from model_foundry.errors import ConfigError, FoundryError
from model_foundry.fleet.leases import sharing_slots
from model_foundry.jetstream.client import JetStream
from model_foundry_tests.benchmarks.conftest import Asked, Bench, a_suite
from model_foundry_tests.inference.scripted import refusal
from model_foundry_tests.parts import wait_for


def overlap(a: Asked, b: Asked) -> bool:
    return a.start < b.end and b.start < a.end


def stop_at(number: int) -> Callable[[Any], None]:
    """Progress that interrupts as Ctrl-C does, once so many requests are done."""

    def look(progress: Any) -> None:
        if progress.done >= number:
            raise KeyboardInterrupt

    return look


# -- what is measured, and how ----------------------------------------------------------------------------------------


def test_a_sweep_records_every_request_once_with_its_phase_and_checks(bench: Bench) -> None:
    moon = bench.worker("moon", "a", "b", api="ollama")
    report = bench.run(a_suite(3, checks=True), models=["a", "b"], seed=7)
    rows = bench.rows()
    assert (report.status, report.planned, report.seed, report.left) == ("done", 30, 7, 0)
    assert Counter(r["phase"] for r in rows) == {"cold": 6, "warmup": 6, "measured": 18}
    assert len({r["request_id"] for r in rows}) == len(rows) == len(moon.asked)
    assert all(r["cold"] for r in rows if r["phase"] == "cold")
    measured = [r for r in rows if r["phase"] == "measured"]
    assert {(r["text"], r["passed"], r["score"]) for r in measured} == {
        (f"{m} on question {n}.0", True, 1.0) for m in "ab" for n in range(3)
    }
    assert {(r["loop"], r["concurrency"], r["disturbed"], r["planned_at_s"]) for r in measured} == {
        ("closed", 1, False, None)
    }
    assert [r["position"] for r in sorted(rows, key=lambda r: r["sent_at"])] == list(range(30))
    [sweep] = bench.rows("from benchmark_sweeps")
    assert (sweep["status"], sweep["seed"], sweep["planned"]) == ("done", 7, 30)
    assert json.loads(sweep["versions"])["servers"] == {"moon": {"kind": "ollama", "version": "1.2.3"}}
    last = bench.seen[-1]
    assert (last.done, last.total, last.left_s) == (30, 30, 0.0)


def test_two_models_never_run_at_once_on_a_worker_and_their_order_changes(bench: Bench) -> None:
    card = bench.worker("card", "a", "b", "c", slots=2)
    bench.run(a_suite(4), models=["a", "b", "c"], concurrency=[2], repeats=4, seed=1)
    assert card.together == {frozenset(m) for m in "abc"}
    assert card.most_in_flight == 2
    blocks = [model for model, _ in itertools.groupby(a.model for a in sorted(card.asked, key=lambda a: a.start))]
    assert len(blocks) <= 12
    assert len({tuple(blocks[n : n + 3]) for n in range(0, len(blocks) - 2, 3)}) > 1, "another order in another repeat"


def test_workers_on_other_hardware_run_beside_each_other_and_those_on_the_same_do_not(bench: Bench) -> None:
    one, two = bench.worker("one", "a", gpu_index=0), bench.worker("two", "a", gpu_index=1)
    neighbour = bench.worker("neighbour", "a", gpu_index=1)
    for server in (one, two, neighbour):
        server.pause_s = 0.05
    bench.run(a_suite(4), models=["a"])
    assert any(overlap(a, b) for a in one.asked for b in (*two.asked, *neighbour.asked))
    assert not any(overlap(a, b) for a in two.asked for b in neighbour.asked)
    assert {len(s.measured) for s in (one, two, neighbour)} == {12}


def test_a_later_turn_is_sent_with_the_models_own_earlier_answer(bench: Bench) -> None:
    moon = bench.worker("moon", "a", "b")
    bench.run(a_suite(1, turns=2), models=["a", "b"])
    second = [a.messages for a in moon.measured if a.text == "question 0.1"]
    assert Counter(second) == {
        (("user", "question 0.0"), ("assistant", f"{m} on question 0.0"), ("user", "question 0.1")): 3 for m in "ab"
    }


def test_an_open_loop_sends_at_its_moments_and_tells_how_late_what_waited_for_a_slot_was(bench: Bench) -> None:
    moon = bench.worker("moon", "a", slots=2)
    moon.pause_s = 0.1
    bench.run(a_suite(6), models=["a"], concurrency=[], rate_rps=40, arrival="constant", warmups=0)
    rows = bench.rows("from benchmark_results where repeat = 0 order by planned_at_s")
    assert moon.most_in_flight == 2, "never more than slots"
    assert [round(r["planned_at_s"], 3) for r in rows] == [0, 0.025, 0.05, 0.075, 0.1, 0.125]
    assert {(r["loop"], r["arrival"], r["rate_rps"], r["concurrency"]) for r in rows} == {
        ("open", "constant", 40.0, None)
    }
    delays = [r["send_delay_s"] for r in rows]
    assert delays[-1] > 0.05 > delays[0] >= 0, "the sixth waits for two rounds"


def test_parameters_go_from_the_model_over_suite_and_prompt_to_the_sweep(bench: Bench) -> None:
    moon = bench.worker("moon", "a")
    bench.scene.raw["models"]["a"] = {"capability": "cpu_inference", "params": {"top_k": 3, "temperature": 1}}
    suite = a_suite(1)
    prompt = suite.prompts[0].model_copy(update={"params": {"max_tokens": 9}, "system": "Be brief."})
    suite = suite.model_copy(update={"prompts": [prompt], "params": {"temperature": 0, "max_tokens": 50}})
    bench.run(suite, models=["a"], params={"seed": 5})
    [body, *_] = [a.body for a in moon.measured]
    assert {k: body[k] for k in ("top_k", "temperature", "max_tokens", "seed")} == {
        "top_k": 3, "temperature": 0, "max_tokens": 9, "seed": 5
    }  # fmt: skip
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_model_that_does_not_leave_memory_is_no_cold_start_and_the_row_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "UNLOAD_S", 0.1)
    moon = bench.worker("moon", "a", api="ollama")
    moon.unloads, moon.loaded = False, "a"
    bench.run(a_suite(1), models=["a"])
    rows = bench.rows("from benchmark_results where request_id like '% cold %'")
    assert {(r["phase"], json.loads(r["notes"])[0]) for r in rows} == {("warmup", NOT_UNLOADED)}


# -- failures are figures too -------------------------------------------------------------------------------------


def test_a_request_that_fails_is_recorded_once_and_ends_its_conversation(bench: Bench) -> None:
    moon = bench.worker("moon", "a")
    moon.fault[None] = refusal(500, {"error": "broken"})
    report = bench.run(a_suite(1, turns=2), models=["a"], warmups=0)
    assert report.status == "done"
    assert len(moon.asked) == 3, "a failure is not tried again, and a turn that depends on it is not sent"
    rows = bench.rows()
    assert {(r["turn"], r["status"], r["error_kind"], r["passed"]) for r in rows} == {
        (0, "failed", "server_error", None), (1, "failed", "server_error", None)
    }  # fmt: skip
    assert {r["error_message"] for r in rows if r["turn"] == 1} == {"not sent: turn 0 of its conversation was failed"}


def test_checks_that_break_say_so_and_end_nothing(bench: Bench) -> None:
    def check(*_: Any) -> Any:
        raise RuntimeError("oh")

    bench.worker("moon", "a")
    assert bench.run(a_suite(1, checks=True), models=["a"], check=check).status == "done"
    [found] = {
        (r["checks"], r["passed"], r["score"]) for r in bench.rows("from benchmark_results where phase = 'measured'")
    }
    assert json.loads(found[0]) == [{"check": "checks", "passed": None, "detail": "could not be run: RuntimeError: oh"}]
    assert found[1:] == (None, None)


def test_a_model_that_is_gone_is_left_and_the_next_run_asks_only_for_what_is_missing(bench: Bench) -> None:
    moon = bench.worker("moon", "a", "b")
    moon.fault["a"] = refusal(404, {"error": {"message": "model 'a' not found", "code": 404}})
    first = bench.run(models=["a", "b"])
    assert (first.status, first.left) == ("stopped", 9)
    assert "a at moon" in first.problems
    moon.fault, moon.asked = {}, []
    second = bench.run(models=["a", "b"])
    assert (second.status, second.sweep_id, second.resumed) == ("done", first.sweep_id, True)
    assert {a.model for a in moon.asked} == {"a"}
    assert len(moon.measured) == 9


def test_a_worker_that_comes_back_is_gone_on_with_and_one_that_does_not_is_left(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    moon = bench.worker("moon", "a")
    loop = bench._servers._loop

    async def close() -> None:
        assert moon._server is not None
        moon._server.close()

    async def open_again() -> None:
        moon._server = await asyncio.start_server(moon._serve, "127.0.0.1", moon.port)

    def in_loop(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(10)

    was: list[str] = []

    def close_at_five(progress: Any) -> None:
        if progress.done == 5 and not was:
            was.append("closed")
            in_loop(close())
        if "come back" in str(progress.lines) and was == ["closed"]:
            was.append("opened")
            in_loop(open_again())

    report = bench.run(a_suite(4), models=["a"], on_progress=close_at_five)
    assert (report.status, report.problems) == ("done", {})
    assert Counter(r["status"] for r in bench.rows()) == {"answered": len(bench.rows())}

    monkeypatch.setattr(runner, "RETURN_S", 0.1)
    report = bench.run(a_suite(4, name="other"), models=["a"], on_progress=lambda p: p.done == 5 and in_loop(close()))
    assert report.status == "stopped"
    assert "it did not come back within 0.1 s" in report.problems["a at moon"]
    assert not bench.rows("from benchmark_results where status <> 'answered'"), "nobody was asked, so nothing failed"


# -- broken off, and gone on with ---------------------------------------------------------------------------------


def test_what_was_interrupted_goes_on_where_it_was_even_within_a_conversation(bench: Bench) -> None:
    moon = bench.worker("moon", "a", slots=2)
    suite = a_suite(3, turns=3)
    with pytest.raises(KeyboardInterrupt):
        bench.run(suite, models=["a"], concurrency=[2], on_progress=stop_at(8))
    [before] = bench.rows("from benchmark_sweeps")
    kept = {r["request_id"]: r["sent_at"] for r in bench.rows()}
    assert before["status"] == "stopped"
    assert 6 <= len(kept) < 10
    moon.asked.clear()
    report = bench.run(suite, models=["a"], concurrency=[2], run_id="run-2")
    rows = {r["request_id"]: r for r in bench.rows()}
    assert (report.status, report.resumed, report.sweep_id) == ("done", True, before["sweep_id"])
    assert {i: rows[i]["sent_at"] for i in kept} == kept, "what was recorded stays"
    missing = 27 - sum("warmup" not in i for i in kept)
    assert len(moon.measured) == missing, "only what was missing is asked"
    whole = [a.messages for a in moon.measured if a.text.endswith(".2")]
    assert all(m[1] == ("assistant", f"a on {m[0][1]}") and m[3] == ("assistant", f"a on {m[2][1]}") for m in whole)
    assert sum(r["phase"] == "measured" for r in rows.values()) == 27
    assert any("again 2" in i for i in rows), "and the block that was broken off was warmed up again"


def test_a_sweep_that_is_done_another_seed_or_other_settings_begin_anew(bench: Bench) -> None:
    bench.worker("moon", "a")
    suite, anew = a_suite(1), {"models": ["a"], "warmups": 0}
    first = bench.run(suite, **anew)
    with pytest.raises(KeyboardInterrupt):
        bench.run(suite, on_progress=stop_at(1), seed=3, **anew)
    [stopped] = bench.rows("from benchmark_sweeps where seed = 3 and status = 'stopped'")
    others = [bench.run(suite, **anew, **more) for more in ({"seed": 4}, {"repeats": 4}, {"anew": True})]
    again = bench.run(suite, **anew)
    assert (again.sweep_id, again.resumed, again.seed) == (stopped["sweep_id"], True, 3)
    assert len({first.sweep_id, again.sweep_id, *(r.sweep_id for r in others)}) == 5
    assert not any(r.resumed for r in (first, *others))


# -- others are there too -----------------------------------------------------------------------------------------


class Holder:
    """Somebody else who holds slots, such as production, in a thread of its own."""

    def __init__(self, bench: Bench) -> None:
        self._foundry = bench.scene.foundry
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stop = asyncio.Event()
        self.slots: Any = None
        self._task = asyncio.run_coroutine_threadsafe(self._hold(), self._loop)
        wait_for("the holder", lambda: self.slots)

    async def _hold(self) -> None:
        async with (
            JetStream(self._foundry.nats) as js,
            sharing_slots(js, self._foundry.config.fleet, "production") as self.slots,
        ):
            await self._stop.wait()

    def want(self, worker: str, number: int, *, busy: int = 0) -> None:
        self._loop.call_soon_threadsafe(self.slots.want, worker, 4, {(0, 0): number} if number else {}, busy)

    def has(self, worker: str, number: int) -> None:
        """Waits until so many are held."""
        wait_for(f"{number} slots", lambda: self.slots.held(worker) == number or None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._task.result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


def test_a_block_waits_for_an_idle_worker_and_then_has_it_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive, "TELL_AFTER_S", 0.1)
    moon = bench.worker("moon", "a", slots=4)
    with Holder(bench) as holder:
        holder.want("moon", 1, busy=1)
        holder.has("moon", 1)
        most, waits = 0, []

        def look(progress: Any) -> None:
            nonlocal most
            if "held by production" in str(progress.lines):
                waits.append(len(moon.asked))
                holder.want("moon", 0)
            elif progress.done == 1:
                holder.want("moon", 4)  # and now production wants all of it
            most = max(most, holder.slots.held("moon")) if moon.flying.total() else most

        moon.pause_s = 0.02
        report = bench.run(a_suite(4), models=["a"], on_progress=look)
        assert report.status == "done"
        assert waits[0] == 0, "nothing is asked of a worker that is in use"
        assert waits[-1] == 5, "between two blocks production gets it"
        assert most == 0, "while something is measured nobody else gets a slot"
        assert not any(r["disturbed"] for r in bench.rows())


def test_a_worker_that_never_gets_idle_is_left_with_the_name_of_who_has_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive, "TELL_AFTER_S", 0.1)
    moon, _ = bench.worker("moon", "a", slots=4), bench.worker("card", "a", gpu_index=0)
    with Holder(bench) as holder:
        holder.want("moon", 1, busy=1)
        holder.has("moon", 1)
        report = bench.run(a_suite(1), models=["a"], wait_s=0.5)
        assert (report.status, moon.asked) == ("stopped", [])
        assert (
            "worker moon was not free within 0.5 s: 1 of its slots held by production" in report.problems["a at moon"]
        )
        assert bench.rows("select distinct worker from benchmark_results") == [{"worker": "card"}]


def test_work_on_the_same_hardware_marks_the_rows(bench: Bench) -> None:
    bench.worker("moon", "a")
    bench.worker("other", "b")
    with Holder(bench) as holder:
        holder.want("other", 1, busy=1)
        holder.has("other", 1)
        bench.run(a_suite(1), models=["a"])
        assert {r["disturbed"] for r in bench.rows()} == {True}


def test_two_sweeps_of_one_worker_take_turns_and_the_one_that_waits_says_for_whom(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive, "TELL_AFTER_S", 0.1)
    moon = bench.worker("moon", "a", "b", slots=2)
    moon.pause_s = 0.03
    seen: dict[str, list[str]] = {"one": [], "two": []}
    foundry = bench.scene.foundry
    foundry.warehouse.migrate()

    def run(name: str, model: str) -> Any:
        return bench.run(
            a_suite(4, name=name),
            run_id=name,
            models=[model],
            foundry=foundry,
            on_progress=lambda p: seen[name].append(str(p.lines)),
        )

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(run, ("one", "two"), ("a", "b")))
    assert {r.status for r in reports} == {"done"}
    assert moon.together <= {frozenset("a"), frozenset("b")}
    order = [model for model, _ in itertools.groupby(a.model for a in sorted(moon.asked, key=lambda a: a.start))]
    assert len(order) == 2, "one sweep after the other"
    assert any("held by sweep-" in text for text in (*seen["one"], *seen["two"]))


# -- what can't be run --------------------------------------------------------------------------------------------


def test_names_that_are_unknown_and_workers_that_are_not_there_are_said(bench: Bench) -> None:
    bench.worker("moon", "a")
    bench.scene.worker("dead", "http://127.0.0.1:9", models=["a", "b"]).raw["models"]["b"] = "cpu_inference"
    with pytest.raises(ConfigError, match="model is 'x'; allowed: small, big, a, b"):
        bench.run(models=["x"])
    with pytest.raises(ConfigError, match="worker is 'x'; allowed: moon, dead"):
        bench.run(workers=["x"])
    with pytest.raises(FoundryError, match=r"no worker can be asked now: b at dead: .* can't be reached"):
        bench.run(models=["b"])
    report = bench.run(a_suite(1), models=["a", "b"])
    assert report.status == "done"
    assert [note.split(":")[0] for note in report.notes] == ["a at dead", "b at dead", "no cold starts at moon"]
