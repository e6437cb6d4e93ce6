"""The start of a run for a request: once for its `Idempotency-Key`, wherever it is sent. Every endpoint that runs has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from callgate.server.body import header_of
from callgate.server.identity import CURRENT_PRINCIPAL
from callgate.types import JsonObject

if TYPE_CHECKING:
    from starlette.requests import Request

    from callgate.server.idempotency import ClaimedKey
    from callgate.server.runs import Run
    from callgate.server.service import Service

__all__ = ["key_of", "start_once"]


def key_of(request: Request) -> str | None:
    """The key of a request that may be sent twice, if it has one."""
    return header_of(request, b"idempotency-key")


async def start_once(
    service: Service,
    request: Request,
    body: JsonObject,
    start: Callable[[ClaimedKey | None], Awaitable[Run]],
    *,
    session: str | None = None,
) -> tuple[Run, JsonObject]:
    """The run of a request, which an earlier request with its key may have begun, and the headers that say so.

    Args:
        service: The service.
        request: The request.
        body: What is compared with that of another request with the key; has a `prompt` unless it goes on with a run.
        start: Begins the run.
        session: The session of the run; otherwise that of the body, or a new one.

    Raises:
        HttpError: the key was used with another body, cannot be one, or its run is not known any more.
    """
    key, was_there = key_of(request), False
    if key is None:
        run = await start(None)
    else:
        principal = CURRENT_PRINCIPAL.get()
        owner = None if principal is None else principal.owner
        run, was_there = await service.keys.run(key, body, start, owner=owner, session=session)
        run.provider = run.provider or service.providers.default_provider(service.gate)
    return run, {"Callgate-Run": run.id, **({"Idempotent-Replayed": "true"} if was_there else {})}
