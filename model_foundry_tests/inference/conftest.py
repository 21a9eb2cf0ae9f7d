"""A real llama.cpp server for the tests of this folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

LLAMA_MODEL = "smollm2"


@pytest.fixture(scope="session")
def llama_url() -> Iterator[str]:
    """Base URL of an embedded llama.cpp server with two slots."""
    argv = [sys.executable, "-m", "model_foundry.embedded.llama", "--port", "0", "--slots", "2", "--alias", LLAMA_MODEL]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()  # the one line; empty when the process ends instead
        assert "ready at http://127.0.0.1:" in ready, f"llama.cpp did not start: {ready!r}"
        yield ready.split(" ready at ")[1].split(" ")[0]
        process.terminate()
        assert process.wait(20) == 0
