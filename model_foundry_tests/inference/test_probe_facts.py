"""What servers tell of their models, slots and work: bytes as each server sends them, and bytes that none should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Literal

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.inference.client import new_client
from model_foundry.inference.metrics import ServerMetrics, read_metrics
from model_foundry.inference.probe import ProbeResult, Served, probe
from model_foundry.inference.target import WorkerTarget
from model_foundry_tests.inference.conftest import LLAMA_MODEL
from model_foundry_tests.inference.scripted import HANG, ScriptedServer, Step, as_json, http

Api = Literal["openai", "ollama"]


class ServerByPath(ScriptedServer):
    """A server that plays one script a path; 404 for others."""

    def __init__(self, scripts: Mapping[str, list[Step]]) -> None:
        super().__init__([http(404, as_json({"error": {"code": 404, "message": "File Not Found"}}))])
        self.by_path = dict(scripts)

    async def _play(self, script: Any, writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]) -> None:
        # what arrived last is what is played now: both happen without a pause in between
        await super()._play(self.by_path.get(self.received[-1].path, script), writer, gone)


def asked(
    answers: Mapping[str, Any], api: Api = "openai", timeout_s: float = 20, path: str = ""
) -> tuple[ProbeResult, set[str]]:
    """What is found at a server with these answers (JSON, or a script), and the paths that were asked for."""
    scripts = {p: a if _is_script(a) else [http(200, as_json(a))] for p, a in answers.items()}

    async def run() -> tuple[ProbeResult, set[str]]:
        async with ServerByPath(scripts) as server, new_client() as client:
            result = await probe(client, WorkerTarget("moon", server.url + path, api), timeout_s)
            return result, {r.path for r in server.received}

    return asyncio.run(run())


def _is_script(answer: Any) -> bool:
    return isinstance(answer, list) and bool(answer) and (isinstance(answer[0], bytes) or answer[0] is HANG)


def text(page: str) -> list[Step]:
    return [http(200, page.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})]


# -- Ollama, after its api/types.go ---------------------------------------------------------------------------------

TAGS = {
    "models": [
        {
            "name": "gemma3:12b",
            "model": "gemma3:12b",
            "modified_at": "2026-08-21T10:00:00Z",
            "size": 8149190253,
            "digest": "f4031aab637d",
            "details": {"family": "gemma3", "parameter_size": "12.2B", "quantization_level": "Q4_K_M"},
        },
        {"name": "llama3.2:3b", "size": 2019393189, "details": {"quantization_level": ""}},
        {"name": "tiny", "size": 0, "details": None},
    ]
}


def ps(**more: Any) -> dict[str, Any]:
    return {"models": [{"name": "gemma3:12b", "size": 10_000_000_000, "context_length": 8192, **more}]}


def test_ollama_tells_sizes_quantization_and_what_is_in_memory() -> None:
    found, _ = asked({"/api/tags": TAGS, "/api/ps": ps(size_vram=6_000_000_000)}, "ollama")
    assert found.served == [
        Served("gemma3:12b", 8149190253, "Q4_K_M", 8192, True, 6_000_000_000),
        Served("llama3.2:3b", 2019393189, None, None, False),
        Served("tiny", 0, None, None, False),
    ]
    assert (found.kind, found.status, found.slots, found.running, found.loading) == ("ollama", 200, None, None, False)


@pytest.mark.parametrize(("more", "vram_bytes"), [({}, 0), ({"size_vram": 0}, 0), ({"size_vram": "much"}, None)])
def test_a_model_in_memory_without_size_vram_is_on_the_cpu(more: dict[str, Any], vram_bytes: int | None) -> None:
    found, _ = asked({"/api/tags": TAGS, "/api/ps": ps(**more)}, "ollama")
    assert [m.vram_bytes for m in found.served] == [vram_bytes, None, None]


def test_an_ollama_that_does_not_say_what_is_in_memory_leaves_it_unknown() -> None:
    found, _ = asked({"/api/tags": TAGS}, "ollama")
    assert [(m.loaded, m.vram_bytes) for m in found.served] == [(None, None)] * 3


def test_a_model_in_memory_that_is_not_listed_is_served_too() -> None:
    found, _ = asked({"/api/tags": {"models": []}, "/api/ps": ps()}, "ollama")
    assert ([m.name for m in found.served], found.models) == (["gemma3:12b"], [])


# -- vLLM, after its docs/design/metrics.md -------------------------------------------------------------------------

VLLM_MODELS = {
    "object": "list",
    "data": [
        {
            "id": "Qwen/Qwen3-32B",
            "object": "model",
            "created": 1796277323,
            "owned_by": "vllm",
            "root": "Qwen/Qwen3-32B",
            "parent": None,
            "max_model_len": 40960,
        }
    ],
}
VLLM_METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-32B"} 3.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-32B"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-32B"} 1.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-32B"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-32B"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-32B"} 0.5
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a \\"b\\", c} d"} 1.2345e+06
vllm:generation_tokens_total{engine="1",model_name="Qwen/Qwen3-32B"} 5.0
vllm:generation_tokens_created{engine="1",model_name="Qwen/Qwen3-32B"} 1.79e+09
vllm:prompt_tokens_total{engine="0",model_name="Qwen/Qwen3-32B"} 100.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="Qwen/Qwen3-32B"} 7.0
python_gc_objects_collected_total{generation="0"} 1234.0
"""


