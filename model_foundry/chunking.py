"""Chunking: a note's text, cut where its paragraphs and headings are, into pieces that a model embeds one by one. Pure.

Belongs here: where to cut. Does not belong here: reading notes (``notes``), embedding them (``embedding``).

Every character is in some chunk, no chunk is longer than allowed, and the same text is always cut the same way. What
stands in one chunk is whole paragraphs where they fit; one that is longer is cut at a line, a sentence or a word. A
heading begins a new chunk, unless what stands before it is short. A chunk that goes on within a section repeats the end
of the one before, so that no sentence is only seen in halves.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

_HEADING = re.compile(r"(?m)^ {0,3}#{1,6}[ \t]+(?P<title>.*)$")
_FENCE = re.compile(r"(?ms)^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1[ \t]*$|\Z)")
_PARAGRAPH_END = re.compile(r"\n[ \t\r]*\n(?:[ \t\r]*\n)*")
_CUTS = (re.compile(r"\n"), re.compile(r"[.!?][\"')\]]*\s+|[。！？]"), re.compile(r"\s+"))
"""Where a long paragraph is cut: after a line, else a sentence, else a word."""
_SHORT = 4
"""A heading begins a new chunk when what stands before it fills at least this part (a fourth) of one."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a text: ``text[start:end]``. ``heading``: the nearest one at or before its beginning."""

    start: int
    end: int
    text: str
    heading: str | None = None


def chunks(text: str, chunk_chars: int, overlap_chars: int) -> list[Chunk]:
    """Cuts a text.

    Args:
        text: any text.
        chunk_chars: characters of a chunk at most, at least 1.
        overlap_chars: characters repeated of the chunk before, at most; fewer than ``chunk_chars``.

    Returns:
        The chunks in order; none for an empty text.
    """
    fences = [match.span() for match in _FENCE.finditer(text)]
    headings = {
        match.start(): match["title"].strip().rstrip("#").strip()
        for match in _HEADING.finditer(text)
        if not _inside(match.start(), fences)
    }
    places = sorted(headings)
    body = max(1, chunk_chars - overlap_chars)
    found = []
    for start, end in _packed(_pieces(text, places, body), headings.keys(), body):
        begin = start
        if start > 0 and start not in headings:
            begin = _word_start(text, max(0, start - overlap_chars, end - chunk_chars), start)
        before = bisect_right(places, start)
        found.append(Chunk(begin, end, text[begin:end], (headings[places[before - 1]] or None) if before else None))
    return found


def _inside(at: int, spans: list[tuple[int, int]]) -> bool:
    """Whether a place is inside one of the spans, which are in order."""
    before = bisect_right(spans, (at, at))
    return before > 0 and spans[before - 1][0] < at < spans[before - 1][1]


def _pieces(text: str, headings: list[int], most: int) -> Iterator[tuple[int, int]]:
    """The paragraphs, those that are too long in pieces; together the whole text."""
    ends = {match.end() for match in _PARAGRAPH_END.finditer(text)}
    edges = sorted({0, len(text), *headings, *ends})
    for start, end in pairwise(edges):
        while end - start > most:
            cut = _cut(text, start, start + most)
            yield start, cut
            start = cut
        yield start, end


def _cut(text: str, start: int, limit: int) -> int:
    """The best place to cut, after the middle of what is allowed; the limit when there is none."""
    for pattern in _CUTS:
        places = [m.end() for m in pattern.finditer(text, start + (limit - start) // 2, limit)]
        if places and places[-1] > start:
            return places[-1]
    return limit


def _packed(pieces: Iterable[tuple[int, int]], headings: Collection[int], most: int) -> Iterator[tuple[int, int]]:
    """Neighbours put together while they fit."""
    begun: int | None = None
    last = 0
    for start, end in pieces:
        new_section = start in headings and begun is not None and start - begun >= most / _SHORT
        if begun is not None and (new_section or end - begun > most):
            yield begun, last
            begun = None
        begun = start if begun is None else begun
        last = end
    if begun is not None and last > begun:
        yield begun, last


def _word_start(text: str, earliest: int, latest: int) -> int:
    """The first beginning of a word between two places, so that no chunk begins inside one; else the latest.

    Scripts without spaces have none: the earliest place then.
    """
    if earliest == 0 or text[earliest - 1].isspace():
        return earliest
    found = re.compile(r"\s+").search(text, earliest, latest)
    return found.end() if found else earliest
