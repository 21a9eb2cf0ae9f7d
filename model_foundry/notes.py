"""Notes: the files of a folder, as texts, or as the reason why one can't be read. Reads, never writes.

Belongs here: which files are notes, and reading them. Does not belong here: cutting them (``chunking``), what becomes
of them (``embedding``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from model_foundry.config import NotesConfig
from model_foundry.errors import ConfigError

MAX_NOTE_BYTES = 8 * 2**20
"""A larger file is listed as unreadable: it is no note."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note.

    Attributes:
        source: its path below the folder, with ``/``.
        text: what it says; empty when it can't be read.
        problem: why it can't be read.
        digest: SHA-256 of its bytes, 32 hex digits; of the problem when there are none.
    """

    source: str
    text: str
    digest: str
    problem: str | None = None


def read_notes(config: NotesConfig) -> list[Note]:
    """Every note of the folder, by path. A file that goes away meanwhile is none.

    Raises:
        ConfigError: when the folder is not there or can't be listed; that is not the same as an empty one.
    """
    folder = config.folder
    if not folder.is_dir():
        raise ConfigError(
            f"notes.folder is {folder}, which is no folder here",
            hint="Is it mounted? Give a folder of this machine; what was embedded before is kept.",
        )
    try:
        next(folder.iterdir(), None)
        files = sorted(_files(config))
    except OSError as error:
        raise ConfigError(f"notes.folder {folder} can't be listed: {error.strerror}") from None
    return [note for file in files if (note := _read(file, file.relative_to(folder).as_posix())) is not None]


def _files(config: NotesConfig) -> Iterator[Path]:
    seen: set[Path] = set()
    for pattern in config.include:
        for path in config.folder.glob(pattern):
            hidden = any(part.startswith(".") for part in path.relative_to(config.folder).parts)
            if not hidden and path not in seen and path.is_file():
                seen.add(path)
                yield path


def _read(file: Path, source: str) -> Note | None:
    shown = source.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    try:
        if file.stat().st_size > MAX_NOTE_BYTES:
            return _unreadable(shown, f"it is larger than {MAX_NOTE_BYTES // 2**20} MiB")
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(shown, f"it can't be read: {error.strerror}")
    digest = sha256(data).hexdigest()[:32]
    try:
        return Note(shown, data.decode("utf-8-sig"), digest)
    except UnicodeDecodeError as error:
        return Note(shown, "", digest, f"it is not UTF-8: {error.reason} at byte {error.start}")


def _unreadable(source: str, problem: str) -> Note:
    return Note(source, "", sha256(problem.encode()).hexdigest()[:32], problem)
