from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import pytest

from model_foundry.config import LakeConfig
from model_foundry.errors import LakeError
from model_foundry.warehouse import sql_files
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_folder
from model_foundry_tests.lake.rows import a_job, land


def test_reading_before_there_is_a_lake_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LakeError) as caught:
        Warehouse(tmp_path / "data", LakeConfig()).rows("select 1")
    assert not (tmp_path / "data").exists()
    assert "foundry up" in (caught.value.hint or "")


def test_a_reader_sees_the_old_snapshot_while_a_writer_works_and_is_never_refused(lake: Warehouse) -> None:
    land(lake, a_job(1))
    with lake.writer() as writing:
        writing.execute("delete from jobs")
        assert len(lake.rows("from jobs")) == 1
        with lake.snapshot() as before:
            assert len(before.rows("from jobs")) == 1
    assert lake.rows("from jobs") == []


def test_a_reader_keeps_its_snapshot_while_others_commit(lake: Warehouse) -> None:
    with lake.snapshot() as snapshot:
        assert snapshot.rows("from jobs") == []
        land(lake, a_job(1))
        assert snapshot.rows("from jobs") == []
    assert len(lake.rows("from jobs")) == 1


def test_a_reader_can_not_write(lake: Warehouse) -> None:
    with pytest.raises(duckdb.Error, match="read-only"):
        lake.rows("delete from jobs")


def test_an_error_in_a_writer_rolls_back_and_frees_the_lock(lake: Warehouse) -> None:
    with pytest.raises(RuntimeError), lake.writer() as writing:  # noqa: PT012
        writing.execute("insert into schema_migrations values ('x', 99, 'x', 'x', now())")
        raise RuntimeError
    assert lake.rows("from schema_migrations where kind = 'x'") == []
    land(lake, a_job(1))


def test_a_writer_that_waits_too_long_says_who_holds_the_lock(lake: Warehouse) -> None:
    other = Warehouse(lake.data_dir, lake.config)
    with (
        lake.writer("a long job"),
        pytest.raises(LakeError, match=rf"process {os.getpid()} \(a long job\)( on this machine)? since"),
        other.writer(),
    ):
        pass


def copied_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sql"
    shutil.copytree(sql_folder(), folder)
    monkeypatch.setattr(sql_files, "sql_folder", lambda: folder)
    return folder


def test_migrating_again_does_nothing(lake: Warehouse) -> None:
    assert Warehouse(lake.data_dir, lake.config).migrate() == []


def test_a_new_migration_is_applied_and_a_changed_view_is_replaced(
    lake: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied_sql(tmp_path / "copy", monkeypatch)
    (folder / "schema" / "900_more.sql").write_text("alter table jobs add column more integer;")
    (folder / "views" / "accounting.sql").write_text("-- Changed.\nselect 42 as answer")
    assert Warehouse(lake.data_dir, lake.config).migrate() == ["900_more", "views"]
    assert lake.rows("from accounting") == [{"answer": 42}]
    assert lake.rows("select more from jobs") == []


def test_an_applied_migration_that_was_changed_is_refused(
    lake: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied_sql(tmp_path / "copy", monkeypatch)
    with (folder / "schema" / "001_prompts.sql").open("a") as file:
        file.write("-- later thought\n")
    with pytest.raises(LakeError, match=r"001_prompts\.sql was applied to this lake and changed since"):
        Warehouse(lake.data_dir, lake.config).migrate()


def test_a_lake_newer_than_the_program_is_refused(lake: Warehouse) -> None:
    with lake.writer() as writing:
        writing.execute("insert into schema_migrations values ('schema', 7, '007_future', 'x', now())")
    with pytest.raises(LakeError, match="the lake has migration 7"):
        Warehouse(lake.data_dir, lake.config).migrate()


def test_a_damaged_catalog_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(LakeError, match=r"catalog\.sqlite can't be opened"):
        Warehouse(tmp_path, LakeConfig()).rows("select 1")


def test_an_analyst_gets_a_pandas_frame(lake: Warehouse) -> None:
    land(lake, a_job(1))
    assert list(lake.frame("select job_id, priority from jobs")["job_id"]) == ["job-1"]
