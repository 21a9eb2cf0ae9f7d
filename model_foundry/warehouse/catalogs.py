"""Where a lake's catalog is: a SQLite file, or a PostgreSQL database. And the writer lock, which lives where it does.

Belongs here: what differs between the two. Does not belong here: anything that a caller of the lake would notice.

The writer lock is not optional. Without it a SQLite catalog answered 22 to 60 of 160 concurrent commits with "database
is locked" (measured), and with either catalog DuckLake has no primary keys: lock and anti-join together are what makes
a landing idempotent.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Protocol, TextIO
from urllib.parse import parse_qsl, unquote, urlsplit

import duckdb
from filelock import FileLock, Timeout
from pydantic import SecretStr

from model_foundry.errors import LakeError
from model_foundry.warehouse import engine
from model_foundry.warehouse.engine import quoted
from model_foundry.warehouse.sql_files import sql_text

SQLITE_BUSY_TIMEOUT_S = 20
READERS_TIMEOUT_S = 10.0
ADVISORY_LOCK = int.from_bytes(sha256(b"model_foundry writer").digest()[:7], "big")
"""The key of the writer lock in PostgreSQL. Advisory locks are kept apart by database, so one key does."""


class Catalog(Protocol):
    """What a lake needs to know of its catalog."""

    extension: str
    """DuckDB's extension that reads it."""

    @property
    def target(self) -> str:
        """What follows ``ducklake:`` when it is attached."""

    @property
    def label(self) -> str:
        """How people are told of it; no secret is in it."""

    @property
    def way_back(self) -> str:
        """What to do when it is damaged or gone."""

    def may_exist(self) -> bool:
        """False when there is surely no lake yet."""

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
        """Makes it ready to be attached, and gives the options to attach it with, as SQL."""

    def make_empty(self) -> None:
        """Makes an empty one, for a lake to be created in, where none is."""

    def reading(self) -> AbstractContextManager[None]:
        """Held by everything of ours that reads, for as long as its snapshot is open."""

    def undisturbed(self) -> AbstractContextManager[None]:
        """Held while files are taken together: no reader of ours has a snapshot open then.

        Raises:
            LakeError: when one has, and keeps it.
        """

    def lock(self, what: str, timeout_s: float) -> AbstractContextManager[None]:
        """The writer lock, across processes; freed by its holder's death.

        Raises:
            LakeError: when it can't be had in time; the message says who holds it, since when, and for what.
        """


