"""How fast the lake is, as ratios from one run.

    .venv/bin/python benchmarks/lake.py [MILLION_ROWS]

1. Landing: 1 KB prompts, and 1 KB events, from JetStream into the lake, against reading the same messages with nats-py
   and throwing them away.
2. Figures: ``domain_latency`` over 10 million completions in the lake, against the same statement over the same tables
   in a plain DuckDB file.
3. Refresh: the last seven days' ``domain_latency`` after 10,000 new rows, with little and with much history before.
4. Memory: the peak of a process that lands 10,000 messages and refreshes, with little and with much history before.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import nats
from nats.js.api import AckPolicy, ConsumerConfig

from model_foundry.config import LakeConfig, parse
from model_foundry.event_intake import EventIntake
from model_foundry.intake import Intake, land_partition
from model_foundry.jetstream.client import JetStream, with_jetstream
from model_foundry.prompt_intake import PromptIntake
from model_foundry.records import EVENTS_LANE
from model_foundry.runtime import Foundry
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_folder
from model_foundry_tests.builders import raw_config
from model_foundry_tests.parts import NatsServer

MESSAGES = 100_000
BODY = "The quick brown fox jumps over the lazy dog. " * 18


def timed(work: Callable[[], object], times: int = 1) -> float:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def tool_call(i: int) -> dict[str, object]:
    """An event of about 1 KB."""
    payload = {"call_id": f"c{i}", "task": f"t{i % 50}", "tool": "grep", "duration_ms": 12.5, "ok": True}
    said = {
        "event_id": f"e{i}",
        "correlation_id": f"s{i % 500}",
        "occurred_at": "2026-12-01T12:00:00Z",
        "source": "kimi",
    }
    return said | {"source": "kimi", "payload": payload | {"arguments": {"query": BODY[:700]}}}


def prompt(i: int) -> dict[str, object]:
    """A prompt of about 1 KB."""
    return {"prompt": f"{i} {BODY}", "model": "small", "domain": "general"}


def landing(folder: Path, kind: type[Intake[Any]], subject: str, body: Callable[[int], object], lane: str) -> None:
    """Messages read and thrown away, and the same messages landed, three times each in turns."""
    with NatsServer(folder / "nats") as server:
        rates: list[tuple[float, float]] = []
        bodies = [json.dumps(body(i)).encode() for i in range(MESSAGES)]
        raw = raw_config(nats={"url": server.url})
        stream = kind(parse(raw)).stream

        async def publish(js: JetStream) -> None:
            await js.ensure_stream(stream)
            await js.publish_many([(subject, body, None) for body in bodies])

        async def throw_away() -> None:
            client = await nats.connect(server.url)
            consumer = ConsumerConfig(ack_policy=AckPolicy.NONE)
            subscription = await client.jetstream().pull_subscribe(subject, config=consumer, stream=stream.name)
            count = 0
            while count < MESSAGES:
                count += len(await subscription.fetch(1000, timeout=5))
            await client.close()

        with_jetstream(Foundry(parse(raw), folder / "foundry.yaml").nats, publish)
        today = datetime.now(UTC).date()
        for turn in range(3):
            foundry = Foundry(parse(raw | {"data_dir": str(folder / f"data-{turn}")}), folder / "foundry.yaml")
            foundry.warehouse.migrate()
            thrown = timed(lambda: asyncio.run(throw_away()))
            landed = timed(lambda f=foundry: land_partition(f, kind, (today, lane), run_id="bench"))
            rates.append((MESSAGES / thrown, MESSAGES / landed))
        thrown_away, in_the_lake = (statistics.median(column) for column in zip(*rates, strict=True))
        print(f"landing, {MESSAGES} messages on {subject} of {statistics.mean(map(len, bodies)):.0f} bytes")
        print(f"  read and thrown away  {thrown_away:9.0f} /s")
        print(f"  landed in the lake    {in_the_lake:9.0f} /s   ratio {in_the_lake / thrown_away:.2f}")


FILL_JOBS = """
insert into {to}jobs by name
select
    'job-' || {first} + i as job_id, 'PROMPTS' as stream, 1 as stream_created, {first} + i as seq,
    'prompts.submit' as subject, {at} as published_at, published_at::date as partition_date,
    'session-' || i % 5000 as correlation_id, 'domain-' || i % 20 as domain, 'message' as domain_source,
    'en' as language, 'cpu_inference' as lane, 'model-' || i % 7 as model, 'a prompt' as prompt,
    '[]' as messages, '{{}}' as params, 0 as priority, '{{}}' as extra, '[]' as notes, '' as route_reason,
    'd' as content_digest, 'answered' as status, 1 as attempts, 0 as duplicates, false as conflict,
    {at} as finished_at, {at} as landed_at
