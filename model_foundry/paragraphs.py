"""Paragraphs of an article in Markdown: what is translated piece by piece, and what stays as it is.

Belongs here: cutting a text at blank lines and putting it together again. Does not belong here: cutting for search
(``chunking``), asking for translations (``translating``). Pure.

Code between fences is one piece, blank lines in it or not, and so is front matter. Such pieces, rules, tables' rulers,
bare links, images and HTML tags have nothing to translate: they are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_KEPT = re.compile(
    r"""(?xs)
    (?: [\W\d_]+                              # rules, numbers, punctuation
      | <!--.*-->                             # a comment
      | (?: </?[A-Za-z][^>]*> \s* )+          # only tags
      | (?: !\[[^\]]*\]\([^)]*\) \s* )+       # only images
      | (?: <? https?://\S+ >? \s* )+         # only addresses
      | \[[^\]]+\]:\s*\S+.*                   # a link's definition
    )"""
)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A piece of an article: its text, the white space after it, and whether there is something to translate in it."""

    text: str
    after: str
    is_prose: bool


def paragraphs(article: str) -> list[Paragraph]:
    """Cuts an article. Put together again (:func:`together`), it is the same, its leading blank lines apart."""
    blocks: list[list[str]] = []
    gaps: list[str] = []
    fence: str | None = None
    lines = article.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    in_matter = bool(lines) and lines[0].rstrip() == "---" and any(line.rstrip() == "---" for line in lines[1:])
    open_block = False
    for n, line in enumerate(lines):
        opening = _FENCE.match(line)
        if in_matter:
            in_matter = not (n > 0 and line.rstrip() == "---")
            _add(blocks, gaps, line, starts=n == 0)
            open_block = in_matter
            continue
        if fence is not None:
            _add(blocks, gaps, line, starts=False)
            if opening and opening[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence, open_block = None, False
        elif opening:
            _add(blocks, gaps, line, starts=True)
            fence = opening[1]
        elif not line.strip():
            open_block = False
            if gaps:
                gaps[-1] += "\n" + line
        else:
            _add(blocks, gaps, line, starts=not open_block)
            open_block = True
    texts = ["\n".join(block) for block in blocks]
    return [
        Paragraph(text, gap if n == len(texts) - 1 else gap + "\n", _is_prose(text))
        for n, (text, gap) in enumerate(zip(texts, gaps, strict=True))
    ]


def together(pieces: Sequence[Paragraph], texts: Sequence[str]) -> str:
    """The article with other texts in place of its pieces' own."""
    return "".join(text + piece.after for piece, text in zip(pieces, texts, strict=True))


def _add(blocks: list[list[str]], gaps: list[str], line: str, *, starts: bool) -> None:
    if starts or not blocks:
        blocks.append([line])
        gaps.append("")
    else:
        blocks[-1].append(line)


def _is_prose(text: str) -> bool:
    is_code = (
        _FENCE.match(text)
        or text.startswith("---\n")
        or all(line.startswith(("    ", "\t")) for line in text.split("\n"))
    )
    return not is_code and _KEPT.fullmatch(text.strip()) is None
