"""Faults, again and again: after each, no committed row is lost, none is there twice, and the next run heals."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import libfaketime
import pytest

from model_foundry.config import LakeConfig
from model_foundry.errors import LakeError
from model_foundry.warehouse.invariants import examine
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.landing import claim_jobs, missing_ranges
from model_foundry.warehouse.maintenance import compact
from model_foundry_tests.builders import NOW
from model_foundry_tests.lake.rows import CREATED, TODAY, a_job, an_attempt, finish, land

SEED = int(os.environ.get("FAULTS_SEED", "7"))
"""Another seed, other moments: FAULTS_SEED=8 pytest model_foundry_tests/lake/test_faults.py"""
FILE_LIMIT_BYTES = 450_000
ROUNDS = float(os.environ.get("FAULTS_ROUNDS", "1"))
"""So many times as many kills: FAULTS_ROUNDS=3 before a release."""
KILLS = {"sqlite": (round(18 * ROUNDS), 0.9), "postgresql": (round(5 * ROUNDS), 2.4)}
"""How often a writer is killed, and how long it lives at most, in seconds."""


def assert_whole(lake: Warehouse) -> None:
    assert [found for found in examine(lake) if found.broken] == []


def work(folder: Path, config: LakeConfig, first: int, said: Connection) -> None:
    """Lands, claims, answers and compacts for ever, and says what was acknowledged."""
    lake = Warehouse(folder, config)
    dice = random.Random(first)
    lake.rows("from jobs limit 1")
    said.send(0)  # the extensions are loaded; from here on it writes
    for seq in range(first, 10**9, 3):
        size = dice.choice([1, 3, 600])
        jobs = [a_job(seq * 1000 + i, partition_date=TODAY) for i in range(size)]
        land(lake, *jobs)
        said.send(seq * 1000 + size - 1)
        mine = claim_jobs(lake, lane="cpu_inference", partition_date=TODAY, run_id=f"run-{first}", now=NOW)
        finish(lake, *((job, an_attempt(job)) for job in mine if job.status == "pending"))
        if dice.random() < 0.2:
            compact(lake)


@pytest.fixture(scope="module")
def forks() -> Any:
    """Processes that begin with everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def test_a_writer_that_is_killed_at_any_moment_loses_nothing_and_blocks_nobody(lake: Warehouse, forks: Any) -> None:
    dice = random.Random(SEED)
    config = lake.config.model_copy(update={"writer_lock_timeout_s": 20})
    acknowledged: set[int] = set()
    first = 1
    kills, longest_s = KILLS["sqlite" if lake.config.catalog == "sqlite" else "postgresql"]
    for _ in range(kills):
        heard, said = forks.Pipe(duplex=False)
        writer = forks.Process(target=work, args=(lake.data_dir, config, first, said))
        writer.start()
        said.close()
        heard.recv()
        time.sleep(dice.uniform(0, longest_s))
        writer.kill()
        writer.join(10)
        while True:
            try:
                acknowledged.add(heard.recv())
            except EOFError:
                break
        acknowledged.discard(0)
        landed = {row["seq"] for row in lake.rows("select seq from jobs")}
        assert acknowledged <= landed
        first = max(landed, default=0) // 1000 + 1
    assert_whole(lake)
    assert len(acknowledged) >= 3, "the writers got something done between the kills"
    before = len(lake.rows("select seq from jobs"))
    land(lake, a_job(10**8, partition_date=TODAY))
    compact(lake)
    assert len(lake.rows("select seq from jobs")) == before + 1
    assert_whole(lake)


def land_in_turn(folder: Path, config: LakeConfig, start: int) -> None:
    lake = Warehouse(folder, config)
    for first in range(start, start + 160, 20):
        land(lake, *(a_job(seq) for seq in range(first, first + 30)), run_id=f"run-{start}")


