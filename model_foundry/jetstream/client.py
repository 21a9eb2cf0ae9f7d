"""JetStream as this project uses it: reading by sequence, publishing with an id, waiting. The only way to NATS.

Belongs here: connections, streams, ranges, publishing. Does not belong here: what a message means (``envelopes``), the
sensor's arithmetic (``ranges``), subjects of ours (``subjects``).

Reading is batch direct get (nats-server 2.11, ADR-31): one request ``$JS.API.DIRECT.GET.<stream>`` with
``{"seq", "batch", "max_bytes"}``, and the server sends the messages to the reply subject. It leaves no consumer behind,
needs no acknowledgement, and passes what an ordered consumer chokes on: a non-UTF-8 subject, a broken header block.
The end of a batch is a reply *without* ``Nats-Sequence``; a ``Status`` header alone says nothing, users send those too.

Every synchronous call is one ``asyncio.run`` over one connection: no loop and no thread outlives it, since the
processes that call it may fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType
from nats.js.api import StreamConfig as JsStreamConfig

from model_foundry import config as configuration
from model_foundry.config import NatsConfig, StreamConfig, TlsConfig
from model_foundry.errors import NatsUnavailableError, StreamError
from model_foundry.jetstream.buckets import Bucket, BucketConfig, stream_config
from model_foundry.records import StreamMessage

T = TypeVar("T")

BATCH_MESSAGES = 1000
BATCH_BYTES = 16 * 2**20
REPLY_TIMEOUT_S = 5.0
RECONNECT_WAIT_S = 0.2
RECONNECT_ATTEMPTS = 100
"""Of a connection that was up: a server that is restarted is back within seconds."""
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """How to reach NATS and prove who we are. Holds references to secrets' values only in memory."""

    url: str
    connect_timeout_s: float = 3.0
    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds_file: Path | None = None
    nkey_seed_file: Path | None = None
    tls: TlsConfig | None = None
    base_dir: Path | None = None

    @classmethod
    def from_config(cls, config: NatsConfig, url: str, base_dir: Path | None) -> NatsSettings:
        """The settings for a URL; paths in the configuration are relative to ``base_dir``.

        Raises:
            ConfigError: when a named secret is not there.
        """

        def value(env: str | None, key: str) -> str | None:
            found = configuration.secret(env, None, key=f"nats.{key}")
            return found.get_secret_value() if found else None

        return cls(
            url=url,
            connect_timeout_s=config.connect_timeout_s,
            user=value(config.user_env, "user"),
            password=value(config.password_env, "password"),
            token=value(config.token_env, "token"),
            creds_file=config.creds_file,
            nkey_seed_file=config.nkey_seed_file,
            tls=config.tls,
            base_dir=base_dir,
        )

    def _path(self, path: Path | None) -> str | None:
        return None if path is None else str((self.base_dir or Path()) / path)

    def connect_options(self) -> dict[str, Any]:
        """Keyword arguments for nats-py's ``connect``; reads the TLS files."""
        options: dict[str, Any] = {
            "servers": [part.strip() for part in self.url.split(",")],
            "connect_timeout": self.connect_timeout_s,
            # with its defaults nats-py goes on trying a dead server for minutes, allow_reconnect=False or not;
            # raised once connected
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": RECONNECT_WAIT_S,
            "user": self.user,
            "password": self.password,
            "token": self.token,
            "user_credentials": self._path(self.creds_file),
            "nkeys_seed": self._path(self.nkey_seed_file),
            "pending_size": 64 * 2**20,
        }
        if self.tls is not None:
            context = ssl.create_default_context(cafile=self._path(self.tls.ca_file))
            if self.tls.cert_file is not None:
                context.load_cert_chain(str(self._path(self.tls.cert_file)), self._path(self.tls.key_file))
            options["tls"] = context
        return options


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as it is now. ``created`` is in epoch seconds; an empty stream has ``last_seq < first_seq``."""

    name: str
    created: int
    first_seq: int
    last_seq: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PubAck:
    """The stream's word that a message is stored; ``duplicate`` when its id was seen within the window."""

    stream: str
    seq: int
    duplicate: bool


class _RawClient(Client):
    """nats-py's client, except that a header block it can't parse does not lose the message.

    The block is kept as bytes under ``RAW``, because ours must tell the server's headers from the user's; nats-py's
    own parser sees only inline statuses, which its request and JetStream code needs.
    """

    RAW = "\0raw"

    async def _process_headers(self, headers: bytes) -> dict[str, Any] | None:
        if not headers:
            return None
        status: dict[str, Any] | None = None
        if headers.startswith(b"NATS/1.0 "):
            with contextlib.suppress(Exception):  # a user's message may carry anything there
                status = await super()._process_headers(headers)
        return {**(status or {}), self.RAW: headers}


