"""Entries of files that people have: bytes to JSON values or rows of a table, each with its line. Reads one file.

Belongs here: compression, encodings, line ends, what is broken. Does not belong here: what an entry means
(``importers``, ``traces``).
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_foundry.errors import ConfigError

MAX_FILE_BYTES = 2**30
"""Of what is in a file, uncompressed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that was not taken.

    Attributes:
        line: of the file, from 1; where a longer entry begins.
        reason: why.
    """

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Unfit(ValueError):  # noqa: N818 (says what the entry is)
    """An entry that can't be used, with the reason."""


def nothing_usable(file: Path, form: str, problems: list[Problem]) -> ConfigError:
    """The error of a file of which no line can be used, with the first reasons."""
    shown = "\n".join(f"  - {p}" for p in problems[:5])
    more = f"\n  … and {len(problems) - 5} more" if len(problems) > 5 else ""
    return ConfigError(f"{file}: no line can be used as {form}" + (f":\n{shown}{more}" if shown else ": it is empty"))


def read_bytes(file: Path) -> bytes:
    """What is in the file, uncompressed, as UTF-8 without a byte order mark."""
    try:
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigError(f"{file}: is larger than {MAX_FILE_BYTES // 2**20} MiB")
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror}") from None
    if data.startswith(b"\x1f\x8b"):
        data = _gunzipped(data, file)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        raise ConfigError(f"{file}: is compressed by zstd; allowed: plain, or gzip", hint="Uncompress it: zstd -d")
    if data.startswith(b"version https://git-lfs"):
        raise ConfigError(f"{file}: holds a pointer of Git LFS and not the data", hint="Fetch it: git lfs pull")
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
        if data.startswith(mark):
            try:
                return data.decode(encoding).encode("utf-8")
            except (UnicodeDecodeError, UnicodeEncodeError) as error:
                raise ConfigError(f"{file}: begins as UTF-16 and is not: {error}") from None
    data = data.removeprefix(codecs.BOM_UTF8)
    return data if b"\n" in data else data.replace(b"\r", b"\n")


def _gunzipped(data: bytes, file: Path) -> bytes:
    pieces, size = [], 0
    while data:
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            pieces.append(inflate.decompress(data, MAX_FILE_BYTES + 1 - size))
        except zlib.error as error:
            raise ConfigError(f"{file}: begins as gzip and breaks: {error}") from None
        size += len(pieces[-1])
        if size > MAX_FILE_BYTES:
            raise ConfigError(f"{file}: holds more than {MAX_FILE_BYTES // 2**20} MiB")
        if not inflate.eof:
            raise ConfigError(f"{file}: is compressed by gzip and cut off")
        data = inflate.unused_data.lstrip(b"\0")
    return b"".join(pieces)


def json_entries(data: bytes) -> Iterator[tuple[int, Any]]:
    """The values of JSON lines, or of one JSON array, each with its line; a Problem where one can't be read."""
    begin = data.lstrip(b" \t\r\n")
    if begin.startswith(b"["):
        yield from _array_entries(data)
        return
    line_number = 0
    for line in data.split(b"\n"):
        line_number += 1
        line = line.strip(b" \t\r")
        if not line:
            continue
        yield line_number, _json(line, line_number)


def _json(line: bytes, number: int) -> Any:
    if not line.strip(b"\0"):
        return Problem(number, "holds NUL bytes only")
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Problem(number, f"is not UTF-8: {error.reason} at byte {error.start}")
    except ValueError as error:
        return Problem(number, f"is not JSON: {error}")
    except RecursionError:
        return Problem(number, "is nested too deep")


def _array_entries(data: bytes) -> Iterator[tuple[int, Any]]:
    """One value after another, so that a large array needn't be held twice, and its first part is of use when it
    breaks later on.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        good = data[: error.start]
        yield from _array_entries(good) if good.strip() else ()
        yield (
            good.count(b"\n") + 1,
            Problem(good.count(b"\n") + 1, f"is not UTF-8: {error.reason}; the rest is not read"),
        )
        return
    decoder, space = json.JSONDecoder(), re.compile(r"[\s,]*")
    at, line = text.index("[") + 1, text.count("\n", 0, text.index("[")) + 1
    at_before = text.index("[")
    while True:
        at = space.match(text, at).end()  # type: ignore[union-attr]
        line += text.count("\n", at_before, at)
        at_before = at
        if at >= len(text):
            yield line, Problem(line, "the array ends before its bracket")
            return
        if text[at] == "]":
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            yield line, Problem(line, f"is not JSON: {error}; the rest of the array is not read")
            return
        yield line, value
        at = end


def text_of(data: bytes) -> str:
    """The text; bytes that are no UTF-8 become halves of characters, which their rows are refused for."""
    return data.decode("utf-8", "surrogateescape")


def _delimiter(line: str) -> str:
    """What separates the columns: comma, semicolon or tab, the one there is most of."""
    return max(",;\t", key=lambda d: (line.count(d), d == ","))


def header(text: str) -> list[str]:
    """The names of a table's columns: its first line that is not blank."""
    line = text.lstrip("\r\n").split("\n", 1)[0].strip("\r")
    try:
        return [n.strip() for n in next(csv.reader([line], delimiter=_delimiter(line)), [])]
    except csv.Error:
        return []


def table_rows(data: bytes, source: str) -> Iterator[tuple[int, dict[str, str] | Problem]]:
    """The rows of a table by its header's names, each with the line where it begins.

    Raises:
        ConfigError: when the header has a name twice, or a blank one.
    """
    text = text_of(data)
    blank = len(text) - len(text.lstrip("\r\n"))
    skipped = text[:blank].count("\n")
    names = header(text)
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ConfigError(f"{source}: the header has {twice[0]!r} twice; allowed: each name once")
    first = text[blank:].split("\n", 1)[0].strip("\r")
    reader = csv.reader(io.StringIO(text[blank:], newline=""), delimiter=_delimiter(first), strict=True)
    before_limit = csv.field_size_limit(64 * 2**20)
    try:
        next(reader, None)
        while True:
            line = reader.line_num + 1 + skipped
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield line, Problem(line, f"is no row: {error}")
                continue
            if not row or row == [""]:
                continue
            if len(row) != len(names):
                yield line, Problem(line, f"has {len(row)} fields; the header has {len(names)}")
                continue
            yield line, dict(zip(names, row, strict=True))
    finally:
        csv.field_size_limit(before_limit)
