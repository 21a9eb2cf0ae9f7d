"""Batches against scripted servers: slots, failover, cooling down, deadlines, ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

import pytest

from model_foundry.config import LimitsConfig
from model_foundry.inference.client import utc_now
from model_foundry.inference.dispatch import Control, Cooling, JobOutcome, WorkerTarget, WorkItem, dispatch
from model_foundry.records import Completion, ErrorKind, Job, JobStatus
from model_foundry_tests.inference.conftest import LLAMA_MODEL
from model_foundry_tests.inference.scripted import (
    HANG,
    ScriptedServer,
    Step,
    delta,
    done,
    http,
    ndjson,
    refusal,
    said,
    sse,
    sse_answer,
)

QUICK = Cooling(base_s=0.05, max_s=0.2, down_after_s=60)


def a_job(number: int = 1, **changes: Any) -> Job:
    now = utc_now()
    fields: dict[str, Any] = {
        "stream": "PROMPTS",
        "stream_created": 1,
        "seq": number,
        "subject": "prompts.submit",
        "published_at": now - timedelta(seconds=5),
        "partition_date": now.date(),
        "job_id": f"job-{number}",
        "correlation_id": None,
        "domain": "general",
        "domain_source": "default",
        "language": "en",
        "lane": "cpu_inference",
        "model": "ours",
        "role": None,
        "capability": None,
        "prompt": "hello",
        "messages": [{"role": "user", "content": f"hello {number}"}],
        "params": {"temperature": 0},
        "priority": 0,
        "deadline": None,
        "reply_to": None,
        "metadata": None,
        "traceparent": None,
        "extra": {},
        "notes": (),
        "route_reason": "test",
        "status": JobStatus.PENDING,
    }
    return Job(**{**fields, **changes})


def an_item(
    number: int, *workers: str, attempts_before: int = 0, ranks: tuple[int, ...] = (), **changes: Any
) -> WorkItem:
    ranks = ranks or tuple(range(len(workers)))
    return WorkItem(a_job(number, **changes), workers, ranks, attempts_before=attempts_before)


def target(
    server: ScriptedServer | str, name: str = "moon", slots: int = 1, api: Literal["openai", "ollama"] = "openai"
) -> WorkerTarget:
    return WorkerTarget(name, server if isinstance(server, str) else server.url, api, slots)


@dataclass
class Ran:
    """What a dispatch reported, in order."""

    attempts: list[Completion] = field(default_factory=list)
    outcomes: dict[str, JobOutcome] = field(default_factory=dict)
    put_off: dict[str, str] = field(default_factory=dict)

    def ends(self) -> list[tuple[JobStatus, ErrorKind | None, int]]:
        return [(o.status, o.error_kind, o.attempts) for o in self.outcomes.values()]

    def tries(self) -> list[tuple[str | None, ErrorKind | None, int]]:
        return [(c.worker, c.error_kind, c.attempt) for c in self.attempts]


async def dispatched(
    items: Sequence[WorkItem],
    workers: Sequence[WorkerTarget],
    *,
    cancel: asyncio.Event | None = None,
    cooling: Cooling = QUICK,
    may_put_off: bool = False,
    more: Mapping[str, Any] | None = None,
    **limits: Any,
) -> Ran:
    ran = Ran()

    def on_put_off(item: WorkItem, reason: str) -> None:
        ran.put_off[item.job.job_id] = reason

    def on_done(item: WorkItem, outcome: JobOutcome) -> None:
        assert item.job.job_id == outcome.job_id
        assert outcome.job_id not in ran.outcomes, "a job ends once"
        ran.outcomes[outcome.job_id] = outcome

    work = dispatch(
        items,
        {w.name: w for w in workers},
        LimitsConfig(**limits),
        on_attempt=lambda _, completion: ran.attempts.append(completion),
        on_done=on_done,
        on_put_off=on_put_off if may_put_off else None,
        cancel=cancel,
        cooling=cooling,
        **(more or {}),
    )
    await asyncio.wait_for(work, 30)
    assert sorted([*ran.outcomes, *ran.put_off]) == sorted(i.job.job_id for i in items), "every job ends"
    return ran


def run_scripts(
    scripts: Mapping[str, Sequence[Sequence[Step]]], items: Sequence[WorkItem], slots: int = 1, **limits: Any
) -> tuple[Ran, dict[str, ScriptedServer]]:
    """Runs items against one scripted server a worker."""

    async def run() -> tuple[Ran, dict[str, ScriptedServer]]:
        async with AsyncExitStack() as stack:
            servers = {n: await stack.enter_async_context(ScriptedServer(*s)) for n, s in scripts.items()}
            targets = [target(server, name, slots) for name, server in servers.items()]
            return await dispatched(items, targets, **limits), servers

    return asyncio.run(run())


@pytest.fixture
def nobody() -> Iterator[str]:
    """A URL that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


