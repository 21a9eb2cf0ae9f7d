"""What servers' refusals mean."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.inference.failures import MAX_MESSAGE_CHARS, Failure, message_of, of_response, retry_after_s
from model_foundry.records import ErrorKind

NOW = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)


def refused(status: int, body: str = "", **headers: str) -> Failure:
    return of_response(
        status, {k.replace("_", "-"): v for k, v in headers.items()}, body, worker="moon", model="m", now=NOW
    )


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, '{"error":{"code":400,"message":"request (4031 tokens) exceeds the available context size (2048 tokens), '
              'try increasing it","type":"exceed_context_size_error","n_prompt_tokens":4031,"n_ctx":2048}}'),
        (400, '{"error":"the input length exceeds the context length"}'),
        (400, '{"object":"error","message":"This model\'s maximum context length is 4096 tokens. However, you '
              'requested 5000 tokens","type":"BadRequestError","code":400}'),
        (400, '{"error":{"message":"The decoder prompt (length 9) is longer than the maximum model length of 8."}}'),
        (500, '{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'),
    ],
)  # fmt: skip
def test_a_prompt_too_long_for_llama_cpp_ollama_or_vllm_is_a_context_overflow(status: int, body: str) -> None:
    assert refused(status, body).kind is ErrorKind.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, '{"error":"bad temperature"}', ErrorKind.INVALID_REQUEST),
        (422, '{"detail":"no"}', ErrorKind.INVALID_REQUEST),
        (404, '{"error":"model \'m\' not found"}', ErrorKind.MODEL_NOT_FOUND),
        (408, "", ErrorKind.TIMEOUT),
        (429, "", ErrorKind.RATE_LIMITED),
        (503, '{"error":"server busy, please try again.  maximum pending requests exceeded"}', ErrorKind.RATE_LIMITED),
        (503, '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', ErrorKind.SERVER_ERROR),
        (500, "<html>oops</html>", ErrorKind.SERVER_ERROR),
        (502, "", ErrorKind.SERVER_ERROR),
        (302, "", ErrorKind.SERVER_ERROR),
    ],
)
def test_each_refusal_has_its_kind(status: int, body: str, kind: ErrorKind) -> None:
    assert (refused(status, body).kind, refused(status, body).http_status) == (kind, status)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_point_at_the_workers_configuration(status: int) -> None:
    failure = refused(status, '{"error":{"message":"Invalid API Key"}}')
    assert failure.kind is ErrorKind.INVALID_REQUEST
    assert "workers.moon.api_key_env" in failure.message
    assert "Invalid API Key" in failure.message


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0.5 ", 0.5),
        ("Tue, 01 Dec 2026 09:30:30 GMT", 30.0),
        ("Tue, 01 Dec 2026 09:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW) == seconds


def test_a_rate_limit_carries_the_servers_wish() -> None:
    assert refused(429, retry_after="12").retry_after_s == 12


@given(st.text(max_size=2000) | st.just("[" * 100_000))
def test_the_message_is_bounded_whatever_the_body(body: str) -> None:
    assert len(message_of(body)) <= MAX_MESSAGE_CHARS


@given(st.text(max_size=50))
def test_any_retry_after_is_read_or_unknown(value: Any) -> None:
    seconds = retry_after_s(value, NOW)
    assert seconds is None or seconds >= 0
