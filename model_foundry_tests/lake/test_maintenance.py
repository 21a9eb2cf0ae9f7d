"""Compaction, retention, history, backups; on both kinds of catalog unless it is about one."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from model_foundry.config import LakeConfig
from model_foundry.errors import LakeError
from model_foundry.warehouse.invariants import examine
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.landing import missing_ranges, retired_up_to
from model_foundry.warehouse.maintenance import back_up, compact, forget_history, retire
from model_foundry_tests.builders import NOW
from model_foundry_tests.lake.rows import CREATED, TODAY, a_job, a_reject, an_attempt, answered, finish, land
from model_foundry_tests.parts import PostgresServer

LATER = datetime.now(UTC) + timedelta(days=40)


def broken(lake: Warehouse) -> list[str]:
    return [found.name for found in examine(lake) if found.broken]


def test_compaction_leaves_the_rows_and_takes_the_files_together(lake: Warehouse) -> None:
    for first in range(0, 3000, 600):
        land(lake, *(a_job(first + i) for i in range(1, 601)))
    answered(lake, [1.0, 2.0], first_seq=5001)
    rows = lake.rows("select job_id, status, prompt from jobs order by job_id")
    latency = lake.rows("from domain_latency order by all")
    sizes = compact(lake)
    assert lake.rows("select job_id, status, prompt from jobs order by job_id") == rows
    assert lake.rows("from domain_latency order by all") == latency
    files = {row["table"]: (row["files_before"], row["files_after"]) for row in sizes.by_table()}
    assert files["jobs"][0] > 5 > files["jobs"][1]
    assert files["completions"] == (1, 1)
    assert sizes.totals()["files_before"] > sizes.totals()["files_after"]
    assert broken(lake) == []


def test_open_readers_see_their_snapshot_through_everything_that_writers_do(lake: Warehouse) -> None:
    """One that began with an empty lake, and one that begins after each step; all read on until the end."""
    with ExitStack() as stack:
        readers = [(0, stack.enter_context(lake.snapshot()))]
        for turn in range(1, 5):
            jobs = [a_job(turn * 1000 + i) for i in range(3 if turn % 2 else 700)]
            land(lake, *jobs)
            finish(lake, *((job, an_attempt(job)) for job in jobs[:2]))
            readers.append((len(lake.rows("from jobs")), stack.enter_context(lake.snapshot())))
            for count, reader in readers:
                assert len(reader.rows("from jobs")) == count
                assert sum(row["jobs"] for row in reader.rows("from domain_latency where level = 'domain'")) == count


def test_files_are_not_merged_under_an_open_reader_of_a_sqlite_catalog(
    sqlite_lake: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckLake would give that reader rows written since, or take some from it."""
    lake = sqlite_lake
    land(lake, a_job(1), a_job(2))
    with lake.snapshot() as snapshot, monkeypatch.context() as patched:
        patched.setattr("model_foundry.warehouse.catalogs.READERS_TIMEOUT_S", 0.1)
        land(lake, a_job(3))
        with pytest.raises(LakeError, match="snapshot open"):
            compact(lake)
        assert len(snapshot.rows("from jobs")) == 2
    compact(lake)
    assert len(lake.rows("from jobs")) == 3


