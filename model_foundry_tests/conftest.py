"""Real parts for every test: one nats-server a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from model_foundry.jetstream.client import NatsSettings
from model_foundry_tests.parts import NatsServer


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a real nats-server."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server.url


@pytest.fixture
def nats_settings(nats_url: str) -> NatsSettings:
    """Settings for that server."""
    return NatsSettings(nats_url)
