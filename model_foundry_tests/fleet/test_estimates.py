"""How long a job will take, by what a worker has shown."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.config import LakeConfig
from model_foundry.fleet.estimates import (
    Rates,
    estimated_tokens,
    expected_load_s,
    expected_service_s,
    rates_from_rows,
)
from model_foundry.records import ErrorKind, JobStatus
from model_foundry.warehouse.lake import Warehouse
from model_foundry_tests.builders import NOW
from model_foundry_tests.lake.rows import a_job, an_attempt, finish, land

MEASURED = Rates(n=9, prefill_tps=100, decode_tps=20, completion_tokens=40, prompt_tokens=50, e2e_s=3, load_s=6)
FIGURES = st.none() | st.floats()
ROWS = st.fixed_dictionaries(
    {
        "worker": st.just("moon"),
        "model": st.just("small"),
        "n": st.integers(0, 1000),
        "prefill_tps": FIGURES,
        "decode_tps": FIGURES,
        "completion_tokens": st.none() | st.floats(0, 1e6),
        "prompt_tokens": st.none() | st.floats(0, 1e6),
        "e2e_s": FIGURES,
        "load_s": FIGURES,
    }
)


def test_service_is_reading_and_writing_at_the_measured_rates() -> None:
    assert expected_service_s(MEASURED, 200, None) == pytest.approx(200 / 100 + 40 / 20)


@pytest.mark.parametrize(("max_tokens", "written"), [(10, 10), (40, 40), (1024, 40)])
def test_no_more_is_written_than_asked_for_or_usual(max_tokens: int, written: int) -> None:
    assert expected_service_s(MEASURED, 0, max_tokens) == pytest.approx(written / 20)


@pytest.mark.parametrize("unknown", ["prefill_tps", "decode_tps", "completion_tokens"])
def test_without_a_rate_it_is_the_median_of_whole_answers(unknown: str) -> None:
    assert expected_service_s(replace(MEASURED, **{unknown: None}), 200, 10) == 3


def test_of_a_worker_that_has_shown_nothing_nothing_is_known() -> None:
    assert expected_service_s(None, 200, 10) is expected_load_s(None) is None
    assert expected_service_s(Rates(n=0, load_s=4), 200, 10) is None
    assert expected_load_s(Rates(n=0, load_s=4)) == 4


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a" * 40, 10), ("データ" * 10, 20), ("漢字" * 3 + "abcd", 5), ("한국어" * 2, 4), ("é" * 8, 2)],
)
def test_tokens_are_told_from_the_script(text: str, tokens: float) -> None:
    assert estimated_tokens(text) == pytest.approx(tokens)


@given(ROWS, st.text(max_size=200), st.text(max_size=200), st.none() | st.integers(1, 100_000))
def test_an_estimate_is_finite_and_grows_with_the_prompt(
    row: dict[str, object], text: str, more: str, max_tokens: int | None
) -> None:
    [rates] = rates_from_rows([row]).values()
    short = expected_service_s(rates, estimated_tokens(text), max_tokens)
    long = expected_service_s(rates, estimated_tokens(text + more), max_tokens)
    assert (short is None) == (long is None)
    if short is not None and long is not None:
        assert 0 <= short <= long * (1 + 1e-12)
        assert math.isfinite(long)
    load = expected_load_s(rates)
    assert load is None or (math.isfinite(load) and load >= 0)


@given(ROWS, st.floats(0, 1e6), st.integers(1, 100_000))
def test_asking_for_fewer_tokens_never_takes_longer(row: dict[str, object], tokens: float, most: int) -> None:
    [rates] = rates_from_rows([row]).values()
    limited, free = expected_service_s(rates, tokens, most), expected_service_s(rates, tokens, None)
    assert (limited is None) == (free is None)
    assert limited is None or free is None or limited <= free


def test_fifty_thousand_jobs_are_estimated_in_a_second() -> None:
    texts = ["Summarize this text, please. " * 10, "この文章を丁寧な言い方に直してください。" * 10]
    start = time.process_time()
    for i in range(50_000):
        tokens = estimated_tokens(texts[i % 2])
        for _ in range(3):
            expected_service_s(MEASURED, tokens, 256)
    assert time.process_time() - start < 1


def test_the_rates_are_medians_over_warm_answers_of_the_window(tmp_path: Path) -> None:
    lake = Warehouse(tmp_path, LakeConfig())
    lake.migrate()
    jobs = [a_job(seq) for seq in range(1, 8)]
    land(lake, *jobs)
    warm = {"prefill_tps": 100.0, "prefill_s": 1.0, "decode_s": 1.0, "cold": False}
    failed = {"status": JobStatus.FAILED, "error_kind": ErrorKind.TIMEOUT, "ttft_s": None}
    finish(
        lake,
        *((j, an_attempt(j, **warm, decode_tps=t, e2e_s=t)) for j, t in zip(jobs, (10.0, 20.0, 60.0), strict=False)),
        (jobs[3], an_attempt(jobs[3], cold=True, load_s=5.0, decode_tps=1.0)),
        (jobs[4], an_attempt(jobs[4], **failed, e2e_s=None)),
        (jobs[5], an_attempt(jobs[5], sent_at=NOW - timedelta(days=8), decode_tps=1.0)),
        (jobs[6], an_attempt(jobs[6], worker="card", completion_tokens=None, prompt_tokens=None, e2e_s=2.0)),
    )
    rates = rates_from_rows(lake.show("service_rates", {"since": NOW - timedelta(days=7)}))
    assert rates == {
        ("moon", "small"): Rates(3, 100.0, 20.0, 20.0, 10.0, 20.0, 5.0),
        ("card", "small"): Rates(1, e2e_s=2.0),
    }
