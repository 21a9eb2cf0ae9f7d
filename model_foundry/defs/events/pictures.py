"""Pictures of sessions and of the traffic, as Vega-Lite specifications. Pure; drawn by ``defs.tables``."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime
from typing import Any

from model_foundry.sessions import SessionFlow
from model_foundry.warehouse.engine import Rows

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
STATE_COLORS = {"finished": "#4c9f70", "failed": "#c0392b", "started": "#e0a030", "declared": "#9aa5b1"}
KIND_COLORS = {"orchestrator": "#3b6fb6", "worker": "#4c9f70", "translator": "#8e6bbf"}
IDLE_COLOR = "#b8bfc8"
WIDTH = 560


def flow_picture(flow: SessionFlow) -> dict[str, Any]:
    """Who gave work to whom, and below it when each agent worked."""
    parts = [_handovers(flow)]
    if any(task["started_at"] for task in flow.tasks):
        parts.append(_gantt(flow))
    return {"$schema": SCHEMA, "vconcat": parts, "config": {"view": {"stroke": None}}}


def _handovers(flow: SessionFlow) -> dict[str, Any]:
    """Givers on the left, takers on the right; an agent that never got anything is grey and says so."""
    givers = sorted(
        {row["giver"] for row in flow.handovers}
        | {row["agent_id"] for row in flow.agents if row["role_kind"] == "orchestrator"}
    )
    others = [row["agent_id"] for row in flow.agents if row["agent_id"] not in givers]
    others += sorted({row["taker"] for row in flow.handovers} - set(others) - set(givers))
    place = {name: (0.0, _height(i, len(givers))) for i, name in enumerate(givers)}
    place |= {name: (1.0, _height(i, len(others))) for i, name in enumerate(others)}
    known = {row["agent_id"]: row for row in flow.agents}
    nodes = []
    for name, (x, y) in place.items():
        agent = known.get(name)
        kind = agent["role_kind"] if agent else "worker"
        idle = x > 0 and not (agent and agent["assigned"])
        label = name if not agent or agent["role"] in (None, name) else f"{name} ({agent['role']})"
        does = "got nothing" if idle else "gave work" if x == 0 else ""
        if agent and x > 0 and not idle:
            does = f"{agent['tasks']} {'task' if agent['tasks'] == 1 else 'tasks'}, {agent['busy_s']:.1f} s"
        nodes.append({"x": x, "y": y, "label": label, "does": does, "color": IDLE_COLOR if idle else KIND_COLORS[kind]})
    edges = [
        {
            "x": place[row["giver"]][0],
            "y": place[row["giver"]][1],
            "x2": place[row["taker"]][0],
            "y2": place[row["taker"]][1],
            "times": row["times"],
        }
        for row in flow.handovers
    ]
    across = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [-0.35, 1.45]}}
    down = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [-0.1, 1.1]}}
    size = {"field": "times", "type": "quantitative", "legend": None, "scale": {"range": [1, 7]}}
    text = {
        "type": "text",
        "align": {"expr": "datum.x > 0 ? 'left' : 'right'"},
        "dx": {"expr": "datum.x > 0 ? 12 : -12"},
    }
    return {
        "title": f"{flow.figures['correlation_id']}: who gave work to whom",
        "width": WIDTH,
        "height": max(90, 42 * max(len(givers), len(others))),
        "layer": [
            {
                "data": {"values": edges},
                "mark": {"type": "rule", "color": "#9aa5b1", "opacity": 0.7},
                "encoding": {"x": across, "y": down, "x2": {"field": "x2"}, "y2": {"field": "y2"}, "strokeWidth": size},
            },
            {
                "data": {"values": nodes},
                "mark": {"type": "point", "filled": True, "size": 220, "opacity": 1},
                "encoding": {"x": across, "y": down, "color": {"field": "color", "type": "nominal", "scale": None}},
            },
            {
                "data": {"values": nodes},
                "mark": {**text, "dy": -6, "fontWeight": "bold"},
                "encoding": {"x": across, "y": down, "text": {"field": "label"}},
            },
            {
                "data": {"values": nodes},
                "mark": {**text, "dy": 7, "color": "#566573"},
                "encoding": {"x": across, "y": down, "text": {"field": "does"}},
            },
        ],
    }


def _height(index: int, count: int) -> float:
    """Evenly from top to bottom; alone, in the middle."""
    return 0.5 if count == 1 else 1 - index / (count - 1)


def _gantt(flow: SessionFlow) -> dict[str, Any]:
    """Each agent's tasks over the session's seconds. A task that never ended goes on to the last moment known."""
    started = [task for task in flow.tasks if task["started_at"]]
    first: datetime = min(task["started_at"] for task in started)
    last: datetime = max(flow.figures["last_at"], *(task["ended_at"] or task["started_at"] for task in started))
    values = [
        {
            "agent": task["agent"],
            "from": (task["started_at"] - first).total_seconds(),
            "to": ((task["ended_at"] or last) - first).total_seconds(),
            "state": task["state"],
        }
        for task in started
    ]
    return {
        "title": "tasks by agent",
        "width": WIDTH,
        "height": {"step": 22},
        "data": {"values": values},
        "mark": {"type": "bar", "opacity": 0.75, "stroke": "white", "strokeWidth": 0.5, "minBandSize": 2},
        "encoding": {
            "y": {"field": "agent", "type": "nominal", "title": None},
            "x": {"field": "from", "type": "quantitative", "title": "seconds since the first task started"},
            "x2": {"field": "to"},
            "color": {
                "field": "state",
                "type": "nominal",
                "title": None,
                "scale": {"domain": list(STATE_COLORS), "range": list(STATE_COLORS.values())},
            },
        },
    }


def volume_picture(rows: Rows) -> dict[str, Any]:
    """Events a minute by subject."""
    values = [{"minute": row["minute"].isoformat(), "subject": row["subject"], "events": row["events"]} for row in rows]
    return {
        "$schema": SCHEMA,
        "width": WIDTH,
        "height": 180,
        "data": {"values": values},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "minute", "type": "temporal", "timeUnit": "utcyearmonthdatehoursminutes", "title": "UTC"},
            "y": {"field": "events", "type": "quantitative", "aggregate": "sum", "title": "events a minute"},
            "color": {"field": "subject", "type": "nominal", "title": None},
        },
    }


def bars(rows: Rows, label: str, value: str, most: int = 8) -> str:
    """The largest values as bars of text: Dagster shows short Markdown in place, pictures behind a click."""
    totals: dict[str, float] = defaultdict(float)
    for row in rows:
        totals[str(row[label])] += row[value] or 0
    found = sorted(totals.items(), key=lambda item: -item[1])[:most]
    longest = max((number for _, number in found), default=0) or 1
    lines = [f"{name[:26]:<26} {'█' * math.ceil(22 * number / longest):<22} {number:g}" for name, number in found]
    return "```\n" + "\n".join(lines) + "\n```"
