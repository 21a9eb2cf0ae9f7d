"""Texts that a suite's file describes instead of holding: files beside it, and generated ones. Deterministic.

Belongs here: the generators, and putting texts into turns. Does not belong here: what is asked about them.

A file with a key ``texts`` names its texts there; ``{{name}}`` in a turn is where one goes, and
``{{filler tokens=500 seed=1}}`` is that much text about nothing. A file without the key is left as it is, so that a
prompt may hold braces.

The same description gives the same text on every machine and with every Python: of ``random`` only ``random()`` is
used, whose sequence is promised to stay (Python's documentation, "Notes on Reproducibility").
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

MAX_TEXT_BYTES = 16 * 2**20
MAX_UNITS = 200_000
"""Tokens of a filler, or entries or sentences, at most."""

_PLACE = re.compile(r"\{\{\s*([a-z][a-z0-9_]*)((?:\s+[a-z]+=-?\d+)*)\s*\}\}")


class _Dice:
    """Choices from a seed."""

    def __init__(self, seed: int) -> None:
        self._next = random.Random(seed).random  # noqa: S311 (nothing secret)

    def below(self, n: int) -> int:
        return int(self._next() * n)

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[str]) -> str:
        return items[self.below(len(items))]


# -- the generators ---------------------------------------------------------------------------------------------------

_FILLER_WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school",
    "state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week",
    "company", "system", "program", "question", "work", "government", "number", "night", "point", "home",
    "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book",
    "eye", "job", "word", "business", "issue", "side", "kind", "head", "house", "service", "friend", "father",
    "power", "hour", "game", "line", "end", "member", "law", "car", "city", "community", "name", "president",
    "team", "minute", "idea", "kid", "body", "information", "back", "parent", "face", "others", "level",
    "office", "door", "health", "person", "art", "history", "party", "result", "change", "morning", "reason",
    "research", "moment", "air", "teacher", "force", "education", "foot", "age", "policy", "process", "music",
    "market", "sense", "nation", "plan", "college", "interest", "experience", "effect", "use", "class",
    "control", "field", "development", "role", "effort", "rate", "heart", "show", "leader", "light", "voice",
    "wife", "police", "mind", "price", "report", "decision", "son", "view", "relationship", "town", "road",
    "arm", "difference", "value", "building", "action", "model", "season", "society", "tax", "director",
    "position", "player", "record", "paper", "space", "ground", "form", "event", "matter", "center", "couple",
    "site", "project", "activity", "star", "table", "need", "court", "oil", "half", "cost", "figure", "street",
    "image", "phone", "data", "picture", "practice", "piece", "land", "product", "doctor", "wall", "news",
    "test", "north", "love", "support", "technology",
)  # fmt: skip
"""Common words of English, which most tokenizers know as one token with the space before them."""
_MAX_STEP = 12
_FILLER_ROUND = _FILLER_WORDS * 2
"""Long enough for every step of every sentence: 13 words, 12 apart."""


def filler(tokens: int, seed: int) -> str:
    """About so many tokens of text about nothing.

    Measured with SmolLM2's tokenizer: within 1%, from 10 to 8000 tokens. Other tokenizers that know English words whole
    count much the same.
    """
    dice = _Dice(seed)
    sentences: list[str] = []
    left = tokens
    while left > 0:
        length = min(dice.between(6, 14), left)
        words = max(1, length - 1)  # the full stop is a token too
        start, step = dice.below(len(_FILLER_WORDS)), dice.between(1, _MAX_STEP)
        sentence = " ".join(_FILLER_ROUND[start : start + words * step : step])
        sentences.append(sentence.capitalize() + ("." if length > 1 else ""))
        left -= length
    return " ".join(sentences)


_GOODS = ("tea", "coffee", "copper wire", "glass panes", "olive oil", "paper rolls", "rice", "bicycle parts", "salt",
          "cotton", "roof tiles", "dried fish", "paint", "seed potatoes", "clockworks", "rubber hoses")  # fmt: skip
_SHIPS = ("Alder", "Bittern", "Cormorant", "Dunlin", "Egret", "Fulmar", "Gannet", "Heron", "Ibis", "Jackdaw")
_FIRMS = ("Abel & Daughters", "Brandt Trading", "Castellani", "Dubois Frères", "Eriksen", "Fontaine", "Gruber Export",
          "Hashimoto Shoten", "Ivanov Brothers", "Jansen")  # fmt: skip
_QUAYS = ("north", "east", "south", "west")


def ledger_rows(entries: int, seed: int) -> list[dict[str, Any]]:
    """The entries of a harbour's ledger, as values: number, day, ship, goods, crates, firm, quay."""
    dice = _Dice(seed)
    return [
        {
            "number": n,
            "day": 1 + (n - 1) * 90 // entries,
            "ship": dice.pick(_SHIPS),
            "goods": dice.pick(_GOODS),
            "crates": dice.between(3, 96),
            "firm": dice.pick(_FIRMS),
            "quay": dice.pick(_QUAYS),
        }
        for n in range(1, entries + 1)
    ]


