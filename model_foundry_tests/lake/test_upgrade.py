"""A lake that an older program made, with rows in it, is brought up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_foundry.config import LakeConfig
from model_foundry.warehouse import sql_files
from model_foundry.warehouse.lake import Warehouse

JOB = """
insert into jobs by name
select
    'a' as job_id, 's' as stream, 1 as stream_created, 1 as seq, 'x' as subject, now() as published_at,
    current_date as partition_date, 'general' as "domain", 'message' as domain_source, 'en' as "language",
    'l' as lane, 'p' as prompt, '[]'::json as messages, '{}'::json as params, 0 as priority, '{}'::json as extra,
    '[]'::json as notes, 'r' as route_reason, 'd' as content_digest, 'answered' as status, 0 as attempts,
    0 as duplicates, false as conflict, now() as landed_at
"""


def test_jobs_that_landed_before_there_were_tasks_are_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = sql_files.sql_files

    def old_ones(kind: str) -> list[Path]:
        if kind != "schema":
            return []  # views speak of newer columns
        return [file for file in every(kind) if int(file.stem[:3]) <= 4]

    monkeypatch.setattr(sql_files, "sql_files", old_ones)
    lake = Warehouse(tmp_path, LakeConfig())
    lake.migrate()
    with lake.writer("an old row") as connection:
        connection.execute(JOB)
    monkeypatch.undo()
    lake = Warehouse(tmp_path, LakeConfig())
    lake.migrate()
    assert lake.rows("select task, ground, translate from jobs where task = 'answer'") == [
        {"task": "answer", "ground": None, "translate": None}
    ]
    assert lake.rows("select counted from last_attempts") == [{"counted": True}]
