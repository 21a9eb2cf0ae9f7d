"""Running a sweep: every request of its plan asked, checked and recorded, as far as it was not already.

Belongs here: the order of things while a sweep goes on: turns, blocks, stages, conversations; recording in small
batches; going on after a kill. Does not belong here: what is asked when (``plan``), who holds a worker (``exclusive``),
one request (``inference.client``), the rows (``results``), the SQL (``warehouse.benchmark_rows``).

What happens to a request that fails is what the worker did, so it is recorded and not tried again. Three failures say
nothing of the model: nobody listens there any more (the block waits for it to come back, and goes on), the model is not
there, our key is refused (the model's remaining requests at that worker are left for another run). What is left, by
those or by a kill, is asked when the same sweep is run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import httpx

from model_foundry.benchmarks import conditions
from model_foundry.benchmarks.energy import PowerMeter, Stretch
from model_foundry.benchmarks.exclusive import Exclusive, NotIdleError, Others
from model_foundry.benchmarks.pace import Pace
from model_foundry.benchmarks.plan import WARMUP, Block, Conversation, Pair, PlannedRequest, Stage, left_of, request_id
from model_foundry.benchmarks.results import (
    FOUND_BUSY,
    NOT_UNLOADED,
    Checked,
    Outcome,
    SweepKey,
    not_sent,
    phase_of,
    result_row,
)
from model_foundry.benchmarks.settings import SweepSettings
from model_foundry.benchmarks.suite import Suite, SuitePrompt
from model_foundry.benchmarks.sweep import (
    Sweep,
    chat_models,
    choose_pairs,
    hardware_of,
    is_here,
    known_names,
    open_sweep,
)
from model_foundry.errors import FoundryError
from model_foundry.fleet.board import read_board
from model_foundry.fleet.leases import Held, holders, sharing_slots, slots_bucket
from model_foundry.fleet.roster import Roster
from model_foundry.inference.client import ask, new_client
from model_foundry.inference.descriptors import make_room
from model_foundry.inference.probe import ProbeResult, listed_as, probe
from model_foundry.inference.target import InferenceRequest, WorkerTarget
from model_foundry.inference.worker_state import refuses_us
from model_foundry.jetstream.client import JetStream
from model_foundry.placing import Placement
from model_foundry.records import Completion, ErrorKind, JobStatus
from model_foundry.runtime import Foundry
from model_foundry.tasks import end, while_flushing
from model_foundry.warehouse.benchmark_rows import answers_of, begin_sweep, end_sweep, record_results, requests_done

FLUSH_EVERY_S = 5.0
"""How long a result waits, at most, before it is recorded; a kill loses no more. Each batch is a file of the lake."""
WAIT_S = 3600.0
"""How long a worker is waited for that others use."""
RETURN_S = 120.0
"""How long a worker is waited for that nobody answers at any more."""
MAX_AWAY = 5
"""How often it may be gone within one block."""
PROBE_TIMEOUT_S = 5.0
UNLOAD_S = 30.0
"""For a model to be gone from memory after the server was told to unload it."""
IDLE_S = 5.0
"""For a server to end what it was asked before, such as a request of ours that was broken off."""
SETTLE_S = 30.0
"""For a reading of the power after a request; an agent that is silent for longer is not waited for."""
_POLL_S = 0.25

Checker = Callable[[SuitePrompt, int, str, Sequence[Mapping[str, Any]]], Checked]
"""What checks the answer (text, tool calls) to one turn of a prompt."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is.

    Attributes:
        sweep_id: its id.
        done: requests recorded or about to be, of earlier runs too.
        total: requests of the plan.
        left_s: seconds until it is done, by its pace so far; None while that is not known.
        lines: line -> what is going on there, in words; no prompt and no answer in it.
    """

    sweep_id: str
    done: int
    total: int
    left_s: float | None
    lines: Mapping[str, str]


@dataclass(slots=True)
class SweepReport:
    """What one run of a sweep did.

    Attributes:
        sweep_id: its id.
        suite: its suite's name; ``suite_digest`` of it.
        seed: of everything random.
        planned: requests of the plan.
        resumed: whether it was begun before.
        status: ``done``, or ``stopped`` when something is left.
        asked: requests recorded by this run, by status; warm-ups too.
        left: requests of the plan that are still to be asked.
        swaps: changes of the model at a worker, as planned.
        problems: worker or model at worker -> why something is left.
        notes: what was asked for and is not in the sweep.
        took_s: of this run.
    """

    sweep_id: str
    suite: str
    suite_digest: str
    seed: int
    planned: int
    resumed: bool
    swaps: int
    status: str = "stopped"
    asked: Counter[str] = field(default_factory=Counter)
    left: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    took_s: float = 0.0


def standard_checks(prompt: SuitePrompt, turn: int, text: str, tool_calls: Sequence[Mapping[str, Any]]) -> Checked:
    """The suite's own checks."""
    from model_foundry.benchmarks import checks  # here: it brings libraries that only this needs

    found = checks.run_checks(prompt, turn, text, tool_calls)
    return Checked([result.as_json() for result in found], checks.passed(found), checks.score(found))


