"""Under which conditions a sweep is measured: versions and hardware, for its row.

Belongs here: saying what it ran with. Does not belong here: measuring anything. Nothing here names a person or a host
beyond what the configuration says.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import duckdb
import psutil

import model_foundry
from model_foundry.fleet.roster import Member
from model_foundry.inference.probe import ProbeResult


def versions(probes: Mapping[str, ProbeResult]) -> dict[str, Any]:
    """Of us and of each worker's server. The same sweep goes on only while these are the same."""
    servers = {name: {"kind": found.kind, "version": found.version} for name, found in sorted(probes.items())}
    return {
        "model_foundry": model_foundry.__version__,
        "python": platform.python_version(),
        "duckdb": duckdb.__version__,
        "servers": servers,
    }


def hardware(members: Mapping[str, Member]) -> dict[str, Any]:
    """Of each worker, as its agent and the configuration say, and of this host, which measures."""
    workers = {}
    for name, member in sorted(members.items()):
        gpu = member.beat.gpu if member.beat else None
        workers[name] = {
            "gpu": gpu.name if gpu else None,
            "gpu_index": member.config.gpu_index if gpu is None else gpu.index,
            "vram_total_mb": gpu.vram_total_mb if gpu else None,
            "slots": member.config.slots,
            "stand_in": member.config.stand_in,
            "description": member.config.description or None,
        }
    client = {
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(logical=True),
        "memory_mb": psutil.virtual_memory().total // 2**20,
    }
    return {"workers": workers, "client": client}


def _cpu_name() -> str | None:
    """The processor's name, as Linux has it; elsewhere as Python finds it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip() or None
    except OSError:
        pass
    return platform.processor() or None
