"""The plan of a sweep: every request of it, in its order, before the first one is sent. Pure.

Belongs here: what is asked of whom, in which order, how often, under which load and id; what of it is left when some is
done. Does not belong here: asking (``runner``), who is in the fleet (``sweep``).

The shape, outside in:

- A *line* is what goes on at one time: one worker, or the workers that share a GPU or a host. Lines run beside each
  other, the blocks of one line one after another, so two models never run at once on a worker.
- A *block* is one model at one worker for one repeat of the suite: a cold start where the server can unload, warm-up,
  then each load. Each repeat shuffles the line's blocks, so that a slow drift (heat, a background job) meets every
  model alike. A whole repeat, and not one prompt, because each change of the model may cost a load: there are never
  more changes than blocks.
- Within a load the prompts come in random order, another one in every block.

All chance comes from the seed and from what is shuffled, by name: the same seed gives the same plan, and one more model
changes nothing about the others' prompts.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal, TypeVar

from model_foundry.benchmarks.arrivals import arrivals
from model_foundry.benchmarks.settings import ONE, Load, SweepSettings
from model_foundry.benchmarks.suite import Suite, SuitePrompt
from model_foundry.benchmarks.traces import arrivals_of
from model_foundry.errors import ConfigError

T = TypeVar("T")

Phase = Literal["cold", "warmup", "measured"]

WARMUP = SuitePrompt(
    id="warmup",
    domain="warmup",
    turns=["Count from one to twenty in words, separated by commas."],
    params={"max_tokens": 12, "temperature": 0},
)
"""What is asked before anything is measured; no suite's prompt, so that none is in a server's cache."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A model at a worker.

    Attributes:
        model: our name.
        worker: its name.
        served_name: the worker's own name of the model.
        api: the dialect.
        slots: requests that the worker takes at once.
        hardware: what it runs on, as text; workers with the same are taken to disturb each other.
        can_unload: whether the server can be told to unload a model, which a cold start needs.
    """

    model: str
    worker: str
    served_name: str
    api: str
    slots: int
    hardware: str
    can_unload: bool = False


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request: one turn of one conversation. ``position``: in the order of the whole plan."""

    request_id: str
    turn: int
    position: int = -1


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt with its turns, asked one after another. ``planned_at_s``: in an open loop, after the load's start."""

    prompt: SuitePrompt
    repeat: int
    requests: tuple[PlannedRequest, ...]
    planned_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Conversations of one phase under one load."""

    phase: Phase
    load: Load
    conversations: tuple[Conversation, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One visit of a model at a worker."""

    pair: Pair
    repeat: int
    stages: tuple[Stage, ...]

    def requests(self) -> Iterator[PlannedRequest]:
        """In their order."""
        return (r for stage in self.stages for c in stage.conversations for r in c.requests)


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it.

    Attributes:
        lines: name -> its blocks, in their order.
        notes: what was asked for and is not in it, and why.
    """

    lines: Mapping[str, tuple[Block, ...]]
    notes: tuple[str, ...] = field(default=())

    def blocks(self) -> list[Block]:
        """Every block, by its first request's position."""
        found = [block for blocks in self.lines.values() for block in blocks]
        return sorted(found, key=lambda block: next(block.requests()).position)

    def requests(self) -> list[PlannedRequest]:
        """Every request, by position."""
        return sorted((r for b in self.blocks() for r in b.requests()), key=lambda r: r.position)

    def workers(self, line: str) -> list[str]:
        """The workers of a line, by name."""
        return sorted({block.pair.worker for block in self.lines[line]})

    @property
    def swaps(self) -> int:
        """How often a worker goes on with another model than it had."""
        by_worker: dict[str, list[str]] = {}
        for block in self.blocks():
            by_worker.setdefault(block.pair.worker, []).append(block.pair.model)
        return sum(len(list(groupby(models))) - 1 for models in by_worker.values())


