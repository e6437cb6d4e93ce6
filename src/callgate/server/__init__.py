"""The service: conversations with tools over HTTP, live and by several clients at once.

Requests come in, runs of a gate and their events go out as JSON or as server-sent events. Needs starlette; `callgate serve`
also needs uvicorn.
"""

from __future__ import annotations

from callgate.server.app import create_app
from callgate.server.options import ServiceOptions
from callgate.server.service import Ask, Service

__all__ = ["Ask", "Service", "ServiceOptions", "create_app"]
