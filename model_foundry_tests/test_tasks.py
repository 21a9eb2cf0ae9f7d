"""Ending tasks."""

from __future__ import annotations

import asyncio
import contextlib

from model_foundry.tasks import end
from model_foundry_tests.parts import in_loop


@in_loop
async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 2:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            swallowed += 1
        await asyncio.sleep(60)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(end(task), 10)
    assert (swallowed, task.cancelled()) == (2, True)


@in_loop
async def test_what_a_task_raised_is_its_own() -> None:
    async def broken() -> None:
        raise ValueError("mine")

    task = asyncio.create_task(broken())
    await asyncio.sleep(0)
    await end(task)
    assert str(task.exception()) == "mine"
