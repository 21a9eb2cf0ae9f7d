"""Cutting notes: what must hold of any text, and what people see of theirs."""

from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from model_foundry.chunking import chunks

PIECES = st.sampled_from(
    [
        "# A\n",
        "## B b\n",
        "word ",
        "x" * 37,
        "\n\n",
        "\n",
        "\r\n",
        "```\n",
        "# no heading\n",
        "猫が好き。",
        " \t",
        ". ",
        "é",
    ]
)
TEXTS = st.one_of(st.text(max_size=400), st.lists(PIECES, max_size=80).map("".join))


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    most = draw(st.integers(2, 120))
    return most, draw(st.integers(0, most // 2))


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, size=sizes())
def test_every_character_is_in_some_chunk_and_no_chunk_is_too_long(text: str, size: tuple[int, int]) -> None:
    found = chunks(text, *size)
    at = 0
    for chunk in found:
        assert chunk.text == text[chunk.start : chunk.end]
        assert 0 < len(chunk.text) <= size[0]
        assert at - size[1] <= chunk.start <= at < chunk.end, "no gap, no more overlap than allowed, always onward"
        at = chunk.end
    assert at == len(text)
    assert found == chunks(text, *size), "the same text is always cut the same way"


def test_paragraphs_stay_whole_and_headings_begin_chunks() -> None:
    text = "# Cats\n\nCats sleep. " + "They purr. " * 5 + "\n\n# Trains\n\nTrains run.\n"
    found = chunks(text, 100, 10)
    assert [(c.heading, c.text.split("\n")[0]) for c in found] == [("Cats", "# Cats"), ("Trains", "# Trains")]


def test_a_heading_inside_a_code_fence_is_none() -> None:
    assert {c.heading for c in chunks("# Real #\n\n```\n# comment\n```\n" + "more words " * 20, 60, 0)} == {"Real"}


def test_a_long_paragraph_is_cut_between_sentences_and_goes_on_with_a_little_of_what_was_before() -> None:
    text = " ".join(f"Sentence number {n} says this." for n in range(30))
    found = chunks(text, 200, 40)
    assert all(c.text.rstrip().endswith("this.") for c in found)
    for before, after in pairwise(found):
        assert 0 < before.end - after.start <= 40
        assert text[after.start - 1].isspace()


def test_a_text_without_spaces_is_cut_all_the_same() -> None:
    assert [len(c.text) for c in chunks("猫" * 250, 100, 0)] == [100, 100, 50]


def test_a_note_of_megabytes_takes_seconds_whatever_it_is_made_of() -> None:
    began = time.monotonic()
    for text in ("# " + " " * 10**6 + "a", "word " * 400_000, "# h\n\n" * 100_000, "```\n" * 100_000, "\n" * 10**6):
        chunks(text, 1200, 150)
    assert time.monotonic() - began < 20
