"""Real parts for every test: one nats-server a session."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from model_foundry.embedded import nats
from model_foundry.embedded.processes import ManagedProcess, free_port
from model_foundry.jetstream.client import NatsSettings


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a real nats-server with JetStream and an empty store."""
    folder, port = tmp_path_factory.mktemp("nats"), free_port()
    argv = nats.argv(nats.write_config(folder, port, folder / "store"))
    server = ManagedProcess("nats-server", argv, env=dict(os.environ), log_file=folder / "log")
    server.start()
    server.wait_ready(lambda: nats.is_ready(port), 20)
    yield f"nats://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def nats_settings(nats_url: str) -> NatsSettings:
    """Settings for that server."""
    return NatsSettings(nats_url)
