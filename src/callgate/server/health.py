"""`/health` and `/api/v1/health`: how the parts of the service really are."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate import __version__
from callgate.errors import CallgateError
from callgate.server.certificate import tls_trouble_of
from callgate.server.errors import json_response
from callgate.server.identity import CURRENT_PRINCIPAL, trouble_of
from callgate.server.openapi import Operation, table
from callgate.server.security import LIVE
from callgate.server.tools import servers_json
from callgate.store.listing import check_writes, has_written
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service
    from callgate.store import Store

__all__ = ["routes", "state_of"]

STORE_S = 1.5
"""Seconds that the store may take to answer before it counts as down."""
LOOKS = 6
"""Number of times in between that the writes of runs are looked at: a store that is busy with them is not down."""
PROBE, PROBE_START = "health-probe", 2**31 - 1
"""A read that no session has facts for, however it is called: it shows that the store answers."""
FRESH_S = 0.25
"""Seconds that clients without the token get the same answer; with `STORE_S` less than two seconds."""
HEALTH: JsonObject = {
    "type": "object",
    "required": ["status"],
    "properties": {
        "status": {
            "enum": ["healthy", "degraded", "down"],
            "description": "`degraded`: something does not work, and runs do; `down`: no run can begin.",
        }
    },
}


async def _store_state(service: Service) -> JsonObject:
    began_s = time.monotonic()
    looking = asyncio.ensure_future(_look(service.store))
    try:
        for _ in range(LOOKS):  # And not once: what is late because this loop was busy comes in a later part.
            await asyncio.wait({looking}, timeout=STORE_S / LOOKS)
            if has_written(service.store, began_s):
                break
            if looking.done():
                looking.result()
                break
        else:
            return {"state": "down", "error": f"no answer within {STORE_S:g} s"}
    except CallgateError as error:
        return {"state": "down", "error": str(error)}
    finally:
        looking.add_done_callback(_read)
        looking.cancel()
    return {"state": "ok", "error": None}


async def _look(store: Store) -> None:
    await store.load(PROBE, start=PROBE_START)
    await check_writes(store, STORE_S)


def _read(looking: asyncio.Future[None]) -> None:
    """Take note of an outcome for which nobody waits any more."""
    if not looking.cancelled():
        looking.exception()


async def state_of(service: Service) -> JsonObject:
    """The whole state: the worst of its parts decides."""
    store, audit_trouble = await asyncio.gather(_store_state(service), service.audit_probe.trouble())
    servers = servers_json(service)
    workers: list[dict[str, Any]] = [
        {"name": str(getattr(toolset, "name", "workers")), **cast("JsonObject", state)}
        for toolset in service.gate.tools.toolsets
        if isinstance(state := getattr(toolset, "health", None), dict)
    ]
    trouble, access_trouble = service.model_trouble, trouble_of(service.options.identities)
    tls_trouble = tls_trouble_of(service.certificate)
    troubles = (trouble, access_trouble, audit_trouble, tls_trouble, *(server["error"] for server in servers))
    is_degraded = any(found is not None for found in troubles)
    is_degraded |= any(not pool.get("ready") and not pool.get("starting") for pool in workers)
    is_ending = service.stopping or service.draining
    status = "down" if store["state"] == "down" or is_ending else "degraded" if is_degraded else "healthy"
    ready = all(server["error"] is None for server in servers)
    return {
        "status": status,
        "version": __version__,
        "stopping": is_ending,
        "uptime_s": round(time.time() - service.began_s, 3),
        "runs": len(service.live),
        "model": {
            "provider": service.providers.default_provider(service.gate),
            "name": service.gate.model.name,
            "state": "failing" if trouble else "ok",
            "error": trouble,
        },
        "store": store,
        "access": {"state": "failing" if access_trouble else "ok", "error": access_trouble},
        "audit": {"state": "failing" if audit_trouble else "ok", "error": audit_trouble},
        "tls": {"state": "failing" if tls_trouble else "ok", "error": tls_trouble},
        "servers": servers,
        "workers": workers,
        # Field names of an older service, for monitors that know these.
        "mcp_server_ready": ready,
        "services": {
            "mcp_client": "connected" if ready else "degraded",
            "ai_provider": service.providers.default_provider(service.gate),
            "tools_count": str(len(service.gate.definitions)),
        },
    }


async def health(service: Service, request: Request) -> Response:
    """Report the health of the model, the servers of tools, the store and the workers."""
    state = await state_of(service)
    return json_response(state, 503 if state["status"] == "down" else 200)


async def alive(service: Service, request: Request) -> Response:
    """The process answers; nothing else is looked at, and any host name will do."""
    return json_response({"status": "down" if service.stopping else "healthy"})


async def brief(service: Service, request: Request) -> Response:
    """The same; without the right to it only the status, for probes."""
    principal = CURRENT_PRINCIPAL.get()
    if principal is not None and principal.may("admin"):
        return await health(service, request)
    status = await _brief_status(service)
    return json_response({"status": status}, 503 if status == "down" else 200)


async def _brief_status(service: Service) -> str:
    """The status; strangers cannot make it be computed more than once in a while."""
    if service.probe is None or service.probe[0] + FRESH_S < time.monotonic():
        task = asyncio.ensure_future(state_of(service))
        service.probe = (time.monotonic(), task)
    state = await asyncio.shield(service.probe[1])
    return "down" if service.stopping or service.draining else str(state["status"])


OPERATIONS = (
    Operation("GET", "/api/v1/health", health, gives={200: HEALTH, 503: HEALTH}, right="admin"),
    Operation("GET", "/health", brief, gives={200: HEALTH, 503: HEALTH}, right=None),
    Operation("GET", LIVE, alive, gives={200: HEALTH}, right=None),
)


def routes(service: Service) -> list[Route]:
    """The routes of health."""
    return table(service, OPERATIONS)