ANSWERED = (JobStatus.ANSWERED, None)


# -- the plain case --------------------------------------------------------------------------------------------------


def test_every_attempt_is_reported_with_our_names_and_the_time_in_the_queue() -> None:
    item = WorkItem(a_job(model="ours"), ("moon",), (0,), {"moon": "theirs:1b"}, attempts_before=4, params={"seed": 3})
    ran, servers = run_scripts({"moon": [sse_answer("Canberra")]}, [item], default_max_tokens=9)
    (completion,) = ran.attempts
    assert (completion.job_id, completion.attempt, completion.model, completion.worker) == ("job-1", 5, "ours", "moon")
    assert completion.queue_s is not None
    assert 5 <= completion.queue_s < 30
    assert completion.text == "Canberra"
    assert ran.ends() == [(*ANSWERED, 5)]
    sent = servers["moon"].received[0].body
    assert (sent["model"], sent["seed"], sent["max_tokens"]) == ("theirs:1b", 3, 9)


def test_the_jobs_own_parameters_are_sent_when_the_item_names_none() -> None:
    _, servers = run_scripts({"moon": [sse_answer()]}, [an_item(1, "moon")])
    assert (servers["moon"].received[0].body["temperature"], servers["moon"].received[0].body["model"]) == (0, "ours")


def test_no_items_is_a_normal_outcome() -> None:
    assert asyncio.run(dispatched([], [])).ends() == []


def test_both_dialects_are_spoken_in_one_batch() -> None:
    async def run() -> None:
        async with ScriptedServer(sse_answer("a")) as card, ScriptedServer(ndjson(said("b"), done())) as mini:
            workers = [target(card, "card"), target(mini, "mini", api="ollama")]
            ran = await dispatched([an_item(1, "card"), an_item(2, "mini")], workers)
            assert sorted((c.api, c.text) for c in ran.attempts) == [("ollama", "b"), ("openai", "a")]

    asyncio.run(run())


# -- slots -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 3])
def test_a_worker_never_has_more_in_flight_than_slots_and_all_of_them_are_used(slots: int) -> None:
    async def run() -> None:
        async with ScriptedServer([0.02, *sse_answer()]) as server:
            ran = await dispatched([an_item(n, "moon") for n in range(12)], [target(server, slots=slots)])
            assert server.most_in_flight == slots
            assert [o.status for o in ran.outcomes.values()] == [JobStatus.ANSWERED] * 12

    asyncio.run(run())


def test_failover_does_not_overfill_the_other_worker() -> None:
    async def run() -> None:
        async with ScriptedServer(refusal(500)) as bad, ScriptedServer([0.02, *sse_answer()]) as good:
            workers = [target(bad, "bad", slots=6), target(good, "good", slots=2)]
            ran = await dispatched([an_item(n, "bad", "good") for n in range(10)], workers)
            assert good.most_in_flight == 2
            assert [s for s, _, _ in ran.ends()] == [JobStatus.ANSWERED] * 10

    asyncio.run(run())


def test_a_higher_priority_is_sent_first() -> None:
    items = [an_item(n, "moon", priority=p) for n, p in enumerate((0, -5, 7))]
    ran, _ = run_scripts({"moon": [sse_answer()]}, items)
    assert [c.job_id for c in ran.attempts] == ["job-2", "job-0", "job-1"]


