"""This process's DuckDB: in memory, with the extensions loaded from their packages.

Belongs here: what has nothing to do with any one lake. Does not belong here: attaching a lake (``lake``), where its
catalog is (``catalogs``).

DuckDB and its extensions are packages of one exact version, loaded from their files; nothing is looked for, downloaded
or loaded by itself: a first write once stalled 1.3 s on that.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb

from model_foundry.errors import LakeError
from model_foundry.text import well_formed

Rows = list[dict[str, Any]]

_engines: dict[int, duckdb.DuckDBPyConnection] = {}
_loaded: set[tuple[int, str]] = set()
_names: set[str] = set()
_kept: set[str] = set()
_guard = threading.Lock()


@contextmanager
def cursor(*extensions: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to this process's DuckDB with the extensions loaded: 0.3 s the first time, nothing after.

    The engine is keyed by process, so that a forked child never uses its parent's. A process that forks must not open
    it.

    Raises:
        LakeError: when an extension is not installed.
    """
    pid = os.getpid()
    with _guard:
        if pid not in _engines:
            config: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
            _engines[pid] = duckdb.connect(config=config)
            _engines[pid].execute("set global timezone = 'UTC'")
        for extension in extensions:
            if (pid, extension) not in _loaded:
                _engines[pid].execute(f"load {quoted(extension_file(extension))}")
                _loaded.add((pid, extension))
        connection = _engines[pid].cursor()
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def free_name(wanted: str) -> Iterator[str]:
    """A name that nothing else in this process is attached under: the wanted one, or a numbered one."""
    with _guard:
        name = next(n for i in range(1_000_000) if (n := f"{wanted}_{i}" if i else wanted) not in _names)
        _names.add(name)
    try:
        yield name
    finally:
        if name not in _kept:
            _names.discard(name)


def keep_if_attached(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Keeps a name from being given again while something is attached under it: a statement that was interrupted may
    hold it, and everybody after would be told that the name is taken.
    """
    try:
        held = connection.execute("select 1 from duckdb_databases() where database_name = ?", [name]).fetchone()
    except duckdb.Error:
        held = (1,)
    if held is not None:
        _kept.add(name)


def run_script(
    connection: duckdb.DuckDBPyConnection, text: str, params: Mapping[str, Any] | None = None
) -> duckdb.DuckDBPyConnection:
    """Runs every statement of a text, each with those of the parameters that it names; gives the last one's result.

    Raises:
        duckdb.Error: when a statement is wrong or names a parameter that is not there.
    """
    for statement in connection.extract_statements(text):
        connection.execute(statement, {k: v for k, v in (params or {}).items() if k in statement.named_parameters})
    return connection


def rows_of(result: duckdb.DuckDBPyConnection) -> Rows:
    """The rows of an executed query. Two columns of one name keep both, the second under ``name_2``, and so on."""
    columns = [column[0] for column in result.description or ()]
    counts = [columns[:position].count(name) for position, name in enumerate(columns)]
    names = [f"{name}_{count + 1}" if count else name for name, count in zip(columns, counts, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def storable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as every store can hold it. NaN and infinity become NULL: one would poison every average it meets."""

    def cell(value: Any) -> Any:
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        return well_formed(value) if isinstance(value, str) else value

    return {key: cell(value) for key, value in row.items()}


def quoted(value: object) -> str:
    """A text as an SQL literal."""
    return "'" + str(value).replace("'", "''") + "'"


def extension_file(name: str) -> Path:
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
            return file
    raise LakeError(
        f"DuckDB {duckdb.__version__} lacks its extension {name}",
        hint=f"pip install duckdb=={duckdb.__version__} {package.replace('_', '-')}=={duckdb.__version__}",
    )
