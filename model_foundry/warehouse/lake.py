"""The lake: a DuckLake of Parquet files with its catalog, and the only two doors to it.

``Warehouse.writer()`` is one transaction under the writer lock; ``Warehouse.reader()`` is one consistent snapshot that
is never refused and never waits. Nobody else opens a connection. What a door opened is closed behind it; only an empty
in-memory DuckDB with the extensions loaded stays in the process.

Belongs here: the doors, running an SQL file. Does not belong here: the two kinds of catalog and the lock
(``catalogs``), changing the tables (``migrations``), what is landed (``landing``), or any SQL longer than a line
(``sql/``).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from model_foundry.config import LakeConfig, secret
from model_foundry.errors import LakeError
from model_foundry.warehouse import engine, migrations
from model_foundry.warehouse.catalogs import Catalog, PostgresCatalog, SqliteCatalog
from model_foundry.warehouse.engine import Rows, quoted, rows_of, run_script
from model_foundry.warehouse.sql_files import sql_text

if TYPE_CHECKING:
    import pandas as pd

INLINE_ROWS = 0
"""No rows wait in the catalog, however few: taking them out of a SQLite catalog again disturbs open readers, and until
then every query reads them whole (23,000 small jobs: claiming 1.1 s instead of 0.2 s)."""
OPEN_ATTEMPTS = 6


class Warehouse:
    """The lake of one data folder. Holds nothing open: each use attaches the lake and detaches it.

    Args:
        data_dir: where a SQLite catalog, the lock and, unless configured elsewhere, the data files are.
        config: the configuration's ``lake``.
    """

    def __init__(self, data_dir: Path, config: LakeConfig) -> None:
        self.data_dir = data_dir
        self.config = config
        self._migrated = False

    @cached_property
    def catalog(self) -> Catalog:
        """Where the catalog is.

        Raises:
            ConfigError: when its password is not where the configuration says.
        """
        if self.config.catalog == "sqlite":
            return SqliteCatalog(self.data_dir / "catalog.sqlite")
        return PostgresCatalog(self.config.catalog, secret(self.config.password_env, None, key="lake.password"))

    @property
    def data_path(self) -> str:
        """The folder of the Parquet files, or ``s3://bucket/prefix``."""
        return self.config.data_path or str(self.data_dir / "lake")

    # -- the two doors ---------------------------------------------------------------------------------------------

    @contextmanager
    def reader(self, at: datetime | int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-only connection on one consistent snapshot.

        Args:
            at: the lake as it was then: a time, or the number of a snapshot. None is now.

        Raises:
            LakeError: when there is no lake yet, its catalog can't be read, or the snapshot is gone.
        """
        with self.catalog.reading(), self._attached(read_only=True, at=at) as connection:
            connection.execute("begin transaction")
            connection.execute("from current_snapshot()")  # now, and not at the first query
            yield connection

    @contextmanager
    def writer(self, what: str = "write") -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection under the writer lock, in one transaction: committed at the end, rolled back on an error.

        Args:
            what: what is being done, told to those who wait too long.

        Raises:
            LakeError: when the lock can't be had in time (the message says who holds it), the catalog is broken, or
                the disk is full.
        """
        with self.locked(what) as connection:
            try:
                connection.execute("begin transaction")
                yield connection
                connection.execute("commit")
            except (duckdb.IOException, duckdb.TransactionException) as error:
                raise LakeError(
                    f"the lake in {self.data_dir} can't be written to ({what}): {error}",
                    hint="Nothing of it was written. Is the disk full? 'foundry doctor' tells; then run again.",
                ) from error

    @contextmanager
    def locked(self, what: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection under the writer lock and outside a transaction, for what makes its own: maintenance."""
        with (
            self.catalog.lock(what, self.config.writer_lock_timeout_s),
            self._attached(read_only=False) as connection,
        ):
            yield connection

    @contextmanager
    def _attached(self, *, read_only: bool, at: datetime | int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection with the lake attached and in use; whatever is open in it at the end is rolled back."""
        extensions = [self.catalog.extension, "ducklake", *(["httpfs"] if "://" in self.data_path else [])]
        with engine.cursor(*extensions) as connection, engine.free_name("lake") as alias:
            try:
                self._prepare_object_storage(connection)
                self._attach(connection, alias, read_only, at)
                yield connection
            finally:
                with suppress(duckdb.Error):
                    connection.execute("rollback")
                with suppress(duckdb.Error):
                    connection.execute(f"use memory; detach {alias}")
                engine.keep_if_attached(connection, alias)

    def _prepare_object_storage(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Tells DuckDB how to reach the bucket, where the data files are in one."""
        storage = self.config.object_storage
        if "://" not in self.data_path or storage is None:
            return
        options: dict[str, object] = {"region": storage.region, "endpoint": storage.endpoint}
        options |= {"url_style": storage.url_style, "use_ssl": storage.use_ssl}
        for option, env in (("key_id", storage.key_id_env), ("secret", storage.secret_env)):
            found = secret(env, None, key=f"lake.object_storage.{option}")
            options[option] = found.get_secret_value() if found else None
        listed = ", ".join(f"{key} {quoted(value)}" for key, value in options.items() if value is not None)
        connection.execute(f"create or replace temporary secret foundry_object_storage (type s3, {listed})")

    def _attach(
        self, connection: duckdb.DuckDBPyConnection, alias: str, read_only: bool, at: datetime | int | None
    ) -> None:
        """Attaches the lake; a writer makes it where there is none."""
        options = {
            "data_path": quoted(self.data_path),
            "data_inlining_row_limit": str(INLINE_ROWS),
            "create_if_not_exists": "false",
            **self.catalog.prepare(connection),
            **({"read_only": "true"} if read_only else {}),
        }
        if at is not None:
            options["snapshot_version" if isinstance(at, int) else "snapshot_time"] = quoted(at)
        try:
            if not self.catalog.may_exist():
                raise _NoLakeError
            self._try_attach(connection, alias, options, at)
        except _NoLakeError:
            if self._has_data_files(connection):
                raise LakeError(
                    f"the lake's catalog {self.catalog.label} is gone or empty, and {self.data_path} has data files",
                    hint=self.catalog.way_back,
                ) from None
            if read_only:
                raise LakeError(
                    f"there is no lake in {self.catalog.label} yet", hint="'foundry up' makes it."
                ) from None
            self.catalog.make_empty()
            if "://" not in self.data_path:
                Path(self.data_path).mkdir(parents=True, exist_ok=True)
            self._try_attach(connection, alias, options | {"create_if_not_exists": "true"}, at)
        connection.execute(f"use {alias}")

    def _try_attach(
        self, connection: duckdb.DuckDBPyConnection, alias: str, options: Mapping[str, str], at: datetime | int | None
    ) -> None:
        """Attaches; again, a few times, while the catalog is busy."""
        listed = ", ".join(f"{key} {value}" for key, value in options.items())
        for attempt in range(OPEN_ATTEMPTS):
            try:
                connection.execute(f"attach {quoted(f'ducklake:{self.catalog.target}')} as {alias} ({listed})")
                return
            except duckdb.Error as error:
                text = str(error)
                if "creating a new DuckLake is explicitly disabled" in text:
                    raise _NoLakeError from None
                if at is not None and "snapshot" in text.lower():
                    raise LakeError(
                        f"the lake has no snapshot of {at}", hint="foundry sql --snapshots lists them."
                    ) from error
                busy = "locked" in text.lower() or "busy" in text.lower()
                if not busy or attempt == OPEN_ATTEMPTS - 1:
                    raise LakeError(
                        f"the lake's catalog {self.catalog.label} can't be opened: {text}", hint=self.catalog.way_back
                    ) from error
                time.sleep(random.uniform(0.05, 0.1) * 2**attempt)  # noqa: S311

    def _has_data_files(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Whether there are files of a lake. With no catalog to them, a new one would make them orphans."""
        found = connection.execute("select 1 from glob(?) limit 1", [f"{self.data_path}/**/*.parquet"]).fetchone()
        return found is not None

    def migrate(self) -> list[str]:
        """Applies what is pending of ``sql/schema`` in order, and brings the views up to date; names what was done.

        When nothing is pending it only looks, without the writer lock, and once a process.

        Raises:
            LakeError: when an applied file was changed since, or the lake is newer than this program.
        """
        if self._migrated:
            return []
        done: list[str] = []
        try:
            pending = bool(migrations.pending(self.rows(migrations.APPLIED)))
        except (LakeError, duckdb.CatalogException):
            pending = True  # no lake yet, or one without tables; whatever else is wrong, the writer says
        if pending:
            with self.writer("migrate") as connection:
                done = migrations.apply(connection)
        self._migrated = True
        return done

    # -- reading ---------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self, at: datetime | int | None = None) -> Iterator[Snapshot]:
        """Several queries over one consistent snapshot; raises as :meth:`reader`."""
        with self.reader(at) as connection:
            yield Snapshot(connection)

    def rows(self, query: str, params: Mapping[str, Any] | None = None, *, at: datetime | int | None = None) -> Rows:
        """The rows of one query; see :meth:`Snapshot.rows`."""
        with self.snapshot(at) as snapshot:
            return snapshot.rows(query, params)

    def show(self, name: str, params: Mapping[str, Any] | None = None) -> Rows:
        """The rows of ``sql/show/<name>.sql``."""
        with self.snapshot() as snapshot:
            return snapshot.show(name, params)

    def frame(
        self, query: str, params: Mapping[str, Any] | None = None, *, at: datetime | int | None = None
    ) -> pd.DataFrame:
        """The rows of one query as a pandas frame, for notebooks; raises as :meth:`rows`."""
        with self.reader(at) as connection:
            return run_script(connection, query, params).df()


class _NoLakeError(Exception):
    """There is no lake in the catalog."""


class Snapshot:
    """The lake as it was at one moment."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(self, query: str, params: Mapping[str, Any] | None = None) -> Rows:
        """The rows of one query (of several: the last one's), each a mapping from column to plain Python value.

        Raises:
            duckdb.Error: when the query is wrong.
        """
        return rows_of(run_script(self._connection, query, params))

    def show(self, name: str, params: Mapping[str, Any] | None = None) -> Rows:
        """The rows of ``sql/show/<name>.sql``."""
        return self.rows(sql_text("show", name), params)
