"""A server that plays an exchange: the bytes of a file, cut and timed as one wants.

Belongs here: serving the answers of one file over HTTP/1.1 on loopback. Does not belong here: the files' form
(``exchange``).

    python -m model_foundry.inference.conformance.player vllm --port 0 --bytes-per-write 1 --delay-s 0.01

It prints one line with its address and plays until Ctrl-C. A request is answered with the pair that is most like it;
one for which there is none with 404. Cutting and slowing concern the answers to POST alone, so that the server is still
found to be there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from model_foundry.inference.conformance.exchange import Exchange, ExchangeError, Pair, load, shipped

HOST = "127.0.0.1"
MAX_REQUEST_BYTES = 8 * 2**20
_NOT_FOUND = Pair(
    "GET", "/", None, ("HTTP/1.1 404 Not Found", "Content-Length: auto"), b'{"error": "not in the file"}\n'
)


@dataclass(slots=True)
class Player:
    """Plays an exchange while it is open as a context.

    Attributes:
        exchange: what to play.
        port: where, on loopback; 0 takes a free one, and is then that one.
        bytes_per_write: how the answer is cut into writes; None sends a frame at a time, as a server does.
        delay_s: seconds before each write.
        cut_after: bytes of the answer, its head included, after which the connection ends; None plays it all.
        reset: whether a cut is a TCP reset, not an orderly end.
        asked: method, path and JSON of each request so far.
    """

    exchange: Exchange
    port: int = 0
    bytes_per_write: int | None = None
    delay_s: float = 0.0
    cut_after: int | None = None
    reset: bool = False
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, HOST, self.port, limit=2**20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        # CancelledError: the player is closed; a task that ended by it would be reported as a fault by asyncio
        with contextlib.suppress(
            OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError
        ):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether another may come over the same connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, path, *_ = [*first.split(" "), "", ""]
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_REQUEST_BYTES:
            return False
        body = await reader.readexactly(int(length))
        try:
            asked = json.loads(body) if body else None
        except ValueError:
            asked = None
        self.asked.append((method, path, asked))
        pair = self.exchange.answer_to(method, path, asked) or _NOT_FOUND
        whole = await self._play(pair, method, writer)
        return whole and not pair.closes and headers.get("connection", "").lower() != "close"

    async def _play(self, pair: Pair, method: str, writer: asyncio.StreamWriter) -> bool:
        frames = pair.frames[:1] if method == "HEAD" else pair.frames
        if method != "POST":
            writer.write(b"".join(frames))
            await writer.drain()
            return True
        raw = b"".join(frames)
        kept = raw if self.cut_after is None else raw[: self.cut_after]
        sizes = [len(f) for f in frames] if self.bytes_per_write is None else [self.bytes_per_write] * len(raw)
        at = 0
        for size in sizes:
            if at >= len(kept):
                break
            await asyncio.sleep(self.delay_s)
            writer.write(kept[at : at + size])
            await writer.drain()
            at += size
        if len(kept) == len(raw):
            return True
        if self.reset:
            found = writer.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return False


async def play(player: Player) -> None:
    """Plays until cancelled, after one line that says where."""
    async with player:
        print(f"playing {player.exchange.name} at {player.url}, Ctrl-C stops", flush=True)
        await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 2 when there is no such exchange."""
    parser = argparse.ArgumentParser(
        prog="python -m model_foundry.inference.conformance.player",
        description="Plays a recorded exchange of a model server, on loopback.",
        epilog=f"Shipped exchanges: {', '.join(shipped())}.",
    )
    parser.add_argument("exchange", metavar="FILE", help="a file, or the name of a shipped exchange")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--bytes-per-write", type=int, default=None, help="a frame at a time by default")
    parser.add_argument("--delay-s", type=float, default=0.0, help="before each write")
    parser.add_argument("--cut-after", type=int, default=None, metavar="BYTES", help="end the connection there")
    parser.add_argument("--reset", action="store_true", help="cut with a TCP reset")
    options = parser.parse_args(argv)
    if (options.bytes_per_write or 1) < 1 or options.delay_s < 0 or (options.cut_after or 0) < 0:
        parser.error("--bytes-per-write takes whole numbers from 1 up; --delay-s and --cut-after from 0 up")
    try:
        exchange = load(options.exchange)
    except ExchangeError as error:
        print(f"{error}\n{error.hint or ''}".strip(), file=sys.stderr)
        return 2
    player = Player(exchange, options.port, options.bytes_per_write, options.delay_s, options.cut_after, options.reset)
    try:
        asyncio.run(play(player))
    except OSError as error:
        print(f"port {options.port} can't be used: {error.strerror or error}; try --port 0", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
