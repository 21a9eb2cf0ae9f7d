"""Real parts for every test: one nats-server a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from model_foundry.jetstream.client import NatsSettings
from model_foundry_tests.parts import a_nats_server


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a real nats-server."""
    with a_nats_server(tmp_path_factory.mktemp("nats")) as url:
        yield url


@pytest.fixture
def nats_settings(nats_url: str) -> NatsSettings:
    """Settings for that server."""
    return NatsSettings(nats_url)