# -- failover --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([], ErrorKind.CONNECTION),
        (refusal(500), ErrorKind.SERVER_ERROR),
        (refusal(429), ErrorKind.RATE_LIMITED),
        (refusal(404), ErrorKind.MODEL_NOT_FOUND),
        (refusal(401), ErrorKind.INVALID_REQUEST),
        (sse(delta(content="a")), ErrorKind.TRUNCATED_STREAM),
        ([HANG], ErrorKind.TIMEOUT),
        (sse(delta(content="a"), HANG), ErrorKind.STALLED),
    ],
)
def test_what_another_worker_may_do_better_goes_to_another_worker(script: Sequence[Step], kind: ErrorKind) -> None:
    scripts: dict[str, Sequence[Sequence[Step]]] = {"bad": [script], "good": [sse_answer("Canberra")]}
    ran, _ = run_scripts(
        scripts, [an_item(1, "bad", "good")], request_first_token_timeout_s=0.5, request_idle_timeout_s=0.5
    )
    assert ran.tries() == [("bad", kind, 1), ("good", None, 2)]
    assert ran.ends() == [(*ANSWERED, 2)]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"bad temperature", ErrorKind.INVALID_REQUEST),
        (b"the input length exceeds the context length", ErrorKind.CONTEXT_OVERFLOW),
    ],
)
def test_what_no_worker_can_do_is_tried_once(body: bytes, kind: ErrorKind) -> None:
    ran, servers = run_scripts({"bad": [refusal(400, body)], "good": [sse_answer()]}, [an_item(1, "bad", "good")])
    assert ran.ends() == [(JobStatus.FAILED, kind, 1)]
    assert servers["good"].received == []


def test_an_answer_that_we_cut_off_is_not_asked_for_again() -> None:
    endless = sse(*(delta(content="x" * 100) for _ in range(50)), HANG)
    ran, _ = run_scripts({"moon": [endless]}, [an_item(1, "moon")], max_answer_bytes=1024)
    assert ran.ends() == [(JobStatus.INCOMPLETE, ErrorKind.TRUNCATED_STREAM, 1)]


def test_attempts_are_bounded_and_the_last_error_is_kept() -> None:
    ran, servers = run_scripts({"moon": [refusal(429), refusal(500, b"boom")]}, [an_item(1, "moon")], max_attempts=3)
    assert [k for _, k, _ in ran.tries()] == [ErrorKind.RATE_LIMITED, ErrorKind.SERVER_ERROR, ErrorKind.SERVER_ERROR]
    assert ran.ends() == [(JobStatus.FAILED, ErrorKind.SERVER_ERROR, 3)]
    assert "boom" in (ran.outcomes["job-1"].error_message or "")
    assert len(servers["moon"].received) == 3


def test_a_stream_cut_short_every_time_ends_as_incomplete() -> None:
    ran, _ = run_scripts({"moon": [sse(delta(content="a"))]}, [an_item(1, "moon")], max_attempts=2)
    assert ran.ends() == [(JobStatus.INCOMPLETE, ErrorKind.TRUNCATED_STREAM, 2)]


def test_a_worker_without_the_model_is_not_asked_again() -> None:
    ran, servers = run_scripts({"moon": [refusal(404)]}, [an_item(1, "moon")], max_attempts=5)
    assert ran.ends() == [(JobStatus.FAILED, ErrorKind.MODEL_NOT_FOUND, 1)]
    assert len(servers["moon"].received) == 1


def test_a_single_worker_is_tried_again_after_it_has_cooled() -> None:
    ran, _ = run_scripts({"moon": [[]]}, [an_item(1, "moon")], max_attempts=3)
    assert ran.tries() == [("moon", ErrorKind.CONNECTION, n) for n in (1, 2, 3)]
    gaps = [b.sent_at - a.finished_at for a, b in zip(ran.attempts, ran.attempts[1:], strict=False)]
    assert [g.total_seconds() >= wait for g, wait in zip(gaps, (0.05, 0.1), strict=True)] == [True, True]


