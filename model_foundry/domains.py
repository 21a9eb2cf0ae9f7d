"""What a prompt is about, and in which script it is written: by words, in microseconds, with the reason said.

Belongs here: the hints that give a domain away, how they add up, and the language of a text. Does not belong here:
whether a sender named the domain (``envelopes``), which models a domain has (``config``), who answers (``routing``).

A hint is a set of words or a pattern with a weight. Per domain the weights of the hints that fire add up; the highest
sum of at least ``THRESHOLD`` wins, the first defined domain among equals, else the default. Built-in hints exist for
well-known names and count only when the configuration defines such a domain; its ``keywords`` and ``patterns`` add to
them, or are all there is. Only the head and the tail of a long text are read: an instruction stands at either end.

``japanese`` means that the task handles Japanese (polite forms, proofreading, readings, translation, letters), not
that the prompt is written in it: that is :func:`language_of`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from model_foundry.config import DomainConfig

THRESHOLD = 2
KEYWORD_WEIGHT = 3
HEAD_CHARS, TAIL_CHARS = 1500, 500


@dataclass(frozen=True, slots=True)
class Classification:
    """A domain, and the hints that spoke for it and against it, in words."""

    domain: str
    reason: str


def classify(text: str, domains: Mapping[str, DomainConfig], default: str) -> Classification:
    """The domain of a prompt. Pure; the time does not grow with the length of a long text.

    Args:
        text: the prompt.
        domains: those of the configuration; no other is ever returned, the default aside.
        default: the domain when nothing speaks for another.
    """
    window = _window(text)
    folded = window.casefold()
    words = frozenset(_WORD.findall(folded))
    scores: dict[str, int] = {}
    found: dict[str, list[str]] = {}
    for name, config in domains.items():
        fired = [
            (hint.weight, what)
            for hint in _hints(name, tuple(config.keywords), tuple(config.patterns))
            if (what := hint.find(window, folded, words))
        ]
        if fired:
            scores[name] = sum(weight for weight, _ in fired)
            found[name] = [what for _, what in fired]
    best = max(scores, key=lambda name: scores[name], default=None)
    told = "; ".join(f"{name} {score}: {', '.join(found[name])}" for name, score in scores.items())
    if best is None:
        return Classification(default, f"no hint of any domain, so the default {default}")
    if scores[best] < THRESHOLD:
        return Classification(default, f"no domain reaches {THRESHOLD} ({told}), so the default {default}")
    return Classification(best, told)


def language_of(text: str) -> str:
    """The language of a text by its script: ``ja``, ``zh``, ``ko``, ``ru``, ``en``, ``other``, or ``und`` for none.

    Latin script counts as ``en``, Cyrillic as ``ru``. A kana or Han character weighs as much as two Latin letters
    (it says about as much), so an English instruction with a few Japanese words stays ``en``. Han without kana is
    ``ja``, since short Japanese is often all kanji, unless it holds a character that only Chinese uses.
    """
    window = _window(text)
    if window.isascii():
        return "en" if _LATIN.search(window) else "und"
    kana, han = len(_KANA.findall(window)), len(_HAN.findall(window))
    east_asian = "ja" if kana or not _ONLY_CHINESE.search(window) else "zh"
    weights = {
        east_asian: 2 * (kana + han),
        "ko": 2 * len(_HANGUL.findall(window)),
        "ru": len(_CYRILLIC.findall(window)),
        "en": len(_LATIN.findall(window)),
    }
    best = max(weights, key=lambda language: weights[language])
    others = sum(map(str.isalpha, window)) - kana - han - weights["ko"] // 2 - weights["ru"] - weights["en"]
    if others > weights[best]:
        return "other"
    return best if weights[best] else "und"


_KANA = re.compile(r"[\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\uff66-\uff9d]")
_HAN = re.compile(r"[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
_CYRILLIC = re.compile(r"[\u0400-\u052f]")
_LATIN = re.compile(r"[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]")
_ONLY_CHINESE = re.compile(
    "[们这说时为么个没过还进发对开关问现样经动东车书话请给让谁长门间听读写觉认识语译汉简单应该从业农产电脑网络"
    "你您妳們嗎吗呢吧啊哪麼甚這她它怎啦把很]"
)
"""Simplified forms that Japan never had, and the pronouns and particles of Chinese prose."""

_WORD = re.compile(r"[a-z][a-z0-9_]*(?:\+\+|#)?|\.net\b")


def _window(text: str) -> str:
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return text[:HEAD_CHARS] + "\n" + text[-TAIL_CHARS:]


# -- hints ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Words:
    """Fires once when any of its words is there: Latin ones as whole words without case, others anywhere."""

    weight: int
    latin: frozenset[str]
    others: tuple[str, ...]

    def find(self, window: str, folded: str, words: frozenset[str]) -> str | None:
        if found := self.latin & words:
            return min(found)
        return next((word for word in self.others if word in folded), None)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Fires once when its expression is found in the text as written.

    ``needs`` holds literals without case of which any match has at least one: looking for those first is what keeps
    a prompt that fires nothing cheap.
    """

    weight: int
    expression: re.Pattern[str]
    needs: tuple[str, ...] = ()

    def find(self, window: str, folded: str, words: frozenset[str]) -> str | None:
        if self.needs and not any(literal in folded for literal in self.needs):
            return None
        match = self.expression.search(window)
        return None if match is None else " ".join(match[0].split())[:40] or "a pattern"