def make_plan(suite: Suite, pairs: Sequence[Pair], settings: SweepSettings, seed: int) -> Plan:
    """The plan of a sweep.

    Args:
        suite: what is asked.
        pairs: of whom; each once.
        settings: how.
        seed: of everything random.

    Raises:
        ConfigError: when nothing would be asked.
    """
    prompts = spread(suite.prompts, settings.limit)
    notes: list[str] = []
    loads = {pair: found for pair in pairs if (found := _loads(pair, settings, notes))}
    if not loads:
        raise ConfigError(
            "nothing would be asked: " + ("; ".join(notes) or "no worker serves any of the models"),
            hint="foundry workers shows who serves what, and how many slots each has.",
        )
    if settings.cold:
        cant = sorted({pair.worker for pair in loads if not pair.can_unload})
        if cant:
            notes.append(f"no cold starts at {', '.join(cant)}: their servers can't be told to unload a model")
    here: dict[str, list[Pair]] = {}
    for pair in sorted(loads, key=lambda p: (p.hardware, p.worker, p.model)):
        here.setdefault(pair.hardware if settings.parallel == "hardware" else pair.worker, []).append(pair)
    lines: dict[str, list[Block]] = {line: [] for line in here}
    position = 0
    for repeat in range(settings.repeats):
        for line, blocks in lines.items():
            for pair in _shuffled(here[line], f"{seed} blocks {repeat} {line}"):
                block = _block(pair, loads[pair], prompts, settings, seed, repeat)
                block, position = _numbered(block, position)
                blocks.append(block)
    return Plan({line: tuple(blocks) for line, blocks in lines.items()}, tuple(notes))


