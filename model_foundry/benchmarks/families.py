"""Which family a model is of, told by its name. Pure.

Belongs here: names to families. Does not belong here: whether a judge of a family may judge (``judging``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_FAMILIES = (
    ("smollm", r"smol(lm|vlm)"),
    ("qwen", r"qwen|qwq"),
    ("llama", r"llama|vicuna|tulu"),
    ("gemma", r"gemma|gemini"),
    ("mistral", r"mistral|mixtral|ministral|magistral|devstral|codestral"),
    ("deepseek", r"deepseek"),
    ("phi", r"(?<![a-z])phi(?![a-z])"),
    ("gpt", r"(?<![a-z])gpt|(?<![a-z])o[134](?![a-z0-9])"),
    ("claude", r"claude"),
    ("command", r"(?<![a-z])(command-[ar]|aya)(?![a-z])"),
    ("granite", r"granite"),
    ("glm", r"(?<![a-z])(chat)?glm"),
    ("olmo", r"olmo"),
    ("falcon", r"falcon"),
    ("yi", r"(?<![a-z])yi-"),
)
_NOT_NAMES = re.compile(r"llama[._-]?cpp|ollama")


def families_of(model: str, named: Mapping[str, str] | None = None) -> frozenset[str]:
    """The families of a model; a distilled one is of its teacher's and of its student's.

    Args:
        model: its name, as a configuration or a model card has it.
        named: what the configuration says (``benchmarks.families``); goes before what the name tells.

    Returns:
        The families in small letters; of an unknown name, the name's own first word, so that a model is always of one
        family with its other sizes.
    """
    if named and model in named:
        return frozenset(part.strip().lower() for part in named[model].split(",") if part.strip())
    name = _NOT_NAMES.sub("", model.lower())
    found = frozenset(family for family, pattern in _FAMILIES if re.search(pattern, name))
    if found:
        return found
    words = re.findall(r"[a-z]+", name.rsplit("/", 1)[-1])
    return frozenset({words[0] if words else name})


def shared_families(judge: str, judged: str, named: Mapping[str, str] | None = None) -> frozenset[str]:
    """The families that both are of; not empty: the judge would judge its own."""
    return families_of(judge, named) & families_of(judged, named)
