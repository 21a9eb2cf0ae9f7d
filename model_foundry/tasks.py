"""Ending tasks of asyncio. Belongs here: that."""

from __future__ import annotations

import asyncio
from typing import Any

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
