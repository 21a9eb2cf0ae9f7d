"""The configurations we ship load, and say what their comments promise; the demo's messages fit its configuration."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from model_foundry import config
from model_foundry.demo.events import demo_events
from model_foundry.demo.prompts import UNKNOWN_MODEL, demo_config, demo_prompts
from model_foundry.domains import classify
from model_foundry.envelopes.prompts import read_prompt
from model_foundry.event_intake import EventIntake
from model_foundry.records import PromptEnvelope, Reject, StreamMessage

ROOT = Path(__file__).parents[1]
SHIPPED = {
    "homelab": ROOT / "examples/homelab.yaml",
    "workstation": ROOT / "examples/workstation.yaml",
    "demo": ROOT / "model_foundry/demo/foundry.yaml",
}


def load(name: str) -> config.FoundryConfig:
    return config.load(SHIPPED[name], environ={})


def test_every_example_in_the_folder_is_tested_here() -> None:
    assert set((ROOT / "examples").glob("*.yaml")) <= set(SHIPPED.values())


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_configuration_loads_and_some_worker_serves_every_model(name: str) -> None:
    loaded = load(name)
    unserved = [m for m in loaded.models if not any(loaded.serves(w, m) for w in loaded.workers)]
    assert unserved == []


def test_in_the_homelab_big_data_questions_go_to_the_cpu_first_and_then_to_the_card() -> None:
    homelab = load("homelab")
    assert classify("大きなデータを分析して", homelab.domains, homelab.default_domain).domain == "general"
    candidates = homelab.domains["general"].candidates
    assert [(m, homelab.models[m].capability) for m in candidates] == [
        ("llama3.2:3b", "cpu_inference"),
        ("qwen2.5:7b", "gpu_inference"),
        ("gemma3:12b", "gpu_inference"),
    ]
    assert not homelab.serves("moon", "gemma3:12b")
    assert homelab.serves("rtx3070ti", "llama3.2:3b")


def test_the_workstation_has_three_profiles_and_gives_translations_to_the_translator() -> None:
    workstation = load("workstation")
    assert workstation.profiles.keys() == {"full", "standard", "minimal"}
    assert workstation.roles["grandpa"].kind == "orchestrator"
    assert (workstation.workers["naughty"].slots, workstation.workers["kindergarten"].slots) == (3, 5)
    text = "Translate this into Japanese: The train is late."
    assert classify(text, workstation.domains, workstation.default_domain).domain == "translation"


# -- the demo ------------------------------------------------------------------------------------------------------


def read_demo(run_tag: str) -> list[PromptEnvelope | Reject]:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    return [
        read_prompt(
            StreamMessage("PROMPTS", 1, seq, m.subject, now, (("Nats-Msg-Id", str(m.msg_id)),), m.data),
            max_message_bytes=load("demo").limits.max_message_bytes,
        )
        for seq, m in enumerate(demo_prompts(run_tag), start=1)
    ]


def test_the_demo_asks_forty_prompts_whose_domain_is_found_and_whose_names_are_defined() -> None:
    demo = load("demo")
    domains: Counter[str] = Counter()
    for envelope in read_demo("")[:40]:
        assert isinstance(envelope, PromptEnvelope)
        assert envelope.problem is None
        assert envelope.metadata is not None
        domain = envelope.domain or classify(envelope.prompt, demo.domains, demo.default_domain).domain
        assert domain == envelope.metadata["expected_domain"], envelope.prompt
        assert envelope.model is None or envelope.model in demo.models
        assert envelope.role is None or envelope.role in demo.roles
        assert 24 <= envelope.params["max_tokens"] <= 64
        domains[domain] += 1
    assert domains == {"code": 14, "japanese": 13, "general": 13}


def test_the_demo_ends_with_an_unknown_model_and_a_body_that_is_no_json() -> None:
    unknown, broken = read_demo("")[40:]
    assert isinstance(unknown, PromptEnvelope)
    assert unknown.model == UNKNOWN_MODEL
    assert UNKNOWN_MODEL not in load("demo").models
    assert isinstance(broken, Reject)


def test_the_same_run_tag_gives_the_same_messages_and_another_one_new_jobs() -> None:
    assert demo_prompts("a") == demo_prompts("a")
    assert demo_prompts()[0].msg_id == "demo-01"
    ids = [m.msg_id for tag in ("", "a", "b") for m in demo_prompts(tag)]
    assert len(ids) == len(set(ids)) == 3 * 42
    assert [e.job_id for e in read_demo("a") if isinstance(e, PromptEnvelope)] == ids[42:83]


def test_the_demos_gpu_worker_is_a_stand_in_only_where_there_is_no_gpu() -> None:
    template = SHIPPED["demo"].read_text(encoding="utf-8")
    without, with_gpu = (
        config.parse(yaml.safe_load(demo_config(template, gpus))) for gpus in ([], ["NVIDIA RTX 3070 Ti"])
    )
    assert without.workers["gpu_standin"].stand_in
    assert with_gpu.workers["gpu"].stand_in is None
    assert with_gpu.workers["gpu"].supports == ["gpu_inference"]


def test_the_demos_events_come_to_what_is_expected_of_them() -> None:
    config = load("demo")
    intake, seen = EventIntake(config), set()
    for seq, m in enumerate(demo_events("", datetime(2026, 12, 1, tzinfo=UTC)), start=1):
        message = StreamMessage(
            "EVENTS", 1, seq, m.subject, datetime(2026, 12, 1, tzinfo=UTC), (*m.headers.items(),), m.data
        )
        read = intake.read(message)
        if isinstance(read, Reject):
            assert m.expected == "reject"
            continue
        assert m.expected == ("duplicate" if read.event_key in seen else "event")
        assert read.correlation_id == "demo-session"
        assert read.payload_problem is None, read.payload
        assert read.payload_type is not None
        assert read.notes == ()
        seen.add(read.event_key)
    kinds = Counter(m.expected for m in demo_events("a", datetime(2026, 12, 1, tzinfo=UTC)))
    assert (kinds["duplicate"], kinds["reject"]) == (1, 1)
