"""``foundry profile``: which roles are on, and switching them while everything runs."""

from __future__ import annotations

from typing import Annotated

import typer

from model_foundry import config as configuration
from model_foundry.cli.output import ConfigOption, JsonOption, console, print_json, print_table
from model_foundry.runtime import Foundry, switch_profile, switched_profile


def profile(
    name: Annotated[str | None, typer.Argument(help="The profile to switch to; left out, nothing changes.")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Go back to the configuration file's profile.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Show which roles are on, or switch to another profile. Nothing is restarted: the next prompt is routed by it."""
    if reset and name:
        raise typer.BadParameter("give a profile or --reset, not both")
    file = configuration.find_config_file(config)
    if reset or name:
        switch_profile(configuration.load(file), name)
    foundry = Foundry.load(file)
    settings = foundry.config
    switched = switched_profile(settings)
    roles = [
        {
            "role": role,
            "on": role in settings.active_roles,
            "model": found.model,
            "worker": found.worker,
            "substitute": found.substitute,
        }
        for role, found in settings.roles.items()
    ]
    if as_json:
        print_json(
            {
                "profile": settings.profile,
                "switched": switched is not None,
                "profiles": settings.profiles,
                "roles": roles,
            }
        )
        return
    where = "switched to with 'foundry profile'" if switched else f"by {file.name}"
    console.print(f"profile {settings.profile or '(none: every role is on)'}, {where}")
    rows = [(r["role"], "on" if r["on"] else "off", r["model"], r["worker"], r["substitute"]) for r in roles]
    print_table("", ["role", "", "model", "worker", "if off"], rows)
    if settings.profiles:
        console.print(f"profiles: {', '.join(settings.profiles)}")
