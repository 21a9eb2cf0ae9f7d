"""A proxy before a real model server that does what failing machines do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Literal
from urllib.parse import urlsplit

Fault = Literal["pass", "refuse", "reset", "stall", "truncate", "slow", "429", "503", "lie"]

_REFUSALS = {
    "429": b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull",
    "503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy",
    "lie": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\nConnection: close\r\n\r\nboom",
}


class FaultyProxy:
    """Passes connections on, or not. ``fault`` may be changed at any time and holds for requests that come then.

    Every fault is of POST requests only, so health and lists of models look well throughout; but ``refuse``, which
    closes the door.
    """

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._upstream = parts.hostname or "127.0.0.1", parts.port or 80
        self.fault: Fault = "pass"
        self.posts = self.most_in_flight = 0
        self._flying: set[asyncio.StreamWriter] = set()
        self.port = 0
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Opens the door, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Closes the door; what is inside goes on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            is_post = head.startswith(b"POST")
            if is_post:
                self.posts += 1
                self._flying.add(writer)
                self.most_in_flight = max(self.most_in_flight, len(self._flying))
            try:
                await self._answer(head, self.fault if is_post else "pass", reader, writer)
            finally:
                self._flying.discard(writer)
        writer.close()

    async def _answer(
        self, head: bytes, fault: Fault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if fault in _REFUSALS:
            writer.write(_REFUSALS[fault])
            await writer.drain()
            return
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        up_writer.write(head)
        forward = asyncio.create_task(_pump(reader, up_writer))
        try:
            await self._back(fault, up_reader, forward, writer)
        finally:
            forward.cancel()
            up_writer.close()

    async def _back(
        self, fault: Fault, up: asyncio.StreamReader, client: asyncio.Task[None], writer: asyncio.StreamWriter
    ) -> None:
        chunks = 0
        while data := await up.read(4096):
            if fault == "slow":
                await asyncio.sleep(0.05)
            chunks += 1
            if chunks == 3 and fault == "reset":
                raw: socket.socket = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return
            if chunks == 3 and fault == "truncate":
                return
            if chunks == 3 and fault == "stall":
                await client  # until the client has had enough
                return
            if data.endswith(b"0\r\n\r\n"):  # the answer is over, whoever closes the connection when
                self._flying.discard(writer)
            writer.write(data)
            await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
