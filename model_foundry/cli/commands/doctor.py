"""``foundry doctor``: is everything as it should be, and what to do about each fault."""

from __future__ import annotations

import asyncio
import platform
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Annotated, Literal

import typer

from model_foundry import __version__
from model_foundry.cli.commands.doctor_worker import Whom, examine_worker
from model_foundry.cli.commands.workers import worker_rows
from model_foundry.cli.output import ConfigOption, JsonOption, console, print_json
from model_foundry.config import EMBEDDED, SEARCH_API
from model_foundry.embedded import endpoints
from model_foundry.embedded.llama import weights_path
from model_foundry.embedded.nats import nats_server_binary
from model_foundry.errors import FoundryError
from model_foundry.event_inbox import lag
from model_foundry.fleet.health import State
from model_foundry.fleet.look import look_at_fleet
from model_foundry.inference.client import ask, new_client
from model_foundry.inference.target import InferenceRequest
from model_foundry.jetstream.client import JetStream, StreamState, with_jetstream
from model_foundry.notes import read_notes
from model_foundry.records import Completion, JobStatus
from model_foundry.runtime import Foundry
from model_foundry.search import EMBED_AGAIN, EMBED_FIRST
from model_foundry.warehouse import invariants
from model_foundry.warehouse.catalogs import SqliteCatalog
from model_foundry.warehouse.maintenance import backups_folder
from model_foundry.warehouse.sql_files import sql_text
from model_foundry.warehouse.vectors import embedded_dimensions

SEARCH_TIMEOUT_S = 15.0
MIN_FREE_BYTES = 2 * 2**30
PACKAGES = (
    "dagster",
    "dagster-webserver",
    "duckdb",
    "duckdb-extension-ducklake",
    "nats-py",
    "httpx",
    "pandas",
    "pydantic",
)


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``state`` is ok, warn or fault; ``todo`` says what to do about it."""

    part: str
    state: str
    detail: str
    todo: str = ""


def doctor(
    lake: Annotated[
        bool, typer.Option("--lake", help="Look at the lake alone, and verify every invariant of it.")
    ] = False,
    worker: Annotated[
        str | None,
        typer.Option("--worker", help="Examine one model server alone: its URL, or a worker's name.", metavar="URL"),
    ] = None,
    api: Annotated[
        Literal["openai", "ollama"] | None,
        typer.Option("--api", help="With --worker: its dialect [default: found out]."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="With --worker: the model to ask for [default: the first loaded].")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", help="With --worker: the environment variable that holds its key.")
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Check config, NATS, workers, lake, Dagster, versions; say what to do about each fault. Exit 1 on a fault.

    With --worker: does that model server speak its dialect? Needs no configuration for a URL. It sends some fifty short
    requests (16 tokens at most, one of 256 that is broken off), prints what holds and what it means where it does not,
    and an entry for `workers`. Exit 1 when something required does not hold.
    """
    if worker is not None:
        whom = Whom(worker, api, model, api_key_env, config)
        raise typer.Exit(0 if examine_worker(whom, as_json=as_json) else 1)
    if api or model or api_key_env:
        raise typer.BadParameter("--api, --model and --api-key-env go with --worker", param_hint="--worker")
    findings: list[Finding] = []
    for finding in examine_lake(config) if lake else examine(config):
        findings.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    raise typer.Exit(1 if any(f.state == "fault" for f in findings) else 0)


def examine(config: ConfigOption) -> Iterator[Finding]:
    """Every finding, in the order in which a person would look; a broken configuration ends it."""
    yield Finding("versions", "ok", f"model-foundry {__version__}, Python {platform.python_version()}, {_versions()}")
    try:
        foundry = Foundry.load(config)
    except FoundryError as error:
        yield _fault("config", error)
        return
    settings = foundry.config
    yield Finding(
        "config",
        "ok",
        f"{foundry.config_file}: {len(settings.workers)} workers, {len(settings.models)} models, "
        f"lanes {', '.join(settings.capabilities)}",
    )
    yield from _unserved(foundry)
    yield from _disk(foundry)
    yield from _embedded_parts(foundry)
    yield from _guarded("nats", lambda: _nats(foundry))
    yield from _guarded("workers", lambda: _workers(foundry))
    yield from _guarded("search", lambda: _search_servers(foundry))
    yield from _guarded("notes", lambda: _notes(foundry))
    yield from _guarded("lake", lambda: chain(_lake(foundry), _accounting(foundry), _lag(foundry)))
    yield from _dagster(foundry)


def examine_lake(config: ConfigOption) -> Iterator[Finding]:
    """Every invariant of the lake, its size, and the newest backup."""
    foundry = Foundry.load(config)
    yield from _guarded("lake", lambda: _lake(foundry))
    yield from _guarded("invariants", lambda: _invariants(foundry))
    yield from _guarded("size", lambda: _lake_size(foundry))
    yield from _backups(foundry)