def test_a_cooling_worker_is_spared_by_the_jobs_that_follow(nobody: str) -> None:
    async def run() -> None:
        async with ScriptedServer(sse_answer()) as good:
            workers = [target(nobody, "gone", slots=1), target(good, "good", slots=1)]
            patient = Cooling(base_s=30)
            ran = await dispatched([an_item(n, "gone", "good") for n in range(6)], workers, cooling=patient)
            assert [c.worker for c in ran.attempts].count("gone") == 1
            assert [s for s, _, _ in ran.ends()] == [JobStatus.ANSWERED] * 6

    asyncio.run(run())


def test_retry_after_is_honoured() -> None:
    ran, _ = run_scripts({"moon": [refusal(429, retry_after="0.7"), sse_answer()]}, [an_item(1, "moon")])
    first, second = ran.attempts
    assert (second.sent_at - first.finished_at).total_seconds() >= 0.69
    assert second.status is JobStatus.ANSWERED


def test_a_retry_after_beyond_our_patience_ends_the_job() -> None:
    ran, servers = run_scripts({"moon": [refusal(429, retry_after="9999")]}, [an_item(1, "moon"), an_item(2, "moon")])
    assert sorted(ran.ends()) == [(JobStatus.FAILED, ErrorKind.RATE_LIMITED, n) for n in (0, 1)]
    assert len(servers["moon"].received) == 1


def test_after_a_failure_one_request_alone_tries_the_worker() -> None:
    async def run() -> None:
        loading = [http(503, b"Loading model")]
        release = asyncio.Event()
        async with ScriptedServer(loading, loading, loading, [release, *sse_answer()], [0.02, *sse_answer()]) as server:
            work = asyncio.create_task(dispatched([an_item(n, "moon") for n in range(6)], [target(server, slots=3)]))
            await server.wait_for_requests(4)
            await asyncio.sleep(0.3)  # longer than any cooling: a second request would have come
            assert len(server.received) == 4
            release.set()
            ran = await work
            assert [s for s, _, _ in ran.ends()] == [JobStatus.ANSWERED] * 6
            assert len(server.received) == 9

    asyncio.run(run())


def test_requests_that_fail_together_count_as_one_failure() -> None:
    async def run() -> None:
        failing = [refusal(503)] * 6
        async with ScriptedServer(*failing, sse_answer()) as server:
            # one failure cools for 0.05 s; six in a row for 1.6 s, which no job would wait for
            items, worker = [an_item(n, "moon") for n in range(6)], target(server, slots=6)
            ran = await dispatched(items, [worker], cooling=Cooling(base_s=0.05, jitter=0, max_wait_s=0.5))
            assert [s for s, _, _ in ran.ends()] == [JobStatus.ANSWERED] * 6

    asyncio.run(run())


def test_a_worker_that_only_fails_is_given_up_and_the_batch_ends(nobody: str) -> None:
    impatient = Cooling(base_s=0.05, max_s=0.05, down_after_s=0.2)
    ran = asyncio.run(dispatched([an_item(n, "moon") for n in range(50)], [target(nobody)], cooling=impatient))
    assert {(s, k) for s, k, _ in ran.ends()} == {(JobStatus.FAILED, ErrorKind.CONNECTION)}
    assert len(ran.attempts) < 50
    assert "not sent" in (ran.outcomes["job-49"].error_message or "")


# -- jobs that are not sent ------------------------------------------------------------------------------------------


def test_one_job_that_always_times_out_does_not_take_the_others_with_it() -> None:
    """It is tried again after those that have not failed, and its time-outs alone don't make the worker down."""
    answer, silence = sse_answer(), [HANG]
    ran, servers = run_scripts(
        {"moon": [silence, answer, answer, answer, silence, silence]},
        [an_item(n, "moon") for n in (1, 2, 3, 4)],
        cooling=Cooling(base_s=0.05, max_s=0.05, down_after_s=0.1),
        max_attempts=3,
        request_first_token_timeout_s=0.3,
    )
    assert [ran.outcomes[f"job-{n}"].status for n in (1, 2, 3, 4)] == [JobStatus.FAILED, *[JobStatus.ANSWERED] * 3]
    asked = [r.body["messages"][0]["content"] for r in servers["moon"].received]
    assert asked == ["hello 1", "hello 2", "hello 3", "hello 4", "hello 1", "hello 1"]