def test_vllm_tells_context_version_and_work_with_its_engines_summed() -> None:
    found, paths = asked(
        {"/v1/models": VLLM_MODELS, "/version": {"version": "0.11.0"}, "/metrics": text(VLLM_METRICS)}, path="/v1"
    )
    assert (found.kind, found.version, found.slots) == ("vllm", "0.11.0", None)
    assert found.served == [Served("Qwen/Qwen3-32B", context_length=40960, loaded=True)]
    assert (found.running, found.waiting, found.kv_cache_usage) == (5, 1, 0.5)
    assert (found.generated_tokens_total, found.work_total) == (1_234_505, 1_234_605)
    assert paths == {"/v1/models", "/version", "/metrics"}, "vLLM logs every path that it does not have"


def test_an_older_vllm_names_its_cache_otherwise() -> None:
    page = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.75\nvllm:num_requests_running 0'
    assert read_metrics(page) == ServerMetrics("vllm", running=0, kv_cache_usage=0.75)


# -- llama.cpp, after tools/server/README.md ------------------------------------------------------------------------

LLAMA_MODELS = {
    "data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072, "size": 5, "n_params": 7}}]
}
PROPS = {
    "total_slots": 3,
    "default_generation_settings": {"n_ctx": 4096},
    "build_info": "b6000-abc",
    "model_ftype": "Q8",
}
LOADING = [http(503, as_json({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}))]
NO_METRICS = [http(501, as_json({"error": {"code": 501, "message": "This server does not support metrics endpoint."}}))]


