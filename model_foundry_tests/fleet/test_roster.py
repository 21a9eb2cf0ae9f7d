"""Who is in the fleet, by the configuration and heartbeats."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from model_foundry.fleet.estimates import Rates
from model_foundry.fleet.heartbeat import Heartbeat, read_heartbeat
from model_foundry.fleet.roster import LOAD_S, Beat, Roster, load_times, roster
from model_foundry.routing import workers_for
from model_foundry_tests.builders import NOW, a_config


def beat(name: str, age_s: float = 1.0, **fields: Any) -> Beat:
    import json

    body = {"name": name, "url": "http://10.0.0.9:8080", "api": "openai", **fields}
    return Beat(read_heartbeat(json.dumps(body).encode(), name), NOW - timedelta(seconds=age_s))


def found(*beats: Beat, **changes: Any) -> Roster:
    names = [b.said.name if isinstance(b.said, Heartbeat) else b.said.key for b in beats]
    return roster(a_config(**changes), dict(zip(names, beats, strict=True)), NOW)


def test_without_heartbeats_the_fleet_is_what_the_file_says() -> None:
    fleet = found()
    assert fleet.config.workers == a_config().workers
    assert [m.unusable() for m in fleet.members.values()] == [None, None]


def test_a_worker_that_is_not_in_the_file_joins_with_what_it_says_and_with_our_models_that_it_has() -> None:
    fleet = found(beat("new", supports=["gpu_inference", "tpu"], models=["big", "their-own"], slots=4))
    member = fleet.members["new"]
    assert (member.config.slots, member.config.supports, member.config.models) == (4, ["gpu_inference"], {"big": "big"})
    assert member.notes == ("capabilities that are not configured: tpu",)
    assert workers_for(fleet.config, "big", "gpu_inference") == ("card", "new")


def test_a_worker_of_an_older_agent_serves_the_cpu_lane() -> None:
    """It says neither what it supports nor which models it has: every model of the lane, then."""
    fleet = found(beat("old"))
    assert fleet.members["old"].config.supports == ["cpu_inference"]
    assert workers_for(fleet.config, "small", "cpu_inference") == ("moon", "old", "card")


def test_ollamas_latest_is_our_name_without_a_tag() -> None:
    assert found(beat("new", models=["small:latest"])).members["new"].config.models == {"small": "small:latest"}


def test_a_worker_without_any_capability_of_ours_gets_nothing() -> None:
    fleet = found(beat("odd", supports=["tpu"]))
    assert workers_for(fleet.config, "small", "cpu_inference") == ("moon", "card")


def test_a_worker_of_the_file_that_falls_silent_is_gone_and_one_that_only_joined_is_left_out() -> None:
    fleet = found(beat("moon", age_s=31), beat("new", age_s=31))
    assert "moon is gone: its last heartbeat is 31 s old" in (fleet.members["moon"].unusable() or "")
    assert "new" not in fleet.members
    assert found(beat("moon", age_s=29)).members["moon"].unusable() is None


def test_strangers_can_be_shut_out_and_are_named() -> None:
    fleet = found(beat("new"), fleet={"accept_unknown": False})
    assert "new" not in fleet.members
    assert "accept_unknown" in fleet.refused["new"]


def test_what_is_no_heartbeat_is_named_and_costs_the_worker_of_the_file_nothing() -> None:
    fleet = roster(a_config(), {"moon": Beat(read_heartbeat(b"{", "moon"), NOW)}, NOW)
    assert set(fleet.refused) == {"moon"}
    assert fleet.members["moon"].unusable() is None


def test_the_file_decides_about_slots_and_a_server_that_says_otherwise_is_noted() -> None:
    fleet = found(beat("card", slots=1), beat("moon", slots=2))
    assert fleet.config.workers["card"].slots == 3
    assert "3 slots, its server has 1" in fleet.members["card"].notes[0]
    assert fleet.config.workers["moon"].slots == 2, "the file names none"


def test_a_server_that_its_agent_can_not_reach_or_that_moves_nothing_gets_nothing() -> None:
    down = found(beat("moon", reachable=False, problem="connection refused")).members["moon"]
    assert "connection refused" in (down.unusable() or "")
    failing = found(beat("moon", reachable=True, state_hint="down", problem="HTTP 500")).members["moon"]
    assert "HTTP 500" in (failing.unusable() or "")
    stalled = found(beat("moon", progress={"stalled_s": 121})).members["moon"]
    assert "moved nothing for 121 s" in (stalled.unusable() or "")
    assert found(beat("moon", progress={"stalled_s": 20})).members["moon"].unusable() is None


def card(total_mb: float | None, *sizes_gb: float | None) -> Roster:
    models = [{"name": f"m{n}", "size_bytes": None if s is None else int(s * 2**30)} for n, s in enumerate(sizes_gb)]
    names = [m["name"] for m in models]
    return found(
        beat("card", models=models, gpu={"vram_total_mb": total_mb}),
        models={"small": "cpu_inference", "big": "gpu_inference", **{str(n): "gpu_inference" for n in names}},
        workers={
            "moon": {"url": "http://m", "api": "ollama"},
            "card": {"url": "http://c", "api": "ollama", "supports": ["gpu_inference"], "models": names},
        },
    )


def test_models_that_fit_together_cost_no_loading_and_those_that_do_not_cost_what_was_measured() -> None:
    rates = {("card", "m1"): Rates(3, load_s=7.5)}
    assert load_times(card(24_000, 8, 8).members["card"], rates) == {}
    assert load_times(card(8_000, 5, 4).members["card"], rates) == {"m0": LOAD_S, "m1": 7.5}
    assert load_times(card(None, 5, 4).members["card"], rates) is None
    assert load_times(card(8_000, 5, None).members["card"], rates) is None


@given(st.dictionaries(st.sampled_from(["moon", "card", "x", "y"]), st.binary(max_size=80)), st.floats(0, 100))
def test_no_bytes_in_the_bucket_cost_a_worker_of_the_file_its_place(beats: dict[str, bytes], age_s: float) -> None:
    at = NOW - timedelta(seconds=age_s)
    fleet = roster(a_config(), {k: Beat(read_heartbeat(v, k), at) for k, v in beats.items()}, NOW)
    assert {"moon", "card"} <= set(fleet.members)
