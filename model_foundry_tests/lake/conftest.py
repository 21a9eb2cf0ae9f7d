"""Lakes with either kind of catalog: every test of this folder that takes ``lake`` runs on both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_foundry.config import LakeConfig
from model_foundry.warehouse.lake import Warehouse
from model_foundry_tests.parts import PostgresServer

NUMBER = itertools.count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A real PostgreSQL server."""
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def lake_config(request: pytest.FixtureRequest) -> LakeConfig:
    """The configuration's one line that decides the catalog."""
    if request.param == "sqlite":
        return LakeConfig(writer_lock_timeout_s=0.6)
    url = request.getfixturevalue("postgres").new_database(f"lake_{next(NUMBER)}")
    return LakeConfig(catalog=url, writer_lock_timeout_s=0.6)


@pytest.fixture
def lake(tmp_path: Path, lake_config: LakeConfig) -> Warehouse:
    """A new, migrated lake."""
    warehouse = Warehouse(tmp_path, lake_config)
    warehouse.migrate()
    return warehouse


@pytest.fixture
def sqlite_lake(tmp_path: Path) -> Warehouse:
    """A new, migrated lake with a SQLite catalog."""
    warehouse = Warehouse(tmp_path, LakeConfig(writer_lock_timeout_s=0.6))
    warehouse.migrate()
    return warehouse


@pytest.fixture(scope="module")
def shared_lake(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A lake for tests that keep out of each other's way by the stream's creation."""
    warehouse = Warehouse(tmp_path_factory.mktemp("lake"), LakeConfig())
    warehouse.migrate()
    return warehouse