class JetStream:
    """One connection, bounded in everything it waits for: ``async with JetStream(settings) as js: …``.

    Raises (on entering):
        NatsUnavailableError: no server, or it refused us; in the server's own words, with what to do.
    """

    def __init__(self, settings: NatsSettings) -> None:
        self.settings = settings
        self._client = _RawClient()
        self._errors: list[str] = []

    async def __aenter__(self) -> JetStream:
        async def on_error(error: Exception) -> None:
            self._errors.append(str(error) or type(error).__name__)

        options = self.settings.connect_options()
        servers = max(1, len(options["servers"]))
        try:
            await asyncio.wait_for(
                self._client.connect(error_cb=on_error, **options), self.settings.connect_timeout_s * servers + 2
            )
        except Exception as error:
            with contextlib.suppress(Exception):
                await self._client.close()
            raise _unavailable(self.settings, error, self._errors) from None
        self._client.options["max_reconnect_attempts"] = RECONNECT_ATTEMPTS
        self._js = self._client.jetstream(timeout=REPLY_TIMEOUT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # nats-py raises TypeError when it is disconnected at this moment
            await asyncio.wait_for(self._client.flush(timeout=2), 3)
        with contextlib.suppress(Exception):
            await self._client.close()

    @property
    def max_payload_bytes(self) -> int:
        """The largest message that the server takes, headers included."""
        return int(self._client.max_payload)

    # -- streams ------------------------------------------------------------------------------------------------

    async def stream_state(self, name: str) -> StreamState:
        """The stream's sequences and size.

        Raises:
            StreamError: when there is no such stream.
            NatsUnavailableError: when the server does not answer.
        """
        return _state(await self._stream_info(name))

    async def ensure_stream(self, config: StreamConfig) -> StreamState:
        """The stream's state; it is made first when it is missing. An existing one is used as it is.

        Raises:
            StreamError: when it can't be made, or lacks what reading by sequence needs.
            NatsUnavailableError: when the server does not answer.
        """
        try:
            info = await self._stream_info(config.name)
        except StreamError:
            wanted = JsStreamConfig(
                name=config.name,
                subjects=config.subjects,
                retention=RetentionPolicy.LIMITS,
                storage=StorageType.FILE,
                discard=DiscardPolicy.OLD,
                max_age=config.max_age_s,
                max_bytes=config.max_bytes,
                num_replicas=config.replicas,
                allow_direct=True,
                duplicate_window=min(120.0, config.max_age_s or 120.0),
            )
            try:
                info = await self._js.add_stream(wanted)
            except nats.js.errors.APIError as error:
                raise StreamError(
                    f"stream {config.name} (subjects {', '.join(config.subjects)}) can't be made: {error.description}",
                    hint="Another stream may hold these subjects ('nats stream ls'), or JetStream lacks space.",
                ) from None
            except nats.errors.Error as error:
                raise self._no_answer(error) from None
        settings = info.config
        if settings.retention not in (None, RetentionPolicy.LIMITS):
            raise StreamError(
                f"stream {config.name} has {settings.retention} retention; needed: limits",
                hint="Ranges are read again when a run is run again, so messages must stay. Make the stream anew.",
            )
        if not settings.allow_direct:
            raise StreamError(
                f"stream {config.name} does not allow direct gets",
                hint=f"Allow them: nats stream edit {config.name} --allow-direct",
            )
        return _state(info)

    async def _stream_info(self, name: str) -> Any:
        try:
            return await self._js.stream_info(name)
        except nats.js.errors.NotFoundError:
            raise StreamError(
                f"there is no stream {name}", hint="'foundry up' makes it; or see streams in foundry.yaml."
            ) from None
        except (nats.errors.Error, TimeoutError) as error:
            raise self._no_answer(error) from None

    async def bucket(self, config: BucketConfig) -> Bucket:
        """A key-value bucket; it is made first when it is missing. Of an existing one only the age may be adapted.

        Raises:
            StreamError: when it can't be made.
            NatsUnavailableError: when the server does not answer.
        """
        wanted = stream_config(config)
        try:
            try:
                info = await self._js.stream_info(str(wanted.name))
            except nats.js.errors.NotFoundError:
                info = await self._js.add_stream(wanted)
            if abs((info.config.max_age or 0) - config.max_age_s) > 1e-6:
                info = await self._js.update_stream(
                    info.config.evolve(max_age=wanted.max_age, duplicate_window=wanted.duplicate_window)
                )
        except nats.js.errors.APIError as error:
            raise StreamError(
                f"bucket {config.name} can't be used: {error.description}",
                hint="Does the NATS user have JetStream and the subjects $JS.API.> and $KV.>?",
            ) from None
        except (nats.errors.Error, TimeoutError) as error:
            raise self._no_answer(error) from None
        return Bucket(self, config.name, _state(info).created)

    def _no_answer(self, error: BaseException) -> NatsUnavailableError:
        return _unavailable(self.settings, error, self._errors)

    async def holds(self, stream: str, seq: int) -> bool:
        """Whether the stream's leader has this message. A direct get may be answered by a replica that lags behind.

        Raises:
            NatsUnavailableError: when the server does not answer.
        """
        try:
            await self._js.get_msg(stream, seq=seq)
        except nats.js.errors.NotFoundError:
            return False
        except (nats.errors.Error, TimeoutError) as error:
            raise self._no_answer(error) from None
        return True

    # -- reading ------------------------------------------------------------------------------------------------

    async def read_range(
        self, stream: StreamState | str, from_seq: int, to_seq: int, *, enough_bytes: int | None = None
    ) -> list[StreamMessage]:
        """Every message of the range, both ends included, in order. Deleted sequences are left out.

        Args:
            stream: its state or its name.
            from_seq: first sequence.
            to_seq: last sequence.
            enough_bytes: stop after the batch with which the bodies reach this; None reads the whole range.

        Raises:
            StreamError: when there is no such stream, or it does not allow direct gets.
            NatsUnavailableError: when the server stops answering.
        """
        state = stream if isinstance(stream, StreamState) else await self.stream_state(stream)
        messages: list[StreamMessage] = []
        left_bytes = math.inf if enough_bytes is None else enough_bytes
        while from_seq <= to_seq and left_bytes > 0:
            batch = await self._batch(state, from_seq, min(BATCH_MESSAGES, to_seq - from_seq + 1))
            if not batch:
                break
            messages += [m for m in batch if m.seq <= to_seq]
            left_bytes -= sum(len(m.data) for m in batch)
            from_seq = batch[-1].seq + 1
        return messages

    async def _batch(self, state: StreamState, seq: int, count: int) -> list[StreamMessage]:
        """One batch from a sequence on; empty when the stream holds nothing there or later."""
        return await self._direct_get(state, {"seq": seq, "batch": count, "max_bytes": BATCH_BYTES})

    async def last_messages(self, stream: str, created: int, subjects: str) -> list[StreamMessage]:
        """The newest message of each subject that fits a pattern, at most 1,024 of them."""
        state = StreamState(stream, created, 0, 0, 0, 0)
        return await self._direct_get(state, {"multi_last": [subjects], "batch": BATCH_MESSAGES})

    async def _direct_get(self, state: StreamState, ask: dict[str, Any]) -> list[StreamMessage]:
        request = json.dumps(ask).encode()
        messages: list[StreamMessage] = []
        end: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def take(reply: Msg) -> None:
            """Gathers messages as they come; anything else is the end."""
            raw = _raw_headers(reply)
            found = parse_direct(state, raw, reply.data)
            if found is not None:
                messages.append(found)
            elif not end.done():
                end.set_result(raw)

        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
        try:
            await self._client.publish(f"$JS.API.DIRECT.GET.{state.name}", request, reply=inbox)
            raw = await self._end_of(end, messages)
        except (nats.errors.Error, TimeoutError) as error:
            raise self._no_answer(error) from None
        finally:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()
        status = raw[9:12].decode("ascii", "replace")
        if status in ("204", "404"):  # end of batch; nothing at or after the sequence
            return messages
        if status == "503":
            raise StreamError(
                f"stream {state.name} does not answer direct gets",
                hint=f"Allow them: nats stream edit {state.name} --allow-direct",
            )
        raise StreamError(f"reading stream {state.name} ({request.decode()}): {raw[9:80].decode('utf-8', 'replace')}")

    @staticmethod
    async def _end_of(end: asyncio.Future[bytes], messages: Sequence[StreamMessage]) -> bytes:
        """Waits for the end of a batch for as long as messages keep coming."""
        while True:
            seen = len(messages)
            done, _ = await asyncio.wait({end}, timeout=REPLY_TIMEOUT_S)
            if done:
                return end.result()
            if len(messages) == seen:
                raise TimeoutError

    async def wait_for_messages(
        self, stream: str, after_seq: int, timeout_s: float, *, linger_s: float = 0.15
    ) -> StreamState:
        """Waits until the stream holds something after a sequence, or the time is up; then its state.

        It asks for the stream's state five times a second: one small request each, nothing left behind, right for
        mirrors and imported streams too. After something came it waits a moment longer, so that a burst is one batch.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        state = await self.stream_state(stream)
        while state.last_seq <= after_seq:
            if loop.time() >= deadline_s:
                return state
            await asyncio.sleep(min(POLL_S, max(0.0, deadline_s - loop.time())))
            state = await self.stream_state(stream)
        await asyncio.sleep(linger_s)
        return await self.stream_state(stream)

    async def last_on_subject(self, stream: StreamState | str, subject: str) -> StreamMessage | None:
        """The newest message on a subject, or None."""
        state = stream if isinstance(stream, StreamState) else await self.stream_state(stream)
        try:
            reply = await self._client.request(
                f"$JS.API.DIRECT.GET.{state.name}",
                json.dumps({"last_by_subj": subject}).encode(),
                timeout=REPLY_TIMEOUT_S,
            )
        except (nats.errors.Error, TimeoutError) as error:
            raise self._no_answer(error) from None
        return parse_direct(state, _raw_headers(reply), reply.data)

    async def wait_for_subjects(
        self, stream: str, subjects: Iterable[str], timeout_s: float, on_message: Callable[[StreamMessage], None]
    ) -> set[str]:
        """Hands over one message a subject, whether it is in the stream already or comes in time.

        Returns:
            The subjects on which nothing came in time.
        """
        missing = set(subjects)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        state = await self.stream_state(stream)
        for subject in sorted(missing):
            if (message := await self.last_on_subject(state, subject)) is not None:
                missing.discard(subject)
                on_message(message)
        after = state.last_seq
        while missing and loop.time() < deadline_s:
            state = await self.wait_for_messages(stream, after, max(0.0, deadline_s - loop.time()), linger_s=0)
            for message in await self.read_range(state, after + 1, state.last_seq):
                if message.subject in missing:
                    missing.discard(message.subject)
                    on_message(message)
            after = max(after, state.last_seq)
        return missing

    @contextlib.asynccontextmanager
    async def subscribed(self, subject: str, take: Callable[[Msg], Awaitable[None]]) -> AsyncIterator[None]:
        """Hands over what is published on a subject while it is open; nothing of before."""
        subscription = await self._client.subscribe(subject, cb=take)
        await self._client.flush(timeout=int(REPLY_TIMEOUT_S))  # the server knows of it from here on
        try:
            yield
        finally:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def check(self) -> None:
        """Whether the server still answers.

        Raises:
            NatsUnavailableError: when it does not.
        """
        try:
            await self._client.flush(timeout=int(REPLY_TIMEOUT_S))
        except (nats.errors.Error, TimeoutError) as error:
            raise self._no_answer(error) from None

    # -- publishing -----------------------------------------------------------------------------------------------

    async def publish(
        self, subject: str, data: bytes, *, msg_id: str | None = None, headers: dict[str, str] | None = None
    ) -> PubAck:
        """Publishes and waits for the stream's acknowledgement.

        With an id it is tried a few times: the stream drops what it has already. Without one it is tried once.

        Raises:
            NatsUnavailableError: when no acknowledgement came; StreamError: when the stream refused the message.
        """
        all_headers = {**(headers or {}), **({"Nats-Msg-Id": msg_id} if msg_id else {})}
        delays_s = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, None) if msg_id else (None,)
        for delay_s in delays_s:
            try:
                ack = await self._js.publish(subject, data, headers=all_headers or None, timeout=REPLY_TIMEOUT_S)
                return PubAck(ack.stream, ack.seq, bool(ack.duplicate))
            except nats.js.errors.NoStreamResponseError as error:
                if delay_s is None:
                    raise StreamError(
                        f"no stream takes subject {subject}",
                        hint="See streams in foundry.yaml; 'foundry up' makes them.",
                    ) from error
            except nats.js.errors.APIError as error:
                raise StreamError(f"publishing to {subject} was refused: {error.description}") from error
            except nats.errors.MaxPayloadError:
                raise StreamError(
                    f"{len(data)} bytes for {subject} are more than the server takes ({self._client.max_payload})",
                    hint="Raise max_payload in the server's configuration, or send less.",
                ) from None
            except (nats.errors.Error, TimeoutError) as error:
                if delay_s is None:
                    raise self._no_answer(error) from None
            await asyncio.sleep(delay_s or 0)
        raise AssertionError("unreachable")

    async def publish_many(self, items: Sequence[tuple[str, bytes, str | None]], in_flight: int = 100) -> list[PubAck]:
        """Publishes (subject, data, id) items in order, a hundred unacknowledged at most; acks in the items' order."""
        acks: list[PubAck] = []
        for start in range(0, len(items), in_flight):
            chunk = items[start : start + in_flight]
            acks += await asyncio.gather(*(self.publish(s, data, msg_id=i) for s, data, i in chunk))
        return acks

    async def publish_core(self, subject: str, data: bytes) -> None:
        """Publishes without a stream's acknowledgement: for reply subjects that nobody may listen to any more."""
        await self._client.publish(subject, data)
        await self._client.flush(timeout=int(REPLY_TIMEOUT_S))


def with_jetstream(settings: NatsSettings, work: Callable[[JetStream], Awaitable[T]]) -> T:
    """Runs ``work`` over one connection in a loop of its own, and leaves neither behind."""

    async def run() -> T:
        async with JetStream(settings) as js:
            return await work(js)

    return asyncio.run(run())


# -- pure ---------------------------------------------------------------------------------------------------------


def parse_direct(state: StreamState, raw: bytes, data: bytes) -> StreamMessage | None:
    """A direct get's reply as a message; None when it is a status reply and holds none.

    The server writes its own block of headers, ``Nats-Stream`` first, after the user's: whatever the user sent under
    the same names, or broken, stands before it.
    """
    start = raw.rfind(b"Nats-Stream: ")
    if start < 0:
        return None
    seq, published_at = _value(raw, b"\r\nNats-Sequence: ", start), _value(raw, b"\r\nNats-Time-Stamp: ", start)
    if seq is None or published_at is None:
        return None
    first_line = raw.find(b"\r\n") + 2
    user = raw[first_line:start] if raw.startswith(b"NATS/1.0") else b""
    return StreamMessage(
        stream=state.name,
        stream_created=state.created,
        seq=int(seq),
        subject=_text(_value(raw, b"\r\nNats-Subject: ", start) or b""),
        published_at=datetime.fromisoformat(published_at.decode()),
        headers=tuple(_header_lines(user)) if user else (),
        data=data,
    )


def _value(raw: bytes, name: bytes, start: int) -> bytes | None:
    """What stands after a name, up to the end of its line."""
    found = raw.find(name, start)
    return None if found < 0 else raw[found + len(name) : raw.find(b"\r\n", found + len(name))]


def _raw_headers(message: Msg) -> bytes:
    """The header block as it came; the client above keeps it among the headers."""
    headers: dict[str, Any] = message.headers or {}
    raw: bytes = headers.get(_RawClient.RAW, b"")
    return raw


def _header_lines(block: bytes) -> Iterable[tuple[str, str]]:
    """Name and value of each line of a header block; a line without a colon is no header and is passed over."""
    for line in block.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon and name:
            yield _text(name), _text(value).strip()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _timestamp(text: str) -> datetime:
    """RFC 3339 with up to nine decimals, cut to microseconds."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(whole).replace(microsecond=int((fraction + "000000")[:6]), tzinfo=UTC)


def _state(info: Any) -> StreamState:
    state = info.state
    created = info.created
    if isinstance(created, str):
        created = _timestamp(re.sub(r"[+-]\d\d:\d\d$", "Z", created))
    return StreamState(
        name=info.config.name,
        created=int(created.timestamp()),
        first_seq=state.first_seq,
        last_seq=state.last_seq,
        messages=state.messages,
        bytes=state.bytes,
    )


def _unavailable(settings: NatsSettings, error: BaseException, told: Sequence[str]) -> NatsUnavailableError:
    """The error of a server that can't be used, with what it said."""
    words = [w for w in (*told, str(error)) if w and "empty response from server" not in w]
    # nats-py ends with "no servers available", whatever the servers said before
    said = next((w for w in words if "no servers available" not in w), words[-1] if words else type(error).__name__)
    url = re.sub(r"//[^@/]*@", "//", settings.url)
    lowered = " ".join(words).lower()
    if "authorization" in lowered or "authentication" in lowered or "permissions" in lowered:
        hint = "Check nats.user_env, password_env, token_env or creds_file, and what that user may do."
    else:
        hint = "Is it running, and is nats.url right? 'foundry doctor' looks closer."
    return NatsUnavailableError(f"NATS at {url} can't be used: {said}", hint=hint)


__all__ = ["JetStream", "NatsSettings", "PubAck", "StreamState", "parse_direct", "with_jetstream"]
