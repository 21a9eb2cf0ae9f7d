"""The GPUs of this host, as NVIDIA's own tool shows them.

Belongs here: finding ``nvidia-smi``, running it bounded, reading its lines. Does not belong here: which GPU is a
worker's, and what too full or too hot is (``fleet.agent``, ``fleet.health``).

The lines are those of ``nvidia-smi --query-gpu=… --format=csv,noheader,nounits``: fields apart by ``, ``, MiB, percent,
degrees Celsius, watts. What a card can't tell stands there in words (``[N/A]``, ``[Not Supported]``): unknown. A GB10
has no memory of its own and writes ``[N/A]`` for it. A host without the tool has no GPU that we can see; that is no
fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import platform
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from model_foundry.fleet.heartbeat import Gpu

FIELDS = "index,name,uuid,temperature.gpu,utilization.gpu,memory.used,memory.total,power.draw"
ARGUMENTS = (f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
WSL_PATH = "/usr/lib/wsl/lib/nvidia-smi"
"""Where Windows puts it into a Linux of its own; not on the PATH of services (gpustack#1297, NemoClaw#8794)."""

_AFTER_NAME = 6
_MAX_OUTPUT_BYTES = 256 * 1024
_MAX_FIGURE = 2.0**53
_END_S = 1.0
"""For a killed process to be gone; one that hangs in its driver can't be killed at all."""
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_UNKNOWN_INDEX = re.compile(r"\[.*\]|N/A|")


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The GPUs, and why there may be more or other ones. ``problem`` is for a person; None: all is well."""

    gpus: list[Gpu] = field(default_factory=list)
    problem: str | None = None


def parse_nvidia_smi(text: str) -> list[Gpu]:
    """The GPUs in the tool's output; lines that are none of its rows (errors, warnings) are passed over. Pure.

    A name may hold commas: the first field and the last six are told by their place, the name is what is between.
    """
    return [gpu for line in text.splitlines() if (gpu := _row(line)) is not None]


def _row(line: str) -> Gpu | None:
    parts = [part.strip() for part in line.split(",")]
    if len(parts) < 2 + _AFTER_NAME:
        return None
    index = _number(parts[0])
    if index is None and not _UNKNOWN_INDEX.fullmatch(parts[0]):
        return None
    uuid, temperature, util, used, total, power = parts[-_AFTER_NAME:]
    util_percent = _number(util)
    return Gpu(
        index=None if index is None or index != int(index) else int(index),
        name=_words(", ".join(parts[1:-_AFTER_NAME])),
        uuid=_words(uuid),
        util_percent=None if util_percent is None or util_percent > 100 else util_percent,
        vram_used_mb=_number(used),
        vram_total_mb=_number(total),
        temperature_c=_number(temperature),
        power_w=_number(power),
    )


def _number(text: str) -> float | None:
    """A figure; None for everything that is none, negative ones too."""
    if not _NUMBER.fullmatch(text):
        return None
    found = float(text)
    return found if math.isfinite(found) and found <= _MAX_FIGURE else None


def _words(text: str) -> str | None:
    return None if not text or text == "N/A" or re.fullmatch(r"\[.*\]", text) else text[:256]


def find_nvidia_smi(
    which: Callable[[str], str | None] = shutil.which, kernel_release: Callable[[], str] = platform.release
) -> str | None:
    """Path of the tool: on PATH, else where WSL has it; None when there is none."""
    return which("nvidia-smi") or (which(WSL_PATH) if "microsoft" in kernel_release().lower() else None)


class GpuReader:
    """Reads the GPUs again and again, and never starts the tool beside one that hangs.

    A tool that hangs in its driver outlives being killed; a new one every few seconds would fill the host with them.
    """

    def __init__(self) -> None:
        self._hanging: asyncio.subprocess.Process | None = None

    async def read(self, timeout_s: float = 5.0) -> GpuReading:
        """The GPUs now. Never raises; what went wrong is in ``problem``.

        Args:
            timeout_s: after which the tool is killed.
        """
        if self._hanging is not None:
            if self._hanging.returncode is None:
                return GpuReading(problem=f"nvidia-smi hangs and can't be ended (pid {self._hanging.pid})")
            self._hanging = None
        path = find_nvidia_smi()
        if path is None:
            return GpuReading()
        try:
            process = await asyncio.create_subprocess_exec(
                path,
                *ARGUMENTS,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # so that all it starts can be ended with it
            )
        except OSError as error:
            return GpuReading(problem=f"{path} can't be run: {error.strerror or error}")
        code = None
        try:
            async with asyncio.timeout(timeout_s):
                output = await _read_all(process)
                code = await process.wait()
        except TimeoutError:
            return GpuReading(problem=f"{path} gave no answer within {timeout_s:g} s")
        except _TooMuch:
            return GpuReading(problem=f"{path} wrote more than {_MAX_OUTPUT_BYTES} bytes")
        finally:
            if code is None:
                await self._end(process)
        return _conclude(path, code, output)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            try:
                await asyncio.wait_for(process.wait(), _END_S)
            except TimeoutError:
                self._hanging = process


async def read_gpus(timeout_s: float = 5.0) -> GpuReading:
    """The GPUs of this host now, once. Never raises; see :class:`GpuReader` for reading them again and again."""
    return await GpuReader().read(timeout_s)


class _TooMuch(Exception):  # noqa: N818 (says what it wrote)
    """More output than any number of GPUs has."""


async def _read_all(process: asyncio.subprocess.Process) -> bytes:
    output = bytearray()
    while process.stdout is not None and (chunk := await process.stdout.read(64 * 1024)):
        output += chunk
        if len(output) > _MAX_OUTPUT_BYTES:
            raise _TooMuch
    return bytes(output)


def _conclude(path: str, code: int, output: bytes) -> GpuReading:
    text = output.decode("utf-8", "replace")
    gpus = parse_nvidia_smi(text)
    said = next((line.strip() for line in text.splitlines() if line.strip() and _row(line) is None), "")
    said = "".join(c if c.isprintable() else "�" for c in said)[:200]
    if code != 0:
        return GpuReading(gpus, f"{path} ended with {code}{': ' + said if said else ''}")
    if not gpus:
        return GpuReading(gpus, f"{path} shows no GPU{': ' + said if said else ''}")
    return GpuReading(gpus)
