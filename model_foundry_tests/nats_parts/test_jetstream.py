"""JetStream on a real server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from nats.js.api import RetentionPolicy
from nats.js.api import StreamConfig as JsStreamConfig

from model_foundry.config import NatsConfig, StreamConfig
from model_foundry.embedded import nats as nats_part
from model_foundry.embedded.processes import ManagedProcess, free_port
from model_foundry.errors import ConfigError, NatsUnavailableError, StreamError
from model_foundry.jetstream.client import JetStream, NatsSettings, with_jetstream
from model_foundry.records import StreamMessage

T = TypeVar("T")


class Place:
    """A stream of a test's own, and its subjects."""

    def __init__(self, settings: NatsSettings) -> None:
        self.settings = settings
        self.tag = f"t{uuid.uuid4().hex[:8]}"
        self.config = StreamConfig(name=self.tag, subjects=[f"{self.tag}.>"])
        self.subject = f"{self.tag}.a"

    def do(self, work: Callable[[JetStream], Awaitable[T]]) -> T:
        return with_jetstream(self.settings, work)

    def publish(self, *bodies: bytes) -> None:
        async def work(js: JetStream) -> None:
            await js.ensure_stream(self.config)
            await js.publish_many([(self.subject, body, None) for body in bodies])

        self.do(work)

    def read(self, first: int, last: int) -> list[StreamMessage]:
        return self.do(lambda js: js.read_range(self.tag, first, last))

    def raw(self, *frames: bytes) -> None:
        """Sends protocol bytes over a socket of its own, as no client would."""
        port = int(self.settings.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.recv(65536)
            connection.sendall(b'CONNECT {"headers":true,"verbose":false}\r\n' + b"".join(frames) + b"PING\r\n")
            seen = b""
            while b"PONG" not in seen:
                seen += connection.recv(4096)


@pytest.fixture
def place(nats_settings: NatsSettings) -> Iterator[Place]:
    made = Place(nats_settings)
    yield made

    async def remove(js: JetStream) -> None:
        await js._js.delete_stream(made.tag)

    try:
        made.do(remove)
    except Exception:
        return


def hpub(subject: bytes, headers: bytes, body: bytes) -> bytes:
    return b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, len(headers), len(headers) + len(body), headers, body)


def test_a_range_is_read_in_order_with_both_ends_and_without_deleted_sequences(place: Place) -> None:
    place.publish(*(str(i).encode() for i in range(1, 11)))

    async def delete(js: JetStream) -> None:
        await js._js.delete_msg(place.tag, 4)

    place.do(delete)
    assert [m.seq for m in place.read(3, 6)] == [3, 5, 6]
    assert [m.data for m in place.read(3, 6)] == [b"3", b"5", b"6"]
    assert place.read(11, 20) == []
    assert [m.seq for m in place.read(9, 99)] == [9, 10]


def test_more_messages_than_one_batch_holds_come_whole(place: Place) -> None:
    place.publish(*([b"x"] * 2500))
    assert [m.seq for m in place.read(1, 2500)] == list(range(1, 2501))


def test_large_messages_come_whole(place: Place) -> None:
    bodies = [bytes([i]) * 2**20 for i in range(20)]
    place.publish(*bodies)
    assert [m.data for m in place.read(1, 20)] == bodies


def test_headers_that_look_like_the_servers_are_the_users_and_do_not_end_a_batch(place: Place) -> None:
    place.do(lambda js: js.ensure_stream(place.config))
    headers = {"Nats-Sequence": "999", "Nats-Stream": "other", "Status": "404", "X": "y"}
    place.do(lambda js: js.publish(place.subject, b"1", headers=headers))
    place.publish(b"2")
    first, second = place.read(1, 2)
    assert (first.seq, first.subject, first.data) == (1, place.subject, b"1")
    assert dict(first.headers) == headers
    assert (second.seq, second.headers) == (2, ())


