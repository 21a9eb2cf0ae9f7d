"""``foundry bench``: what belongs to benchmarks, as one group of commands."""

from __future__ import annotations

import typer

bench_app = typer.Typer(help="Benchmarks: suites of prompts, sweeps, comparisons.")
