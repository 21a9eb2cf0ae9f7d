"""Result messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.results import fitting


def a_payload(**changes: Any) -> dict[str, Any]:
    return {"job_id": "j", "status": "answered", "text": "", "reasoning": None, "tool_calls": None, **changes}


def test_a_result_that_fits_is_sent_as_it_is() -> None:
    payload = a_payload(text="Canberra", reasoning="Hm.")
    assert json.loads(fitting(payload, 1000)) == payload


@given(st.text(max_size=400), st.text(max_size=400), st.integers(200, 2000))
def test_a_result_always_fits_and_its_text_is_the_start_of_the_answer(text: str, reasoning: str, limit: int) -> None:
    body = fitting(a_payload(text=text, reasoning=reasoning), limit)
    assert len(body) <= limit
    assert text.startswith(json.loads(body)["text"])


@pytest.mark.parametrize("text", ["", None])
def test_what_is_large_beside_the_text_goes_first(text: str | None) -> None:
    result = json.loads(fitting(a_payload(text=text, reasoning="x" * 5000), 400))
    assert (result["reasoning"], result["truncated"]) == (None, True)
