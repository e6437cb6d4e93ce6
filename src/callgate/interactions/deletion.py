"""Stopping and deletion of stored interactions: ids in, those that the server may still keep out, each with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from callgate.errors import InvalidRequestError, ModelError, UsageError
from callgate.interactions.client import InteractionsClient

__all__ = ["ELSEWHERE", "UNKNOWN", "delete_all", "stop"]

AT_ONCE = 8
"""The limit of requests at the same time."""
ELSEWHERE = "they are stored at another endpoint of Google"
UNKNOWN = "the server knows none by these ids, since they have expired or belong to another key"


def _is_here(client: InteractionsClient, origin: str) -> bool:
    """True if interactions of this origin are stored where the client asks."""
    return origin.startswith(f"interactions:{client.surface.kind}:")


async def stop(client: InteractionsClient, model: str, id: str, origin: str) -> str:
    """Stop a background run; returns the reason if it may go on. One that is over cannot be stopped, and need not be."""
    if not _is_here(client, origin):
        return ELSEWHERE
    try:
        await client.cancel(model, id)
    except InvalidRequestError as error:
        return UNKNOWN if error.status == "NOT_FOUND" else ""
    except (ModelError, UsageError) as error:  # A transport of the program may have no way to ask.
        return str(error)
    return ""


async def delete_all(client: InteractionsClient, model: str, stored: Mapping[str, str]) -> dict[str, str]:
    """Make the server forget interactions; returns those that it may still keep, each with the reason.

    Args:
        client: The client of the server.
        model: The model in whose name the server is asked.
        stored: Id of an interaction -> the origin of its answer.
    """
    left = {id: ELSEWHERE for id, origin in stored.items() if not _is_here(client, origin)}
    asked = [id for id in stored if id not in left]
    for start in range(0, len(asked), AT_ONCE):
        batch = asked[start : start + AT_ONCE]
        outcomes = await asyncio.gather(*(_deleted(client, model, id) for id in batch))
        left |= {id: why for id, why in zip(batch, outcomes, strict=True) if why}
        if failed := [why for why in outcomes if why and why != UNKNOWN]:
            # A server that fails is not asked for the others.
            return left | dict.fromkeys(asked[start + AT_ONCE :], failed[0])
    return left


async def _deleted(client: InteractionsClient, model: str, id: str) -> str:
    """Delete an interaction; returns the reason if it may still be there."""
    try:
        return "" if await client.delete(model, id) else UNKNOWN
    except (ModelError, UsageError) as error:  # A transport of the program may have no way to ask.
        return str(error)
