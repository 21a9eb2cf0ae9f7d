"""``foundry up``: everything, until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Annotated

import typer

from model_foundry import config as configuration
from model_foundry.cli.output import ConfigOption, console
from model_foundry.embedded import endpoints
from model_foundry.embedded.supervisor import Supervisor
from model_foundry.runtime import Foundry, switch_profile


def up(
    profile: Annotated[
        str | None, typer.Option(help="Switch to this profile, as 'foundry profile' does [default: as it was].")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Start everything, keep it running; Ctrl-C or SIGTERM stops it cleanly."""
    if profile is not None:
        switch_profile(configuration.load(config), profile)
    foundry = Foundry.load(config)
    with stop_on_signals(), Supervisor(foundry, console.print).running() as stack:
        announce(foundry, stack)
        stack.watch()


def announce(foundry: Foundry, stack: Supervisor) -> None:
    """Says where everything is."""
    total_mb = sum(stack.rss_bytes().values()) / 2**20
    console.print()
    console.print(f"[bold green]up[/]  {foundry.config.name}, {total_mb:.0f} MB")
    console.print(f"  web UI  {stack.web_url}")
    console.print(f"  NATS    {endpoints.nats_url(foundry.config)}")
    console.print(f"  data    {foundry.config.data_dir}")
    console.print(f"  logs    {stack.log_dir}", soft_wrap=True)
    if foundry.config.profile:
        off = [role for role in foundry.config.roles if role not in foundry.config.active_roles]
        console.print(f"  profile {foundry.config.profile}" + (f", off: {', '.join(off)}" if off else ""))
    console.print("Publish to prompts.submit, or run: foundry submit 'What is a partition?' --wait")
    console.print("Ctrl-C stops everything.")


@contextlib.contextmanager
def stop_on_signals() -> Iterator[None]:
    """Within it, the first SIGINT or SIGTERM ends the block; further ones don't hurry the clean stop."""

    def interrupt(number: int, _frame: object) -> None:
        for again in (signal.SIGINT, signal.SIGTERM):
            signal.signal(again, signal.SIG_IGN)
        raise _Stop(number)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except _Stop:
        console.print("stopped")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Stop(BaseException):
    """A person or a service manager asked us to stop; no error."""
