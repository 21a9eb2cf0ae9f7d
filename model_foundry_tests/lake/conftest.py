from __future__ import annotations

from pathlib import Path

import pytest

from model_foundry.config import LakeConfig
from model_foundry.warehouse.lake import Warehouse


@pytest.fixture
def lake(tmp_path: Path) -> Warehouse:
    """A new, migrated lake."""
    warehouse = Warehouse(tmp_path, LakeConfig(writer_lock_timeout_s=0.6))
    warehouse.migrate()
    return warehouse


@pytest.fixture(scope="module")
def shared_lake(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A lake for tests that keep out of each other's way by the stream's creation."""
    warehouse = Warehouse(tmp_path_factory.mktemp("lake"), LakeConfig())
    warehouse.migrate()
    return warehouse