def spread(prompts: Sequence[SuitePrompt], limit: int | None) -> list[SuitePrompt]:
    """So many of the prompts, evenly over the file, which is mostly in the order of its domains."""
    if limit is None or limit >= len(prompts):
        return list(prompts)
    return [prompts[n * len(prompts) // limit] for n in range(limit)]


def request_id(pair: Pair, what: str, repeat: int, turn: int, prompt_id: str) -> str:
    """The id of a request: the same again is the same request. No part before the prompt holds a space."""
    return f"{pair.model} {pair.worker} {what} r{repeat} t{turn} {prompt_id}"


def left_of(blocks: Sequence[Block], done: Collection[str]) -> list[Block]:
    """What is still to be asked of a line.

    A block of which something is left is warmed up again, under new ids: its model may have been unloaded meanwhile.
    A conversation that was broken off goes on at its first missing turn.
    """
    found = []
    for block in blocks:
        stages = [_left_of_stage(stage, done) for stage in block.stages]
        if any(stage.conversations for stage in stages if stage.phase != "warmup"):
            found.append(replace(block, stages=tuple(stage for stage in stages if stage.conversations)))
    return found


def _left_of_stage(stage: Stage, done: Collection[str]) -> Stage:
    if stage.phase == "warmup":
        return replace(stage, conversations=tuple(_again(c, done) for c in stage.conversations))
    missing = [
        replace(c, requests=tuple(r for r in c.requests if r.request_id not in done)) for c in stage.conversations
    ]
    return replace(stage, conversations=tuple(c for c in missing if c.requests))


def _again(warmup: Conversation, done: Collection[str]) -> Conversation:
    """A warm-up under the first id that is free: its own, or its own with a number."""
    [request] = warmup.requests
    identity, number = request.request_id, 1
    while identity in done:
        number += 1
        identity = f"{request.request_id} again {number}"
    return replace(warmup, requests=(replace(request, request_id=identity),))


def _loads(pair: Pair, settings: SweepSettings, notes: list[str]) -> list[Load]:
    """The loads that a worker can take; more clients than slots would only wait at our side."""
    found = [load for load in settings.loads if (load.concurrency or 1) <= pair.slots]
    notes += [
        f"{pair.model} at {pair.worker}: {load.concurrency} clients for {pair.slots} slots; left out"
        for load in settings.loads
        if load not in found
    ]
    return found


def _block(
    pair: Pair, loads: Sequence[Load], prompts: Sequence[SuitePrompt], settings: SweepSettings, seed: int, repeat: int
) -> Block:
    stages = []
    if settings.cold and pair.can_unload:
        prompt = _dice(f"{seed} cold {repeat}").choice(prompts)  # the same one for every model
        only = PlannedRequest(request_id(pair, "cold", repeat, 0, prompt.id), 0)
        stages.append(Stage("cold", ONE, (Conversation(prompt, repeat, (only,)),)))
    most = max(load.concurrency or 1 for load in loads)
    warmups = [
        Conversation(WARMUP, repeat, (PlannedRequest(request_id(pair, "warmup", repeat, 0, str(n)), 0),))
        for n in range(settings.warmups * most)
    ]
    if warmups:
        stages.append(Stage("warmup", Load("closed", concurrency=most), tuple(warmups)))
    name = f"{seed} {pair.worker} {pair.model} {repeat}"
    stages += [
        Stage("measured", load, _measured(pair, load, prompts, settings, seed, repeat, name))
        for load in _shuffled(loads, f"{name} loads")
    ]
    return Block(pair, repeat, tuple(stages))


def _measured(
    pair: Pair,
    load: Load,
    prompts: Sequence[SuitePrompt],
    settings: SweepSettings,
    seed: int,
    repeat: int,
    name: str,
) -> tuple[Conversation, ...]:
    """The conversations of one load.

    An open loop that lasts longer than the suite begins it again, under repeats that no block has of its own.
    """
    if load.loop == "closed":
        order = _shuffled(prompts, f"{name} {load.name}")
        return tuple(_conversation(pair, load, prompt, repeat) for prompt in order)
    if load.arrival == "trace" and not settings.trace_s:
        return _as_recorded(pair, load, prompts, settings, repeat)
    moments = arrivals(
        load.arrival or "poisson",
        rate_rps=load.rate_rps,
        duration_s=settings.duration_s,
        number=len(prompts),
        trace_s=settings.trace_s,
        seed=f"{seed} arrivals {repeat}",  # the same for every model
    )
    found: list[Conversation] = []
    for start in range(0, len(moments), len(prompts)):
        again = start // len(prompts)
        order = _shuffled(prompts, f"{name} {load.name} {again}")
        for prompt, moment in zip(order, moments[start : start + len(prompts)], strict=False):
            conversation = _conversation(pair, load, prompt, repeat + again * settings.repeats)
            found.append(replace(conversation, planned_at_s=moment))
    return tuple(found)


def _as_recorded(
    pair: Pair, load: Load, prompts: Sequence[SuitePrompt], settings: SweepSettings, repeat: int
) -> tuple[Conversation, ...]:
    """The prompts of a suite that was made from a trace, each at its own moment."""
    moments = {prompt.id: arrival.at_s for prompt, arrival in zip(prompts, arrivals_of(prompts), strict=False)}
    if not moments:
        raise ConfigError(
            "arrival is 'trace', no trace is given, and the suite's prompts have no moments of their own",
            hint="Give a recorded trace, or make a suite of one: foundry bench import FILE",
        )
    start = min(moments.values())
    found = [
        replace(_conversation(pair, load, prompt, repeat), planned_at_s=moments[prompt.id] - start)
        for prompt in sorted(prompts, key=lambda p: moments[p.id])
        if settings.duration_s is None or moments[prompt.id] - start < settings.duration_s
    ]
    return tuple(found)


def _conversation(pair: Pair, load: Load, prompt: SuitePrompt, repeat: int) -> Conversation:
    turns = range(len(prompt.turns))
    requests = tuple(PlannedRequest(request_id(pair, load.name, repeat, turn, prompt.id), turn) for turn in turns)
    return Conversation(prompt, repeat, requests)


def _numbered(block: Block, position: int) -> tuple[Block, int]:
    """The block with its requests numbered from a position on, and the next one."""
    stages = []
    for stage in block.stages:
        conversations = []
        for conversation in stage.conversations:
            numbers = range(position, position + len(conversation.requests))
            requests = tuple(replace(r, position=n) for r, n in zip(conversation.requests, numbers, strict=True))
            conversations.append(replace(conversation, requests=requests))
            position += len(requests)
        stages.append(replace(stage, conversations=tuple(conversations)))
    return replace(block, stages=tuple(stages)), position


def _dice(name: str) -> random.Random:
    return random.Random(name)  # noqa: S311 (no secret)


def _shuffled(items: Sequence[T], name: str) -> list[T]:
    order = list(items)
    _dice(name).shuffle(order)
    return order