def test_a_job_without_workers_fails_at_once_without_an_attempt() -> None:
    ran, _ = run_scripts({"moon": [sse_answer()]}, [an_item(1), an_item(2, "unknown"), an_item(3, "moon")])
    assert ran.ends() == [(JobStatus.FAILED, ErrorKind.NO_WORKER, 0)] * 2 + [(*ANSWERED, 1)]
    assert [c.job_id for c in ran.attempts] == ["job-3"]


def test_a_worker_known_to_be_unusable_is_never_asked_and_the_reason_is_told() -> None:
    unusable = WorkerTarget("moon", "", "openai", unusable="worker 'moon' is embedded, and nothing runs")
    ran = asyncio.run(dispatched([an_item(1, "moon")], [unusable]))
    assert ran.ends() == [(JobStatus.FAILED, ErrorKind.NO_WORKER, 0)]
    assert "nothing runs" in (ran.outcomes["job-1"].error_message or "")


def test_a_deadline_that_has_passed_is_expired_and_never_sent() -> None:
    late = an_item(1, "moon", deadline=utc_now() - timedelta(seconds=1))
    ran, servers = run_scripts(
        {"moon": [sse_answer()]}, [late, an_item(2, "moon", deadline=utc_now() + timedelta(hours=1))]
    )
    assert ran.ends() == [(JobStatus.EXPIRED, ErrorKind.DEADLINE, 0), (*ANSWERED, 1)]
    assert len(servers["moon"].received) == 1


def test_a_deadline_that_passes_while_the_job_waits_expires_it_there_and_then() -> None:
    async def run() -> None:
        release = asyncio.Event()
        ended: list[str] = []
        async with ScriptedServer([release, *sse_answer()]) as server:
            soon = utc_now() + timedelta(seconds=0.2)
            items = [an_item(1, "moon", priority=1), an_item(2, "moon", deadline=soon)]

            def on_done(item: WorkItem, outcome: JobOutcome) -> None:
                ended.append(outcome.status)
                release.set()  # the first answer comes only once the second has expired

            await asyncio.wait_for(
                dispatch(items, {"moon": target(server)}, LimitsConfig(), on_attempt=lambda *_: None, on_done=on_done),
                20,
            )
            assert ended == [JobStatus.EXPIRED, JobStatus.ANSWERED]

    asyncio.run(run())


# -- jobs that are put off -------------------------------------------------------------------------------------------


def test_what_nobody_can_answer_now_is_put_off_with_the_reason(nobody: str) -> None:
    impatient = Cooling(base_s=0.02, max_s=0.05, down_after_s=0.2)
    unusable = WorkerTarget("off", "", "openai", unusable="worker 'off' is gone")
    items = [an_item(1, "moon"), an_item(2, "off"), an_item(3)]
    ran = asyncio.run(dispatched(items, [target(nobody), unusable], cooling=impatient, may_put_off=True))
    assert ran.outcomes == {}
    assert "moon is down" in ran.put_off["job-1"]
    assert "can't be reached" in ran.put_off["job-1"]
    assert ran.put_off["job-2"] == "worker 'off' is gone"
    assert ran.put_off["job-3"] == "no worker serves its model and capability"


def test_a_refused_connection_costs_no_attempt_but_an_answer_that_breaks_does(nobody: str) -> None:
    async def run() -> None:
        async with ScriptedServer([]) as resets:
            workers = [target(nobody, "gone"), target(resets, "resets")]
            ran = await dispatched([an_item(1, "gone", "resets")], workers, max_attempts=2)
            assert [w for w, _, _ in ran.tries()].count("resets") == 2
            assert ran.ends() == [(JobStatus.FAILED, ErrorKind.CONNECTION, len(ran.attempts))]

    asyncio.run(run())


