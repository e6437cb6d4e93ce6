"""Run a tool's own code before a call: problems with its arguments, their values, and a preview. Never raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from callgate import user_code
from callgate.strict_json import without_surrogates
from callgate.threads import error_sentence
from callgate.tools.toolsets import Runnable

__all__ = ["preview_of", "problems_of", "running_values_of"]

logger = logging.getLogger("callgate.tools")

PREVIEW_S = 5.0
PREVIEW_CHARS_MAX = 100_000


def problems_of(tool: Runnable, args: Mapping[str, Any]) -> Sequence[str]:
    """Return the errors of a tool's types and validators for arguments that fit its schema."""
    outcome = user_code.call(lambda: _sentences(tool.problems(args)))
    if outcome.value is not None:
        return outcome.value
    logger.error("checking the arguments of %r failed", tool.definition.name, exc_info=outcome.error)
    return (without_surrogates(error_sentence(outcome.error)) if outcome.error else "they could not be checked",)


def _sentences(problems: Any) -> Sequence[str]:
    """Return the problems that a tool reports, one sentence each."""
    if not problems:
        return ()
    return [without_surrogates(str(problem)) for problem in ([problems] if isinstance(problems, str) else problems)]


def running_values_of(tool: Runnable, args: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the values that the tool gets for the arguments as plain data: as they are, and with moments in UTC.

    Empty if the tool does not convert arguments (a `running_values(args)` of the runnable does), or cannot.
    """
    read = getattr(tool, "running_values", None)
    if read is None:
        return ()

    def views() -> list[Mapping[str, Any]]:
        from callgate.definitions.running_values import plain_value  # Only rules about arguments need it.

        values = dict(read(args))
        return [plain_value(values), plain_value(values, utc=True)]

    return user_code.call(views).value or ()


async def preview_of(tool: Runnable, args: Mapping[str, Any]) -> str | None:
    """Return the preview of a checked call, if its tool has one: a coroutine `preview(args)` of the runnable."""
    offer = getattr(tool, "preview", None)
    if offer is None:
        return None

    async def previewed() -> str | None:
        async with asyncio.timeout(PREVIEW_S):
            text = await offer(dict(args))
        return None if text is None else without_surrogates(str(text))

    outcome = await user_code.call_async(previewed)
    if outcome.error is not None:
        # The preview is optional: the question is asked without it.
        logger.error("the preview of %r failed", tool.definition.name, exc_info=outcome.error)
    text = outcome.value
    if text is None or len(text) <= PREVIEW_CHARS_MAX:
        return text
    return f"{text[:PREVIEW_CHARS_MAX]}\n... {len(text) - PREVIEW_CHARS_MAX} more characters are not shown"
