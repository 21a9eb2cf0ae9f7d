"""Tasks of asyncio: ending them, and working while what has gathered is written away.

Belongs here: that. Does not belong here: what the tasks do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

AGAIN_S = 0.2


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancels tasks and waits until they have ended; what they raise is theirs.

    One cancellation is not enough: ``asyncio.wait_for``, before Python 3.12, swallows one that comes at the moment when
    what it waits for is done (cpython#86296), and nats-py waits so. The task then goes on, and whoever awaits it hangs.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, or asyncio complains that nobody did


async def while_flushing(work: Coroutine[Any, Any, T], flush: Callable[[], Awaitable[None]], every_s: float) -> T:
    """Works, and flushes every so often meanwhile and once more at the end; gives what the work gives.

    A flush that fails ends the work there and then: it must not be found after the last answer.

    Raises:
        Exception: what the flush or the work raises.
    """
    stop = asyncio.Event()

    async def flush_until_stopped() -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await stop.wait()
            await flush()
        await flush()  # what ended while the last one was being written

    working, flusher = asyncio.create_task(work), asyncio.create_task(flush_until_stopped())
    try:
        await asyncio.wait({flusher, working}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(working)
        stop.set()
        await flusher
    return await working
