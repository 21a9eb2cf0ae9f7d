"""The lake: a DuckLake of Parquet files with a SQLite catalog, and the only two doors to it.

``Warehouse.writer()`` is one transaction under the writer lock; ``Warehouse.reader()`` is one consistent snapshot that
is never refused and never waits. Nobody else opens a connection. What a door opened is closed behind it; only an empty
in-memory DuckDB with the extensions loaded stays in the process.

Belongs here: connections, the lock, migrations, running an SQL file. Does not belong here: what is landed
(``landing``), or any SQL longer than a line (``sql/``).

The lock is not optional: without it a SQLite catalog answered 22 to 60 of 160 concurrent commits with "database is
locked" (measured), and DuckLake has no primary keys, so lock and anti-join together make a landing idempotent. DuckDB
and its extensions are packages of one exact version, loaded from their files; nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from filelock import FileLock, Timeout

from model_foundry.config import LakeConfig
from model_foundry.errors import LakeError

if TYPE_CHECKING:
    import pandas as pd

EXTENSIONS = ("sqlite_scanner", "ducklake")
INLINE_ROWS = 500
"""Inserts of fewer rows go into the catalog and not into Parquet files of their own, so that many small landings don't
leave many small files."""
CATALOG_BUSY_TIMEOUT_MS = 20_000
OPEN_ATTEMPTS = 6


def sql_folder() -> Path:
    """The folder ``sql``: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).parent.parent
    return package / "sql" if (package / "sql").is_dir() else package.parent / "sql"


def sql_text(kind: str, name: str) -> str:
    """The text of ``sql/<kind>/<name>.sql``."""
    return (sql_folder() / kind / f"{name}.sql").read_text(encoding="utf-8")


