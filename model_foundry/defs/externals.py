"""What is not made here but belongs in the picture: the streams, and the model servers."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from model_foundry.config import SEARCH_API, FoundryConfig, StreamConfig, WorkerConfig
from model_foundry.defs.streams import OWNERS


def stream_key(name: str) -> dg.AssetKey:
    """Key of a stream: ``prompts``, ``events`` or ``results``."""
    return dg.AssetKey(["nats", name])


def worker_key(name: str) -> dg.AssetKey:
    """Key of a worker."""
    return dg.AssetKey(["workers", name])


def external_assets(config: FoundryConfig) -> list[dg.AssetSpec]:
    """The streams and the workers, as assets that Dagster shows and does not run."""
    return [
        _stream(
            stream_key("prompts"),
            config.streams.prompts,
            group="incoming",
            text="Prompts as published; `prompt_sensor` watches it.",
        ),
        _stream(
            stream_key("events"),
            config.streams.events,
            group="incoming",
            text="What the systems around the models say they did; `event_sensor` watches it.",
        ),
        _stream(
            stream_key("results"),
            config.streams.results,
            group="outgoing",
            text="One message a finished job, on `results.<job_id>`.",
            deps=[dg.AssetKey(name) for name in ("completions", "web_results", "article_translations")],
        ),
        *(_worker(name, worker) for name, worker in config.workers.items()),
    ]


def _stream(
    key: dg.AssetKey, stream: StreamConfig, *, group: str, text: str, deps: Sequence[dg.AssetKey] = ()
) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        deps=deps,
        description=f"{text}\n\nJetStream stream `{stream.name}`, subjects `{'`, `'.join(stream.subjects)}`.",
        group_name=group,
        kinds={"nats"},
        owners=OWNERS,
    )


def _worker(name: str, worker: WorkerConfig) -> dg.AssetSpec:
    lines = [worker.description] if worker.description else []
    if worker.stand_in:
        lines.append(f"**Stand-in:** {worker.stand_in}.")
    lines.append(f"`{worker.api}` at `{worker.url}`, {worker.slots} slots, supports {', '.join(worker.supports)}.")
    lines.append(
        "A search server: it has no models."
        if worker.api == SEARCH_API
        else "Models: " + (", ".join(f"`{m}`" for m in worker.models) if worker.models else "every one of its lanes")
    )
    return dg.AssetSpec(
        worker_key(name),
        description="\n\n".join(lines),
        group_name="workers",
        kinds={worker.api},
        owners=OWNERS,
    )