def run_sweep(
    foundry: Foundry,
    suite: Suite,
    *,
    run_id: str,
    models: Sequence[str] = (),
    workers: Collection[str] = (),
    settings: SweepSettings | None = None,
    seed: int | None = None,
    anew: bool = False,
    wait_s: float = WAIT_S,
    check: Checker = standard_checks,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    flush_every_s: float = FLUSH_EVERY_S,
) -> SweepReport:
    """Runs a sweep to its end, or goes on with the same one that was broken off.

    Args:
        foundry: the parts.
        suite: what is asked.
        run_id: who runs it.
        models: of whom; all that answer prompts when left out.
        workers: at which workers; at all that serve them when left out.
        settings: how.
        seed: of everything random; drawn when left out, and recorded.
        anew: begin a new sweep, whatever was broken off.
        wait_s: how long a worker is waited for that others use.
        check: checks answers; called in a thread when the turn has checks.
        on_progress: called often, in the loop's thread; must not block.
        flush_every_s: see ``FLUSH_EVERY_S``.

    Raises:
        ConfigError: when a name is unknown, or nothing would be asked.
        NatsUnavailableError, StreamError: when workers can't be had for oneself.
        LakeError: when the lake can't be used.
    """
    foundry.warehouse.migrate()
    started = time.monotonic()
    begun: list[_Run] = []

    async def run() -> SweepReport:
        async with sweeping(foundry, suite, models, workers, settings or SweepSettings(), seed, anew, run_id) as found:
            sweep, fleet = found
            await asyncio.to_thread(begin_sweep, foundry.warehouse, replace(sweep.row, run_id=run_id))
            running = _Run(foundry, suite, sweep, fleet, run_id, wait_s, check, on_progress)
            begun.append(running)
            await while_flushing(running.everything(), running.flush, flush_every_s)
            return await running.report()

    try:
        report = asyncio.run(run())
    except BaseException:  # an interrupt too: what was answered is kept
        for running in begun:
            with contextlib.suppress(FoundryError):
                record_results(foundry.warehouse, running.rows(last=True))
                end_sweep(foundry.warehouse, running.sweep_id, "stopped")
        raise
    report.took_s = time.monotonic() - started
    end_sweep(foundry.warehouse, report.sweep_id, "done" if report.status == "done" else "stopped")
    return report


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What a sweep uses of the world."""

    js: JetStream
    roster: Roster
    targets: dict[str, WorkerTarget]
    probes: Mapping[str, ProbeResult]
    client: httpx.AsyncClient
    notes: tuple[str, ...]


@contextlib.asynccontextmanager
async def sweeping(
    foundry: Foundry,
    suite: Suite,
    models: Sequence[str],
    workers: Collection[str],
    settings: SweepSettings,
    seed: int | None,
    anew: bool,
    run_id: str,
) -> AsyncIterator[tuple[Sweep, _Fleet]]:
    """The sweep, begun anew or found again, and the fleet, while it is open."""
    async with JetStream(foundry.nats) as js, new_client() as client:
        roster = (await read_board(js, foundry.config)).roster
        known_names(roster.config, models, workers)
        targets = Placement(foundry, roster).targets
        wanted = [name for name in roster.config.model_servers if not workers or name in workers]
        found = await asyncio.gather(*(probe(client, targets[name], PROBE_TIMEOUT_S) for name in wanted))
        probes = dict(zip(wanted, found, strict=True))
        pairs, notes = choose_pairs(roster, targets, probes, models or chat_models(roster.config), workers)
        used = {pair.worker for pair in pairs}
        if not pairs:
            raise nothing_to_ask(notes)
        sweep = await asyncio.to_thread(
            open_sweep,
            foundry.warehouse,
            suite,
            pairs,
            settings,
            seed=seed,
            versions=conditions.versions({name: probes[name] for name in used}),
            hardware=conditions.hardware({name: roster.members[name] for name in used}),
            run_id=run_id,
            anew=anew,
        )
        make_room(sum(targets[name].slots for name in used))
        yield sweep, _Fleet(js, roster, targets, probes, client, (*notes, *sweep.plan.notes))


def nothing_to_ask(notes: Sequence[str]) -> FoundryError:
    """The error of a sweep of which no worker could be asked anything."""
    return FoundryError(
        "no worker can be asked now: " + ("; ".join(notes) or "no model of the configuration answers prompts"),
        hint="foundry workers shows who is there and who serves what.",
    )


class _AwayError(Exception):
    """Nobody listens at the worker any more."""


class _LeaveError(Exception):
    """A pair's remaining requests are left for another run; the message says why."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A result that waits to be recorded. Moments are of the monotonic clock."""

    outcome: Outcome
    stretch: Stretch
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class _Said:
    """An answer that a conversation goes on from."""

    text: str
    status: JobStatus
    error_kind: ErrorKind | None