_Hint = _Words | _Pattern


def _words(weight: int, text: str) -> _Words:
    every = text.casefold().split()
    return _Words(
        weight, frozenset(w for w in every if _WORD.fullmatch(w)), tuple(w for w in every if not _WORD.fullmatch(w))
    )


def _pattern(weight: int, expression: str, flags: int = 0, *, needs: tuple[str, ...] = ()) -> _Pattern:
    return _Pattern(weight, re.compile(expression, flags), needs)


@lru_cache(maxsize=256)
def _hints(name: str, keywords: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[_Hint, ...]:
    """The built-in hints of a domain name and the configured ones."""
    configured: list[_Hint] = [_keyword(k) for k in keywords if k.strip()]
    configured += [_pattern(KEYWORD_WEIGHT, p) for p in patterns]
    return (*_BUILT_IN.get(name.casefold(), ()), *configured)


def _keyword(keyword: str) -> _Hint:
    """One configured keyword. A phrase, or one with signs in it, is matched between word borders."""
    folded = keyword.strip().casefold()
    if _WORD.fullmatch(folded):
        return _Words(KEYWORD_WEIGHT, frozenset([folded]), ())
    if folded.isascii() or _LATIN.fullmatch(folded[0]):
        body = r"\s+".join(re.escape(part) for part in folded.split())
        return _pattern(KEYWORD_WEIGHT, rf"(?<![A-Za-z0-9_]){body}(?![A-Za-z0-9_])", re.IGNORECASE)
    return _Words(KEYWORD_WEIGHT, frozenset(), (folded,))


_CODE: tuple[_Hint, ...] = (
    _words(
        3,
        "python python3 javascript typescript golang kotlin c++ c# php perl haskell fortran cobol matlab numpy pandas "
        "django flask react nodejs npm pip sql sqlite postgresql mysql regex regexp html css json yaml xml bash "
        "powershell dockerfile kubernetes kubectl docker git github api stdin stdout boolean async mutex semaphore "
        "typeerror valueerror keyerror indexerror segfault traceback stacktrace nullpointerexception leetcode refactor "
        "codebase pytest dataframe linux pseudocode fastapi endpoint curl numpy stdlib cli cuda "
        "正規表現 プログラミング デバッグ コンパイル ソースコード リファクタリング アルゴリズム 単体テスト "
        "ユニットテスト シェルスクリプト スタックトレース",
    ),
    _words(
        2,
        "java ruby rust swift script algorithm program debug debugging compiler snippet recursion recursive "
        "subroutine refactoring unittest lambda arrays loops iterator regexes coroutine dict tuple enum struct "
        "コード プログラム スクリプト バグ 関数を 実装し クエリ 再帰 配列 変数 例外処理 計算量",
    ),
    _words(
        1,
        "function functions method class array string loop variable query bug implement complexity keyword generator "
        "yield list pointer compile クラス 関数 ソート",
    ),
    _pattern(
        4,
        r"```\w|^\s*(?:async )?def \w+\(|^\s*(?:public|private|static) \w|#include\s*[<\"]",
        re.MULTILINE,
        needs=("```", "def ", "public ", "private ", "static ", "#include"),
    ),
    _pattern(
        3,
        r"\bconsole\.log\(|\bprintf?\(|\bimport \w+\n|^from \w+ import |\b(?:int|void) main\s*\(|=> *[{(]|</\w+>",
        re.MULTILINE,
        needs=("console", "print", "import ", "main", "=>", "</"),
    ),
    _pattern(3, r"\b(?:while|for|if) ?\(.{1,60}\) ?\{|;\s*\}|\bO\((?:n|1|log)", needs=("{", "}", "o(")),
    _pattern(
        2,
        r"(?<!dress )(?<!zip )(?<!area )(?<!postal )(?<!morse )\bcode\b(?! of (?:conduct|honou?r|ethics|law))",
        re.IGNORECASE,
        needs=("code",),
    ),
    _pattern(
        3,
        r"\bSELECT\b[^;]{1,300}\bFROM\b|\b(?:INSERT INTO|CREATE TABLE)\b",
        needs=("select", "insert into", "create table"),
    ),
    _pattern(
        3,
        r"\b(?:write|create|implement|define|complete|fix)\b.{0,30}\b(?:function|method|class|program|script|code)\b",
        re.IGNORECASE,
        needs=("function", "method", "class", "program", "script", "code"),
    ),
    _pattern(
        3,
        r"\b(?:unit[- ]tests?|linked list|binary (?:tree|search)|hash ?map|time complexity|null pointer"
        r"|pull request)\b",
        re.IGNORECASE,
        needs=("unit", "linked list", "binary", "hash", "complexity", "null pointer", "pull request"),
    ),
)

_JAPANESE: tuple[_Hint, ...] = (
    _words(
        4,
        "keigo sonkeigo kenjougo teineigo furigana romaji hiragana katakana kanji jlpt "
        "敬語 丁寧語 謙譲語 尊敬語 丁寧な表現 丁寧な言い方 です・ます調 ですます調 である調 "
        "校正 添削 推敲 誤字 脱字 てにをは 助詞 助数詞 国語の 書き下し 現代語訳 和訳 英訳 邦訳 "
        "ビジネスメール お礼状 礼状 挨拶文 案内文 お詫び状 詫び状 年賀状 俳句 短歌 川柳 和歌 "
        "読み仮名 読みがな 読み方 ふりがな フリガナ ルビ 送り仮名 四字熟語 ことわざ 慣用句 "
        "類義語 対義語 同義語 例文 語源 関西弁 大阪弁 京都弁 博多弁 方言",
    ),
    _words(
        2, "honorific honorifics 言い換え 言いかえ 書き換え 文面 手紙を 作文 熟語 漢字 ひらがな カタカナ ローマ字 文法"
    ),
    _pattern(
        4,
        r"日本語(?:の(?:文|表現|メール|手紙|訳)|に(?:直|訳|翻訳|して|書き)|らし|を(?:英語|直|添削|訳)|で(?:書|作文|手紙|メール))"
        r"|(?:自然な|正しい|丁寧な)日本語|(?:英語|英文)(?:に|へ)(?:翻訳|訳|直)|(?:英文|英語)を(?:日本語|訳|翻訳)",
        needs=("日本語", "英語", "英文"),
    ),
    _pattern(
        4,
        r"\btranslat\w*\b.{0,80}\b(?:in)?(?:to|from) (?:\w+ )?japanese\b"
        r"|\bjapanese (?:sentence|text|grammar|particle|word|verb|phrase|translation|email|letter|writing|poem|idiom)"
        r"|\b(?:my|natural|polite|casual|formal|spoken) japanese\b"
        r"|\b(?:write|say|rewrite|put|how (?:do|would|can|to))\b.{0,60}\bin (?:\w+ )?japanese\b",
        re.IGNORECASE | re.DOTALL,
        needs=("japanese",),
    ),
    _pattern(
        3,
        r"\b(?:proofread|polite|grammar|particles?|sentence|honorific|reading of)\b.*[ぁ-ヿ]",
        re.IGNORECASE | re.DOTALL,
        needs=("proofread", "polite", "grammar", "particle", "sentence", "honorific", "reading of"),
    ),
    # English over Japanese: the Japanese is what is being worked on
    _pattern(2, r"\A[\x00-\x7f]{12,}[ぁ-ヿ一-龯]"),
    _pattern(
        3, r"」の(?:意味|使い方|違い|読み|由来|アクセント|活用|反対語)|文(?:章)?の(?:誤り|間違い|語順)", needs=("の",)
    ),
    _pattern(
        3,
        r"(?:メール|手紙|原稿|文章|挨拶|スピーチ|お詫び|お礼)(?:の文|文)?を\S{0,8}(?:書い|作成|作って|直し|返信|考え)",
        needs=("メール", "手紙", "原稿", "文章", "挨拶", "スピーチ", "お詫び", "お礼"),
    ),
)

_TRANSLATION: tuple[_Hint, ...] = (_words(5, "translate translation translating 翻訳 和訳 英訳 邦訳 訳して 訳を"),)

_SUMMARY: tuple[_Hint, ...] = (
    _words(3, "summarize summarise summary summarizing summarising tldr abstract 要約 要点 まとめて"),
    _pattern(
        3, r"tl;dr|\bin (?:one|two|three|\d) (?:sentences?|bullet points?)\b|\bmain (?:points|ideas)\b", re.IGNORECASE
    ),
)

_REASONING: tuple[_Hint, ...] = (
    _words(
        3, "prove proof equation probability riddle puzzle deduce theorem integral 証明 方程式 確率 推論 論理 なぞなぞ"
    ),
    _pattern(
        3,
        r"\bstep by step\b|\bhow (?:many|much)\b.*\?|何(?:個|人|円|本|枚|時間|分)|いくら|いくつ",
        re.IGNORECASE | re.DOTALL,
    ),
    _pattern(1, r"\d.*\d", re.DOTALL),
)

_BUILT_IN: Mapping[str, tuple[_Hint, ...]] = {
    **dict.fromkeys(("code", "coding", "programming"), _CODE),
    **dict.fromkeys(("japanese", "ja"), _JAPANESE),
    **dict.fromkeys(("translation", "translating"), _TRANSLATION),
    **dict.fromkeys(("summarizing", "summarising", "summarization", "summary"), _SUMMARY),
    **dict.fromkeys(("reasoning", "math"), _REASONING),
}
"""Hints by domain name. ``general`` has none: it is what is left."""
