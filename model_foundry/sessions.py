"""Sessions: everything with one correlation id, told from the lake for a person to read.

Belongs here: gathering what the pages and the command line show of a session. Does not belong here: the figures
themselves (``sql/views``), tables and pictures (``defs.events``, ``cli``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from model_foundry.warehouse.engine import Rows
from model_foundry.warehouse.lake import Snapshot

MAX_SESSIONS = 20
"""Sessions that a page lists."""
QUIET_AT_LEAST_S = 3600.0
QUIET_FACTOR = 3.0
MIN_PACE_EVENTS = 20
"""A subject with no limit of its own is quiet when it is silent for three times its longest pause of a week with at
least so many events, and for an hour."""


@dataclass(frozen=True, slots=True)
class SessionFlow:
    """The flow of one session: its figures, what each agent did, the tasks, who gave work to whom, who diverged."""

    figures: dict[str, Any]
    agents: Rows
    tasks: Rows
    handovers: Rows
    divergence: Rows


def sessions_of_day(lake: Snapshot, day: date, most: int = MAX_SESSIONS) -> Rows:
    """The busiest sessions of a day, newest first: one row of the view ``sessions`` each."""
    ids = [row["correlation_id"] for row in lake.show("sessions_of_day", {"day": day, "most": most})]
    return lake.show("sessions_of", {"sessions": ids}) if ids else []


def flows_of_day(lake: Snapshot, day: date, most: int = MAX_SESSIONS) -> Rows:
    """The sessions of a day with the most of a flow: one row of the view ``event_flow`` each, most nodes first."""
    ids = [row["correlation_id"] for row in lake.show("flow_sessions_of_day", {"day": day, "most": most})]
    rows = lake.show("event_flow_of", {"sessions": ids}) if ids else []
    return sorted(rows, key=lambda row: ids.index(row["correlation_id"]))


def flow_of(lake: Snapshot, session: str) -> SessionFlow | None:
    """The flow of one session; None when it has none."""
    rows = lake.show("event_flow_of", {"sessions": [session]})
    if not rows:
        return None
    parts = (
        lake.show(f"flow_{part}_of", {"session": session}) for part in ("agents", "tasks", "handovers", "divergence")
    )
    return SessionFlow(rows[0], *parts)


def timeline_of(lake: Snapshot, session: str, most: int) -> Rows:
    """The first so many moments of a session, in order."""
    return lake.show("timeline_of", {"session": session, "most": most})


def gone_quiet(pace: Rows, quiet_after_s: Mapping[str, float]) -> Rows:
    """The subjects that have been silent for too long. Pure.

    Args:
        pace: rows of ``sql/show/event_pace.sql``.
        quiet_after_s: by subject, how long a silence is all right; for the others see ``QUIET_FACTOR``.

    Returns:
        ``subject``, ``silent_s`` (None: nothing within a week), ``allowed_s``; the longest silence first.
    """
    seen = {row["subject"]: row for row in pace}
    found: Rows = []
    for subject, allowed_s in quiet_after_s.items():
        silent_s = seen[subject]["silent_s"] if subject in seen else None
        if silent_s is None or silent_s > allowed_s:
            found.append({"subject": subject, "silent_s": silent_s, "allowed_s": allowed_s})
    for row in pace:
        if row["subject"] in quiet_after_s or row["events"] < MIN_PACE_EVENTS:
            continue
        allowed_s = max(QUIET_AT_LEAST_S, QUIET_FACTOR * (row["longest_pause_s"] or 0.0))
        if row["silent_s"] > allowed_s:
            found.append({"subject": row["subject"], "silent_s": row["silent_s"], "allowed_s": allowed_s})
    return sorted(found, key=lambda row: -(row["silent_s"] or float("inf")))
