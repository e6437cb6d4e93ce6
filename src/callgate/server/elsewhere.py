"""Runs in other processes: their events come from there, if it is a process of the same service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.server.errors import HttpError
from callgate.server.peers import FORWARDED, PassedOn
from callgate.store import owner as owners
from callgate.store.listing import session_info

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from callgate.server.service import Service

__all__ = ["elsewhere", "number_elsewhere"]


async def elsewhere(service: Service, request: Request, session: str) -> Response:
    """The events of a run that is in another process: from there, if it is one of the same service.

    Raises:
        HttpError: it is none, and they are only there.
    """
    info = await session_info(service.store, session)
    where = "another process" if info is None or info.owner is None else owners.shown(info.owner)
    message = (
        f"The run is in {where}, and its events can be followed only there: send the request to that process, or read the "
        "result here when it is over. It can be cancelled here."
    )
    refused = HttpError(409, "session_busy", message, headers={"Retry-After": "1"})
    peers, number = service.options.peers, number_elsewhere(service, request, session)
    if peers is None or number is None:
        raise refused
    return PassedOn(peers, number, refused)


def number_elsewhere(service: Service, request: Request, session: str) -> int | None:
    """The number of another process of the service that has the newest run of a session; None if none is known."""
    peers = service.options.peers
    number = None if peers is None or FORWARDED in request.scope else peers.number_of_run(session)
    return None if peers is None or number == peers.number else number