class _Run:
    """One run of a sweep: the state, and the one loop that changes it."""

    def __init__(
        self,
        foundry: Foundry,
        suite: Suite,
        sweep: Sweep,
        fleet: _Fleet,
        run_id: str,
        wait_s: float,
        check: Checker,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._foundry, self._suite, self._sweep, self._fleet = foundry, suite, sweep, fleet
        self._run_id, self._wait_s, self._check, self._on_progress = run_id, wait_s, check, on_progress
        self._key = SweepKey(sweep.row.sweep_id, suite.name, suite.digest, run_id)
        self._settings = sweep.settings
        self._pair_of = {r.request_id: b.pair for b in sweep.plan.blocks() for r in b.requests()}
        self._left = {line: Counter(b.pair for b in bs for _ in b.requests()) for line, bs in sweep.plan.lines.items()}
        self._done: set[str] = set()
        self._answers: dict[str, _Said] = {}
        self._waiting: list[_Waiting] = []
        self._problems: dict[str, str] = {}
        self._asked: Counter[str] = Counter()
        self._pace, self._marks = Pace(), dict[Pair, float]()
        self._states: dict[str, str] = {}
        self._line_of = {p.worker: line for line in sweep.plan.lines for p in self._pairs_of(line)}
        self._left_out: set[Pair] = set()
        self._meter = PowerMeter({}, ())
        self._others: Others | None = None

    @property
    def sweep_id(self) -> str:
        """Of the sweep."""
        return self._key.sweep_id

    def _pairs_of(self, line: str) -> set[Pair]:
        return {block.pair for block in self._sweep.plan.lines[line]}

    # -- everything, line, block ----------------------------------------------------------------------------------

    async def everything(self) -> None:
        """Runs every line beside the others."""
        fleet, js = self._foundry.config.fleet, self._fleet.js
        bucket = await js.bucket(slots_bucket(fleet))

        async def look() -> Sequence[Held]:
            return holders(await bucket.entries())

        async with sharing_slots(js, fleet, f"sweep-{self._key.sweep_id}") as slots:
            exclusive = Exclusive(slots, look, self._waits, self._wait_s)
            self._others = Others(look, slots.holder, self._neighbours, time.monotonic)
            self._meter = self._power_meter()
            watchers = [
                asyncio.create_task(self._others.watch()),
                asyncio.create_task(self._meter.watch(js, fleet)),
            ]
            try:
                lines = [self._line(exclusive, line) for line in self._sweep.plan.lines]
                await _all(*lines)
            finally:
                await end(*watchers)

    def _power_meter(self) -> PowerMeter:
        local: dict[str, int] = {}
        remote = []
        for worker in self._line_of:
            member, target = self._fleet.roster.members[worker], self._fleet.targets[worker]
            gpu = member.beat.gpu if member.beat else None
            index = member.config.gpu_index if member.config.gpu_index is not None else gpu.index if gpu else None
            if is_here(target) and index is not None:
                local[worker] = index
            elif gpu is not None and gpu.power_w is not None:
                remote.append(worker)
        return PowerMeter(local, remote)

    def _neighbours(self, worker: str) -> set[str]:
        """The workers of the fleet that run on the same hardware, the worker itself included."""

        def where(name: str) -> str:
            return hardware_of(self._fleet.roster.members[name], self._fleet.targets[name])

        return {name for name in self._fleet.targets if name == worker or where(name) == where(worker)}

    async def _line(self, exclusive: Exclusive, line: str) -> None:
        """One line's blocks, one after another."""
        workers = {pair.worker for pair in self._pairs_of(line)}
        felt = workers if self._settings.parallel == "workers" else self._felt(line)
        self._state(line, "waits for its turn")
        try:
            async with exclusive.turn(felt):
                done = await asyncio.to_thread(requests_done, self._foundry.warehouse, self._key.sweep_id)
                self._count(done)
                blocks = left_of(self._sweep.plan.lines[line], done)
                await self._remember(blocks)
                for block in blocks:
                    await self._block(exclusive, line, block)
        except NotIdleError as error:
            self._problems[line] = str(error)
        self._state(line, "done" if line not in self._problems else "given up")

    async def _remember(self, blocks: Sequence[Block]) -> None:
        """Reads the answers that broken-off conversations go on from."""
        earlier = [
            request_id(block.pair, stage.load.name, conversation.repeat, turn, conversation.prompt.id)
            for block in blocks
            for stage in block.stages
            if stage.phase == "measured"
            for conversation in stage.conversations
            for turn in range(conversation.requests[0].turn)
        ]
        rows = await asyncio.to_thread(answers_of, self._foundry.warehouse, self._key.sweep_id, earlier)
        for row in rows:
            kind = ErrorKind(row["error_kind"]) if row["error_kind"] else None
            self._answers[row["request_id"]] = _Said(row["text"], JobStatus(row["status"]), kind)

    async def _block(self, exclusive: Exclusive, line: str, block: Block) -> None:
        """One block, as often as it takes: again after a slot was lost, or the worker was away."""
        pair, left, away = block.pair, [block], 0
        while left and pair not in self._left_out:
            self._state(line, f"{pair.worker}: waits until it is idle")
            try:
                async with exclusive.all_slots(pair.worker, pair.slots) as lost:
                    self._marks[pair] = time.monotonic()
                    probed = await self._ready(pair)
                    work = asyncio.create_task(self._stages(line, left[0], probed))
                    losing = asyncio.create_task(lost.wait())
                    try:
                        await asyncio.wait({work, losing}, return_when=asyncio.FIRST_COMPLETED)
                        if work.done():
                            work.result()
                    finally:
                        await end(work, losing)
            except _AwayError:
                self._state(line, f"{pair.worker}: nobody answers, waits for it to come back")
                away += 1
                if away > MAX_AWAY:
                    self._leave(pair, f"it went away {away} times within one block")
                else:
                    await self._return_of(pair)
            except _LeaveError as error:
                self._leave(pair, str(error))
            except NotIdleError as error:
                self._leave(pair, str(error))
            left = left_of([block], self._done)

    def _leave(self, pair: Pair, why: str) -> None:
        self._left_out.add(pair)
        self._problems[f"{pair.model} at {pair.worker}"] = why

    async def _return_of(self, pair: Pair) -> None:
        """Waits until a worker answers again; leaves the pair when it does not."""
        deadline = time.monotonic() + RETURN_S
        while True:
            # an embedded one may come back at another port
            self._fleet.targets[pair.worker] = Placement(self._foundry, self._fleet.roster).targets[pair.worker]
            found = await probe(self._fleet.client, self._fleet.targets[pair.worker], PROBE_TIMEOUT_S)
            if found.ok and not found.loading:
                return
            if time.monotonic() >= deadline:
                self._leave(pair, f"it did not come back within {RETURN_S:g} s: {found.detail}")
                return
            await asyncio.sleep(_POLL_S)

    async def _ready(self, pair: Pair) -> _Probed:
        """What the worker says as a block begins: which server it is, what is in memory, whether it is idle.

        Raises:
            _AwayError: when it does not answer.
        """
        deadline = time.monotonic() + IDLE_S
        while True:
            found = await probe(self._fleet.client, self._fleet.targets[pair.worker], PROBE_TIMEOUT_S)
            if not found.ok or found.loading:
                raise _AwayError
            if not found.running or time.monotonic() >= deadline:
                return _Probed(found, bool(found.running))
            await asyncio.sleep(_POLL_S)

    # -- stages ------------------------------------------------------------------------------------------------------

    async def _stages(self, line: str, block: Block, probed: _Probed) -> None:
        pair, loaded = block.pair, probed.has_loaded(block.pair)
        for stage in block.stages:
            if stage.phase == "cold":
                loaded = not await self._unload(pair)
            total, repeats = len(stage.conversations), self._settings.repeats
            what = stage.load.name if stage.phase == "measured" else stage.phase
            self._state(line, f"{pair.model} at {pair.worker}, repeat {block.repeat + 1} of {repeats}, {what}: {total}")
            visit = _Visit(pair, stage, Stretch(pair.worker, time.monotonic()), probed, loaded)
            try:
                await (self._closed(visit) if stage.load.loop == "closed" else self._open(visit))
            finally:
                visit.stretch.end = time.monotonic()
            loaded = None  # it is loaded now, and whether it stays so the server's load times say

    async def _unload(self, pair: Pair) -> bool:
        """Has the server unload the model; whether it is gone from memory then."""
        target = self._fleet.targets[pair.worker]
        request = InferenceRequest(pair.served_name, [], {"keep_alive": 0})
        completion = await ask(self._fleet.client, target, request, self._foundry.config.limits)
        self._look_at_failure(completion)
        deadline = time.monotonic() + UNLOAD_S
        while time.monotonic() < deadline:
            found = await probe(self._fleet.client, target, PROBE_TIMEOUT_S)
            if _Probed(found, False).has_loaded(pair) is False:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def _closed(self, visit: _Visit) -> None:
        """So many clients, each with its next conversation after its last."""
        queue = iter(visit.stage.conversations)

        async def client() -> None:
            for conversation in queue:
                await self._converse(visit, conversation, None)

        await _all(*(client() for _ in range(visit.stage.load.concurrency or 1)))

    async def _open(self, visit: _Visit) -> None:
        """Conversations at their moments, never more at once than the worker has slots: a late one shows its delay.

        Moments that are left of a stage that was broken off begin now.
        """
        free = asyncio.Semaphore(visit.pair.slots)
        conversations = visit.stage.conversations
        first, begin = conversations[0].planned_at_s or 0.0, time.monotonic()

        async def arrive(conversation: Conversation) -> None:
            due = begin + (conversation.planned_at_s or 0.0) - first
            await asyncio.sleep(due - time.monotonic())
            async with free:
                await self._converse(visit, conversation, due)

        await _all(*(arrive(conversation) for conversation in conversations))

    # -- a conversation, a request --------------------------------------------------------------------------------

    async def _converse(self, visit: _Visit, conversation: Conversation, due: float | None) -> None:
        """The turns that are to be asked, each after the model's own answers to those before."""
        prompt, pair = conversation.prompt, visit.pair

        def turn_id(turn: int) -> str:
            return request_id(pair, visit.stage.load.name, conversation.repeat, turn, prompt.id)

        messages: list[dict[str, Any]] = [{"role": "system", "content": prompt.system}] if prompt.system else []
        first = conversation.requests[0].turn
        for turn in range(first):
            said = self._answers[turn_id(turn)]
            messages += [_user(prompt.turns[turn]), {"role": "assistant", "content": said.text}]
        broken = self._answers[turn_id(first - 1)] if first else None
        for request in conversation.requests:
            if broken is not None and broken.status is not JobStatus.ANSWERED:
                done = not_sent(pair, broken.status, broken.error_kind, request.turn - 1, datetime.now(UTC))
                now = time.monotonic()
                self._take(visit, conversation, request, done, (now, now), None, Checked())
                continue
            messages.append(_user(prompt.turns[request.turn]))
            completion = await self._ask(visit, conversation, request, messages, due if request.turn == 0 else None)
            messages.append({"role": "assistant", "content": completion.text})
            broken = _Said(completion.text, completion.status, completion.error_kind)
            if len(prompt.turns) > 1:
                self._answers[request.request_id] = broken

    async def _ask(
        self,
        visit: _Visit,
        conversation: Conversation,
        request: PlannedRequest,
        messages: Sequence[dict[str, Any]],
        due: float | None,
    ) -> Completion:
        pair, prompt = visit.pair, conversation.prompt
        limits = self._foundry.config.limits
        inference = InferenceRequest(
            pair.served_name,
            list(messages),
            self._params(visit, conversation, request),
            default_max_tokens=limits.default_max_tokens,
        )
        start = time.monotonic()
        visit.begins(start)
        try:
            completion = await ask(self._fleet.client, self._fleet.targets[pair.worker], inference, limits)
        finally:
            visit.ends(time.monotonic())
        moments = (start, time.monotonic())
        self._look_at_failure(completion)
        checked = Checked()
        if completion.status is JobStatus.ANSWERED and prompt.checks_of(request.turn):
            checked = await asyncio.to_thread(self._checked, prompt, request.turn, completion)
        delay = None if due is None else max(0.0, start - due)
        self._take(visit, conversation, request, completion, moments, delay, checked)
        if completion.error_kind is ErrorKind.MODEL_NOT_FOUND or refuses_us(
            completion.error_kind, completion.http_status
        ):
            raise _LeaveError(completion.error_message or str(completion.error_kind))
        return completion

    def _checked(self, prompt: SuitePrompt, turn: int, completion: Completion) -> Checked:
        """What the checks find. One that breaks says nothing of the answer, and does not end the sweep."""
        try:
            return self._check(prompt, turn, completion.text, completion.tool_calls)
        except Exception as error:
            detail = f"could not be run: {type(error).__name__}: {error}"
            return Checked([{"check": "checks", "passed": None, "detail": detail}])

    @staticmethod
    def _look_at_failure(completion: Completion) -> None:
        if completion.not_sent:
            raise _AwayError

    def _params(self, visit: _Visit, conversation: Conversation, request: PlannedRequest) -> dict[str, Any]:
        """What is sent along: the model's own, the suite's, the prompt's, the sweep's; and that nothing is reused.

        llama.cpp takes ``cache_prompt`` (its server's README), vLLM ``cache_salt``, of which a prefix is only reused
        with the same one. A later turn may be answered from what was computed for the turn before, as in real use.
        """
        pair, prompt = visit.pair, conversation.prompt
        own = self._foundry.config.models[pair.model].params
        if prompt is WARMUP:
            return {**own, **prompt.params}
        params = {**own, **self._suite.params, **prompt.params, **self._settings.params}
        if self._settings.fresh:
            if visit.probed.result.kind == "llama.cpp" and request.turn == 0:
                params.setdefault("cache_prompt", False)
            elif visit.probed.result.kind == "vllm":
                first = request_id(pair, visit.stage.load.name, conversation.repeat, 0, prompt.id)
                params.setdefault("cache_salt", f"{self._key.sweep_id} {first}")
        return params

    def _take(
        self,
        visit: _Visit,
        conversation: Conversation,
        request: PlannedRequest,
        completion: Completion,
        moments: tuple[float, float],
        delay: float | None,
        checked: Checked,
    ) -> None:
        """Takes a request that ended, to be recorded with the next batch."""
        pair, stage = visit.pair, visit.stage
        phase = phase_of(stage.phase, completion, visit.was_loaded)
        visit.was_loaded = None
        notes = [NOT_UNLOADED] if stage.phase == "cold" and phase != "cold" else []
        notes += [FOUND_BUSY] if visit.probed.found_busy else []
        outcome = Outcome(pair, phase, stage.load, conversation, request, completion, delay, checked, tuple(notes))
        self._waiting.append(_Waiting(outcome, visit.stretch, *moments))
        self._count({request.request_id})
        self._asked[completion.status.value] += 1
        now = time.monotonic()
        self._pace.took(pair, now - self._marks[pair])
        self._marks[pair] = now
        self._tell()

    # -- recording and telling ------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Records what has gathered; what still waits for a reading of its energy waits for it."""
        await asyncio.to_thread(record_results, self._foundry.warehouse, self.rows())

    def rows(self, *, last: bool = False) -> list[dict[str, Any]]:
        """Takes the rows that can be recorded; at last, all."""
        now = time.monotonic()
        taken: list[_Waiting] = []
        kept: list[_Waiting] = []
        for waiting in self._waiting:
            settled = self._meter.is_settled(waiting.stretch, waiting.end) or now - waiting.end > SETTLE_S
            (taken if settled or last else kept).append(waiting)
        self._waiting = kept
        return [self._row(waiting) for waiting in taken]

    def _row(self, waiting: _Waiting) -> dict[str, Any]:
        outcome, stretch, start, end_ = waiting.outcome, waiting.stretch, waiting.start, waiting.end
        within = (stretch.start, time.monotonic() if stretch.end is None else stretch.end)
        others = self._others is not None and self._others.were_at(stretch.worker, start, end_, within=within)
        return result_row(
            self._key,
            outcome,
            disturbed=others or FOUND_BUSY in outcome.notes,
            energy_j=self._meter.energy_j(stretch, start, end_),
        )

    def _waits(self, worker: str, who: str | None) -> None:
        line = next((line for line in self._sweep.plan.lines if worker in self._felt(line)), worker)
        self._state(line, f"{worker}: waits for it" + (f"; {who}" if who else ""))

    def _felt(self, line: str) -> set[str]:
        return {name for pair in self._pairs_of(line) for name in self._neighbours(pair.worker)}

    def _state(self, line: str, text: str) -> None:
        self._states[line] = text
        self._tell()

    def _count(self, done: Collection[str]) -> None:
        """Counts requests as done."""
        for identity in set(done) - self._done:
            self._done.add(identity)
            if (pair := self._pair_of.get(identity)) is not None:
                self._left[self._line_of[pair.worker]][pair] -= 1

    def _tell(self) -> None:
        total = len(self._pair_of)
        done = total - sum(left.total() for left in self._left.values())
        left = {line: {p: n for p, n in pairs.items() if p not in self._left_out} for line, pairs in self._left.items()}
        self._on_progress(Progress(self._key.sweep_id, done, total, self._pace.left_s(left), dict(self._states)))

    async def report(self) -> SweepReport:
        """What this run did, after it."""
        row, plan = self._sweep.row, self._sweep.plan
        done = await asyncio.to_thread(requests_done, self._foundry.warehouse, self._key.sweep_id)
        warmups = {
            r.request_id
            for b in plan.blocks()
            for s in b.stages
            if s.phase == "warmup"
            for c in s.conversations
            for r in c.requests
        }
        left = len(self._pair_of.keys() - warmups - done)
        return SweepReport(
            sweep_id=row.sweep_id,
            suite=row.suite,
            suite_digest=row.suite_digest,
            seed=row.seed,
            planned=row.planned,
            resumed=self._sweep.resumed,
            swaps=plan.swaps,
            status="stopped" if left else "done",
            asked=self._asked,
            left=left,
            problems=self._problems,
            notes=self._fleet.notes,
        )


@dataclass(frozen=True, slots=True)
class _Probed:
    """What a worker said as a block began. ``found_busy``: it was at work for others, although we held all slots."""

    result: ProbeResult
    found_busy: bool

    def has_loaded(self, pair: Pair) -> bool | None:
        """Whether the model is in memory; None when the server does not say."""
        names = [model.name for model in self.result.served]
        name = listed_as(pair.served_name, names)
        return next((model.loaded for model in self.result.served if model.name == name), None)


@dataclass(slots=True)
class _Visit:
    """A stage while it goes on. ``was_loaded``: whether its first request finds its model in memory, if known."""

    pair: Pair
    stage: Stage
    stretch: Stretch
    probed: _Probed
    was_loaded: bool | None
    in_flight: int = 0

    def begins(self, now: float) -> None:
        """A request is sent."""
        self.in_flight += 1
        self.stretch.flying(self.in_flight, now)

    def ends(self, now: float) -> None:
        """A request has ended."""
        self.in_flight -= 1
        self.stretch.flying(self.in_flight, now)


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def _all(*works: Coroutine[Any, Any, None]) -> None:
    """Runs all; the first failure ends the others and is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        await end(*tasks)