def test_what_other_readers_choke_on_comes_through(place: Place) -> None:
    """A subject that is no UTF-8, header blocks that are broken, repeated headers."""
    place.publish(b"0")
    tag = place.tag.encode()
    place.raw(
        b"PUB %s.\xff\xfe 1\r\n1\r\n" % tag,
        hpub(b"%s.b" % tag, b"NATS/1.0\r\nno colon here\r\nA: b\r\nA: c\r\n\r\n", b"2"),
        hpub(b"%s.c" % tag, b"garbage", b"3"),
        hpub(b"%s.d" % tag, b"NATS/1.0 503\r\n\r\n", b"4"),
    )
    place.publish(b"5")
    messages = place.read(1, 6)
    assert [m.data for m in messages] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert messages[1].subject == f"{place.tag}.\\xff\\xfe"
    assert messages[2].headers == (("A", "b"), ("A", "c"))


def test_a_stream_is_made_when_missing_and_used_as_it_is_when_there(place: Place) -> None:
    made = place.do(lambda js: js.ensure_stream(place.config))
    assert (made.messages, made.last_seq) == (0, 0)
    place.publish(b"x")
    other = place.config.model_copy(update={"max_age_s": 5.0})
    again = place.do(lambda js: js.ensure_stream(other))
    assert (again.created, again.messages) == (made.created, 1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"allow_direct": False}, "does not allow direct gets"),
        ({"allow_direct": True, "retention": RetentionPolicy.WORK_QUEUE}, "needed: limits"),
    ],
)
def test_a_stream_that_can_not_be_read_by_range_is_refused_with_what_to_do(
    place: Place, settings: dict[str, Any], words: str
) -> None:
    async def make(js: JetStream) -> None:
        await js._js.add_stream(JsStreamConfig(name=place.tag, subjects=[f"{place.tag}.>"], **settings))

    place.do(make)
    with pytest.raises(StreamError, match=words) as caught:
        place.do(lambda js: js.ensure_stream(place.config))
    assert caught.value.hint


def test_a_stream_that_is_not_there_is_a_clear_error(place: Place) -> None:
    with pytest.raises(StreamError, match="there is no stream"):
        place.read(1, 2)


def test_the_same_id_twice_is_one_message(place: Place) -> None:
    place.do(lambda js: js.ensure_stream(place.config))
    first = place.do(lambda js: js.publish(place.subject, b"x", msg_id="m"))
    second = place.do(lambda js: js.publish(place.subject, b"x", msg_id="m"))
    assert (first.seq, first.duplicate) == (1, False)
    assert (second.seq, second.duplicate) == (1, True)


def test_publishing_where_no_stream_listens_and_too_large_a_message_are_clear_errors(place: Place) -> None:
    with pytest.raises(StreamError, match="no stream takes subject"):
        place.do(lambda js: js.publish("nobody.listens", b"x"))
    place.publish(b"x")
    with pytest.raises(StreamError, match="more than the server takes"):
        place.do(lambda js: js.publish(place.subject, bytes(9 * 2**20)))


def test_waiting_ends_when_a_message_comes_and_when_the_time_is_up(place: Place) -> None:
    place.publish(b"1")

    async def both(js: JetStream) -> tuple[int, int]:
        idle = await js.wait_for_messages(place.tag, 1, 0.1)
        waiting = asyncio.create_task(js.wait_for_messages(place.tag, 1, 30))
        await js.publish(place.subject, b"2")
        return idle.last_seq, (await asyncio.wait_for(waiting, 10)).last_seq

    assert place.do(both) == (1, 2)


def test_results_are_collected_whether_they_are_there_or_yet_to_come(place: Place) -> None:
    async def work(js: JetStream) -> tuple[list[bytes], set[str]]:
        await js.ensure_stream(place.config)
        await js.publish(f"{place.tag}.early", b"early")
        found: list[bytes] = []
        wanted = {f"{place.tag}.{name}" for name in ("early", "late", "never")}
        waiting = asyncio.create_task(js.wait_for_subjects(place.tag, wanted, 1.5, lambda m: found.append(m.data)))
        while not found:  # noqa: ASYNC110 (a condition with a deadline: the task's own)
            await asyncio.sleep(0.01)
        await js.publish(f"{place.tag}.late", b"late")
        return found, await waiting

    assert place.do(work) == ([b"early", b"late"], {f"{place.tag}.never"})


