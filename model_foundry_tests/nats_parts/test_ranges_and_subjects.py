from __future__ import annotations

import string
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from model_foundry.jetstream.client import StreamState
from model_foundry.jetstream.ranges import Cursor, gaps, next_range
from model_foundry.jetstream.subjects import result_subject


def a_state(first: int, last: int, created: int = 100) -> StreamState:
    return StreamState("S", created, first, last, max(0, last - first + 1), 0)


@given(created=st.integers(0, 2**40), last=st.integers(0, 2**60))
def test_a_cursor_survives_being_stored(created: int, last: int) -> None:
    assert Cursor.from_text(Cursor(created, last).to_text()) == (Cursor(created, last), None)


@given(
    st.text(max_size=60) | st.sampled_from(['{"stream_created": 1}', '{"stream_created": true, "last_seq": 1}', "[]"])
)
def test_any_text_is_a_cursor_or_a_reason(text: str) -> None:
    cursor, reason = Cursor.from_text(text)
    assert cursor is None
    assert (reason is None) == (text == "")


@given(data=st.data(), batch=st.integers(1, 7))
def test_walking_over_a_growing_stream_covers_each_sequence_once(data: st.DataObject, batch: int) -> None:
    cursor: Cursor | None = None
    last, covered = 0, []
    for growth in data.draw(st.lists(st.integers(0, 9), max_size=8)):
        last += growth
        state = a_state(1, last)
        while (span := next_range(cursor, state, batch)) is not None:
            assert span.to_seq - span.from_seq < batch
            assert (span.lost, span.recreated) == (None, False)
            covered += range(span.from_seq, span.to_seq + 1)
            cursor = Cursor(state.created, span.to_seq)
    assert covered == list(range(1, last + 1))


@given(cursor=st.integers(0, 50), first=st.integers(1, 60), length=st.integers(0, 50))
def test_what_retention_took_before_it_was_read_is_told(cursor: int, first: int, length: int) -> None:
    state = a_state(first, first + length - 1)
    span = next_range(Cursor(100, cursor), state, 1000)
    if span is not None and not span.recreated:
        assert span.lost == ((cursor + 1, first - 1) if first > cursor + 1 else None)
        assert span.from_seq == max(cursor + 1, first)


def test_a_recreated_or_restored_stream_is_read_from_its_start() -> None:
    for state in (a_state(1, 5, created=200), a_state(1, 5)):
        span = next_range(Cursor(100, 9), state, 100)
        assert span is not None
        assert (span.from_seq, span.to_seq, span.recreated) == (1, 5, True)


def test_nothing_new_is_no_range() -> None:
    assert next_range(None, a_state(1, 0), 10) is None
    assert next_range(Cursor(100, 5), a_state(1, 5), 10) is None
    assert next_range(None, a_state(0, 0), 10) is None


SAFE = set(string.ascii_letters + string.digits + "_-%")


@given(st.text(max_size=300))
def test_a_results_subject_is_one_valid_token_of_bounded_length(job_id: str) -> None:
    prefix, _, token = result_subject(job_id).partition(".")
    assert prefix == "results"
    assert set(token) <= SAFE
    assert len(token) <= 200


@given(st.text(max_size=40), st.text(max_size=40))
def test_two_ids_have_two_subjects(one: str, other: str) -> None:
    assert (result_subject(one) == result_subject(other)) == (one == other)


def test_every_byte_outside_the_safe_ones_is_percent_encoded_and_a_long_id_is_hashed() -> None:
    assert result_subject("a.b c*é_-9") == "results.a%2Eb%20c%2A%C3%A9_-9"
    assert result_subject("x" * 201) == f"results.{sha256(b'x' * 201).hexdigest()}"
    assert result_subject("x" * 200) == "results." + "x" * 200


@given(st.sets(st.integers(1, 30)), st.integers(1, 30), st.integers(0, 30))
def test_gaps_are_what_is_not_present(present: set[int], first: int, last: int) -> None:
    inside = sorted(seq for seq in present if first <= seq <= last)
    found = [seq for a, b in gaps(first, last, inside) for seq in range(a, b + 1)]
    assert found == [seq for seq in range(first, last + 1) if seq not in present]