def test_the_budget_of_attempts_counts_those_of_earlier_runs() -> None:
    spent = replace(an_item(1, "moon", attempts_before=4), spent_before=2)
    ran, servers = run_scripts({"moon": [refusal(500)]}, [spent], max_attempts=3)
    assert ran.ends() == [(JobStatus.FAILED, ErrorKind.SERVER_ERROR, 5)]
    assert len(servers["moon"].received) == 1


def test_a_worker_that_could_not_be_reached_gets_no_job_before_it_was_seen_again(nobody: str) -> None:
    async def run() -> None:
        async with ScriptedServer(sse_answer()) as server:
            looks = ["still away", "still away", None]

            async def look(asked: WorkerTarget) -> str | None:
                if len(looks) == 1:
                    control.renew({"moon": target(server)}, lambda item: item)
                return looks.pop(0)

            control = Control()
            ran = await dispatched(
                [an_item(n, "moon") for n in range(3)], [target(nobody)], more={"look": look, "control": control}
            )
            assert looks == []
            assert [k for _, k, _ in ran.tries()] == [ErrorKind.CONNECTION, None, None, None]

    asyncio.run(run())


def test_a_worker_that_refuses_our_key_is_not_asked_by_every_job() -> None:
    async def run() -> None:
        async with ScriptedServer(refusal(401)) as locked:
            items = [an_item(n, "moon") for n in range(5)]
            ran = await dispatched(items, [target(locked)], may_put_off=True)
            assert len(locked.received) == 1
            assert len(ran.put_off) == 5
            assert "api_key" in ran.put_off["job-4"]

    asyncio.run(run())


# -- news while it runs ------------------------------------------------------------------------------------------------


def test_one_job_can_be_cancelled_in_flight_and_one_while_it_waits() -> None:
    async def run() -> None:
        control = Control()
        async with ScriptedServer([HANG], sse_answer()) as server:
            items = [an_item(n, "moon") for n in (1, 2, 3)]
            work = asyncio.create_task(dispatched(items, [target(server)], more={"control": control}))
            await server.wait_for_requests(1)
            control.cancel(["job-1", "job-3"])
            ran = await work
            assert {i: o.status for i, o in ran.outcomes.items()} == {
                "job-1": JobStatus.CANCELLED,
                "job-2": JobStatus.ANSWERED,
                "job-3": JobStatus.CANCELLED,
            }
            await asyncio.wait_for(server.hung_up.wait(), 10)

    asyncio.run(run())


def test_a_worker_that_joins_gets_what_waits_and_one_that_goes_gets_nothing_more() -> None:
    async def run() -> None:
        control, release = Control(), asyncio.Event()
        async with ScriptedServer([release, *sse_answer("old")]) as old, ScriptedServer(sse_answer("new")) as new:
            items = [an_item(n, "old") for n in range(4)]
            work = asyncio.create_task(dispatched(items, [target(old, "old")], more={"control": control}))
            await old.wait_for_requests(1)
            control.renew({"new": target(new, "new")}, lambda item: replace(item, workers=("new",), ranks=(0,)))
            await new.wait_for_requests(3)
            release.set()
            ran = await work
            assert sorted(c.text for c in ran.attempts) == ["new", "new", "new", "old"]

    asyncio.run(run())


class Granted:
    """Slots of which a test says how many are held."""

    def __init__(self, held: int) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.number, self.wanted = held, [dict[tuple[int, int], int]()]

    def want(self, worker: str, slots: int, wants: Mapping[tuple[int, int], int], busy: int) -> None:
        self.wanted.append(dict(wants))

    def held(self, worker: str) -> int:
        return self.number

    def coming(self, worker: str) -> int:
        return 0

    def grant(self, number: int) -> None:
        self.number = number
        self.on_change()


