"""Heartbeats of agents old, new and broken."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model_foundry.fleet.heartbeat import (
    MAX_BYTES,
    BadHeartbeat,
    Gpu,
    Heartbeat,
    Progress,
    ServedModel,
    read_heartbeat,
    workers_bucket,
)

NOW = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
LEAST = {"name": "moon", "url": "http://moon:11434", "api": "ollama"}


def read(**changes: Any) -> Heartbeat:
    """A heartbeat that can be read."""
    found = read_heartbeat(json.dumps({**LEAST, **changes}).encode(), "moon")
    assert isinstance(found, Heartbeat), found
    return found


def refused(data: bytes | dict[str, Any], key: str = "moon") -> str:
    """Why a value is no heartbeat."""
    found = read_heartbeat(data if isinstance(data, bytes) else json.dumps(data).encode(), key)
    assert isinstance(found, BadHeartbeat), found
    assert found.key == key
    return found.reason


# -- agents of before -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("supports", [{}, {"supports": None}, {"supports": []}])
def test_an_agent_that_does_not_say_what_it_supports_is_a_cpu_worker(supports: dict[str, Any]) -> None:
    found = read(**supports)
    assert (found.supports, found.notes) == (["cpu_inference"], ())


def test_one_capability_is_read_as_a_list() -> None:
    assert read(supports="gpu_inference").supports == ["gpu_inference"]


def test_the_order_of_capabilities_is_kept_and_repetitions_are_dropped() -> None:
    found = read(supports=["gpu_inference", "embedding", "gpu_inference", "cpu_inference"])
    assert found.supports == ["gpu_inference", "embedding", "cpu_inference"]


def test_the_heartbeat_of_the_design_is_read_whole() -> None:
    gpu = {"index": 0, "name": "RTX 3070", "util_percent": 12.5, "vram_used_mb": 7012, "vram_total_mb": 8192}
    found = read(supports=["gpu_inference"], models=["qwen2.5:7b"], slots=3, gpu=gpu, version="0.12.3")
    assert found.gpu == Gpu(**gpu)
    assert (found.slots, found.version, found.notes) == (3, "0.12.3", ())
    assert found.models == [ServedModel(name="qwen2.5:7b")]


def test_models_may_be_names_or_objects_and_the_first_of_a_name_counts() -> None:
    found = read(models=["a", {"name": "b", "size_bytes": 5, "loaded": True}, {"name": "a", "size_bytes": 1}])
    assert found.models == [ServedModel(name="a"), ServedModel(name="b", size_bytes=5, loaded=True)]
    assert read(models="a").models == [ServedModel(name="a")]


def test_what_nobody_knows_yet_is_kept() -> None:
    found = read(rack="left", power={"watts": 65}, extra=3)
    assert found.extra == {"rack": "left", "power": {"watts": 65}, "extra": 3}
    assert read_heartbeat(found.to_bytes(), "moon") == found


def test_absent_is_unknown_and_never_zero() -> None:
    found = read()
    unknown = (found.slots, found.gpu, found.running, found.waiting, found.version, found.reachable, found.sent_at)
    assert unknown == (None,) * 7
    assert found.progress == Progress()


# -- what is broken costs only itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", ["3", 0, -1, True, 1.5, [], 10**6])
def test_slots_that_are_no_count_are_unknown(slots: Any) -> None:
    found = read(slots=slots)
    assert found.slots is None
    assert len(found.notes) == 1
    assert found.notes[0].startswith("slots is ")
    assert found.notes[0].endswith("allowed: a whole number from 1 to 1024")


@pytest.mark.parametrize(
    ("field", "value", "note"),
    [
        ("gpu", "RTX 3070", "gpu is 'RTX 3070'; allowed: an object"),
        ("gpu", {"vram_used_mb": "much"}, "gpu.vram_used_mb is 'much'; allowed: a number, not below 0"),
        ("gpu", {"util_percent": 180}, "gpu.util_percent is 180; allowed: a number from 0 to 100"),
        ("gpu", {"index": -1}, "gpu.index is -1; allowed: a whole number from 0"),
        ("gpus", {"index": 0}, "gpus is an object; allowed: a list"),
        ("gpus", [3], "gpus[0] is 3; allowed: an object"),
        ("models", 3, "models is 3; allowed: a list"),
        ("models", [3], "models[0] is a number; allowed: a name, or an object with one"),
        ("models", [{"size": 3}], "models[0].name is missing; allowed: text of 1 to 256 characters"),
        ("models", [""], "models[0].name is empty; allowed: text of 1 to 256 characters"),
        ("models", [{"name": "a", "loaded": "yes"}], "models[0].loaded is 'yes'; allowed: true or false"),
        ("supports", {"cpu": 1}, "supports is an object; allowed: a list"),
        ("supports", ["cpu inference"], "supports[0] is 'cpu inference'; allowed: the name of a capability"),
        ("supports", [None], "supports[0] is null; allowed: the name of a capability"),
        ("version", 5, "version is 5; allowed: text"),
        ("running", -2, "running is -2; allowed: a whole number from 0"),
        ("reachable", 1, "reachable is 1; allowed: true or false"),
        ("sent_at", "yesterday", "sent_at is 'yesterday'; allowed: a time such as 2026-12-01T12:00:00Z"),
        ("state_hint", "fine", "state_hint is 'fine'; allowed: ready, loading, misconfigured, down"),
        ("progress", [1], "progress is a list; allowed: an object"),
        ("progress", {"stalled_s": "no"}, "progress.stalled_s is 'no'; allowed: a number, not below 0"),
        ("notes", {"a": 1}, "notes is an object; allowed: a list"),
    ],
)
def test_an_optional_field_that_can_not_be_used_costs_itself_and_a_note(field: str, value: Any, note: str) -> None:
    found = read(**{field: value})
    assert found.notes == (note,)
    assert found.supports == ["cpu_inference"]


def test_a_broken_model_does_not_cost_the_others() -> None:
    assert [m.name for m in read(models=[3, {"name": "a", "size_bytes": "big"}, "b"]).models] == ["a", "b"]


def test_a_broken_figure_of_a_gpu_does_not_cost_the_others() -> None:
    assert read(gpu={"index": 1, "vram_used_mb": None, "power_w": -3}).gpu == Gpu(index=1)


# -- what must be there ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": None}, "name is missing; allowed: text"),
        ({"name": 3}, "name is a number; allowed: text"),
        ({"name": "my moon"}, "name is 'my moon'; allowed: 1 to 64 of letters"),
        ({"name": "moon."}, "allowed: no dot at the end"),
        ({"name": "sun"}, "name is 'sun', its key 'moon'; allowed: the same"),
        ({"url": None}, "url is missing; allowed: text"),
        ({"url": "ftp://moon"}, "url is 'ftp://moon'; allowed: http(s)://host[:port]"),
        ({"url": "http://"}, "allowed: http(s)://host[:port]"),
        ({"url": "http://moon:port"}, "allowed: http(s)://host[:port]"),
        ({"url": "http://[::bad"}, "allowed: http(s)://host[:port]"),
        ({"url": "http://mo on"}, "allowed: http(s)://host[:port]"),
        ({"url": "http://me:secret@moon"}, "url holds credentials"),
        ({"url": "http://" + "m" * 3000}, "at most 2048 are read"),
        ({"api": "grpc"}, "api is 'grpc'; allowed: ollama, openai, searxng"),
        ({"api": ["ollama"]}, "api is a list; allowed: text"),
    ],
)
def test_a_heartbeat_of_nobody_knows_whom_is_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    reason = refused({**LEAST, **changes})
    assert said in reason
    assert "secret" not in reason


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no JSON: empty"),
        (b"\xff\xfe", "no JSON: not UTF-8"),
        (b'{"name": "moon", "name": "moon"}', "no JSON: key 'name' stands twice"),
        (b'{"name": "moon", "slots": NaN}', "no JSON: NaN is no JSON number"),
        (b"[" * 100_000, "no JSON: more than 64 levels"),
        (b"[]", "a list; allowed: an object"),
        (b" " * (MAX_BYTES + 1), f"at most {MAX_BYTES} are read"),
    ],
)
def test_a_value_that_is_no_object_is_refused_with_the_reason(data: bytes, said: str) -> None:
    assert said in refused(data)


# -- any bytes, any JSON --------------------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_FIELDS = sorted(Heartbeat.model_fields)
_INNER = [*Gpu.model_fields, *ServedModel.model_fields, *Progress.model_fields]
_PART = st.dictionaries(st.sampled_from(_INNER), _JSON, max_size=6)
_VALUE = _JSON | _PART | st.lists(_PART, max_size=3)


@given(st.binary(), st.text())
def test_no_bytes_are_too_odd(data: bytes, key: str) -> None:
    assert isinstance(read_heartbeat(data, key), BadHeartbeat)


@given(st.dictionaries(st.sampled_from(_FIELDS) | st.text(), _VALUE, max_size=10), st.booleans())
@example({"slots": 10**400, "running": 1e308, "sent_at": "0001-01-01T00:00:00+23:59"}, True)
@example({"sent_at": "9999-12-31T23:59:59-23:59", "version": "\x00", "problem": " \u2028 "}, True)
def test_no_json_is_too_odd_and_what_was_read_is_written_and_read_the_same(raw: dict[str, Any], named: bool) -> None:
    data = json.dumps({**raw, **LEAST} if named else raw).encode()
    found = read_heartbeat(data, "moon")
    assert isinstance(found, Heartbeat | BadHeartbeat)
    if isinstance(found, Heartbeat):
        assert read_heartbeat(found.to_bytes(), "moon") == found
    else:
        assert not named or "no JSON" in found.reason


# -- ours -----------------------------------------------------------------------------------------------------------


def test_what_we_write_is_read_the_same_and_holds_nothing_unknown() -> None:
    heartbeat = Heartbeat(
        name="card",
        url="https://card:8000/v1",
        api="openai",
        supports=["gpu_inference", "cpu_inference"],
        models=[ServedModel(name="gemma3:12b", size_bytes=8 * 2**30, quantization="Q4_K_M", loaded=True, vram_bytes=0)],
        slots=4,
        gpu=Gpu(index=1, name="RTX PRO 6000", vram_used_mb=90_000, vram_total_mb=97_887),
        gpus=[Gpu(index=0), Gpu(index=1)],
        running=0,
        version="0.11.0",
        sent_at=NOW,
        sequence=7,
        reachable=True,
        state_hint="ready",
        progress=Progress(generated_tokens_total=12, stalled_s=0),
        notes=("slots is 4 as given; the server has 2",),
        extra={"rack": "left"},
    )
    assert read_heartbeat(heartbeat.to_bytes(), "card") == heartbeat
    written = json.loads(heartbeat.to_bytes())
    assert "waiting" not in written
    assert (written["running"], written["sent_at"], written["rack"]) == (0, "2026-12-01T09:30:00Z", "left")


def test_a_time_is_written_in_utc_and_one_without_a_zone_is_refused() -> None:
    local = datetime.fromisoformat("2026-12-01T18:30:00+09:00")
    assert Heartbeat(**LEAST, sent_at=local).sent_at == NOW
    with pytest.raises(ValueError, match="timezone"):
        Heartbeat(**LEAST, sent_at=datetime(2026, 12, 1))


def test_half_an_emoji_in_a_models_name_can_be_sent() -> None:
    heartbeat = Heartbeat(**LEAST, models=[ServedModel(name="x\ud83d")])
    assert read_heartbeat(heartbeat.to_bytes(), "moon") == heartbeat


def test_the_bucket_is_named_after_the_fleets_and_the_same_for_all() -> None:
    assert workers_bucket("foundry", 3) == workers_bucket("foundry", 3)
    assert workers_bucket("lab").name == "lab_workers"
