"""Tool calls as their pieces come.

Belongs here: which piece belongs to which call, in both dialects. Does not belong here: what a tool does. Pure.

OpenAI's form: the first piece of a call has ``index``, ``id`` and the function's ``name``, later ones the index and
more of ``arguments``. What servers make of it, and is read: no index; every call under index 0, told apart by their
ids; the id in a later piece; arguments as an object; the old ``function_call``.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

from model_foundry.inference.values import count, first_text, loads
from model_foundry.text import well_formed

_CALL_BYTES = 256
"""What a call costs beside its texts, so that a bound on bytes bounds their number too."""


@dataclass(slots=True)
class _Call:
    index: int
    identity: str = ""
    name: str = ""
    arguments: io.StringIO = field(default_factory=io.StringIO)

    def is_whole(self) -> bool:
        """Whether its arguments are JSON already, so that nothing more can belong to them."""
        text = self.arguments.getvalue()
        if not text.rstrip().endswith("}"):
            return False
        try:
            loads(text)
        except ValueError:
            return False
        return True


class ToolCalls:
    """The calls of one choice, in the order of their first pieces."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, pieces: Any) -> int | None:
        """Takes one chunk's ``tool_calls``.

        Returns:
            Their size in bytes; None when there was none.
        """
        if isinstance(pieces, dict):
            pieces = [pieces]
        sizes = []
        before: _Call | None = None
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict):
                before, size = self._add(piece, before)
                sizes.append(size)
        return sum(sizes) if sizes else None

    def calls(self) -> list[dict[str, Any]]:
        """The calls as OpenAI writes whole ones, arguments as text; halves of characters are joined or replaced."""
        return [
            {
                "index": call.index,
                "id": well_formed(call.identity) or None,
                "type": "function",
                "function": {"name": well_formed(call.name), "arguments": well_formed(call.arguments.getvalue())},
            }
            for call in self._calls
        ]

    def _add(self, piece: dict[str, Any], before: _Call | None) -> tuple[_Call, int]:
        raw = piece.get("function")
        function = raw if isinstance(raw, dict) else piece  # some leave the wrapping out
        index, identity, name = count(piece.get("index")), _identity(piece), first_text(function.get("name"))
        call, size = self._find(index, identity, name, before), 16
        if call is None:
            call, size = (
                _Call(index if index is not None and index not in self._by_index else len(self._calls)),
                _CALL_BYTES,
            )
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        call.identity = call.identity or identity
        call.name = call.name or name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.arguments.write(arguments)
        elif arguments is not None:  # whole, so it replaces what an earlier chunk said
            arguments = json.dumps(arguments, ensure_ascii=False)
            call.arguments = io.StringIO()
            call.arguments.write(arguments)
        return call, size + sum(len(t.encode(errors="replace")) for t in (name, identity, arguments or ""))

    def _find(self, index: int | None, identity: str, name: str, before: _Call | None) -> _Call | None:
        """The call that a piece goes on with; None when it begins one. ``before``: the call of the piece before it in
        the same chunk.
        """
        if index is not None:
            found = self._by_index.get(index)
            is_other = found is not None and identity and found.identity and identity != found.identity
            return None if is_other else found
        last = self._calls[-1] if self._calls else None
        if last is None or (identity and last.identity and identity != last.identity):
            return None
        if identity and identity == last.identity:
            return last
        if not name or not last.name:
            return last
        return None if last is before or name != last.name or last.is_whole() else last


def _identity(piece: dict[str, Any]) -> str:
    identity = piece.get("id")
    is_number = isinstance(identity, int) and not isinstance(identity, bool)
    return str(identity) if is_number else first_text(identity)