def _invariants(foundry: Foundry) -> Iterator[Finding]:
    for found in invariants.examine(foundry.warehouse):
        if not found.broken:
            yield Finding(found.name, "ok", found.meaning)
            continue
        shown = f"not so for {found.broken}, for example {found.example}"
        file = f"sql/checks/{found.name}.sql"
        todo = f"see them all: foundry sql -f {file}" if found.name in invariants.INVARIANTS else "restore the files"
        yield Finding(found.name, "fault", f"{found.meaning}: {shown}", todo)


def _lake_size(foundry: Foundry) -> Iterator[Finding]:
    rows = foundry.warehouse.show("lake_sizes")
    files, size_bytes = sum(r["files"] for r in rows), sum(r["bytes"] for r in rows)
    [snapshots] = foundry.warehouse.show("lake_snapshots_count")
    detail = (
        f"{files} data files, {size_bytes / 2**20:.1f} MiB, {snapshots['n']} snapshots since {snapshots['since']:%F %T}"
    )
    yield Finding("size", "ok", detail)


def _backups(foundry: Foundry) -> Iterator[Finding]:
    catalog = foundry.warehouse.catalog
    if isinstance(catalog, SqliteCatalog):
        files = sorted(backups_folder(catalog).glob("catalog-*.sqlite"))
        if files:
            yield Finding("backup", "ok", f"{len(files)} of the catalog, the newest {files[-1]}")
        else:
            yield Finding("backup", "warn", "none of the catalog yet", "materialize lake_backup, or wait for tonight")


def _print(finding: Finding) -> None:
    mark = {"ok": "[green]ok   [/]", "warn": "[yellow]warn [/]", "fault": "[red]fault[/]"}[finding.state]
    console.print(f"{mark} [bold]{finding.part}[/]  ", end="")
    console.print(finding.detail, markup=False)
    if finding.todo:
        console.print(f"      do: {finding.todo}", markup=False)


def _fault(part: str, error: FoundryError) -> Finding:
    return Finding(part, "fault", str(error), error.hint or "")


