"""Ending tasks."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from model_foundry.tasks import end, while_flushing
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


@in_loop
async def test_what_gathers_while_one_works_is_flushed_meanwhile_and_at_the_end() -> None:
    gathered, flushed = ["a"], list[str]()
    first = asyncio.Event()

    async def flush() -> None:
        flushed.extend(gathered)
        gathered.clear()
        first.set()

    async def work() -> str:
        await first.wait()
        gathered.append("b")
        return "done"

    assert await while_flushing(work(), flush, 0.01) == "done"
    assert flushed == ["a", "b"]


@in_loop
async def test_a_flush_that_fails_ends_the_work_there_and_then() -> None:
    ended = asyncio.Event()

    async def flush() -> None:
        raise OSError("the disk is full")

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(OSError, match="full"):
        await asyncio.wait_for(while_flushing(work(), flush, 0.01), 10)
    assert ended.is_set()