def ledger(entries: int, seed: int) -> str:
    """A harbour's ledger, one line an entry."""
    return "\n".join(
        f"Entry {r['number']}, day {r['day']}: the {r['ship']} unloaded {r['crates']} crates of {r['goods']} "
        f"for {r['firm']} at the {r['quay']} quay."
        for r in ledger_rows(entries, seed)
    )


_WHO = ("The clerk", "The engineer", "The librarian", "A visitor", "The night watch", "The gardener", "The surveyor",
        "The archivist", "An apprentice", "The inspector", "The ferryman", "The treasurer")  # fmt: skip
_DID = ("counted", "described", "repaired", "moved", "painted", "measured", "photographed", "cleaned", "replaced",
        "labelled", "inspected", "returned")  # fmt: skip
_WHAT = ("the old lamps", "a row of shelves", "the wooden gates", "the rain barrels", "two stone benches",
         "the map cabinet", "the cellar stairs", "a set of brass keys", "the window frames", "the garden wall",
         "the letter boxes", "the water pipes")  # fmt: skip
_WHEN = ("before breakfast", "in the afternoon", "on a rainy morning", "late in the evening", "during the fair",
         "after the holidays", "in the first week", "without any hurry", "as the list had asked", "for the second time",
         "while it was quiet", "with some help")  # fmt: skip


def report(sentences: int, seed: int, needles: Sequence[Mapping[str, Any]] = ()) -> str:
    """A report of small doings, with sentences of one's own put in: ``{at: 0.5, text: …}`` in the middle."""
    return _with_needles(
        [
            f"{d.pick(_WHO)} {d.pick(_DID)} {d.pick(_WHAT)} {d.pick(_WHEN)}."
            for d in [_Dice(seed)]
            for _ in range(sentences)
        ],
        needles,
        " ",
    )


_JA_WHO = ("山田さん", "鈴木さん", "受付の係員", "図書館の司書", "見習いの職人", "管理人", "庭師", "経理の担当者")
_JA_WHAT = ("古い棚", "玄関の照明", "倉庫の鍵", "会議室の机", "中庭の植木", "地下の配管", "掲示板", "来客用の椅子")
_JA_DID = ("を点検した", "を掃除した", "を修理した", "を数え直した", "を運び出した", "を写真に撮った", "を塗り直した")
_JA_WHEN = (
    "朝のうちに",
    "昼休みの後で",
    "雨がやんでから",
    "閉館の直前に",
    "予定より早く",
    "二人がかりで",
    "念のためもう一度",
    "静かな時間に",
)


def nisshi(sentences: int, seed: int, needles: Sequence[Mapping[str, Any]] = ()) -> str:
    """A journal in Japanese, as :func:`report`."""
    return _with_needles(
        [
            f"{d.pick(_JA_WHO)}は{d.pick(_JA_WHEN)}{d.pick(_JA_WHAT)}{d.pick(_JA_DID)}。"
            for d in [_Dice(seed)]
            for _ in range(sentences)
        ],
        needles,
        "",
    )


def _with_needles(sentences: list[str], needles: Sequence[Mapping[str, Any]], between: str) -> str:
    """The sentences in paragraphs of eight, each needle before the sentence at its share of the way."""
    placed = sorted((int(float(n["at"]) * len(sentences)), k, str(n["text"])) for k, n in enumerate(needles))
    for place, _, text in reversed(placed):
        sentences.insert(place, text)
    return "\n\n".join(between.join(sentences[n : n + 8]) for n in range(0, len(sentences), 8))