from range({n}) as r (i)
"""
FILL_COMPLETIONS = """
insert into {to}completions by name
select
    'job-' || {first} + i as job_id, 1 as attempt, 'PROMPTS' as stream, 1 as stream_created, {first} + i as seq,
    {at}::date as partition_date, 'domain-' || i % 20 as domain, 'cpu_inference' as lane,
    'model-' || i % 7 as model, 'worker-' || i % 3 as worker, 'openai' as api, 'answered' as status,
    {at} as sent_at, {at} as finished_at, random() as queue_s, random() as ttft_s, 1 + 10 * random() as e2e_s,
    random() * 100 as decode_tps, false as cold, 100 as prompt_tokens, 50 as completion_tokens,
    'server' as tokens_source, 50 as chunks, 'an answer' as text, '' as reasoning, '[]' as tool_calls, '[]' as notes,
    'run' as run_id
from range({n}) as r (i)
"""


def fill(connection: duckdb.DuckDBPyConnection, first: int, n: int, at: str) -> None:
    for statement in (FILL_JOBS, FILL_COMPLETIONS):
        connection.execute(statement.format(to="", first=first, n=n, at=at))


def history(lake: Warehouse, rows: int) -> None:
    """So many jobs with their answers, of the hundred days that ended eight days ago, a million at a time."""
    chunk = min(rows, 1_000_000)
    for first in range(0, rows, chunk):
        seconds = f"i * (86400 * 100 / {rows}) + {first} * (86400 * 100 / {rows})"
        with lake.writer("fill") as connection:
            fill(connection, first, chunk, f"to_timestamp(epoch(now()) - 108 * 86400 + {seconds})")


def recent(lake: Warehouse, first: int) -> None:
    with lake.writer("fill") as connection:
        fill(connection, first, 10_000, "to_timestamp(epoch(now()) - i)")


def refresh(lake: Warehouse) -> None:
    since = datetime.now(UTC) - timedelta(days=7)
    lake.rows("from domain_latency_between($since, 'infinity') order by all", {"since": since})


def figures(folder: Path, lake: Warehouse, rows: int) -> None:
    """The same statement over the same tables, there and in a plain DuckDB file."""
    plain = duckdb.connect(str(folder / "plain.duckdb"))
    with lake.reader() as connection:
        for table in ("jobs", "completions"):
            connection.execute(f"copy (from {table}) to '{folder / table}.parquet'")
            plain.execute(f"create table {table} as from '{folder / table}.parquet'")
            (folder / f"{table}.parquet").unlink()
    base = (sql_folder() / "views" / "last_attempts.sql").read_text()
    plain.execute(f"create view last_attempts as {base}")
    plain.execute((sql_folder() / "macros" / "domain_latency_between.sql").read_text())
    query = "from domain_latency_between('-infinity', 'infinity') order by all"
    ours, theirs = [], []
    for _ in range(3):
        ours.append(timed(lambda: lake.rows("from domain_latency order by all")))
        theirs.append(timed(lambda: plain.execute(query).fetchall()))
    seconds, plain_seconds = statistics.median(ours), statistics.median(theirs)
    print(f"domain_latency over {rows} completions")
    print(f"  plain DuckDB  {plain_seconds:6.2f} s")
    print(f"  lake          {seconds:6.2f} s   ratio {seconds / plain_seconds:.2f}")


MEMORY = r"""
import re, sys
sys.path.insert(0, {here!r})
from benchmarks.lake import *
lake = Warehouse(Path(sys.argv[1]), LakeConfig())
from model_foundry_tests.lake.rows import a_job, land
refresh(lake)
land(lake, *(a_job(10**8 + int(sys.argv[2]) + i) for i in range(10_000)))
print(int(re.search(r'VmHWM:\s+(\d+)', Path('/proc/self/status').read_text())[1]) // 1024)
"""


def peak_mib(lake: Warehouse, first: int) -> int:
    here = str(Path(__file__).parents[1])
    code = MEMORY.format(here=here)
    argv = [sys.executable, "-c", code, str(lake.data_dir), str(first)]
    return int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    rows = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "prompts").mkdir()
        (folder / "events").mkdir()
        landing(folder / "prompts", PromptIntake, "prompts.submit", prompt, "cpu_inference")
        landing(folder / "events", EventIntake, "llm.tool_call", tool_call, EVENTS_LANE)
        found: dict[int, tuple[float, int]] = {}
        for size in (rows // 100, rows):
            lake = Warehouse(folder / f"lake-{size}", LakeConfig())
            lake.migrate()
            history(lake, size)
            recent(lake, size)
            refresh(lake)
            recent(lake, size + 10_000)
            found[size] = timed(lambda lake=lake: refresh(lake), 5), peak_mib(lake, size)
        figures(folder, lake, rows)
        (few, few_mib), (many, many_mib) = found.values()
        ratios = f"ratios {many / few:.2f}, {many_mib / few_mib:.2f}"
        print("refresh of the last seven days after 10000 new rows, and the peak memory of landing 10000 more")
        print(f"  after {rows // 100:9} rows  {few:6.3f} s  {few_mib:5} MiB")
        print(f"  after {rows:9} rows  {many:6.3f} s  {many_mib:5} MiB   {ratios}")


if __name__ == "__main__":
    main()