def test_only_slots_that_are_held_are_used_and_what_is_wanted_is_said_by_class() -> None:
    async def run() -> None:
        slots = Granted(0)
        async with ScriptedServer([0.02, *sse_answer()]) as server:
            items = [replace(an_item(n, "moon", priority=n % 2), places=(1,)) for n in range(8)]
            work = asyncio.create_task(dispatched(items, [target(server, slots=3)], more={"slots": slots}))
            await asyncio.sleep(0.1)  # what is shown is that nothing is sent
            assert server.received == []
            assert slots.wanted[-1] == {(1, 1): 3}
            slots.grant(2)
            await work
            assert server.most_in_flight == 2
            assert slots.wanted[-1] == {}

    asyncio.run(run())


def test_a_request_whose_slot_is_lost_is_stopped_and_asked_again_without_costing_an_attempt() -> None:
    async def run() -> None:
        slots = Granted(2)
        async with ScriptedServer([HANG], [HANG], sse_answer()) as server:
            items = [an_item(n, "moon") for n in (1, 2)]
            more = {"slots": slots}
            work = asyncio.create_task(dispatched(items, [target(server, slots=2)], more=more, max_attempts=1))
            await server.wait_for_requests(2)
            slots.grant(0)
            await asyncio.wait_for(server.hung_up.wait(), 10)
            slots.grant(1)
            ran = await work
            assert [o.status for o in ran.outcomes.values()] == [JobStatus.ANSWERED] * 2
            lost = [c for c in ran.attempts if c.status is JobStatus.CANCELLED]
            assert len(lost) == 2
            assert "slot was taken" in (lost[0].error_message or "")

    asyncio.run(run())


# -- stopping --------------------------------------------------------------------------------------------------------


def test_cancelling_records_what_is_in_flight_and_ends_what_waits() -> None:
    async def run() -> None:
        cancel = asyncio.Event()
        async with ScriptedServer([HANG]) as server:
            items = [an_item(1, "moon"), an_item(2, "moon")]
            work = asyncio.create_task(dispatched(items, [target(server)], cancel=cancel))
            await server.wait_for_requests(1)
            cancel.set()
            ran = await work
            assert sorted(ran.ends()) == [(JobStatus.CANCELLED, ErrorKind.CANCELLED, n) for n in (0, 1)]
            assert ran.tries() == [("moon", ErrorKind.CANCELLED, 1)]
            await asyncio.wait_for(server.hung_up.wait(), 10)

    asyncio.run(run())


def test_a_dispatch_that_is_stopped_leaves_no_request_behind() -> None:
    async def run() -> None:
        async with ScriptedServer([HANG]) as server:
            work = asyncio.create_task(dispatched([an_item(1, "moon")], [target(server)]))
            await server.wait_for_requests(1)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            await asyncio.wait_for(server.hung_up.wait(), 10)

    asyncio.run(run())


def test_a_callback_that_fails_stops_the_batch_and_is_not_swallowed() -> None:
    async def run() -> None:
        def on_attempt(*_: object) -> None:
            raise RuntimeError("the lake is full")

        async with ScriptedServer(sse_answer(), [HANG]) as server:
            items = [an_item(1, "moon"), an_item(2, "moon")]
            with pytest.raises(RuntimeError, match="the lake is full"):
                await dispatch(
                    items,
                    {"moon": target(server, slots=2)},
                    LimitsConfig(),
                    on_attempt=on_attempt,
                    on_done=lambda *_: None,
                )

    asyncio.run(run())


# -- a real server ---------------------------------------------------------------------------------------------------


def test_a_batch_is_answered_by_llama_cpp_while_another_worker_is_gone(llama_url: str, nobody: str) -> None:
    names = {"here": LLAMA_MODEL}
    params = {"max_tokens": 4, "temperature": 0}
    items = [WorkItem(a_job(n), ("gone", "here"), (0, 1), names, params=params) for n in range(5)]
    ran = asyncio.run(dispatched(items, [target(nobody, "gone"), target(llama_url, "here", slots=2)]))
    assert [s for s, _, _ in ran.ends()] == [JobStatus.ANSWERED] * 5
    assert all(c.completion_tokens and c.completion_tokens <= 4 for c in ran.attempts if c.worker == "here")
