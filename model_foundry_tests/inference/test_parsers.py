"""Bytes to events: the same bytes give the same events, however they are cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.inference.lines import LineTooLong
from model_foundry.inference.ndjson import NdjsonParser
from model_foundry.inference.sse import SseEvent, SseParser


def events(parser: Any, *chunks: bytes) -> list[Any]:
    return [*(e for chunk in chunks for e in parser.feed(chunk)), *parser.close()]


def sse(*chunks: bytes) -> list[SseEvent]:
    return events(SseParser(1000), *chunks)


def test_events_end_at_blank_lines() -> None:
    assert sse(b"data: a\n\ndata: b\n\n") == [SseEvent("a"), SseEvent("b")]


def test_lines_of_data_are_joined() -> None:
    assert sse(b"data: a\ndata:\ndata:  b\n\n") == [SseEvent("a\n\n b")]


def test_comments_ids_and_unknown_fields_are_no_events() -> None:
    assert sse(b": ping\n\nid: 3\nretry: 10\nfoo: bar\n\ndata: a\n\n") == [SseEvent("a")]


def test_an_event_keeps_its_name_and_the_next_one_has_none() -> None:
    assert sse(b"event: error\ndata: a\n\ndata: b\n\n") == [SseEvent("a", "error"), SseEvent("b")]


def test_an_error_field_of_older_llama_cpp_servers_is_an_event_named_error() -> None:
    assert sse(b'error: {"code": 500}\n\n') == [SseEvent('{"code": 500}', "error")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_is_read(end: bytes) -> None:
    assert sse(b"data: a" + end + b"data: b" + end + end + b"data: c" + end + end) == [SseEvent("a\nb"), SseEvent("c")]


def test_a_carriage_return_and_its_line_feed_may_come_apart() -> None:
    assert sse(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [SseEvent("a\nb")]


def test_the_last_event_may_lack_its_blank_line_and_its_newline() -> None:
    assert sse(b"data: a\n\ndata: [DONE]") == [SseEvent("a"), SseEvent("[DONE]")]


def test_a_byte_order_mark_is_skipped() -> None:
    assert sse(b"\xef\xbb", b"\xbfdata: a\n\n") == [SseEvent("a")]


def test_a_character_may_be_cut_in_halves() -> None:
    raw = "data: 日本🗻\n\n".encode()
    assert sse(*(raw[i : i + 1] for i in range(len(raw)))) == [SseEvent("日本🗻")]


def test_bytes_that_are_not_utf_8_are_marked_and_nothing_else_is_lost() -> None:
    assert sse(b"data: a\xffb\n\n") == [SseEvent("a\ufffdb")]


@pytest.mark.parametrize("make", [SseParser, NdjsonParser])
def test_a_line_that_never_ends_is_refused_before_it_fills_the_memory(make: Callable[[int], Any]) -> None:
    parser = make(100)
    with pytest.raises(LineTooLong):
        events(parser, *[b"x" * 10] * 20)


def test_an_event_of_many_lines_is_bounded_too() -> None:
    with pytest.raises(LineTooLong):
        events(SseParser(100), *[b"data: 0123456789\n"] * 20)


def test_lines_of_json_are_texts_and_empty_ones_are_nothing() -> None:
    assert events(NdjsonParser(100), b'{"a": 1}\r', b'\n\n  \n{"b"', b": 2}") == ['{"a": 1}', '{"b": 2}']


pieces = st.sampled_from(
    [b"data: ", b"data:", b"\n", b"\r", b"\r\n", b": c", b"event: e", b"error: x", "é🗻".encode(), b"a", b"\xff", b" "]
)


@given(st.lists(pieces, max_size=30).map(b"".join), st.lists(st.integers(0, 200), max_size=12), st.booleans())
def test_any_cutting_gives_the_same_events(raw: bytes, cuts: list[int], is_sse: bool) -> None:
    make: Callable[[int], Any] = SseParser if is_sse else NdjsonParser
    at = [0, *sorted(min(c, len(raw)) for c in cuts), len(raw)]
    chunks = [raw[a:b] for a, b in itertools.pairwise(at)]
    assert events(make(1000), *chunks) == events(make(1000), raw)


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), max_size=5),
    st.integers(1, 7),
)
def test_what_is_written_as_events_is_read_back(texts: list[str], size: int) -> None:
    raw = "".join(f"data: {t}\n\n" for t in texts).encode()
    assert [e.data for e in sse(*(raw[i : i + size] for i in range(0, len(raw), size)))] == texts
