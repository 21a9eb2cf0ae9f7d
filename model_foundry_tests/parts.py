"""Real parts that a test can have of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model_foundry.embedded import nats
from model_foundry.embedded.processes import ManagedProcess, free_port


@contextmanager
def a_nats_server(folder: Path, **config: int) -> Iterator[str]:
    """A real nats-server with JetStream and an empty store in the folder; gives its URL."""
    port = free_port()
    argv = nats.argv(nats.write_config(folder, port, folder / "store", **config))
    server = ManagedProcess("nats-server", argv, env=dict(os.environ), log_file=folder / "log")
    server.start()
    try:
        server.wait_ready(lambda: nats.is_ready(port), 20)
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.stop()