def test_llama_cpp_tells_slots_context_and_build() -> None:
    slots = [{"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}, {"id": 2, "is_processing": True}]
    found, paths = asked({"/v1/models": LLAMA_MODELS, "/props": PROPS, "/slots": slots, "/metrics": NO_METRICS})
    assert (found.kind, found.slots, found.version, found.running) == ("llama.cpp", 3, "b6000-abc", 2)
    assert found.served == [Served("m", 5, "Q8", 4096, True)], "what it was trained for is no promise of this server"
    assert (found.waiting, found.work_total) == (None, None)
    assert "/version" not in paths


@pytest.mark.parametrize(
    ("slots", "running"),
    [
        ([{"state": 1}, {"state": 0}], 1),
        ([{"id": 0}], None),
        ([], None),
        ([3], None),
        ({"error": {"code": 501, "message": "This server does not support slots endpoint."}}, None),
    ],
)
def test_slots_of_older_servers_are_read_and_odd_ones_unknown(slots: Any, running: int | None) -> None:
    assert asked({"/v1/models": LLAMA_MODELS, "/slots": slots})[0].running == running


def test_metrics_tell_what_slots_do_not() -> None:
    page = "llamacpp:requests_processing 2\nllamacpp:requests_deferred 4\nllamacpp:tokens_predicted_total 90\n"
    found, _ = asked({"/v1/models": {"data": [{"id": "m"}]}, "/metrics": text(page + "llamacpp:n_decode_total 7")})
    assert (found.kind, found.running, found.waiting) == ("llama.cpp", 2, 4)
    assert (found.generated_tokens_total, found.work_total) == (90, 7)


def test_a_server_that_still_loads_is_there_and_loading() -> None:
    found, _ = asked({"/v1/models": LOADING})
    assert (found.reachable, found.ok, found.status, found.loading) == (True, False, 503, True)
    found, _ = asked({"/v1/models": LLAMA_MODELS, "/props": LOADING, "/slots": LOADING})
    assert (found.reachable, found.status, found.loading) == (True, 200, True)
    assert [m.loaded for m in found.served] == [False]


def test_a_router_of_several_models_says_which_are_in_memory() -> None:
    models = [
        {"id": m, "owned_by": "llamacpp", "status": {"value": s}} for m, s in (("a", "loaded"), ("b", "unloaded"))
    ]
    assert [m.loaded for m in asked({"/v1/models": {"data": models}})[0].served] == [True, False]


def test_a_real_llama_cpp_tells_all_of_it(llama_url: str) -> None:
    async def look_while_it_answers() -> tuple[ProbeResult, ProbeResult]:
        target = WorkerTarget("moon", llama_url, "openai")
        body = {"prompt": "Once", "n_predict": 1500, "ignore_eos": True, "stream": True}
        url = f"{llama_url}/completion"
        async with new_client() as client, client.stream("POST", url, json=body, timeout=60) as answer:
            chunks = answer.aiter_raw()
            await anext(chunks)
            first = await probe(client, target, 20)
            for _ in range(20):
                await anext(chunks)
            return first, await probe(client, target, 20)

    first, second = asyncio.run(look_while_it_answers())
    (model,) = first.served
    assert (model.name, model.quantization, model.context_length, model.loaded) == (LLAMA_MODEL, "Q4_1", 2048, True)
    assert model.size_bytes is not None
    assert 90e6 < model.size_bytes < 110e6
    assert (first.kind, first.slots, first.running, first.waiting, first.late) == ("llama.cpp", 2, 1, 0, ())
    assert first.work_total is not None
    assert second.work_total is not None
    assert second.work_total > first.work_total, "it moves within one answer"
    assert second.generated_tokens_total == first.generated_tokens_total, "this one does not"


# -- refusals and lateness ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403, 404, 500])
@pytest.mark.parametrize("api", ["openai", "ollama"])
def test_a_refusal_keeps_its_status(status: int, api: Api) -> None:
    refused = [http(status, b"no")]
    found, _ = asked({"/v1/models": refused, "/api/tags": refused}, api)
    assert (found.reachable, found.ok, found.status, found.loading) == (True, False, status, False)


def test_what_only_some_servers_have_may_come_late_without_making_the_server_look_down() -> None:
    answers = {"/v1/models": LLAMA_MODELS, "/props": PROPS, "/slots": [HANG], "/metrics": [HANG]}
    found, _ = asked(answers, timeout_s=2)
    assert (found.reachable, found.ok, found.slots, found.running) == (True, True, 3, None)
    assert sorted(found.late) == ["/metrics", "/slots"]


def test_no_server_has_no_status() -> None:
    async def run() -> ProbeResult:
        async with new_client() as client:
            return await probe(client, WorkerTarget("moon", "http://127.0.0.1:1", "ollama"), 20)

    found = asyncio.run(run())
    assert (found.reachable, found.status, found.kind, found.served) == (False, None, "ollama", [])


# -- metrics pages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sample", ["NaN", "+Inf", "-1", "", "much", "1_000", '{model_name="a} 3', "1e400", "9" * 5000, '{a="' + "x" * 9000]
)
def test_a_sample_that_can_not_be_read_costs_its_figure_only(sample: str) -> None:
    page = f"vllm:num_requests_running 1\nvllm:num_requests_running {sample}\nvllm:num_requests_waiting 4\n"
    assert read_metrics(page) == ServerMetrics("vllm", running=None, waiting=4)


def test_a_page_of_somebody_else_holds_nothing() -> None:
    assert read_metrics('process_cpu_seconds_total 3\nhttp_requests_total{code="200"} 5') == ServerMetrics()


_LINES = st.lists(
    st.tuples(
        st.sampled_from(["vllm:num_requests_running", "llamacpp:n_decode_total", "vllm:kv_cache_usage_perc", "#", ""]),
        st.text() | st.floats().map(lambda f: f" {f}") | st.text().map(lambda t: f'{{a="{t}"}} 1'),
    ).map("".join)
)


@given(_LINES)
def test_no_metrics_page_is_too_odd(lines: list[str]) -> None:
    found = read_metrics("\n".join(lines))
    for figure in (found.running, found.waiting, found.generated_tokens_total, found.work_total):
        assert figure is None or 0 <= figure <= 2**53
    assert found.kv_cache_usage is None or 0 <= found.kv_cache_usage <= 1


# -- any JSON -------------------------------------------------------------------------------------------------------

_SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400)
_KEYS = st.sampled_from(
    [
        *("data", "models", "name", "id", "owned_by", "meta", "size", "details", "quantization_level", "size_vram"),
        *("context_length", "max_model_len", "status", "value", "total_slots", "default_generation_settings", "n_ctx"),
        *("build_info", "version", "is_processing", "state", "error", "message"),
    ]
)
_ODD = st.recursive(_SCALAR, lambda v: st.lists(v, max_size=3) | st.dictionaries(_KEYS, v, max_size=5), max_leaves=20)


@given(listed=st.dictionaries(_KEYS, _ODD, max_size=5), others=_ODD, status=st.sampled_from([200, 200, 404, 503]))
@pytest.mark.parametrize("api", ["openai", "ollama"])
def test_no_json_of_a_server_is_too_odd(api: Api, listed: dict[str, Any], others: Any, status: int) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path in ("/v1/models", "/api/tags"):
            return httpx.Response(200, content=json.dumps(listed))
        return httpx.Response(status, content=json.dumps(others))

    async def run() -> ProbeResult:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            return await probe(client, WorkerTarget("moon", "http://moon", api), 20)

    found = asyncio.run(run())
    assert (found.reachable, found.ok, found.status) == (True, True, 200)
    for model in found.served:
        assert all(v is None or v >= 0 for v in (model.size_bytes, model.context_length, model.vram_bytes))
