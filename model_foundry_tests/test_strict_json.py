"""JSON as RFC 8259 writes it: what is read, what is refused, and that nothing else ever comes out."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model_foundry.strict_json import NotJson, canonical, loads

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"NaN", "NaN"),
        (b'{"a": [Infinity]}', "Infinity"),
        (b"-Infinity", "-Infinity"),
        (b'"line\nbreak"', "control character"),
        (b'"\x00"', "control character"),
        (b'"\\ud800"', "lone surrogate"),
        (b'"\\uDC00\\uD83D"', "lone surrogate"),
        (b'{"\\udfff": 1}', "lone surrogate"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"\xff"', "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a": 1, "a": 1}', "'a' stands twice"),
        (b'{"x": [{"deep": 1, "\\u0064eep": 2}]}', "'deep' stands twice"),
        (b"{} {}", "Extra data"),
        (b"{},", "Extra data"),
        (b"{'a': 1}", "double quotes"),
        (b"[1,]", "at line 1"),
        (b"01", "Extra data"),
        (b"+1", "Expecting value"),
        (b".5", "Expecting value"),
        (b"\xc2\xa01", "Expecting value"),
        (b"1e999", "beyond what a double holds"),
        (b"[-1e999]", "beyond what a double holds"),
        (b"1" * 309, "309 digits"),
        (b"-" + b"1" * 1_000_000, "1000000 digits"),
        (b'{"a', "Unterminated string starting at line 1, column 2"),
    ],
)
def test_what_the_rfc_does_not_write_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(NotJson, match=reason.replace("'", ".")):
        loads(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b" null ", None),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\\\ud800"', "\\ud800"),
        (b'"\\u0000\x7f"', "\0\x7f"),
        ('"\u2028"'.encode(), "\u2028"),
        (b"1" * 308, int("1" * 308)),
        (b"-0", 0),
        (b"1e-999", 0.0),
        (b"1.0", 1.0),
        (b'{"a": {"a": 1}}', {"a": {"a": 1}}),
    ],
)
def test_what_the_rfc_writes_is_read(data: bytes, value: object) -> None:
    assert loads(data) == value


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_64_levels_are_read_and_65_are_not(opening: bytes, closing: bytes) -> None:
    loads(opening * 64 + b"1" + closing * 64)
    with pytest.raises(NotJson, match="more than 64 levels"):
        loads(opening * 65 + b"1" + closing * 65)


def test_a_hundred_thousand_levels_are_a_reason_and_not_a_crash() -> None:
    for data in (b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000):
        with pytest.raises(NotJson, match="levels"):
            loads(data)


def test_brackets_inside_strings_and_side_by_side_are_no_levels() -> None:
    brackets = "[{" * 100 + '"\\'
    assert loads(json.dumps([brackets, brackets]).encode()) == [brackets, brackets]
    assert loads(b"[" + b"[],{}," * 100 + b"1]")[-1] == 1


def test_a_string_of_a_million_escapes_that_never_ends_is_refused_in_linear_time() -> None:
    with pytest.raises(NotJson):
        loads(b"[" * 65 + b'"' + b'\\"' * 1_000_000)
    with pytest.raises(NotJson):
        loads(b'"' + b'\\"[' * 1_000_000)


def test_max_levels_counts_arrays_and_objects() -> None:
    assert loads(b"1", max_levels=0) == 1
    with pytest.raises(NotJson, match="more than 0 levels"):
        loads(b"[]", max_levels=0)


@given(JSON_VALUES)
def test_every_value_comes_back_as_it_was_written(value: object) -> None:
    assert loads(json.dumps(value).encode()) == value
    assert loads(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=200) | st.text('[]{}",:\\ud8c1e9.-NaN \n', max_size=60).map(str.encode))
@example(b'"\\')
@example(b'{"\\ud800":1,"\\ud800":2}')
def test_any_bytes_give_a_storable_value_or_a_storable_reason(data: bytes) -> None:
    try:
        value = loads(data)
    except NotJson as refusal:
        str(refusal).encode()
        return
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    assert not (isinstance(value, float) and math.isinf(value))


@given(JSON_VALUES)
@example(2**64)
@example({"b": 10**300, "a": -(2**63) - 1})
def test_the_canonical_text_of_a_value_reads_back_as_the_value(value: object) -> None:
    text = canonical(value)
    assert loads(text.encode()) == value
    assert canonical(loads(text.encode())) == text


@pytest.mark.parametrize("number", [1, 2**70])
def test_the_canonical_text_does_not_depend_on_order_or_blanks(number: int) -> None:
    one, other = b'{"b": [1, {"y": "\u00e9", "x": %d}], "a": 1.50}', b'{"a":1.5,"b":[1,{"x":%d,"y":"\xc3\xa9"}]}'
    texts = {canonical(loads(data % number)) for data in (one, other)}
    assert texts == {f'{{"a":1.5,"b":[1,{{"x":{number},"y":"é"}}]}}'}
