"""Reading an answer: numbers, choices, JSON, code, and the text without its reasoning. Pure.

Belongs here: finding a thing in what a model wrote. Does not belong here: whether it is the right one (``checks``).
"""

from __future__ import annotations

import json
import re
import textwrap
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

MAX_EXPONENT = 300
"""``1e999999999`` is no number: what it stands for would fill the memory."""

# -- the text --------------------------------------------------------------------------------------------------------

_THOUGHTS = r"think|thinking|thought|reasoning"
_WHOLE_THOUGHT = re.compile(rf"<({_THOUGHTS})>.*?</\1>", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHT = re.compile(rf"</({_THOUGHTS})>", re.IGNORECASE)
_OPEN_THOUGHT = re.compile(rf"(?:\A|\n)[ \t]*<({_THOUGHTS})>", re.IGNORECASE)


def without_reasoning(text: str) -> str:
    """The answer without what stands in ``<think>`` tags.

    A first tag that is missing (some chat templates write it into the prompt) and a last one that never came (the
    answer was cut off) are understood: then all before, or all after, is reasoning.
    """
    text = _WHOLE_THOUGHT.sub("", text)
    for match in list(_END_OF_THOUGHT.finditer(text))[-1:]:
        text = text[match.end() :]
    opened = _OPEN_THOUGHT.search(text)
    return text[: opened.start()] if opened else text


def normal(text: str, *, fold: bool = True) -> str:
    """The text in Unicode's NFKC, spaces joined, straight quotes and hyphens, without case unless told otherwise."""
    text = unicodedata.normalize("NFKC", text).translate(_PLAIN)
    return " ".join((text.casefold() if fold else text).split())


_PLAIN = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "‐": "-", "‑": "-", "–": "-", "−": "-", "\u00ad": None})


def bare(text: str) -> str:
    """A normal text without emphasis, quotes and the full stop that people put around a short answer."""
    before = None
    while text != before:
        before = text
        text = text.strip().strip("*_`\"'「」『』").rstrip(".。!！").strip()
    return text


def has(text: str, part: str, *, word: bool = False) -> bool:
    """Whether a normal text holds a part, as whole words if asked for."""
    if not word:
        return part in text
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None


_CJK = re.compile(r"[぀-ヿ㐀-䶿一-鿿豈-﫿가-힣]")
_SENTENCE_END = re.compile(r"[.!?…]+(?=[\s\"'”’)\]]|$)|[。！？]+")
_ABBREVIATION = re.compile(
    r"\b(?:e\.g|i\.e|etc|vs|cf|mr|mrs|ms|dr|prof|st|no|approx|z\.b|d\.h|u\.a|bzw|usw|nr)\.", re.IGNORECASE
)


def count(text: str, unit: str) -> int:
    """How many words, characters, sentences, lines or paragraphs a text has.

    Characters are counted without those that only lay out (spaces, line ends) in a text that is mostly Japanese,
    Chinese or Korean, where nobody counts them, and with the inner ones otherwise. Marks of lists and emphasis don't
    count as words. Japanese words are not told apart: a run of them is one.
    """
    text = text.strip()
    if unit == "characters":
        compact = re.sub(r"\s+", "", text)
        mostly_cjk = 2 * len(_CJK.findall(compact)) > len(compact)
        return len(compact) if mostly_cjk else len(re.sub(r"\s+", " ", text))
    if unit == "words":
        return sum(any(c.isalnum() for c in part) for part in text.split())
    if unit == "lines":
        return sum(bool(line.strip()) for line in text.splitlines())
    if unit == "paragraphs":
        return sum(bool(part.strip()) for part in re.split(r"\n\s*\n", text))
    total = 0
    for line in text.splitlines():
        line = _ABBREVIATION.sub("x", line)
        pieces = [p for p in _SENTENCE_END.split(line) if any(c.isalnum() for c in p)]
        total += len(pieces)
    return total


