"""A look at what a story leaves on its event loop."""

from __future__ import annotations

import asyncio


async def no_task_is_left() -> None:
    """Lets tasks end that end by themselves; none may stay."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    left = (await asyncio.wait(others, timeout=60))[1] if others else set()
    assert [str(task.get_coro()) for task in left] == []