class Warehouse:
    """The lake of one data folder. Holds nothing open: each use attaches the lake and detaches it.

    Args:
        data_dir: where the catalog, the lock and, unless configured elsewhere, the data files are.
        config: the configuration's ``lake``.
    """

    def __init__(self, data_dir: Path, config: LakeConfig) -> None:
        self.data_dir = data_dir
        self.config = config
        self._migrated = False

    @property
    def catalog_file(self) -> Path:
        """The SQLite catalog."""
        return self.data_dir / "catalog.sqlite"

    @property
    def data_path(self) -> Path:
        """The folder of the Parquet files."""
        return Path(self.config.data_path) if self.config.data_path else self.data_dir / "lake"

    # -- the two doors ---------------------------------------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-only connection on one consistent snapshot.

        Raises:
            LakeError: when there is no lake yet, or its catalog can't be read.
        """
        if not self.catalog_file.exists():
            raise LakeError(f"there is no lake in {self.data_dir} yet", hint="'foundry up' makes it.")
        with self._attached(read_only=True) as connection:
            connection.execute("begin transaction")
            yield connection

    @contextmanager
    def writer(self, what: str = "write") -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection under the writer lock, in one transaction: committed at the end, rolled back on an error.

        Args:
            what: what is being done, told to those who wait too long.

        Raises:
            LakeError: when the lock can't be had in time (the message says who holds it), or the catalog is broken.
        """
        with self._writer_lock(what), self._attached(read_only=False) as connection:
            connection.execute("begin transaction")
            yield connection
            connection.execute("commit")

    @contextmanager
    def _writer_lock(self, what: str) -> Iterator[None]:
        """The lock across processes. The system frees it with its holder's death, so a dead one never blocks."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        lock, holder = FileLock(self.data_dir / "writer.lock"), self.data_dir / "writer.holder"
        deadline_s = time.monotonic() + self.config.writer_lock_timeout_s
        while True:
            try:
                # jitter, so that those who wait don't all come back at once
                lock.acquire(timeout=0.2, poll_interval=random.uniform(0.005, 0.03))  # noqa: S311
                break
            except Timeout:
                if time.monotonic() > deadline_s:
                    raise LakeError(
                        f"the lake's writer lock was not free within {self.config.writer_lock_timeout_s:g} s; "
                        f"held by {_holder(holder)}",
                        hint="Wait for it or stop it; then run again. Nothing was written.",
                    ) from None
        try:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            holder.write_text(json.dumps({"pid": os.getpid(), "what": what, "since": now}), encoding="utf-8")
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    @contextmanager
    def _attached(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection with the lake attached and in use; whatever is open in it at the end is rolled back."""
        connection = _engine().cursor()
        alias = _take_alias()
        try:
            self._attach(connection, alias, read_only)
            try:
                yield connection
            finally:
                with suppress(duckdb.Error):
                    connection.execute("rollback")
                with suppress(duckdb.Error):
                    connection.execute(f"use memory; detach {alias}")
        finally:
            _aliases.discard(alias)
            connection.close()

    def _attach(self, connection: duckdb.DuckDBPyConnection, alias: str, read_only: bool) -> None:
        """Attaches the lake; tries again, a few times, while the catalog is busy."""
        if not read_only and not self.catalog_file.exists():
            self._make_catalog()
        options = [f"data_path '{_quoted(self.data_path)}'", f"data_inlining_row_limit {INLINE_ROWS}"]
        options += ["read_only"] if read_only else []
        statement = f"attach 'ducklake:sqlite:{_quoted(self.catalog_file)}' as {alias} ({', '.join(options)})"
        for attempt in range(OPEN_ATTEMPTS):
            try:
                connection.execute(statement)
                connection.execute(f"use {alias}")
                return
            except duckdb.Error as error:
                busy = "locked" in str(error).lower() or "busy" in str(error).lower()
                if not busy or attempt == OPEN_ATTEMPTS - 1:
                    raise LakeError(
                        f"the lake's catalog {self.catalog_file} can't be opened: {error}",
                        hint="Restore it from a backup if it is damaged; the data files beside it are untouched.",
                    ) from error
                time.sleep(random.uniform(0.05, 0.1) * 2**attempt)  # noqa: S311

    def _make_catalog(self) -> None:
        """An empty catalog in WAL mode: readers and the one writer don't shut each other out."""
        self.data_path.mkdir(parents=True, exist_ok=True)
        catalog = sqlite3.connect(self.catalog_file, timeout=CATALOG_BUSY_TIMEOUT_MS / 1000)
        try:
            catalog.execute("pragma journal_mode = wal")
        finally:
            catalog.close()

    # -- migrations ------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Applies what is pending of ``sql/schema`` in order, and brings the views up to date; names what was done.

        When nothing is pending it only looks, without the writer lock, and once a process.

        Raises:
            LakeError: when an applied file was changed since, or the lake is newer than this program.
        """
        if self._migrated:
            return []
        done: list[str] = []
        if not self.catalog_file.exists() or self._pending(self.rows(APPLIED)):
            with self.writer("migrate") as connection:
                connection.execute(MIGRATIONS_TABLE)
                for kind, version, file_name, text in self._pending(rows_of(connection.execute(APPLIED))):
                    connection.execute(text)
                    connection.execute("delete from schema_migrations where (kind, version) = (?, ?)", [kind, version])
                    connection.execute(
                        "insert into schema_migrations values (?, ?, ?, ?, now())",
                        [kind, version, file_name, _checksum(text)],
                    )
                    done.append(file_name)
        self._migrated = True
        return done

    def _pending(self, applied: Rows) -> list[tuple[str, int, str, str]]:
        """Kind, version, name and text of what is to be applied to a lake that has this much; raises as migrate."""
        known = {(row["kind"], row["version"]): row["checksum"] for row in applied}
        schema = [
            ("schema", int(f.stem.split("_")[0]), f.stem, f.read_text(encoding="utf-8")) for f in _files("schema")
        ]
        newest, lake_has = schema[-1][1], max((v for kind, v in known if kind == "schema"), default=0)
        if lake_has > newest:
            raise LakeError(
                f"the lake has migration {lake_has}, this program knows {newest} at most",
                hint="Use a newer model_foundry with this lake.",
            )
        for kind, version, name, text in schema:
            if known.get((kind, version), _checksum(text)) != _checksum(text):
                raise LakeError(
                    f"{name}.sql was applied to this lake and changed since",
                    hint="Put the file back as it was, and add a new one with the change.",
                )
        views = sorted(_files("views"), key=lambda file: (file.stem not in BASE_VIEWS, file.stem))
        text = "".join(f"create or replace view {f.stem} as\n{f.read_text(encoding='utf-8')};\n" for f in views)
        pending = [item for item in schema if item[:2] not in known]
        return pending if known.get(("views", 0)) == _checksum(text) else [*pending, ("views", 0, "views", text)]

    # -- reading ---------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Several queries over one consistent snapshot; raises as :meth:`reader`."""
        with self.reader() as connection:
            yield Snapshot(connection)

    def rows(self, query: str, params: Mapping[str, Any] | None = None) -> Rows:
        """The rows of one query; see :meth:`Snapshot.rows`."""
        with self.snapshot() as snapshot:
            return snapshot.rows(query, params)

    def show(self, name: str, params: Mapping[str, Any] | None = None) -> Rows:
        """The rows of ``sql/show/<name>.sql``."""
        with self.snapshot() as snapshot:
            return snapshot.show(name, params)

    def frame(self, query: str, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """The rows of one query as a pandas frame, for notebooks; raises as :meth:`rows`."""
        with self.reader() as connection:
            return connection.execute(query, _used(query, params)).df()


class Snapshot:
    """The lake as it was at one moment."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(self, query: str, params: Mapping[str, Any] | None = None) -> Rows:
        """The rows of one query, each a mapping from column to plain Python value.

        Raises:
            duckdb.Error: when the query is wrong.
        """
        return rows_of(self._connection.execute(query, _used(query, params)))

    def show(self, name: str, params: Mapping[str, Any] | None = None) -> Rows:
        """The rows of ``sql/show/<name>.sql``."""
        return self.rows(sql_text("show", name), params)


Rows = list[dict[str, Any]]


def rows_of(result: duckdb.DuckDBPyConnection) -> Rows:
    """The rows of an executed query. Two columns of one name keep both, the second under ``name_2``."""
    names: list[str] = []
    for column in result.description or ():
        count = names.count(column[0])
        names.append(f"{column[0]}_{count + 1}" if count else column[0])
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


_engines: dict[int, duckdb.DuckDBPyConnection] = {}
_aliases: set[str] = set()


def _engine() -> duckdb.DuckDBPyConnection:
    """This process's DuckDB, in memory, with the extensions loaded: loading them costs 0.3 s, attaching 0.05 s.

    It is keyed by process, so that a forked child never uses its parent's. A process that forks must not open the lake.
    """
    if os.getpid() not in _engines:
        # nothing is looked for, downloaded or loaded by itself: a first write once stalled 1.3 s on that
        config: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        engine = duckdb.connect(config=config)
        engine.execute("set global timezone = 'UTC'")
        for extension in EXTENSIONS:
            engine.execute(f"load '{_extension_file(extension)}'")
        _engines[os.getpid()] = engine
    return _engines[os.getpid()]


def _take_alias() -> str:
    """The name under which a lake is attached: `lake`, or a numbered one while that is taken in this process."""
    alias = next(name for n in range(1_000_000) if (name := f"lake_{n}" if n else "lake") not in _aliases)
    _aliases.add(alias)
    return alias


BASE_VIEWS = ("last_attempts",)
"""Views that other views read, made first."""


APPLIED = "select kind, version, checksum from schema_migrations"
MIGRATIONS_TABLE = (
    "create table if not exists schema_migrations "
    "(kind varchar, version integer, name varchar, checksum varchar, applied_at timestamptz)"
)


def _files(kind: str) -> list[Path]:
    return sorted((sql_folder() / kind).glob("*.sql"))


def _checksum(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _used(query: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Only the parameters that the query names; DuckDB refuses others."""
    return {key: value for key, value in (params or {}).items() if f"${key}" in query}


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _holder(file: Path) -> str:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return f"process {found['pid']} ({found['what']}) since {found['since']}"
    except (OSError, ValueError, KeyError):
        return "an unknown process"


def _extension_file(name: str) -> str:
    """Path of a DuckDB extension inside its package.

    Raises:
        LakeError: when the package is not installed, or is of another version than DuckDB.
    """
    package = f"duckdb_extension_{name}"
    spec = find_spec(package)
    version = f"v{duckdb.__version__}"
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / "extensions" / version / f"{name}.duckdb_extension"
        if file.is_file():
            return _quoted(file)
    raise LakeError(
        f"DuckDB {duckdb.__version__} lacks its extension {name}",
        hint=f"pip install duckdb=={duckdb.__version__} {package.replace('_', '-')}=={duckdb.__version__}",
    )
