"""Languages by their codes: what a model is told that a text is to be translated into.

Belongs here: codes (BCP 47) and their English names, from CLDR by Babel. Does not belong here: telling which language a
text is written in (``domains``).
"""

from __future__ import annotations

import re
from functools import lru_cache

_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8}){0,3}")


class UnknownLanguage(ValueError):  # noqa: N818 (says what it is)
    """A code that stands for no language we know."""


@lru_cache(maxsize=512)
def language_name(code: str) -> str:
    """The English name of a language: ``Japanese`` for ``ja``, ``Portuguese (Brazil)`` for ``pt-BR``.

    Raises:
        UnknownLanguage: for what is no code, or one that CLDR does not know.
    """
    from babel import Locale, UnknownLocaleError  # takes a moment, and most processes never need it

    try:
        if not _CODE.fullmatch(code):
            raise ValueError
        name = Locale.parse(code.replace("_", "-"), sep="-").get_display_name("en")
    except (UnknownLocaleError, ValueError):
        shown = code if len(code) <= 40 else code[:37] + "..."
        raise UnknownLanguage(
            f"{shown!r} is no language; allowed: codes (BCP 47) such as ja, de, en, zh-Hant, pt-BR"
        ) from None
    return name or code
