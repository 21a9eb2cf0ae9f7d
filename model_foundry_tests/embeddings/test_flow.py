"""From a folder of notes to the lake: what is asked for, what is kept, what becomes of failures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from model_foundry.embedding import EmbeddingReport, embed_notes
from model_foundry.errors import ConfigError
from model_foundry.fleet.leases import Slots, sharing_slots
from model_foundry.jetstream.client import JetStream
from model_foundry_tests.embeddings.conftest import MODEL, Notes, WordServer, vector_of
from model_foundry_tests.inference.scripted import HANG, refusal
from model_foundry_tests.parts import until


def embedded(notes: Notes, **options: Any) -> EmbeddingReport:
    return embed_notes(notes.scene.foundry, run_id="run", **options)


@pytest.mark.parametrize("api", ["openai", "ollama"])
def test_every_note_of_the_folder_becomes_a_row_with_its_vector(notes: Notes, api: str) -> None:
    server = notes.worker(api=api, models={MODEL: "nomic-embed-text:latest"})
    notes.scene.raw["notes"]["document_prefix"] = "search_document: "
    notes.write(cats="# Cats\n\nA cat, a cat.\n", deep__trains="A train.", blank=" \n\n")
    (notes.folder / ".obsidian").mkdir()
    (notes.folder / ".obsidian" / "hidden.md").write_text("cat")
    (notes.folder / "picture.png").write_bytes(b"\x89PNG")
    report = embedded(notes)
    assert (report.status, report.notes, report.chunks, report.embedded, report.dimensions) == ("done", 3, 2, 2, 4)
    assert report.chunks_per_s
    first, second = notes.rows()
    assert (first["source"], first["chunk"], first["heading"], first["text"]) == (
        "cats.md",
        0,
        "Cats",
        "# Cats\n\nA cat, a cat.\n",
    )
    assert second["source"] == "deep/trains.md"
    assert (first["status"], first["model"], first["worker"], first["run_id"]) == ("embedded", MODEL, "w", "run")
    assert first["vector"] == pytest.approx(vector_of(first["text"]))
    assert first["error_kind"] is None
    assert server.received[0].body["model"] == "nomic-embed-text:latest"
    assert all(text.startswith("search_document: ") for text in server.texts)


def test_only_what_is_new_or_changed_is_asked_for(notes: Notes) -> None:
    server = notes.worker()
    notes.write(a="A cat.", b="A train.", c="Some bread.")
    embedded(notes)
    before = notes.rows()
    again = embedded(notes)
    assert (again.unchanged, again.embedded, len(server.texts)) == (3, 0, 3)
    assert notes.rows() == before
    notes.write(b="Two trains: a train and a train.", d="A cat and a train.")
    changed = embedded(notes)
    assert (changed.unchanged, changed.embedded, changed.removed) == (2, 2, 1)
    assert sorted(server.texts[3:]) == ["A cat and a train.", "Two trains: a train and a train."]
    assert [row["source"] for row in notes.rows()] == ["a.md", "b.md", "c.md", "d.md"]


def test_a_text_that_only_moved_takes_its_vector_along(notes: Notes) -> None:
    server = notes.worker()
    sections = [f"# Part {n}\n\n" + f"cat {n} " * 20 for n in range(4)]
    notes.scene.raw["notes"] |= {"chunk_chars": 200, "overlap_chars": 0}
    notes.write(a="\n\n".join(sections) + "\n\n")
    embedded(notes)
    asked = len(server.texts)
    notes.write(a="# New\n\n" + "bread " * 30 + "\n\n" + "\n\n".join(sections) + "\n\n")
    (notes.folder / "a.md").rename(notes.folder / "renamed.md")
    report = embedded(notes)
    assert (report.moved, report.embedded, report.notes_removed) == (4, 1, 1)
    assert len(server.texts) == asked + 1
    rows = notes.rows()
    assert [row["chunk"] for row in rows] == [0, 1, 2, 3, 4]
    assert {row["source"] for row in rows} == {"renamed.md"}
    for row in rows:
        assert row["vector"] == pytest.approx(vector_of(row["text"]))


def test_deleted_notes_are_taken_out_and_an_empty_folder_only_when_it_is_meant(notes: Notes) -> None:
    notes.worker()
    assert embedded(notes).status == "empty"
    notes.write(a="A cat.", b="A train.")
    embedded(notes)
    (notes.folder / "a.md").unlink()
    assert (embedded(notes).notes_removed, [r["source"] for r in notes.rows()]) == (1, ["b.md"])
    (notes.folder / "b.md").unlink()
    assert embedded(notes).status == "kept", "it may not be mounted"
    assert len(notes.rows()) == 1
    assert embedded(notes, accept_empty=True).status == "empty"
    assert notes.rows() == []


def test_a_folder_that_is_not_there_is_an_error_and_takes_nothing_out(notes: Notes) -> None:
    notes.worker()
    notes.write(a="A cat.")
    embedded(notes)
    notes.folder.rename(notes.folder.with_name("elsewhere"))
    with pytest.raises(ConfigError, match=r"notes\.folder is .*notes, which is no folder"):
        embedded(notes)
    assert len(notes.rows()) == 1


def test_a_note_that_can_not_be_read_is_a_row_with_its_reason(notes: Notes) -> None:
    notes.worker()
    notes.write(good="A cat.")
    (notes.folder / "latin.md").write_bytes(b"caf\xe9")
    report = embedded(notes)
    assert (report.unreadable, report.embedded, dict(report.failures)) == (1, 1, {"invalid_request": 1})
    [row] = notes.rows("from embeddings where source = 'latin.md'")
    assert (row["status"], row["vector"]) == ("failed", None)
    assert "not UTF-8: " in row["error_message"]
    assert "at byte 3" in row["error_message"]
    assert embedded(notes).unchanged == 2
    (notes.folder / "latin.md").write_text("café with bread", encoding="utf-8")
    assert embedded(notes).embedded == 1


def test_a_chunk_that_is_too_long_for_the_model_fails_alone_and_is_not_tried_by_every_run(notes: Notes) -> None:
    server = notes.worker(server=WordServer(limit=50))
    notes.write(a="A cat.", b="bread " * 20, c="A train.")
    report = embedded(notes)
    assert (report.embedded, dict(report.failures), report.waiting) == (2, {"context_overflow": 1}, 0)
    asked = len(server.received)
    assert embedded(notes).unchanged == 3
    assert len(server.received) == asked
    server.limit = 1000
    assert embedded(notes, retry_failed=True).embedded == 1


def test_a_worker_that_fails_is_left_alone_and_another_goes_on(notes: Notes) -> None:
    bad, good = notes.worker("bad"), notes.worker("good", supports=["cpu_inference", "embedding"])
    bad.fault = refusal(500, b"boom")
    notes.scene.raw["notes"]["batch_texts"] = 1
    notes.write(**{f"n{n}": f"cat {n}" for n in range(6)})
    report = embedded(notes)
    assert (report.embedded, report.pool.texts_by_worker) == (6, {"good": 6})
    assert len(good.received) == 6
    assert 1 <= len(bad.received) <= 4


def test_what_nobody_embeds_waits_with_the_reason_and_the_next_run_takes_it_up(notes: Notes) -> None:
    server = notes.worker()
    server.fault = refusal(404, {"error": "model not found, try pulling it first"})
    notes.write(a="A cat.", b="A train.")
    report = embedded(notes)
    assert (report.status, report.waiting, report.embedded) == ("waiting", 2, 0)
    assert "try pulling it first" in report.pool.dropped["w"]
    [row, _] = notes.rows()
    assert (row["status"], row["error_kind"]) == ("waiting", "model_not_found")
    server.fault = None
    assert embedded(notes).embedded == 2
    assert {row["status"] for row in notes.rows()} == {"embedded"}


def test_without_any_worker_the_notes_wait(notes: Notes) -> None:
    notes.scene.worker("w", "http://127.0.0.1:1", supports=["cpu_inference"])
    notes.write(a="A cat.")
    report = embedded(notes)
    assert (report.status, dict(report.failures)) == ("waiting", {"no_worker": 1})


def test_a_worker_whose_vectors_have_another_length_gets_nothing_more(notes: Notes) -> None:
    notes.worker("first")
    notes.write(a="A cat.")
    embedded(notes)
    other = WordServer(embed=lambda text: [1.0, 2.0])
    del notes.scene.raw["workers"]["first"]
    notes.worker("other", other)
    notes.write(b="A train.")
    report = embedded(notes)
    assert (report.status, report.waiting) == ("waiting", 1)
    assert "gives 2 dimensions" in report.pool.dropped["other"]
    again = embedded(notes, again=True)
    assert (again.embedded, again.dimensions, again.unchanged) == (2, 2, 0)
    assert {row["dimensions"] for row in notes.rows()} == {2}


def test_vectors_of_another_model_stay_for_as_long_as_their_note_is_the_same(notes: Notes) -> None:
    server = notes.worker()
    notes.write(a="A cat.", b="A train.")
    embedded(notes)
    notes.scene.raw["models"]["other"] = "embedding"
    notes.scene.raw["notes"]["model"] = "other"
    assert embedded(notes).embedded == 2
    notes.write(b="Bread.")
    embedded(notes)
    notes.scene.raw["notes"]["model"] = MODEL
    asked = len(server.texts)
    assert (embedded(notes).embedded, server.texts[asked:]) == (1, ["Bread."])


def test_requests_at_a_worker_never_exceed_the_slots_that_others_leave(notes: Notes) -> None:
    server = notes.worker(slots=3)
    notes.scene.raw["notes"]["batch_texts"] = 1
    notes.write(**{f"n{n}": f"cat {n}" for n in range(12)})
    foundry = notes.scene.foundry

    async def held(slots: Slots) -> int:
        return slots.held("w")

    async def hold_two_and_run() -> EmbeddingReport:
        async with (
            JetStream(foundry.nats) as js,
            sharing_slots(js, foundry.config.fleet, "somebody") as slots,
        ):
            slots.want("w", 3, {(0, 0): 2}, 0)
            await until(lambda: held(slots), lambda number: number == 2)
            slots.want("w", 3, {(0, 0): 2}, 2)
            return await asyncio.to_thread(embed_notes, foundry, run_id="run")

    assert asyncio.run(hold_two_and_run()).embedded == 12
    assert server.most_in_flight == 1


def test_a_worker_that_hangs_costs_its_attempts_and_the_next_run_goes_on_from_there(notes: Notes) -> None:
    server = notes.worker()
    notes.scene.raw["notes"]["batch_texts"] = 2
    notes.scene.raw["limits"] |= {"request_first_token_timeout_s": 0.2, "max_attempts": 1}
    notes.write(a="A cat.", b="A train.")
    embedded(notes)
    notes.write(c="Bread.", d="A cat and bread.")
    server.fault = [HANG]
    report = embedded(notes)
    assert (report.waiting, dict(report.failures)) == (2, {"timeout": 2})
    server.fault = None
    assert embedded(notes).embedded == 2
    assert len(notes.rows()) == 4


def test_a_folder_is_relative_to_the_file_and_only_what_the_patterns_name_is_a_note(
    notes: Notes, tmp_path: Path
) -> None:
    notes.worker()
    notes.scene.raw["notes"]["include"] = ["daily/*.md", "**/*.txt"]
    notes.write(a="cat", daily__b="train")
    (notes.folder / "c.txt").write_text("\ufeffbread")
    embedded(notes)
    assert [(r["source"], r["text"]) for r in notes.rows()] == [("c.txt", "bread"), ("daily/b.md", "train")]
