"""The prompts that ``foundry demo`` publishes: forty of our own, and two faulty ones.

Belongs here: what is sent, as bytes. Does not belong here: sending it (``cli``), the configuration it is meant for
(``foundry.yaml`` beside this file).

``prompts.jsonl`` holds one body a line in the wire form of a prompt, without ``job_id``, so that it can be sent with
``foundry submit`` too. ``metadata.expected_domain`` says what the prompt is about; ``metadata.domain_on: subject``
moves the domain of that line from the body to the subject when the demo sends it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

from model_foundry.demo.message import DemoMessage
from model_foundry.jetstream.subjects import PROMPT_SUBJECT

UNKNOWN_MODEL = "gemma3:270b"


def demo_prompts(run_tag: str = "") -> list[DemoMessage]:
    """The forty prompts, then one that names an unknown model, then one that is no JSON.

    Args:
        run_tag: put before each id (``<run_tag>-demo-01``), so that another demo run is a new set of jobs; the same
            tag gives the same messages.
    """
    lines = resources.files(__package__).joinpath("prompts.jsonl").read_text(encoding="utf-8").strip().split("\n")
    bodies: list[dict[str, Any]] = [json.loads(line) for line in lines]
    prefix = f"{run_tag}-" if run_tag else ""
    messages = [_message(body, f"{prefix}demo-{number:02d}") for number, body in enumerate(bodies, start=1)]
    unknown = _message({"prompt": "Say hello.", "model": UNKNOWN_MODEL, "metadata": {}}, f"{prefix}demo-unknown-model")
    unreadable = DemoMessage(PROMPT_SUBJECT, b'{"prompt": "no closing quote', f"{prefix}demo-unreadable", "reject")
    return [*messages, replace(unknown, expected="rejected"), unreadable]


def demo_config(template: str, gpus: Sequence[str]) -> str:
    """The text of the demo's configuration for a machine with these GPUs.

    Without one, the GPU lane's worker is a stand-in and its name says so, in every table. Pure.
    """
    if not gpus:
        return template
    lines = [line for line in template.splitlines(keepends=True) if "stand_in:" not in line]
    return "".join(lines).replace("gpu_standin:", f"gpu: # {', '.join(gpus)}")


def _message(body: dict[str, Any], job_id: str) -> DemoMessage:
    subject = PROMPT_SUBJECT
    if body["metadata"].get("domain_on") == "subject":
        subject = f"{PROMPT_SUBJECT}.{body['domain']}"
        body = {key: value for key, value in body.items() if key != "domain"}
    session = f"demo-{body['metadata'].get('expected_domain', 'faulty')}"
    data = json.dumps({"job_id": job_id, "correlation_id": session, **body}, ensure_ascii=False).encode("utf-8")
    return DemoMessage(subject, data, job_id)