@dataclass(frozen=True)
class SqliteCatalog(Catalog):
    """A SQLite file in WAL mode: readers and the one writer don't shut each other out. The lock is a file lock."""

    file: Path
    extension = "sqlite_scanner"

    @property
    def target(self) -> str:
        return f"sqlite:{self.file}"

    @property
    def label(self) -> str:
        return str(self.file)

    @property
    def way_back(self) -> str:
        return (
            f"Stop everything, put the newest file of {self.file.parent / 'backups'} in its place (without -wal and "
            "-shm beside it), and start again: what landed since then is read again from the streams."
        )

    def may_exist(self) -> bool:
        return self.file.exists()

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
        return {}

    def make_empty(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        catalog = sqlite3.connect(self.file, timeout=SQLITE_BUSY_TIMEOUT_S)
        try:
            catalog.execute("pragma journal_mode = wal")
        finally:
            catalog.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        if not self.file.parent.is_dir():  # there is no lake, and a reader leaves no folder behind
            yield
            return
        with self._readers_file() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        # with a SQLite catalog, a snapshot that is open while files are merged counts rows written since as its own,
        # or loses some (DuckLake 1.5.5: its scans of the catalog are not in the reader's transaction)
        deadline_s = time.monotonic() + READERS_TIMEOUT_S
        with self._readers_file() as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline_s:
                        raise LakeError(
                            f"a reader of the lake has kept its snapshot open for {READERS_TIMEOUT_S:g} s and longer",
                            hint="Nothing was changed. Run it again later.",
                        ) from None
                    time.sleep(random.uniform(0.005, 0.03))  # noqa: S311
            yield

    def _readers_file(self) -> TextIO:
        return (self.file.parent / "readers.lock").open("a")

    @contextmanager
    def lock(self, what: str, timeout_s: float) -> Iterator[None]:
        folder = self.file.parent
        folder.mkdir(parents=True, exist_ok=True)
        lock, holder = FileLock(folder / "writer.lock"), folder / "writer.holder"
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                # jitter, so that those who wait don't all come back at once
                lock.acquire(timeout=0.2, poll_interval=random.uniform(0.005, 0.03))  # noqa: S311
                break
            except Timeout:
                if time.monotonic() > deadline_s:
                    raise _not_free(timeout_s, _file_holder(holder)) from None
        try:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            holder.write_text(json.dumps({"pid": os.getpid(), "what": what, "since": now}), encoding="utf-8")
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()


@dataclass(frozen=True)
class PostgresCatalog(Catalog):
    """A PostgreSQL database. The lock is an advisory one: PostgreSQL queues who waits and frees it with its holder."""

    url: str
    password: SecretStr | None = None
    extension = "postgres_scanner"

    @property
    def target(self) -> str:
        return f"postgres:{conninfo(self.url)}"

    @property
    def label(self) -> str:
        return self.url

    @property
    def way_back(self) -> str:
        return "Restore the database from its backup; the data files are untouched."

    def may_exist(self) -> bool:
        return True

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
        if self.password is None:
            return {}
        # a secret of DuckDB's, so that the password is in no connection string and in no error message
        name = f"foundry_{sha256(self.url.encode()).hexdigest()[:12]}"
        connection.execute(
            f"create or replace temporary secret {name} "
            f"(type postgres, password {quoted(self.password.get_secret_value())})"
        )
        return {"meta_secret": quoted(name)}

    def make_empty(self) -> None:
        """The database is there already; DuckLake makes its tables in it."""

    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()

    def undisturbed(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def lock(self, what: str, timeout_s: float) -> Iterator[None]:
        with engine.cursor(self.extension) as connection, engine.free_name("writer_lock") as alias:
            secret = self.prepare(connection).get("meta_secret")
            options = "type postgres" + (f", secret {secret}" if secret else "")
            holder = f"application_name={_conninfo_value(f'{os.getpid()} {what}'[:60])}"
            try:
                connection.execute(f"attach {quoted(f'{conninfo(self.url)} {holder}')} as {alias} ({options})")
            except duckdb.Error as error:
                raise LakeError(f"the lake's catalog {self.label} can't be reached: {error}") from error
            try:
                connection.execute("begin")
                try:
                    _pg(connection, alias, f"set local lock_timeout = {round(timeout_s * 1000)}")
                    _pg(connection, alias, f"select pg_advisory_xact_lock({ADVISORY_LOCK})")
                except duckdb.Error as error:
                    connection.execute("rollback")
                    if "lock timeout" not in str(error):
                        raise LakeError(f"the lake's writer lock in {self.label} can't be had: {error}") from error
                    raise _not_free(timeout_s, _postgres_holder(connection, alias)) from None
                yield
            finally:
                with suppress(duckdb.Error):
                    connection.execute("rollback")
                with suppress(duckdb.Error):
                    connection.execute(f"detach {alias}")


def conninfo(url: str) -> str:
    """A ``postgresql://`` URL as libpq's ``key=value`` text, which is the form that goes together with a secret. Pure.

    ``postgresql://ada@db.lan:5433/lake?sslmode=require`` gives ``host=db.lan port=5433 user=ada dbname=lake
    sslmode=require``. Source: PostgreSQL's documentation, 34.1.1 Connection Strings.
    """
    parts = urlsplit(url)
    pairs = {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username and unquote(parts.username),
        "dbname": unquote(parts.path.lstrip("/")),
        **dict(parse_qsl(parts.query)),
    }
    return " ".join(f"{key}={_conninfo_value(str(value))}" for key, value in pairs.items() if value)


def _conninfo_value(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'" if any(c in escaped for c in " \\'") else escaped


def _pg(connection: duckdb.DuckDBPyConnection, alias: str, statement: str) -> None:
    connection.execute(f"call postgres_execute({quoted(alias)}, {quoted(statement)})")


def _not_free(timeout_s: float, holder: str) -> LakeError:
    return LakeError(
        f"the lake's writer lock was not free within {timeout_s:g} s; held by {holder}",
        hint="Wait for it or stop it; then run again. Nothing was written.",
    )


def _file_holder(file: Path) -> str:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return f"process {found['pid']} ({found['what']}) since {found['since']}"
    except (OSError, ValueError, KeyError):
        return "an unknown process"


def _postgres_holder(connection: duckdb.DuckDBPyConnection, alias: str) -> str:
    query = sql_text("catalog", "writer_lock_holder").replace("KEY", str(ADVISORY_LOCK))
    found = connection.execute(f"from postgres_query({quoted(alias)}, {quoted(query)})").fetchone()
    if found is None:
        return "nobody any more"
    pid, _, what = found[0].partition(" ")
    return f"process {pid} ({what}) on {found[1]} since {found[2]}"