# -- numbers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it stands in a text.

    Attributes:
        value: exactly.
        text: as it was written.
        is_percent: whether a percent sign follows; ``value`` is then the number before it.
        start: where it begins in the text that was read.
    """

    value: Fraction
    text: str
    is_percent: bool = False
    start: int = 0


_TENS = {"千": 10**3, "万": 10**4, "億": 10**8, "兆": 10**12}
_PLAIN_NUMBER = r"(?:\d{1,3}(?:[,'_\u202f\u00a0]\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"""(?P<sign>(?<![\w.)\]])[-+]\s?)?
    (?:
      \\[dt]?frac\{{(?P<over>\d+)\}}\{{(?P<under>\d+)\}}
    | (?P<japanese>(?:\d[\d,]*(?:\.\d+)?[千万億兆]+)+(?:\d[\d,]*(?:\.\d+)?)?)
    | (?P<whole>\d+)[ ](?P<part>\d+)[/⁄](?P<of>\d+)(?![\d/])
    | (?P<numerator>\d+)\s?[/⁄]\s?(?P<denominator>\d+)(?![\d/])
    | (?P<base>\d{{1,6}})\s?\^\s?\{{?(?P<to>-?\d{{1,3}})\}}?(?!\d)
    | (?P<plain>{_PLAIN_NUMBER})
      (?:[eE](?P<exponent>[-+]?\d+)(?!\w)|\s?(?:[×x*]|\\times|\\cdot)\s?10\s?\^\s?\{{?(?P<power>[-+]?\d+)\}}?)?
    )
    (?P<percent>\s?\\?%|\s?(?:percent|per\ cent|パーセント|Prozent)\b)?""",
    re.VERBOSE,
)
_FINAL = re.compile(
    r"(?:\banswer\b|\bresult\b|\btotal\b(?=\s*[:=])|\bantwort\b|\bergebnis\b|答え|解答|回答|正解)"
    r"(?:\s*(?:is|are|ist|lautet|は|が|を|:|=|≈|\*|_|：|be|therefore|a|the|of|about|approximately|exactly|[$€¥£]|\\\(|\\\[))*\s*",
    re.IGNORECASE,
)
_WORKING_OUT = re.compile(r"[^=(]{0,40}[+×*÷/·-][^=(]{1,80}=")
"""What makes the number after "the answer is" the beginning of a calculation: ``3 apples + 4 apples = 7``."""


def numbers(text: str, *, decimal: str = ".") -> list[Number]:
    """Every number of a text, in order.

    Understood: thousands separators, full-width digits, fractions (also LaTeX's), mixed numbers, percent, powers of
    ten, and Japanese 千, 万, 億, 兆 after digits (``1億2000万``). A hyphen between two things is none of a sign.

    Args:
        text: anything.
        decimal: ``,`` for texts that write 1.234,5.
    """
    text = _for_numbers(text, decimal)
    return [n for m in _NUMBER.finditer(text) if (n := _number(m)) is not None]


def _for_numbers(text: str, decimal: str = ".") -> str:
    text = unicodedata.normalize("NFKC", text.replace("\u202f", "'").replace("\u00a0", " "))
    text = text.replace("−", "-").replace("–", "-").replace("\\,", "").replace("{,}", ",").replace("\\$", "$")
    if decimal == ",":
        text = re.sub(r"(?<=\d)[.,](?=\d)", lambda m: "," if m[0] == "." else ".", text)
    return text


def _number(match: re.Match[str]) -> Number | None:
    part = match.groupdict()
    try:
        if part["over"] is not None:
            value = Fraction(int(part["over"]), int(part["under"]))
        elif part["japanese"] is not None:
            value = _japanese(part["japanese"])
        elif part["whole"] is not None:
            value = int(part["whole"]) + Fraction(int(part["part"]), int(part["of"]))
        elif part["numerator"] is not None:
            value = Fraction(int(part["numerator"]), int(part["denominator"]))
        elif part["base"] is not None:
            value = Fraction(int(part["base"])) ** int(part["to"])
        else:
            exponent = int((part["exponent"] or part["power"] or "0")[:10])
            if abs(exponent) > MAX_EXPONENT:
                return None
            value = Fraction(re.sub(r"[,'_]", "", part["plain"])) * Fraction(10) ** exponent
    except (ZeroDivisionError, ValueError):  # a date such as 0/0, or more digits than Python converts
        return None
    if part["sign"] and part["sign"].startswith("-"):
        value = -value
    return Number(value, match[0].strip(), part["percent"] is not None, match.start())


def _japanese(text: str) -> Fraction:
    """``1億2000万`` and ``3万5千``: digits before 千 join the myriad that follows."""
    total = group = Fraction(0)
    for digits, units in re.findall(r"(\d[\d,]*(?:\.\d+)?)([千万億兆]*)", text):
        part = Fraction(digits.replace(",", ""))
        for unit in units:
            if unit == "千":
                part *= 1000
            else:
                total, group, part = total + (group + part) * _TENS[unit], Fraction(0), Fraction(0)
        group += part
    return total + group


def final_number(text: str, *, decimal: str = ".") -> Number | None:
    """The number that an answer ends on: in ``\\boxed{}``, after ``####``, after words such as "the answer is" or
    答えは, else the last one. None when there is none.
    """
    text = _for_numbers(text, decimal)
    for part in (_boxed(text), _after(text, "####")):
        if part is not None and (found := numbers(part)):
            return found[-1] if part is not None and "=" in part else found[0]
    for match in reversed(list(_FINAL.finditer(text))):
        if (near := _NUMBER.match(text, match.end())) and (number := _number(near)) is not None:
            line = text[near.end() :].split("\n", 1)[0]
            worked_out = numbers(line.rpartition("=")[2]) if _WORKING_OUT.match(line) else []
            return worked_out[0] if worked_out else number
    found = [n for m in _NUMBER.finditer(text) if (n := _number(m)) is not None]
    return found[-1] if found else None


def _after(text: str, mark: str) -> str | None:
    """What follows the last mark, on its line."""
    _, found, tail = text.rpartition(mark)
    return tail.splitlines()[0] if found and tail.strip() else None


def _boxed(text: str) -> str | None:
    """What is in the last ``\\boxed{}``, braces within it included."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 1, start + len("\\boxed{")
    for at in range(begin, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[begin:at]
    return text[begin:]


# -- choices ---------------------------------------------------------------------------------------------------------


def choice(text: str, choices: Mapping[str, str | None]) -> str | None:
    """The letter that an answer chooses; None when it chooses none, or several.

    Args:
        text: the answer.
        choices: upper-case letters, each with what it stands for, where that is known.
    """
    text = unicodedata.normalize("NFKC", text).replace("**", "").replace("__", "").strip()
    letters = "".join(re.escape(c) for c in choices)
    upper = f"[{letters}]"
    either = f"[{letters}{letters.lower()}]"
    begin, end = r"(?<![A-Za-z0-9_'’])", r"(?![A-Za-z0-9_'’])"  # kana and kanji may stand beside a letter
    boxed = _boxed(text)
    if boxed is not None and (m := re.search(rf"{begin}{either}{end}", re.sub(r"\\text(?:bf)?", "", boxed))):
        return m[0].upper()
    marked = (
        rf"(?i:\banswer\b|\bchoice\b|\boption\b|\bcorrect\b|\bantwort\b|答え|解答|回答|正解|選択肢)"
        rf"(?i:\s*(?:is|be|ist|lautet|option|choice|answer|letter|the|correct|は|が|:|=|-))*\s*"
        rf"(?:[\(\[「『\"'`]*({upper}){end}|[\(\[]({either})[\)\]])"
        rf"|{begin}({upper})\s*(?:です|が正解|が正しい|を選)"
        rf"|{begin}\(?({upper})\)?\s+(?:is|must be)\s+(?:the\s+)?(?:correct|right)"
    )
    found = [next(g for g in m.groups() if g) for m in re.finditer(marked, text)]
    if found:
        return found[-1].upper()
    heads = re.findall(rf"^[\(\[「\"'`]*({either})(?:[\)\]\.:,、。」\"'`]|\s*$|\s+[-–—])", text, re.MULTILINE)
    if len({h.upper() for h in heads}) == 1 and re.match(rf"[\(\[「\"'`]*{either}(?![A-Za-z0-9_'’])", text):
        return str(heads[0]).upper()  # several: the choices are only listed
    last = re.match(rf"^[\(\[「\"'`]*({upper})[\)\]\.」\"'`]*$", text.splitlines()[-1].strip()) if text else None
    if last:
        return last[1].upper()
    alone = {m[1] for m in re.finditer(rf"{begin}({upper}){end}", text) if not _is_article(text, m)}
    if len(alone) == 1:
        return alone.pop().upper()
    plain = normal(text)
    named = {letter for letter, meaning in choices.items() if meaning and has(plain, normal(meaning), word=True)}
    return named.pop() if len(named) == 1 and not alone else None


def _is_article(text: str, match: re.Match[str]) -> bool:
    """Whether a letter is the word "A" or "I" and no choice: a small letter follows after a space."""
    return match[1] in "AI" and re.match(r"\s+[a-z]", text[match.end() :]) is not None


# -- JSON and code ---------------------------------------------------------------------------------------------------

_FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<tag>[^\n`]*)\n(?P<body>.*?)(?:^[ \t]*(?P=fence)`*~*[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)


def fenced(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a text: (language, lower case; what is in it). A last one may lack its end."""
    blocks = []
    for match in _FENCE.finditer(text.replace("\r\n", "\n")):
        tag = match["tag"].strip().lower().split()
        blocks.append((tag[0].strip("{}.") if tag else "", textwrap.dedent(match["body"])))
    return blocks


def json_value(text: str, *, strict: bool = False) -> Any:
    """The JSON of an answer: the whole of it, else a fenced block, else the first object or array in it.

    Raises:
        ValueError: when there is none; says where it breaks.
    """
    whole = text.strip()
    candidates = [whole]
    if not strict:
        candidates += [body for tag, body in fenced(text) if tag in ("json", "jsonc", "")]
    problem = "the answer is empty" if not whole else ""
    for candidate in candidates:
        try:
            return json.loads(candidate, parse_constant=_refuse)
        except RecursionError:
            problem = "it is nested too deep"
        except ValueError as error:
            problem = problem or str(error)
    if not strict:
        decoder = json.JSONDecoder(parse_constant=_refuse)
        for match in list(re.finditer(r"[{\[]", whole))[:200]:
            try:
                return decoder.raw_decode(whole, match.start())[0]
            except (ValueError, RecursionError):
                continue
    raise ValueError(problem)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_PYTHON = ("python", "py", "python3", "pycon")
_CODE_BEGINS = re.compile(r"^(?:from\s+\S+\s+import\s|import\s|def\s|async\s+def\s|class\s|@\w)", re.MULTILINE)
_NEXT_THING = re.compile(r"\n(?=(?:def |class |if __name__|print\(|assert |#|```|\"\"\"))")


def programs(text: str, *, prefix: str = "", entry_point: str | None = None) -> list[str]:
    """Readings of an answer as a program, best first; the first that is Python is meant to be run.

    Args:
        text: the answer.
        prefix: what the answer goes on with, as completion tasks have it; a function's head and docstring, say.
        entry_point: the function or class that is asked for.
    """
    text = text.replace("\r\n", "\n")
    if not text.strip():
        return []
    blocks = fenced(text)
    tagged = [body for tag, body in blocks if tag in _PYTHON] or [body for tag, body in blocks if not tag]
    found: list[str] = []
    if tagged:
        defining = [b for b in tagged if entry_point and re.search(_definition(entry_point), b, re.M)]
        for block in reversed(defining):
            found += _whole(block, prefix, entry_point)
        if len(tagged) > 1 and not entry_point:
            found += _whole("\n\n".join(tagged), prefix, entry_point)
        for block in tagged:
            found += [*_whole(block, prefix, entry_point), *_continued(block, prefix)]
    elif not blocks:
        begins = _CODE_BEGINS.search(text)
        is_whole = entry_point is None or re.search(_definition(entry_point), text, re.M)
        if is_whole:
            found += _whole(text, prefix, entry_point)
            if begins:
                found += _shortened(text[begins.start() :], prefix, entry_point)
        found += _continued(text, prefix)
        if not is_whole and not prefix:
            found += _whole(text, prefix, entry_point)
    return list(dict.fromkeys(found))


def _definition(name: str) -> str:
    """A pattern of a line that defines the name."""
    name = re.escape(name)
    return rf"^(?:(?:async )?(?:def|class) {name}\b|{name}\s*(?::[^=\n]+)?=(?!=))"


def _whole(code: str, prefix: str, entry_point: str | None) -> list[str]:
    """A program that defines the thing itself; what the prefix has before that thing (imports, helpers) stays."""
    head = ""
    if prefix and entry_point:
        starts = list(re.finditer(_definition(entry_point), prefix, re.M))
        head = prefix[: starts[-1].start()] if starts else prefix
    return [f"{head}\n{code}" if head.strip() else code]


def _shortened(code: str, prefix: str, entry_point: str | None) -> list[str]:
    """Code with prose behind it: with paragraphs taken off the end, one by one."""
    pieces = re.split(r"\n(?=\S)", code)
    ends = range(len(pieces), max(0, len(pieces) - 40), -1)
    return [p for end in ends for p in _whole("\n".join(pieces[:end]), prefix, entry_point)]


def _continued(text: str, prefix: str) -> list[str]:
    """The prefix with the answer behind it: as it is, up to the next thing, and with the indentation put back that
    chat models leave off.
    """
    if not prefix:
        return []
    body = text.strip("\n")
    stopped = _NEXT_THING.split(body, maxsplit=1)[0]
    indented = textwrap.indent(textwrap.dedent(stopped), "    ")
    first_only = "    " + stopped.lstrip()
    joined = prefix if prefix.endswith("\n") else prefix + "\n"
    is_indented = body[:1] in (" ", "\t")
    bodies = (body, stopped, indented, first_only) if is_indented else (indented, first_only, body, stopped)
    return [prefix + text] * (not prefix.endswith("\n")) + [joined + b for b in bodies]
