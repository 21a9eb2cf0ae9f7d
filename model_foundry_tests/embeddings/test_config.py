"""The section ``notes`` of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model_foundry.config import load, parse
from model_foundry.errors import ConfigError
from model_foundry_tests.builders import a_config, raw_config


def test_without_the_section_there_are_no_notes_and_the_lane_is_the_models_unless_named(tmp_path: Path) -> None:
    assert (a_config().notes, a_config().notes_lane) == (None, None)
    config = a_config(notes={"folder": "vault", "model": "big"})
    assert config.notes_lane == "gpu_inference"
    assert a_config(notes={"folder": "v", "model": "big", "lane": "cpu_inference"}).notes_lane == "cpu_inference"
    file = tmp_path / "foundry.yaml"
    file.write_text(str(raw_config(notes={"folder": "vault", "model": "big"})))
    found = load(file, environ={"FOUNDRY_NOTES__CHUNK_CHARS": "800"}).notes
    assert found is not None
    assert (found.folder, found.chunk_chars, found.include) == (tmp_path / "vault", 800, ["**/*.md"])


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ({"model": "big"}, "notes.folder: missing"),
        ({"folder": "v"}, "notes.model: missing"),
        ({"folder": "v", "model": "nomic"}, "notes.model: 'nomic' is not one of the models; allowed: small, big"),
        (
            {"folder": "v", "model": "big", "lane": "embedding"},
            "notes.lane: 'embedding' is not one of the capabilities",
        ),
        ({"folder": "v", "model": "big", "overlap_chars": 700}, "overlap_chars is 700; allowed: at most half"),
        ({"folder": "v", "model": "big", "include": ["../*.md"]}, "holds '../*.md'; allowed: patterns"),
        ({"folder": "v", "model": "big", "include": ["/etc/*"]}, "holds '/etc/*'; allowed: patterns"),
        ({"folder": "v", "model": "big", "include": []}, "notes.include"),
        ({"folder": "v", "model": "big", "chunks": 1}, "notes.chunks: no such key; allowed here: folder"),
    ],
)
def test_what_can_not_be_is_refused_with_what_is_allowed(notes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse(raw_config(notes=notes))
    assert words in str(found.value)
