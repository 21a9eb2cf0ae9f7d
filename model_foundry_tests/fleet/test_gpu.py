"""Reading the GPUs: odd lines, and a tool that hangs, fails, shouts or is not there."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.fleet import gpu
from model_foundry.fleet.gpu import WSL_PATH, GpuReader, GpuReading, find_nvidia_smi, parse_nvidia_smi, read_gpus
from model_foundry.fleet.heartbeat import Gpu

CARD = "0, NVIDIA GeForce RTX 3070, GPU-1a2b, 61, 87, 7012, 8192, 180.52"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test puts its own nvidia-smi, before every other on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "nvidia-smi"


def install(tool: Path, *lines: str) -> None:
    tool.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    tool.chmod(0o755)


def read(timeout_s: float = 20) -> GpuReading:
    return asyncio.run(read_gpus(timeout_s))


# -- lines ----------------------------------------------------------------------------------------------------------


def test_a_card_is_read_field_by_field() -> None:
    assert parse_nvidia_smi(CARD) == [
        Gpu(
            index=0,
            name="NVIDIA GeForce RTX 3070",
            uuid="GPU-1a2b",
            temperature_c=61,
            util_percent=87,
            vram_used_mb=7012,
            vram_total_mb=8192,
            power_w=180.52,
        )
    ]


def test_two_cards_are_two_and_warnings_between_them_none() -> None:
    text = f"WARNING: infoROM is corrupted at gpu 0000:01:00.0\r\n{CARD}\r\n\n{CARD.replace('0, ', '1, ', 1)}\r\n"
    assert [g.index for g in parse_nvidia_smi(text)] == [0, 1]


def test_unified_memory_is_unknown_and_not_zero() -> None:
    (found,) = parse_nvidia_smi("0, NVIDIA GB10, GPU-5, 39, 0, [N/A], [N/A], 11.20")
    assert (found.name, found.vram_used_mb, found.vram_total_mb, found.util_percent) == ("NVIDIA GB10", None, None, 0)


def test_a_name_may_hold_commas() -> None:
    (found,) = parse_nvidia_smi(CARD.replace("RTX 3070", "RTX 3070, 8 GB, rev. 2"))
    assert (found.name, found.uuid) == ("NVIDIA GeForce RTX 3070, 8 GB, rev. 2", "GPU-1a2b")


@pytest.mark.parametrize(
    "written",
    [
        *("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", ""),
        *("-1", "NaN", "inf", "1e3", "٣", "0x10", "1_000", "12 %"),
    ],
)
def test_what_is_no_figure_is_unknown(written: str) -> None:
    (found,) = parse_nvidia_smi(", ".join(["1", "card", "GPU-1", *[written] * 5]))
    figures = (found.temperature_c, found.util_percent, found.vram_used_mb, found.vram_total_mb, found.power_w)
    assert figures == (None,) * 5


def test_a_figure_beyond_every_card_is_unknown() -> None:
    assert parse_nvidia_smi(CARD.replace("8192", "9" * 400))[0].vram_total_mb is None


def test_more_than_all_of_its_time_is_no_utilisation() -> None:
    assert parse_nvidia_smi(CARD.replace(" 87,", " 101,"))[0].util_percent is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.",
        "No devices were found",
        "Failed to initialize NVML: Driver/library version mismatch",
        "a, b, c, d, e, f, g, h, i",
    ],
)
def test_an_error_text_is_no_gpu(text: str) -> None:
    assert parse_nvidia_smi(text) == []


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    parse_nvidia_smi(text)


_FIELD = st.one_of(st.sampled_from(["[N/A]", "N/A", "", "-5", "nan"]), st.floats().map(str), st.integers().map(str))


@given(st.lists(st.lists(_FIELD, min_size=0, max_size=12)))
def test_figures_are_never_negative_nor_nan(rows: list[list[str]]) -> None:
    for found in parse_nvidia_smi("\n".join(", ".join(row) for row in rows)):
        figures = (found.temperature_c, found.util_percent, found.vram_used_mb, found.vram_total_mb, found.power_w)
        assert all(f is None or 0 <= f <= 2**53 for f in figures)


# -- finding it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "release", "found"),
    [
        ({"nvidia-smi": "/usr/bin/nvidia-smi", WSL_PATH: WSL_PATH}, "5.15.1-microsoft-standard", "/usr/bin/nvidia-smi"),
        ({WSL_PATH: WSL_PATH}, "5.15.1-microsoft-standard-WSL2", WSL_PATH),
        ({WSL_PATH: WSL_PATH}, "4.4.0-19041-Microsoft", WSL_PATH),
        ({WSL_PATH: WSL_PATH}, "6.8.0-generic", None),
        ({}, "5.15.1-microsoft-standard", None),
    ],
)
def test_the_tool_is_on_path_or_where_wsl_has_it(there: dict[str, str], release: str, found: str | None) -> None:
    assert find_nvidia_smi(there.get, lambda: release) == found


# -- running it -----------------------------------------------------------------------------------------------------


def test_a_host_without_the_tool_has_no_gpu_and_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu, "WSL_PATH", str(tmp_path / "none"))
    assert read() == GpuReading([], None)


def test_the_tool_is_asked_for_the_fields_that_are_read(tool: Path) -> None:
    install(tool, f'echo "$*" > {tool.parent}/asked', f'echo "{CARD}"')
    assert [g.name for g in read().gpus] == ["NVIDIA GeForce RTX 3070"]
    assert (tool.parent / "asked").read_text() == (
        "--query-gpu=index,name,uuid,temperature.gpu,utilization.gpu,memory.used,memory.total,power.draw "
        "--format=csv,noheader,nounits\n"
    )


def test_a_tool_that_fails_says_why_and_what_it_showed_is_kept(tool: Path) -> None:
    install(tool, f'echo "{CARD}"', 'echo "Unable to determine the device handle for GPU 0000:02:00.0" >&2', "exit 9")
    found = read()
    assert len(found.gpus) == 1
    assert found.problem == f"{tool} ended with 9: Unable to determine the device handle for GPU 0000:02:00.0"


def test_a_tool_that_shows_nothing_says_so(tool: Path) -> None:
    install(tool, 'echo "No devices were found"')
    assert read() == GpuReading([], f"{tool} shows no GPU: No devices were found")


def test_bytes_that_are_no_text_are_no_gpu(tool: Path) -> None:
    install(tool, "head -c 4000 /dev/urandom")
    found = read()
    assert found.gpus == []
    assert found.problem
    assert found.problem.isprintable()


def test_a_tool_that_never_ends_its_output_is_cut_off(tool: Path) -> None:
    install(tool, "exec yes 0, card")
    assert "wrote more than" in str(read().problem)


def test_a_tool_that_can_not_be_run_is_a_problem(tool: Path) -> None:
    install(tool)
    tool.write_bytes(b"\x7fELF no program")
    assert f"{tool} can't be run" in str(read().problem)


def test_a_tool_that_hangs_is_killed_with_all_it_started(tool: Path) -> None:
    pids = tool.parent / "pids"
    install(tool, f"sleep 600 & echo $$ $! > {pids}", "wait")
    began = time.monotonic()
    found = read(timeout_s=1.0)
    assert found == GpuReading([], f"{tool} gave no answer within 1 s")
    assert time.monotonic() - began < 10
    for pid in pids.read_text().split():
        assert not is_running(int(pid))


def test_a_tool_that_can_not_be_ended_is_not_started_a_second_time(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that hangs in its driver; here the kill itself is left out."""
    runs = tool.parent / "runs"
    install(tool, f"echo $$ >> {runs}", "exec sleep 600")
    monkeypatch.setattr(gpu, "_END_S", 0.05)
    really_kill = os.killpg
    monkeypatch.setattr(os, "killpg", lambda pid, number: None)

    async def read_three_times() -> list[str | None]:
        reader = GpuReader()
        hanging = [(await reader.read(1.0)).problem, (await reader.read(1.0)).problem]
        really_kill(int(runs.read_text()), 9)
        assert reader._hanging is not None
        await reader._hanging.wait()
        install(tool, f'echo "{CARD}"')
        return [*hanging, (await reader.read(20)).problem]

    first, second, third = asyncio.run(read_three_times())
    assert first == f"{tool} gave no answer within 1 s"
    assert second == f"nvidia-smi hangs and can't be ended (pid {runs.read_text().strip()})"
    assert third is None


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