def test_a_call_leaves_no_thread_behind(place: Place) -> None:
    before = threading.active_count()
    place.publish(b"x")
    place.read(1, 1)
    assert threading.active_count() == before


def test_a_dead_server_is_an_error_in_bounded_time_and_says_what_to_do() -> None:
    started = time.monotonic()
    with pytest.raises(NatsUnavailableError) as caught:
        with_jetstream(NatsSettings(f"nats://user:secret@127.0.0.1:{free_port()}"), lambda js: js.stream_state("X"))
    assert time.monotonic() - started < 10, "it must not hang"
    assert "foundry doctor" in (caught.value.hint or "")
    assert "secret" not in str(caught.value)


def test_a_server_that_accepts_and_says_nothing_is_an_error_too() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        settings = NatsSettings(f"nats://127.0.0.1:{silent.getsockname()[1]}", connect_timeout_s=0.5)
        with pytest.raises(NatsUnavailableError):
            with_jetstream(settings, lambda js: js.stream_state("X"))


class OwnServer:
    """A server that a test may kill."""

    def __init__(self, folder: Path, extra: str = "") -> None:
        self.port = free_port()
        config = nats_part.write_config(folder, self.port, folder / "store")
        config.write_text(config.read_text() + extra)
        self.process = ManagedProcess(
            "nats-server", nats_part.argv(config), env=dict(os.environ), log_file=folder / "log"
        )
        self.start()

    def start(self) -> None:
        self.process.start()
        self.process.wait_ready(lambda: nats_part.is_ready(self.port), 20)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[OwnServer]:
    server = OwnServer(tmp_path)
    yield server
    server.process.stop()


def test_acknowledged_messages_survive_a_killed_server(own_server: OwnServer) -> None:
    place = Place(NatsSettings(own_server.url))
    place.publish(*(str(i).encode() for i in range(200)))
    created = place.do(lambda js: js.stream_state(place.tag)).created
    assert own_server.process.pid
    os.kill(own_server.process.pid, 9)
    own_server.process.stop()
    own_server.start()
    assert [m.data for m in place.read(1, 200)] == [str(i).encode() for i in range(200)]
    assert place.do(lambda js: js.stream_state(place.tag)).created == created


def test_a_recreated_stream_has_another_creation_time(place: Place) -> None:
    place.publish(b"x")
    first = place.do(lambda js: js.stream_state(place.tag))

    async def again(js: JetStream) -> None:
        await js._js.delete_stream(place.tag)

    place.do(again)
    deadline_s = time.monotonic() + 5
    while int(time.time()) <= first.created:
        assert time.monotonic() < deadline_s
    place.publish(b"y")
    second = place.do(lambda js: js.stream_state(place.tag))
    assert second.created > first.created
    assert second.last_seq == 1


def test_wrong_credentials_are_told_apart_from_a_dead_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = OwnServer(tmp_path, 'authorization { token: "right" }\n')
    try:
        monkeypatch.setenv("TOKEN", "right")
        right = NatsSettings.from_config(NatsConfig(token_env="TOKEN"), server.url, None)
        place = Place(right)
        place.publish(b"x")
        monkeypatch.setenv("TOKEN", "wrong")
        wrong = NatsSettings.from_config(NatsConfig(token_env="TOKEN"), server.url, None)
        with pytest.raises(NatsUnavailableError, match=r"(?i)authorization") as caught:
            with_jetstream(wrong, lambda js: js.stream_state("X"))
        assert "nats.user_env" in (caught.value.hint or "")
    finally:
        server.process.stop()


def test_a_secret_that_is_not_set_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ConfigError, match="NOT_SET"):
        NatsSettings.from_config(NatsConfig(password_env="NOT_SET"), "nats://127.0.0.1:1", None)


def test_the_embedded_server_takes_messages_of_eight_mebibytes(place: Place) -> None:
    place.publish(json.dumps({"prompt": "x" * (7 * 2**20)}).encode())
    assert len(place.read(1, 1)[0].data) > 7 * 2**20