def test_writers_whose_ranges_overlap_and_readers_at_once_get_in_nobodys_way(lake: Warehouse, forks: Any) -> None:
    """Four writers, each with sequences of its neighbours too, while this process reads all the time."""
    config = lake.config.model_copy(update={"writer_lock_timeout_s": 60})
    starts = [1, 61, 121, 181]
    writers = [forks.Process(target=land_in_turn, args=(lake.data_dir, config, start)) for start in starts]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        with lake.snapshot() as snapshot:
            [now] = snapshot.rows("select count(*) as jobs, count(distinct job_id) as ids from jobs")
            [messages] = snapshot.rows("select count(*) as n from stream_messages")
        assert now["jobs"] == now["ids"] == messages["n"] >= seen
        seen = now["jobs"]
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert len(lake.rows("from jobs")) == 350
    assert missing_ranges(lake, "PROMPTS", CREATED, 1, 350) == []
    assert_whole(lake)


@pytest.fixture(params=["tmpfs", "file size limit"])
def little_space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder that takes three megabytes, or in which no file may be larger than the catalog and a small landing."""
    folder = tmp_path / "small"
    folder.mkdir()
    if request.param == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("a small file system can't be mounted here")
        yield folder
        subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, limits[1]))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_a_clear_error_and_takes_nothing_with_it(little_space: Path) -> None:
    lake = Warehouse(little_space, LakeConfig())
    lake.migrate()
    dice = random.Random(SEED)
    acknowledged, refused, seq = 0, [], 0
    for turn in range(40):
        size = 30 if turn % 2 else 100
        jobs = [a_job(seq + i, prompt=dice.randbytes(3000).hex()) for i in range(1, size + 1)]
        seq += size
        try:
            acknowledged += land(lake, *jobs).records
        except LakeError as error:
            refused.append(error.hint or "")
    assert acknowledged > 0
    assert refused
    assert all("disk full" in hint for hint in refused)
    assert len(lake.rows("select seq from jobs")) == acknowledged
    assert_whole(lake)


def test_what_a_full_disk_kept_out_lands_once_there_is_room(tmp_path: Path) -> None:
    lake = Warehouse(tmp_path, LakeConfig())
    lake.migrate()
    jobs = [a_job(seq, prompt=random.Random(seq).randbytes(10_000).hex()) for seq in range(1, 100)]
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, limits[1]))
    try:
        with pytest.raises(LakeError):
            land(lake, *jobs)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert missing_ranges(lake, "PROMPTS", CREATED, 1, 99) == [(1, 99)]
    land(lake, *jobs)
    assert len(lake.rows("from jobs")) == 99
    assert_whole(lake)


CLOCK = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from model_foundry.config import LakeConfig
from model_foundry.warehouse.lake import Warehouse
from model_foundry_tests.lake.rows import a_job, an_attempt, finish, land
lake = Warehouse(Path(sys.argv[1]), LakeConfig.model_validate_json(sys.argv[2]))
jobs = [a_job(int(sys.argv[3]) + i) for i in range(5)]
land(lake, *jobs)
finish(lake, *((job, an_attempt(job)) for job in jobs))
print(datetime.now(UTC).year)
"""


def test_a_clock_that_jumps_back_and_forth_confuses_nothing(lake: Warehouse) -> None:
    """Real processes under a shifted clock: now, a year back, a year ahead, back again; each range twice."""
    shifts = ["+0d", "-365d", "+365d", "-1d"]
    years = []
    for turn, shift in enumerate([*shifts, *shifts]):
        first = 1 + 5 * (turn % len(shifts))
        argv = [sys.executable, "-c", CLOCK, str(lake.data_dir), lake.config.model_dump_json(), str(first)]
        env = {**os.environ, **libfaketime.get_reload_information()[1], "FAKETIME": shift}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        years.append(int(done.stdout))
    assert max(years) - min(years) == 2
    assert len(lake.rows("from jobs where status = 'answered'")) == 20
    assert len(lake.rows("from completions")) == 20
    compact(lake)
    assert_whole(lake)
