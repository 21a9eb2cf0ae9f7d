"""SearXNG's JSON: a query becomes a form, its answer a list of results and, for people, a text.

Belongs here: the wire format of ``/search?format=json`` (SearXNG's ``searx/webutils.py: get_json_response`` and
``docs/dev/search_api.rst``). Does not belong here: the I/O (``client``), what results are used for (``grounding``).

The form is sent by POST, so that queries are in no proxy's log. The answer is ``{"query", "results": [{"url", "title",
"content", "engine", "score", "publishedDate"}], "answers", "corrections", "infoboxes", "suggestions",
"unresponsive_engines": [[name, reason]]}``, any of it left out by older servers. JSON is off by default: such a server
refuses with HTTP 403; the limiter with 429.

No result although engines failed is a failure, not an empty answer: nobody knows what they would have found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from model_foundry.inference.answer import Answer
from model_foundry.inference.failures import Failure
from model_foundry.inference.ndjson import NdjsonParser
from model_foundry.inference.target import FORM, InferenceRequest
from model_foundry.inference.values import loads, number, text_of
from model_foundry.records import ErrorKind, WebResult
from model_foundry.text import well_formed

Parser = NdjsonParser
CONTENT_TYPE = FORM
FOUND, NOTHING_FOUND = "found", "nothing_found"
"""The ``finish_reason`` of a search."""
JSON_IS_OFF = "its settings.yml may not allow JSON: add json to search.formats and restart it"
"""What to do about a 403."""

_MAX_RESULTS = 50
_MAX_CHARS = 4000
"""Of a title or a snippet."""
_KEPT = ("number_of_results", "answers", "corrections", "infoboxes", "suggestions", "unresponsive_engines")
_LISTS = ("categories", "engines")


def endpoint(url: str, request: InferenceRequest | None = None) -> str:
    """Where a search is asked for; the base URL may end in ``/search``."""
    return url.rstrip("/").removesuffix("/search") + "/search"


def body(request: InferenceRequest) -> dict[str, str]:
    """The form: the last message's text is the query, ``params`` are SearXNG's own (categories, engines, language,
    time_range, safesearch, pageno); a list is written with commas.

    Raises:
        ValueError: when a param is neither text nor number, nor a list of texts.
    """
    form: dict[str, str] = {}
    for name, value in request.params.items():
        listed = value if isinstance(value, list) else [value]
        if not all(isinstance(v, str | int | float) for v in listed):
            raise ValueError(f"params.{name} is no text or number")
        form[name] = ",".join(map(str, listed))
    query = text_of(request.messages[-1].get("content")) if request.messages else ""
    return {**form, "q": " ".join(query.split()), "format": "json"}


def absorb(answer: Answer, line: str, at: float) -> bool:
    """Takes a body that is one line; see ``absorb_object``."""
    try:
        found = loads(line)
    except ValueError:
        answer.failure = Failure(ErrorKind.SERVER_ERROR, "the search server's answer is not JSON")
        return True
    if isinstance(found, dict):
        absorb_object(answer, found, at)
    return True


def absorb_object(answer: Answer, found: dict[str, Any], at: float) -> bool:
    """Takes a whole answer: its results, and a text of them. Entries without a URL are none."""
    if not isinstance(found.get("results"), list):
        answer.failure = Failure(ErrorKind.SERVER_ERROR, "the search server's answer has no list of results")
        return True
    results = [r for entry in found["results"] if (r := _result(entry)) is not None]
    answer.results = tuple(results[:_MAX_RESULTS])
    failed = engines_failed(found.get("unresponsive_engines"))
    answer.server_stats = {name: found[name] for name in _KEPT if found.get(name)} or None
    if not results and failed:
        names = ", ".join(f"{name}: {why}" for name, why in failed)
        answer.failure = Failure(ErrorKind.SERVER_ERROR, f"no engine gave a result, and these failed: {names}")
        return True
    if failed:
        answer.note("engines_failed: " + ", ".join(f"{name}: {why}" for name, why in failed))
    answer.add(at, text=text_of_results(answer.results) or "Nothing was found.")
    answer.finish_reason = FOUND if results else NOTHING_FOUND
    answer.terminal = True
    return True


def text_of_results(results: tuple[WebResult, ...]) -> str:
    """The results as numbered Markdown links with their snippets."""
    lines = []
    for n, result in enumerate(results, 1):
        lines.append(f"{n}. [{' '.join(result.title.split()) or result.url}]({result.url})")
        if snippet := " ".join(result.content.split()):
            lines.append(f"   {snippet}")
    return "\n".join(lines)


def engines_failed(listed: Any) -> list[tuple[str, str]]:
    """The engines that did not answer, each with the server's reason; older servers name them only."""
    found = []
    for entry in listed if isinstance(listed, list) else ():
        parts = entry if isinstance(entry, list) else [entry]
        texts = [well_formed(" ".join(p.split()))[:200] for p in parts if isinstance(p, str)]
        if texts:
            found.append((texts[0], texts[1] if len(texts) > 1 else "no reason given"))
    return found


def _result(entry: Any) -> WebResult | None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("url"), str):
        return None
    url = well_formed(entry["url"].strip())
    if not url.startswith(("http://", "https://")) or len(url) > _MAX_CHARS:
        return None

    def text(name: str) -> str:
        value = entry.get(name)
        return well_formed(value.replace("\0", "")[:_MAX_CHARS]) if isinstance(value, str) else ""

    return WebResult(
        url=url,
        title=text("title"),
        content=text("content"),
        engine=text("engine") or None,
        score=number(entry.get("score")),
        published_at=_time(entry.get("publishedDate")),
    )


def _time(value: Any) -> datetime | None:
    """ISO 8601 as Python writes it; no zone is UTC."""
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    return None