_GENERATORS: Final[dict[str, tuple[Callable[..., str], str, bool]]] = {
    "filler": (filler, "tokens", False),
    "ledger": (ledger, "entries", False),
    "report": (report, "sentences", True),
    "nisshi": (nisshi, "sentences", True),
}
"""By name: the function, what its amount is called, whether it takes needles."""


# -- putting them in ---------------------------------------------------------------------------------------------------


def expanded(raw: dict[str, Any], *, folder: Path | None) -> dict[str, Any]:
    """What a suite's file holds, with its ``texts`` in the turns and no longer beside them.

    Raises:
        ValueError: with every problem, one a line.
    """
    if "texts" not in raw:
        return raw
    described, prompts = raw["texts"] or {}, raw.get("prompts")
    if not isinstance(described, dict):
        raise ValueError(f"texts: is {type(described).__name__}; allowed: a mapping of names to texts")
    problems: list[str] = []
    texts: dict[str, str] = {}
    for name, description in described.items():
        try:
            texts[name] = _text(description, folder)
        except ValueError as error:
            problems.append(f"texts.{name}: {error}")
    rest = {key: value for key, value in raw.items() if key != "texts"}
    if not isinstance(prompts, list):
        if problems:
            raise ValueError("\n".join(problems))
        return rest
    filled = []
    for prompt in prompts:
        turns = prompt.get("turns") if isinstance(prompt, dict) else None
        if not isinstance(turns, list):
            filled.append(prompt)
            continue
        try:
            new = [_filled(turn, texts, described) if isinstance(turn, str) else turn for turn in turns]
            filled.append({**prompt, "turns": new})
        except ValueError as error:
            problems.append(f"prompt {prompt.get('id')!r}: turns: {error}")
    if problems:
        raise ValueError("\n".join(problems))
    return {**rest, "prompts": filled}


def _filled(turn: str, texts: Mapping[str, str], described: Mapping[str, Any]) -> str:
    def put(match: re.Match[str]) -> str:
        name, options = match[1], dict(o.split("=") for o in match[2].split())
        if name == "filler" and options.keys() == {"tokens", "seed"}:
            return filler(_amount(int(options["tokens"]), "tokens"), int(options["seed"]))
        if name not in described or options:
            allowed = ", ".join(["filler tokens=N seed=N", *described])
            raise ValueError(f"{{{{{match[0].strip('{} ')}}}}} is no text; allowed: {allowed}")
        return texts.get(name, "")

    return _PLACE.sub(put, turn)


def _text(description: Any, folder: Path | None) -> str:
    if not isinstance(description, dict):
        raise ValueError(f"is {type(description).__name__}; allowed: {{file: …}} or {{generator: …}}")
    if description.keys() == {"file"}:
        return _file(str(description["file"]), folder)
    name = description.get("generator")
    if name not in _GENERATORS:
        raise ValueError(f"generator is {name!r}; allowed: {', '.join(_GENERATORS)}; or {{file: …}}")
    make, amount, takes_needles = _GENERATORS[name]
    allowed = {"generator", "seed", amount} | ({"needles"} if takes_needles else set())
    if unknown := sorted(set(description) - allowed):
        raise ValueError(f"{unknown[0]}: no such key; allowed here: {', '.join(sorted(allowed))}")
    n, seed = _amount(description.get(amount), amount), description.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"seed is {seed!r}; allowed: a whole number")
    needles = description.get("needles") or []
    for needle in needles if isinstance(needles, list) else [needles]:
        needle = needle if isinstance(needle, dict) else {}
        at = needle.get("at")
        fits = isinstance(at, int | float) and 0 <= at <= 1 and isinstance(needle.get("text"), str) and len(needle) == 2
        if not fits:
            raise ValueError(f"needles has {needle!r}; allowed: {{at: 0 to 1, text: …}}")
    return make(n, seed, needles) if takes_needles else make(n, seed)


def _amount(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_UNITS:
        raise ValueError(f"{name} is {value!r}; allowed: 1 to {MAX_UNITS}")
    return value


def _file(name: str, folder: Path | None) -> str:
    if folder is None:
        raise ValueError(f"file is {name!r}; allowed only in a suite that is itself a file")
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"file is {name!r}; allowed: a file in the suite's folder or below it")
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise ValueError(f"file {name!r} is larger than {MAX_TEXT_BYTES // 2**20} MiB")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"file {name!r} can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"file {name!r} is not UTF-8: {error.reason} at byte {error.start}") from None
