"""What a materialization of the event assets shows. No payload text, ever: only ids, names and figures."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import dagster as dg

from model_foundry.defs.events.pictures import bars, flow_picture, volume_picture
from model_foundry.defs.recency import AS_OF
from model_foundry.defs.tables import chart, number, records_table
from model_foundry.event_inbox import InboxRecord
from model_foundry.sessions import SessionFlow
from model_foundry.warehouse.engine import Rows
from model_foundry.warehouse.lake import Snapshot

MAX_EVENTS = 200
MAX_MOMENTS = 300
MAX_ROWS = 50
"""What goes into Dagster's event log stays there for ever; the lake has all of it."""


# fmt: off
_FLOW = ("correlation_id", "last_at", "tasks", "finished", "failed", "open", "depth", "fan_out", "max_parallel",
         "divergence", "roles_without_work", "wall_s", "agents")
_AGENT = ("agent_id", "role", "tasks", "finished", "failed", "open", "busy_s", "tool_calls", "tool_errors",
          "chat_turns")
"""What fits a page; the views have more."""
# fmt: on


def inbox_metadata(lake: Snapshot, record: InboxRecord, day: InboxRecord, run_id: str) -> dict[str, Any]:
    """Counts of what one run took, its events, what the whole day holds by now, and the rejects with their reasons."""
    metadata: dict[str, Any] = {
        "status": record.status,
        "events": record.event_count,
        "duplicates": record.duplicates,
        "rejects": record.rejects,
        "lost": record.lost,
        "sequences": ", ".join(f"{span.from_seq} to {span.to_seq}" for span in record.sequences) or "none",
        "events_of_the_day": day.event_count,
        "dagster/row_count": record.event_count,
    }
    if record.events:
        shown = record.events[:MAX_EVENTS]
        metadata["inbox"] = records_table([ref.model_dump() for ref in shown])
        if record.event_count > len(shown):
            metadata["inbox_shows"] = f"the first {len(shown)} of {record.event_count}; all are in `events`"
    if record.by_subject:
        metadata["by_subject"] = records_table([row.model_dump() for row in record.by_subject])
    if record.rejects:
        metadata["reject_reasons"] = records_table(lake.show("run_rejects", {"run_id": run_id}))
    return metadata


def flow_metadata(at: datetime, flows: Rows, flow: SessionFlow | None) -> dict[str, Any]:
    """The day's sessions with a flow, and one of them whole."""
    metadata: dict[str, Any] = {
        "status": "done" if flows or flow else "empty",
        AS_OF: dg.MetadataValue.timestamp(at),
        "sessions": len(flows),
    }
    if flows:
        metadata["flows"] = records_table([_shown({name: row[name] for name in _FLOW}) for row in flows[:MAX_ROWS]])
    if flow is None:
        return metadata
    session = flow.figures["correlation_id"]
    idle = flow.figures["roles_without_work"]
    metadata["session"] = session
    metadata["roles_without_work"] = ", ".join(idle) if idle else "none: every role got something"
    metadata["tasks_by_agent"] = dg.MetadataValue.md(bars(flow.agents, "agent_id", "tasks"))
    metadata["agents"] = records_table([_shown({name: row[name] for name in _AGENT}) for row in flow.agents[:MAX_ROWS]])
    if flow.divergence:
        metadata["divergence"] = records_table([_shown(row) for row in flow.divergence[:MAX_ROWS]])
    metadata["picture"] = chart(flow_picture(flow), alt=f"flow of {session}")
    return metadata


def timeline_metadata(at: datetime, sessions: Rows, chosen: str, timeline: Rows) -> dict[str, Any]:
    """The day's sessions, and one of them moment by moment."""
    metadata: dict[str, Any] = {
        "status": "done" if sessions or timeline else "empty",
        AS_OF: dg.MetadataValue.timestamp(at),
        "sessions": len(sessions),
    }
    if sessions:
        metadata["by_session"] = records_table([_shown(row) for row in sessions])
    if timeline:
        metadata["session"] = chosen
        metadata["timeline"] = records_table([moment(row) for row in timeline])
        if len(timeline) == MAX_MOMENTS:
            metadata["timeline_shows"] = f"the first {MAX_MOMENTS}; all of it: foundry session {chosen}"
    elif chosen:
        metadata["session"] = f"nothing carries the correlation id {chosen}"
    return metadata


def moment(row: dict[str, Any]) -> dict[str, Any]:
    """One moment of a timeline, in few columns."""
    return {
        "nth": row["nth"],
        "happened_at": f"{row['happened_at']:%H:%M:%S.%f}"[:-3],
        "gap_s": number(row["gap_s"]),
        "moment": row["moment"],
        "what": row["subject"] if row["moment"] == "event" else row["model"] or row["domain"],
        "who": row["source"] or row["worker"],
        "detail": row["detail"],
        "status": row["status"],
        "seconds": number(row["seconds"]),
        "id": row["event_id"] or row["job_id"],
    }


def volume_metadata(at: datetime, record: InboxRecord, rows: Rows) -> dict[str, Any]:
    """Events a minute, and how late they landed."""
    metadata: dict[str, Any] = {
        "status": "done" if rows else "empty",
        AS_OF: dg.MetadataValue.timestamp(at),
        "events": record.event_count,
        "duplicates": record.duplicates,
        "rejects": record.rejects,
    }
    if not rows:
        return metadata
    minutes = len({row["minute"] for row in rows})
    metadata["minutes_with_events"] = minutes
    metadata["busiest_minute"] = max(
        sum(row["events"] for row in rows if row["minute"] == minute) for minute in {row["minute"] for row in rows}
    )
    metadata["max_lag_s"] = number(max(row["max_lag_s"] for row in rows))
    metadata["by_subject"] = dg.MetadataValue.md(bars(rows, "subject", "events"))
    metadata["last_minutes"] = records_table([_shown(row) for row in rows[-MAX_ROWS:]])
    metadata["chart"] = chart(volume_picture(rows), alt="events a minute")
    return metadata


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row with lists as text and times to the second."""
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else number(value)
