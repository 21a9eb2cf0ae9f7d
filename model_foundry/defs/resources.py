"""Resources: configured shells around plain domain objects.

Belongs here: what Dagster configures and shows. Does not belong here: behaviour; that is in ``runtime`` and
``warehouse``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import duckdb
from dagster_duckdb import DuckDBResource
from pydantic import PrivateAttr

from model_foundry.runtime import Foundry
from model_foundry.warehouse.lake import Warehouse


class FoundryResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The configuration and the means to act on it."""

    config_file: str
    _foundry: Foundry | None = PrivateAttr(default=None)

    @property
    def parts(self) -> Foundry:
        """The parts, read from the configuration file once a resource instance."""
        if self._foundry is None:
            self._foundry = Foundry.load(self.config_file)
        return self._foundry


class LakeResource(DuckDBResource):
    """The lake, in the place where people look for DuckDB.

    It is a ``DuckDBResource`` by its configuration and its place in the UI; connections come from the warehouse, so
    that they are read-only, one consistent snapshot, and always closed. Writing goes through the domain functions.
    """

    config_file: str
    _warehouse: Warehouse | None = PrivateAttr(default=None)

    @property
    def warehouse(self) -> Warehouse:
        """The domain object."""
        if self._warehouse is None:
            self._warehouse = Foundry.load(self.config_file).warehouse
        return self._warehouse

    @contextmanager
    def get_connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-only connection to the lake, one snapshot long."""
        with self.warehouse.reader() as connection:
            yield connection