def _guarded(part: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A look that turns an error of ours into its finding."""
    try:
        yield from look()
    except FoundryError as error:
        yield _fault(part, error)


def _versions() -> str:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} missing")
    return ", ".join(found)


def _unserved(foundry: Foundry) -> Iterator[Finding]:
    """Models that no worker serves: their jobs could only fail."""
    config = foundry.config
    for name, model in config.models.items():
        able = [w for w, c in config.workers.items() if model.capability in c.supports and config.serves(w, name)]
        if not able:
            yield Finding(
                "config",
                "warn",
                f"no worker serves {name} in lane {model.capability}",
                f"add {name} to the models of a worker that supports {model.capability}, or remove it from `models`",
            )


def _disk(foundry: Foundry) -> Iterator[Finding]:
    folder = foundry.config.data_dir
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    state, todo = ("ok", "") if free >= MIN_FREE_BYTES else ("warn", "free some space, or move data_dir")
    yield Finding("disk", state, f"{free / 2**30:.1f} GiB free for {folder}", todo)


def _embedded_parts(foundry: Foundry) -> Iterator[Finding]:
    config = foundry.config
    if config.nats.url == EMBEDDED:
        yield from _guarded("nats-server", lambda: iter([Finding("nats-server", "ok", str(nats_server_binary()))]))
    if any(w.url == EMBEDDED for w in config.workers.values()):
        yield from _guarded("model", lambda: iter([Finding("model", "ok", str(weights_path()))]))
    if endpoints.read(config.data_dir) is None:
        yield Finding("up", "warn", f"no 'foundry up' runs over {config.data_dir}", "start it: foundry up")


def _nats(foundry: Foundry) -> Iterator[Finding]:
    streams = foundry.config.streams

    async def look(js: JetStream) -> list[StreamState]:
        return [await js.stream_state(s.name) for s in (streams.prompts, streams.events, streams.results)]

    for state in with_jetstream(foundry.nats, look):
        detail = f"stream {state.name}: {state.messages} messages, sequences {state.first_seq} to {state.last_seq}"
        yield Finding("nats", "ok", detail)


def _workers(foundry: Foundry) -> Iterator[Finding]:
    look = look_at_fleet(foundry)
    for worker in worker_rows(foundry, look):
        name, state = f"worker {worker['name']}", State(worker["state"])
        version = worker["version"] or "version unknown"
        if state.usable:
            yield Finding(name, "ok", f"{worker['url']}, {state}, {version}, {worker['slots']} slots")
        else:
            yield Finding(name, "fault", f"{worker['url']}: {state}: {worker['detail']}", _TODO_BY_STATE[state])
        theirs = worker["server_slots"]
        if theirs and theirs < worker["slots"]:
            yield Finding(
                name,
                "warn",
                f"slots is {worker['slots']}, the server has {theirs}",
                f"set workers.{worker['name']}.slots to {theirs}; more only wait inside the server",
            )
    for key, reason in look.board.roster.refused.items():
        yield Finding(f"heartbeat {key}", "warn", reason, "correct or stop the agent that sends it")
    if look.board.problem:
        yield Finding("fleet", "fault", look.board.problem, "see above; without its buckets no job is answered")


_TODO_BY_STATE = {
    State.MISCONFIGURED: "check its models, url, api and api_key_env in the configuration",
    State.GONE: "is its host up, and 'foundry worker' running there?",
    State.DOWN: "start it, or correct its url",
    State.WARMING: "wait until it has loaded its model",
}


def _search_servers(foundry: Foundry) -> Iterator[Finding]:
    """Each search server is asked one query: whether JSON is allowed shows only then."""
    for name, worker in foundry.config.workers.items():
        if worker.api != SEARCH_API:
            continue
        completion = asyncio.run(_search_once(foundry, name))
        if completion.status is JobStatus.ANSWERED:
            failed = [note for note in completion.notes if note.startswith("engines_failed")]
            state, do = ("warn", "disable these engines in its settings.yml, or see its log") if failed else ("ok", "")
            yield Finding(f"search {name}", state, "; ".join([f"{len(completion.results)} results", *failed]), do)
        else:
            yield Finding(f"search {name}", "fault", completion.error_message or "no answer", "correct it, try again")


async def _search_once(foundry: Foundry, name: str) -> Completion:
    request = InferenceRequest("", [{"role": "user", "content": "weather"}])
    limits = foundry.config.limits.model_copy(update={"request_first_token_timeout_s": SEARCH_TIMEOUT_S})
    async with new_client() as client:
        return await ask(client, foundry.worker_target(name), request, limits)


def _notes(foundry: Foundry) -> Iterator[Finding]:
    """The folder of notes, and how many of them can be searched."""
    config = foundry.config.notes
    if config is None:
        return
    notes = read_notes(config)
    unreadable = sum(note.problem is not None for note in notes)
    embedded = embedded_dimensions(foundry.warehouse, config.model)
    detail = f"{len(notes)} notes in {config.folder}, {sum(embedded.values())} chunks embedded by {config.model}"
    if not notes:
        yield Finding("notes", "warn", f"{config.folder} has none", "check notes.folder and notes.include")
    elif not embedded:
        yield Finding("notes", "warn", detail, EMBED_FIRST)
    elif len(embedded) > 1:
        yield Finding("notes", "warn", f"{detail}, of different lengths", EMBED_AGAIN)
    elif unreadable:
        yield Finding("notes", "warn", f"{detail}; {unreadable} can't be read", "see without_vector in embeddings")
    else:
        yield Finding("notes", "ok", detail)


def _lake(foundry: Foundry) -> Iterator[Finding]:
    rows = foundry.warehouse.rows("select status, count(*) as jobs from jobs group by status order by jobs desc")
    counts = ", ".join(f"{row['jobs']} {row['status']}" for row in rows) or "no jobs yet"
    yield Finding("lake", "ok", f"{foundry.config.lake.catalog} catalog in {foundry.config.data_dir}: {counts}")
    lost = "ranges of messages were dropped by the stream before they were read"
    yield from _offending(foundry, "no_message_was_lost", lost)


def _lag(foundry: Foundry) -> Iterator[Finding]:
    found, allowed_s = lag(foundry, datetime.now(UTC)), foundry.config.events.max_lag_s
    if found.oldest_s > allowed_s:
        detail = f"not landed: {found.pending}, the oldest waits {found.oldest_s:.0f} s (allowed: {allowed_s:g} s)"
        yield Finding("events", "warn", detail, "is 'foundry up' running? In its UI, look at event_sensor's ticks")
    else:
        yield Finding("events", "ok", f"not landed: {found.pending}")


def _accounting(foundry: Foundry) -> Iterator[Finding]:
    yield from _offending(foundry, "every_message_is_accounted_for", "landed messages are not accounted for")


def _offending(foundry: Foundry, check: str, meaning: str) -> Iterator[Finding]:
    """A fault when a check gives rows."""
    offending = foundry.warehouse.rows(sql_text("checks", check))
    if offending:
        yield Finding("lake", "fault", f"{len(offending)} {meaning}", f"foundry sql -f sql/checks/{check}.sql")


def _dagster(foundry: Foundry) -> Iterator[Finding]:
    found = endpoints.read(foundry.config.data_dir)
    if found is None or not found.web_url:
        return
    try:
        with urllib.request.urlopen(f"{found.web_url}/server_info", timeout=5) as response:  # noqa: S310 (loopback)
            yield Finding("dagster", "ok", f"{found.web_url}: {response.read(300).decode()}")
    except OSError as error:
        yield Finding(
            "dagster",
            "fault",
            f"{found.web_url} does not answer: {error}",
            f"look into {foundry.config.data_dir / 'logs'}",
        )
