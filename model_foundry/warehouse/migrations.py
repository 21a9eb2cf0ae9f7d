"""Migrations: the tables of ``sql/schema``, in order and once; the views and macros, whenever their text changes.

Belongs here: what is pending, and applying it inside a transaction. Does not belong here: opening the lake (``lake``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

import duckdb

from model_foundry.errors import LakeError
from model_foundry.warehouse import sql_files
from model_foundry.warehouse.engine import Rows, rows_of

APPLIED = "select kind, version, checksum from schema_migrations"
TABLE = (
    "create table if not exists schema_migrations "
    "(kind varchar, version integer, name varchar, checksum varchar, applied_at timestamptz)"
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One thing to apply. The views are one, of kind ``views`` and version 0."""

    kind: str
    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """By which a changed file is recognized."""
        return sha256(self.text.encode()).hexdigest()


def pending(applied: Rows) -> list[Migration]:
    """What is to be applied to a lake that has this much.

    Raises:
        LakeError: when an applied file was changed since, or the lake is newer than this program.
    """
    known = {(row["kind"], row["version"]): row["checksum"] for row in applied}
    schema = [
        Migration("schema", int(file.stem.split("_")[0]), file.stem, file.read_text(encoding="utf-8"))
        for file in sql_files.sql_files("schema")
    ]
    newest, lake_has = schema[-1].version, max((v for kind, v in known if kind == "schema"), default=0)
    if lake_has > newest:
        raise LakeError(
            f"the lake has migration {lake_has}, this program knows {newest} at most",
            hint="Use a newer model_foundry with this lake.",
        )
    for migration in schema:
        if known.get((migration.kind, migration.version), migration.checksum) != migration.checksum:
            raise LakeError(
                f"{migration.name}.sql was applied to this lake and changed since",
                hint="Put the file back as it was, and add a new one with the change.",
            )
    views = Migration("views", 0, "views", _views())
    return [m for m in [*schema, views] if known.get((m.kind, m.version)) != m.checksum]


def apply(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Applies what is pending, within the connection's transaction; names what was done. Raises as :func:`pending`."""
    connection.execute(TABLE)
    todo = pending(rows_of(connection.execute(APPLIED)))
    for m in todo:
        connection.execute(m.text)
        connection.execute("delete from schema_migrations where (kind, version) = (?, ?)", [m.kind, m.version])
        connection.execute(
            "insert into schema_migrations values (?, ?, ?, ?, now())", [m.kind, m.version, m.name, m.checksum]
        )
    return [m.name for m in todo]


def _views() -> str:
    """The statements that make every view and macro, each after those that it reads."""
    todo = {
        f.stem: f"create or replace view {f.stem} as\n{f.read_text('utf-8')};\n" for f in sql_files.sql_files("views")
    } | {f.stem: f.read_text("utf-8") for f in sql_files.sql_files("macros")}
    words = {name: set(re.findall(r"\w+", re.sub(r"--.*", "", text))) - {name} for name, text in todo.items()}
    done: list[str] = []
    while todo:
        ready = [name for name in todo if not words[name] & todo.keys()]
        if not ready:
            raise LakeError(f"views read each other in a circle: {', '.join(todo)}")
        done += [todo.pop(name) for name in ready]
    return "".join(done)
