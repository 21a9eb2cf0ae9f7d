"""Searching the notes: the order, what is printed, and what is said when there is nothing to search in."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from model_foundry.cli.commands.search import excerpt
from model_foundry.embedding import embed_notes
from model_foundry.errors import ConfigError
from model_foundry.search import SearchError, search
from model_foundry_tests.embeddings.conftest import LLAMA_MODEL, Notes, WordServer
from model_foundry_tests.inference.scripted import refusal


def foundry(notes: Notes, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [
        sys.executable,
        "-m",
        "model_foundry.cli.main",
        *arguments,
        "--config",
        str(notes.scene.foundry.config_file),
    ]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120, env={"COLUMNS": "80"})


def written(notes: Notes, **texts: str) -> WordServer:
    server = notes.worker()
    notes.write(**texts)
    embed_notes(notes.scene.foundry, run_id="run")
    return server


@pytest.fixture
def library(notes: Notes) -> Notes:
    notes.scene.raw["notes"] |= {"chunk_chars": 60, "overlap_chars": 0, "query_prefix": "search_query: "}
    (notes.folder / "unreadable.md").write_bytes(b"\xff")
    written(
        notes,
        cats="# Pets\n\nA cat and a cat and a cat.\n\n# Far away\n\nNothing of interest, cat, bread, train, for long.",
        trains="A train. Another train.",
        both="A cat in a train.",
        bread="Bread, bread and bread.",
    )
    return notes


def test_the_nearest_note_is_first_and_each_is_there_once_with_its_nearest_chunk(library: Notes) -> None:
    found = search(library.scene.foundry, "cat", top=3)
    assert [hit.source for hit in found.hits] == ["cats.md", "both.md", "trains.md"]
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx((3 + 0.01) / ((9.01 * 1.01) ** 0.5), rel=1e-5)
    assert (found.hits[0].heading, found.hits[0].chunk) == ("Pets", 0)
    assert found.worker == "w"
    assert [h.source for h in search(library.scene.foundry, "train").hits][:2] == ["trains.md", "both.md"]


def test_a_query_goes_through_slots_and_with_its_own_prefix(library: Notes) -> None:
    server = WordServer()
    del library.scene.raw["workers"]["w"]
    library.worker("other", server)
    search(library.scene.foundry, "cat")
    assert server.texts == ["search_query: cat"]


def test_without_nats_a_search_asks_the_worker_as_it_is(library: Notes) -> None:
    there = library.scene.raw["nats"]
    library.scene.raw["nats"] = {"url": "nats://127.0.0.1:1", "connect_timeout_s": 0.2}
    foundry_alone = library.scene.foundry
    library.scene.raw["nats"] = there
    assert search(foundry_alone, "bread").hits[0].source == "bread.md"


def test_the_command_prints_path_score_and_excerpt_within_80_columns(library: Notes) -> None:
    done = foundry(library, "search", "cat", "--top", "2")
    assert done.returncode == 0, done.stderr
    assert "cats.md" in done.stdout
    assert "# Pets" in done.stdout
    assert "A cat and a cat and a cat." in done.stdout
    assert "trains.md" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    as_json = json.loads(foundry(library, "search", "cat", "--json").stdout)
    assert as_json["hits"][0]["source"] == "cats.md"
    assert as_json["hits"][0]["score"] > 0.9


def test_the_query_of_the_guide_finds_notes_that_say_nearly_the_same(library: Notes) -> None:
    library.write(cats_too="A cat and a cat and a cat.")
    embed_notes(library.scene.foundry, run_id="run")
    guide = (Path(__file__).parents[2] / "docs/search.md").read_text(encoding="utf-8")
    [query] = re.findall(r"(?m)^    (-- which notes say nearly the same\?\n(?:    .*\n)+)", guide)
    first = library.rows(query)[0]
    assert (first["source"], first["other"]) == ("cats.md", "cats_too.md")
    assert first["score"] == pytest.approx(1, abs=1e-6)


def test_an_excerpt_is_one_line_and_says_that_it_goes_on() -> None:
    assert excerpt("a\n\n  b") == "a b"
    assert len(excerpt("word " * 200)) <= 234
    assert excerpt("word " * 200).endswith("…")


def refused(notes: Notes, query: str = "cat") -> str:
    with pytest.raises((SearchError, ConfigError)) as found:
        search(notes.scene.foundry, query)
    assert isinstance(found.value, SearchError) or notes.scene.raw.get("notes") is None or not query.strip()
    assert found.value.hint or not query.strip()
    return str(found.value)


def test_whatever_keeps_a_search_from_an_answer_is_said(notes: Notes) -> None:
    server = notes.worker()
    assert "is embedded by nomic yet" in refused(notes)
    notes.write(a="A cat.")
    embed_notes(notes.scene.foundry, run_id="run")
    assert "the query is blank" in refused(notes, "  ")
    server.embed = lambda text: [1.0, 2.0]
    assert "nomic gives 2 dimensions on worker w; those in the lake have 4" in refused(notes)
    server.fault = refusal(404, {"error": "no such model"})
    assert "no such model" in refused(notes)
    server.fault = refusal(400, {"error": "the input length exceeds the context length"})
    assert "the query can't be embedded" in refused(notes, "cat " * 1000)
    notes.scene.raw["notes"] = None
    assert "no section 'notes'" in refused(notes)


def test_the_command_without_a_section_exits_2_and_without_vectors_3(notes: Notes) -> None:
    notes.worker()
    done = foundry(notes, "search", "cat")
    assert done.returncode == 3
    assert "Materialize the asset 'embeddings'" in " ".join(done.stderr.split())
    del notes.scene.raw["notes"]
    assert foundry(notes, "search", "cat").returncode == 2


def test_a_real_model_finds_the_note_that_is_meant(notes: Notes, llama_url: str) -> None:
    changes: dict[str, Any] = {"models": {"nomic": LLAMA_MODEL}, "slots": 2}
    notes.scene.worker("llama", llama_url, supports=["embedding"], **changes)
    notes.write(
        cats="The cat sleeps on the warm sofa all day.",
        python="def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)",
        long="word " * 300,
    )
    notes.scene.raw["notes"]["chunk_chars"] = 5000
    report = embed_notes(notes.scene.foundry, run_id="run")
    assert (report.embedded, report.dimensions) == (3, 576)
    assert report.tokens_per_s
    assert search(notes.scene.foundry, "A kitten naps on the couch.").hits[0].source == "cats.md"
    assert search(notes.scene.foundry, "def factorial(n): return 1 if n < 2").hits[0].source == "python.md"
