"""A look at the fleet: everything that is known of every worker now, gathered at once. I/O only.

Belongs here: asking the workers, the buckets and the lake, all bounded. Does not belong here: what it means
(``fleet.health``), showing it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from model_foundry.errors import ConfigError, LakeError
from model_foundry.fleet.board import Board, read_board_if_any
from model_foundry.fleet.health import Facts, Health, RecentAttempts, health, recent_from_rows
from model_foundry.fleet.roster import without_beats
from model_foundry.inference.client import new_client
from model_foundry.inference.probe import ProbeResult, probe
from model_foundry.jetstream.client import JetStream
from model_foundry.runtime import Foundry

PROBE_TIMEOUT_S = 5.0
RECENT_S = 900.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One worker: what is known, and how it is. ``url``: where it really listens, None for an embedded one that does
    not run.
    """

    facts: Facts
    health: Health
    url: str | None


@dataclass(frozen=True, slots=True)
class FleetLook:
    """The fleet at one moment."""

    board: Board
    seen: Mapping[str, Seen]


def look_at_fleet(foundry: Foundry) -> FleetLook:
    """Looks at every worker, the buckets, and the last quarter of an hour's attempts.

    It is for people: whatever can't be read is left out, and said.
    """
    recent: Mapping[str, RecentAttempts] = {}
    try:
        since = datetime.now(UTC) - timedelta(seconds=RECENT_S)
        recent = recent_from_rows(foundry.warehouse.show("recent_attempts", {"since": since}))
    except LakeError:
        pass  # no lake yet: nobody has attempted anything
    return asyncio.run(_look(foundry, recent))


async def _look(foundry: Foundry, recent: Mapping[str, RecentAttempts]) -> FleetLook:
    try:
        board = await read_board_if_any(JetStream(foundry.nats), foundry.config)
    except ConfigError as error:
        board = Board(without_beats(foundry.config), (), datetime.now(UTC), str(error))
    members = board.roster.members
    held = Counter(h.worker for h in board.held)
    async with new_client() as client:

        async def ask(name: str) -> tuple[str | None, ProbeResult]:
            try:
                target = foundry.worker_target(name, members[name].config)
            except ConfigError as error:
                return None, ProbeResult(False, False, str(error))
            return target.url, await probe(client, target, PROBE_TIMEOUT_S)

        found = dict(zip(members, await asyncio.gather(*map(ask, members)), strict=True))
    facts = {n: Facts(m, found[n][1], held[n], recent.get(n, RecentAttempts())) for n, m in members.items()}
    return FleetLook(board, {name: Seen(f, health(f), found[name][0]) for name, f in facts.items()})
