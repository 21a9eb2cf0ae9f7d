"""Builders with valid defaults, so that a test names only what it is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from model_foundry.config import FoundryConfig, parse
from model_foundry.records import Job, PromptEnvelope, StreamMessage
from model_foundry.routing import route

NOW = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)


def raw_config(**changes: Any) -> dict[str, Any]:
    """A small but complete configuration, as read from YAML."""
    return {
        "capabilities": ["cpu_inference", "gpu_inference"],
        "models": {"small": "cpu_inference", "big": "gpu_inference"},
        "workers": {
            "moon": {"url": "http://127.0.0.1:11434", "api": "ollama"},
            "card": {
                "url": "http://127.0.0.1:8000",
                "api": "openai",
                "supports": ["gpu_inference", "cpu_inference"],
                "slots": 3,
            },
        },
        "roles": {"coder": {"model": "big", "worker": "card"}, "helper": {"model": "small"}},
        "profiles": {"full": ["coder", "helper"], "minimal": ["helper"]},
        "domains": {
            "general": {"candidates": ["small", "big"]},
            "code": {"candidates": ["big", "small"]},
            "japanese": {"candidates": ["big"]},
        },
        **changes,
    }


def a_config(**changes: Any) -> FoundryConfig:
    """The configuration of :func:`raw_config`, checked."""
    return parse(raw_config(**changes))


def a_message(data: bytes = b'{"prompt": "hello"}', **changes: Any) -> StreamMessage:
    """A message on ``prompts.submit``."""
    fields: dict[str, Any] = {
        "stream": "PROMPTS",
        "stream_created": 1_700_000_000,
        "seq": 1,
        "subject": "prompts.submit",
        "published_at": NOW,
        "headers": (),
        "data": data,
    }
    return StreamMessage(**{**fields, **changes})


def an_envelope(**changes: Any) -> PromptEnvelope:
    """A readable prompt that names nothing."""
    prompt = changes.pop("prompt", "What is the capital of Australia?")
    fields: dict[str, Any] = {
        "message": a_message(),
        "job_id": "job-1",
        "correlation_id": None,
        "prompt": prompt,
        "messages": [{"role": "user", "content": prompt}],
    }
    return PromptEnvelope(**{**fields, **changes})


def a_job(**changes: Any) -> Job:
    """A job as routing makes it of a plain prompt, some of its fields changed."""
    return replace(route(a_config(), an_envelope()), **changes)