def test_files_are_merged_under_an_open_reader_of_a_postgresql_catalog(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    lake = Warehouse(tmp_path, LakeConfig(catalog=postgres.new_database("merged")))
    lake.migrate()
    land(lake, a_job(1), a_job(2))
    with lake.snapshot() as snapshot:
        land(lake, a_job(3))
        compact(lake)
        assert len(snapshot.rows("from jobs")) == 2


def test_the_lake_can_be_read_as_it_was_before_files_were_merged(lake: Warehouse) -> None:
    jobs = [a_job(1), a_job(2)]
    land(lake, *jobs)
    finish(lake, (jobs[0], an_attempt(jobs[0])))
    [then] = lake.rows("select max(snapshot_id) as n from ducklake_snapshots(current_database())")
    land(lake, *(a_job(seq) for seq in range(10, 800)))
    compact(lake)
    assert len(lake.rows("from jobs", at=then["n"])) == 2


def test_history_beyond_its_days_is_forgotten_and_the_files_go_with_it(lake: Warehouse) -> None:
    for first in range(0, 2000, 1000):
        land(lake, *(a_job(first + i) for i in range(1, 1001)))
    compact(lake)
    files = list(Path(lake.data_path).rglob("*.parquet"))
    assert forget_history(lake, 7, datetime.now(UTC)) == {"snapshots": 0, "old_files": 0, "orphans": 0}
    gone = forget_history(lake, 7, LATER)
    assert gone["snapshots"] > 2
    assert gone["old_files"] > 2
    assert len(list(Path(lake.data_path).rglob("*.parquet"))) < len(files)
    assert len(lake.rows("from jobs")) == 2000
    assert broken(lake) == []


def test_retention_deletes_what_is_old_with_all_that_belongs_to_it(lake: Warehouse) -> None:
    """Yesterday's message and its answer go; today's stay, and what went is not missing."""
    day = timedelta(days=1)
    old, new = a_job(1, partition_date=TODAY - day, published_at=NOW - day), a_job(2)
    land(lake, old, a_reject(3), new)
    finish(lake, (old, an_attempt(old)), (new, an_attempt(new)))
    assert retire(lake, {"jobs": 1, "rejects": 5}, TODAY + day) == {"jobs": 1, "rejects": 0}
    assert [row["job_id"] for row in lake.rows("from jobs")] == ["job-2"]
    assert [row["job_id"] for row in lake.rows("from completions")] == ["job-2"]
    assert retired_up_to(lake, "PROMPTS", CREATED) == 1
    assert missing_ranges(lake, "PROMPTS", CREATED, 2, 3) == []
    assert broken(lake) == []


def test_rejects_and_attempts_have_a_retention_of_their_own(lake: Warehouse) -> None:
    job = a_job(1)
    land(lake, job, a_reject(2))
    finish(lake, (job, an_attempt(job)))
    assert retire(lake, {"completions": 1, "rejects": 1}, TODAY + timedelta(days=2)) == {"completions": 1, "rejects": 1}
    assert [row["status"] for row in lake.rows("from jobs")] == ["answered"]
    assert broken(lake) == []


def test_a_lost_catalog_is_refused_and_its_backup_is_the_way_back(sqlite_lake: Warehouse) -> None:
    lake = sqlite_lake
    land(lake, *(a_job(seq) for seq in range(1, 701)))
    backup = back_up(lake, 7, NOW)
    assert backup is not None
    land(lake, a_job(701))
    for name in ("catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"):
        (lake.data_dir / name).unlink(missing_ok=True)
    for damage in (None, b"", b"not a database" * 100):
        if damage is not None:
            (lake.data_dir / "catalog.sqlite").write_bytes(damage)
        with pytest.raises(LakeError) as caught:
            Warehouse(lake.data_dir, lake.config).migrate()
        assert "backups" in (caught.value.hint or "")
    (lake.data_dir / "catalog.sqlite").write_bytes(backup.read_bytes())
    again = Warehouse(lake.data_dir, lake.config)
    again.migrate()
    assert len(again.rows("from jobs")) == 700
    assert missing_ranges(again, "PROMPTS", CREATED, 1, 701) == [(701, 701)]
    land(again, a_job(701))
    assert broken(again) == []


def test_a_truncated_catalog_is_a_clear_error(sqlite_lake: Warehouse) -> None:
    land(sqlite_lake, *(a_job(seq) for seq in range(1, 701)))
    back_up(sqlite_lake, 7, NOW)
    file = sqlite_lake.data_dir / "catalog.sqlite"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    (sqlite_lake.data_dir / "catalog.sqlite-wal").unlink(missing_ok=True)
    with pytest.raises(LakeError) as caught:
        land(Warehouse(sqlite_lake.data_dir, sqlite_lake.config), a_job(702))
    assert "backups" in (caught.value.hint or "")


def test_only_the_newest_backups_are_kept(sqlite_lake: Warehouse) -> None:
    for day in range(4):
        back_up(sqlite_lake, 2, NOW + timedelta(days=day))
    names = [file.name for file in sorted((sqlite_lake.data_dir / "backups").iterdir())]
    assert names == ["catalog-20261203T093000.sqlite", "catalog-20261204T093000.sqlite"]


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("insert into jobs from jobs limit 1", "keys_are_unique"),
        ("insert into completions from completions limit 1", "keys_are_unique"),
        ("delete from ingest_ledger", "every_message_has_its_range"),
        ("delete from jobs where job_id = 'job-1'", "every_message_is_accounted_for"),
        ("update jobs set attempts = 0", "jobs_agree_with_their_attempts"),
        ("update jobs set finished_at = null", "jobs_agree_with_their_attempts"),
        ("update completions set e2e_s = 'nan'", "figures_are_finite_and_ordered"),
    ],
)
def test_a_broken_invariant_is_found(sqlite_lake: Warehouse, damage: str, found: str) -> None:
    answered(sqlite_lake, [1.0, 2.0])
    assert broken(sqlite_lake) == []
    with sqlite_lake.writer() as writing:
        writing.execute(damage)
    assert found in broken(sqlite_lake)


def test_a_data_file_that_is_gone_is_found(sqlite_lake: Warehouse) -> None:
    land(sqlite_lake, *(a_job(seq) for seq in range(1, 701)))
    next(Path(sqlite_lake.data_path).rglob("jobs/*.parquet")).unlink()
    with pytest.raises(Exception, match="parquet"):
        sqlite_lake.rows("from jobs")
