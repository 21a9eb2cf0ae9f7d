"""``foundry publish``, ``foundry events``: events sent, and rejected ones sent again."""

from __future__ import annotations

import json
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from model_foundry.cli.output import ConfigOption, JsonOption, console, print_json, read_jsonl, rows_table
from model_foundry.jetstream.client import JetStream, PubAck, with_jetstream
from model_foundry.jetstream.subjects import subject_matches
from model_foundry.replay import corrected, find_reject, replay
from model_foundry.runtime import Foundry

events_app = typer.Typer(help="Events that could not be read: list them, look at one, send it again corrected.")


def publish(
    subject: Annotated[str, typer.Argument(help="Where to: llm.…, obsidian.…, or a former name.")],
    payload: Annotated[
        str | None, typer.Argument(help="The payload, a JSON object; '-' reads it from standard input.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, help="A JSONL file: one whole event a line, as on the wire."),
    ] = None,
    correlation_id: Annotated[str | None, typer.Option(help="The session it belongs to.")] = None,
    source: Annotated[str | None, typer.Option(help="Who says so: the acting agent or system.")] = None,
    event_id: Annotated[str | None, typer.Option(help="Its id; left out: a new one.")] = None,
    occurred_at: Annotated[str | None, typer.Option(help="RFC 3339 time; left out: now.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Publish one event (or a JSONL file of them)."""
    foundry = Foundry.load(config)
    stream = foundry.config.streams.events
    if not any(subject_matches(subject, pattern) for pattern in stream.subjects):
        allowed = ", ".join(stream.subjects)
        raise typer.BadParameter(f"{subject!r} is no subject of events; allowed: {allowed}", param_hint="SUBJECT")
    if file is not None:
        if payload is not None:
            raise typer.BadParameter("give a payload, or --file; not both")
        bodies = read_jsonl(file)
    else:
        said = {"correlation_id": correlation_id, "source": source, "payload": _payload(payload)}
        when = occurred_at or datetime.now(UTC).isoformat().replace("+00:00", "Z")
        said |= {"event_id": event_id or f"event-{uuid.uuid4().hex[:16]}", "occurred_at": when}
        bodies = [{name: value for name, value in said.items() if value is not None}]

    async def send(js: JetStream) -> list[PubAck]:
        await js.ensure_stream(stream)
        items = [
            (subject, json.dumps(body, ensure_ascii=False).encode(), str(body.get("event_id") or "") or None)
            for body in bodies
        ]
        return await js.publish_many(items)

    acks = with_jetstream(foundry.nats, send)
    rows = [
        {
            "event_id": body.get("event_id"),
            "subject": subject,
            "stream": a.stream,
            "seq": a.seq,
            "duplicate": a.duplicate,
        }
        for body, a in zip(bodies, acks, strict=True)
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        again = " (published before)" if row["duplicate"] else ""
        console.print(f"{row['event_id'] or '(no id)'}  {row['stream']} {row['seq']}{again}", markup=False)


def _payload(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    if text == "-":
        text = typer.get_text_stream("stdin").read()
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"it is not JSON: {error}", param_hint="PAYLOAD") from None
    if not isinstance(value, dict):
        raise typer.BadParameter("it is no JSON object", param_hint="PAYLOAD")
    return value


@events_app.command("rejects")
def rejects(
    reject: Annotated[str | None, typer.Argument(help="Write this one's body, as it came, to standard output.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List the events that could not be read and were not sent again, or write the body of one."""
    foundry = Foundry.load(config)
    if reject is not None:
        found = find_reject(foundry, reject)
        sys.stdout.buffer.write(found.message.data)
        return
    stream = foundry.config.streams.events.name
    query = "from open_rejects where stream = $stream order by published_at desc, seq desc"
    rows = foundry.warehouse.rows(query, {"stream": stream})
    if as_json:
        print_json(rows)
        return
    heads = {"seq": "seq", "subject": "subject", "published_at": "published at", "bytes": "bytes", "reason": "reason"}
    shown = [row | {"published_at": f"{row['published_at']:%Y-%m-%d %H:%M:%S}"} for row in rows]
    note = "Look at one: foundry events rejects SEQ > body; correct it; foundry events replay SEQ --with body"
    rows_table(f"{len(rows)} rejects of {stream}", shown, heads, note=note if rows else "")


@events_app.command("replay")
def replay_reject(
    reject: Annotated[str, typer.Argument(help="Its sequence, or its whole name as in the view open_rejects.")],
    with_file: Annotated[
        Path | None, typer.Option("--with", help="The corrected body; '-' reads it from standard input.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Another subject.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="name=value: another header; name= takes it away. May be repeated.")
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Send a rejected event again, corrected. It is published only if it can be read now."""
    foundry = Foundry.load(config)
    found = find_reject(foundry, reject)
    headers = dict(_header(text) for text in header or ())
    if with_file is None and subject is None and not headers:
        raise typer.BadParameter(
            f"say what is corrected: it was rejected for this: {found.reason}", param_hint="--with"
        )
    data = None
    if with_file is not None:
        try:
            data = sys.stdin.buffer.read() if str(with_file) == "-" else with_file.read_bytes()
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--with") from None
    ack = replay(foundry, corrected(found, data, subject, headers))
    if as_json:
        print_json({"reject": found.name, "stream": ack.stream, "seq": ack.seq})
    else:
        console.print(f"{found.name} was sent again: {ack.stream} {ack.seq}", markup=False)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r}; allowed: name=value", param_hint="--header")
    return name, value
