"""Text that every store can hold. Belongs here: repairing what UTF-8 can't. Does not belong here: reading messages."""

from __future__ import annotations


def well_formed(text: str) -> str:
    """The text with split surrogate pairs joined, and lone halves replaced by ``�``.

    A server may cut an emoji in two between chunks, each half escaped in a JSON of its own; alone, a half can't be
    written as UTF-8.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
