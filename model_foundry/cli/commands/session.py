"""``foundry session``: one session, from the first prompt to the last event."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from model_foundry.cli.output import ConfigOption, JsonOption, console, errors, print_json, rows_table
from model_foundry.runtime import Foundry
from model_foundry.sessions import SessionFlow, flow_of, timeline_of
from model_foundry.warehouse.engine import Rows

MAX_ROWS = 100_000
LONG_GAP_S = 10.0


def session(
    correlation_id: Annotated[str | None, typer.Argument(help="The correlation id; left out: the newest ones.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """What happened in a session, across prompts, answers and events, in order, with the gaps. Exit 1: no such one."""
    foundry = Foundry.load(config)
    if correlation_id is None:
        _list(foundry, as_json)
        return
    with foundry.warehouse.snapshot() as now:
        timeline = timeline_of(now, correlation_id, MAX_ROWS)
        flow = flow_of(now, correlation_id)
    if as_json:
        told = None if flow is None else {"figures": flow.figures, "agents": flow.agents, "divergence": flow.divergence}
        print_json({"correlation_id": correlation_id, "timeline": timeline, "flow": told})
    elif timeline:
        _print_timeline(correlation_id, timeline)
        if flow is not None:
            print_flow(flow)
    if not timeline:
        errors.print(
            f"nothing carries the correlation id {correlation_id!r}; the newest: foundry session", markup=False
        )
        raise typer.Exit(1)


def _list(foundry: Foundry, as_json: bool) -> None:
    rows = foundry.warehouse.rows("from sessions order by last_at desc limit 20")
    if as_json:
        print_json(rows)
        return
    heads = {"correlation_id": "session", "last_at": "last at", "wall_s": "took s", "prompts": "prompts"}
    heads |= {"events": "events", "failures": "failed", "longest_gap_s": "gap s"}
    shown = [row | {"last_at": f"{row['last_at']:%m-%d %H:%M:%S}"} for row in rows]
    rows_table("The newest sessions", shown, heads, note="gap: the longest. One of them: foundry session ID")


def _print_timeline(correlation_id: str, timeline: Rows) -> None:
    first, last = timeline[0]["happened_at"], timeline[-1]["happened_at"]
    wall_s = (last - first).total_seconds()
    rows = [
        {
            "at": f"{row['happened_at']:%H:%M:%S.%f}"[:-3],
            "gap": _gap(row["gap_s"]),
            "what": row["subject"] if row["moment"] == "event" else f"{row['moment']} {row['model'] or row['domain']}",
            "who": row["source"] or row["worker"] or "",
            "detail": " ".join(str(part) for part in (row["detail"], row["status"], _took(row["seconds"])) if part),
        }
        for row in timeline
    ]
    title = f"{correlation_id}: {len(timeline)} moments from {first:%Y-%m-%d %H:%M:%S} UTC, {wall_s:.1f} s"
    rows_table(title, rows)


def _gap(gap_s: float | None) -> str:
    return "" if gap_s is None else f"+{gap_s:.3f}" if gap_s < LONG_GAP_S else f"+{gap_s:.0f} s"


def _took(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f} s"


def print_flow(flow: SessionFlow) -> None:
    """Prints a session's flow: who did what, and what stands out."""
    figures: dict[str, Any] = flow.figures
    idle = ", ".join(figures["roles_without_work"])
    depth = "in a circle" if figures["has_cycle"] else f"{figures['depth']} deep"
    says = [
        f"{figures['tasks']} tasks ({figures['finished']} finished, {figures['failed']} failed, {figures['open']} "
        f"open), {depth}, fan-out {figures['fan_out']}, at most {figures['max_parallel']} at once",
    ]
    if figures["divergence"] is not None:
        says.append(
            f"with the same plan, agents diverged by {figures['divergence']:.2f} (0 the same, 1 nothing in common)"
        )
    heads = {"agent_id": "agent", "role": "role", "tasks": "tasks", "finished": "finished", "failed": "failed"}
    heads |= {"busy_s": "busy s", "tool_calls": "tools", "chat_turns": "turns"}
    rows_table("Who did what", flow.agents, heads, note="\n".join(says))
    if idle:
        console.print(Text(f"Never given a task: {idle}", style="yellow"))
