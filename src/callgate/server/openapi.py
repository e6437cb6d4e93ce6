"""One table of operations: what is routed is what is documented.

Operations come in; routes, an OpenAPI 3.1 document and a page that shows it without help from elsewhere go out.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from callgate import __version__
from callgate.server.errors import json_response, problem_schema
from callgate.server.identity import CURRENT_PRINCIPAL, EVERYTHING, Right, check_right
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["Operation", "document", "table"]

Endpoint: TypeAlias = "Callable[[Service, Request], Awaitable[Response]]"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
EVENTS_TYPE = "text/event-stream"
EVENT: JsonObject = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "description": "`run:number`; send the last one as `Last-Event-ID` to continue after it."},
        "event": {"type": "string", "description": "The type, as in `data`."},
        "data": {"type": "string", "contentMediaType": "application/json", "description": "The event as JSON."},
    },
}
"""One event of a stream."""
KEY_HEADER: JsonObject = {
    "Idempotency-Key": {
        "type": "string",
        "minLength": 1,
        "maxLength": 255,
        "description": "A retry with the same key and body is the same run.",
    }
}
"""The header of a request that may be sent twice."""
SESSION_HEADER: JsonObject = {
    "Callgate-Session": {
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "description": "The session that keeps the conversation; without it, the client does.",
    }
}
"""The header by which clients of other APIs name a session."""
ALWAYS = (400, 401, 403, 404, 405, 413, 415, 421, 422, 429, 503)
"""Statuses that any operation may answer with."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a client can ask for. The endpoint's docstring says what it is."""

    method: str
    path: str
    endpoint: Endpoint
    takes: JsonObject | None = None
    """JSON Schema of the body, if there is one."""
    body_required: bool = True
    query: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    headers: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    gives: Mapping[int, JsonObject] = field(default_factory=dict[int, JsonObject])
    """Status -> JSON Schema of the answer."""
    media_type: str = "application/json"
    streams: bool = False
    """True if the answer is, or can be, a stream of events."""
    right: Right | None = "chat"
    """The right that it needs; None: none, because it shows nothing of any conversation."""
    runs: bool = False
    """True if it begins a run, so that it takes an `Idempotency-Key`: see `keyed_start.py`."""
    fails: tuple[int, ...] = ()
    """Further statuses of errors."""
    problem: JsonObject | None = None
    """JSON Schema of its errors, where they are not told in our own shape."""


class TableRoute(Route):
    """A path with all that can be done there."""

    operations: Sequence[Operation] = ()


def table(service: Service, operations: Iterable[Operation]) -> list[Route]:
    """The routes of some operations: one for each path, so that a wrong method is told which ones there are."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [_route(service, path, found) for path, found in by_path.items()]


def _route(service: Service, path: str, operations: Sequence[Operation]) -> Route:
    endpoints: dict[str, tuple[Endpoint, Right | None]] = {
        operation.method: (operation.endpoint, operation.right) for operation in operations
    }
    if "GET" in endpoints and all(operation.media_type != EVENTS_TYPE for operation in operations):
        endpoints["HEAD"] = endpoints["GET"]
    route = TableRoute(path, _Dispatch(service, endpoints), methods=list(endpoints), name=path)
    route.operations = operations
    return route


class _Dispatch:
    """An ASGI application of what can be done at one path. What goes wrong in it is answered by the guard."""

    def __init__(self, service: Service, endpoints: Mapping[str, tuple[Endpoint, Right | None]]) -> None:
        self._service = service
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._endpoints.get(scope["method"])
        if found is None:  # HEAD, where a GET never ends.
            raise HTTPException(405, headers={"Allow": ", ".join(self._endpoints)})
        endpoint, right = found
        principal = CURRENT_PRINCIPAL.get()
        if right is not None and principal is not EVERYTHING:
            check_right(principal, right)
            # A session in the path is that of the client, whatever is done with it.
            parameters = scope["path_params"]
            session = parameters.get("id") or parameters.get("session")
            if session is not None:
                await self._service.check_session(session)
        response = await endpoint(self._service, Request(scope, receive, send))
        await response(scope, receive, send)


# The document ------------------------------------------------------------------------------------------------------------


def document(routes: Iterable[BaseRoute]) -> JsonObject:
    """The OpenAPI document of everything in the table."""
    paths: dict[str, JsonObject] = {}
    for route in routes:
        if isinstance(route, TableRoute):
            path = _PARAMETER.sub(r"{\1}", route.path)
            paths[path] = {operation.method.lower(): _described(operation) for operation in route.operations}
    return {
        "openapi": "3.1.0",
        "info": {"title": "callgate", "version": __version__, "description": "Conversations in which a model calls tools."},
        "paths": paths,
        "components": {
            "schemas": {"Error": problem_schema()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(operation: Operation) -> JsonObject:
    doc = (operation.endpoint.__doc__ or "").strip()
    summary, _, rest = doc.partition("\n")
    places = (
        *(("path", name, {"type": "string", "minLength": 1}, True) for name in _PARAMETER.findall(operation.path)),
        *(("query", name, schema, False) for name, schema in operation.query.items()),
        *(
            ("header", name, schema, False)
            for name, schema in {**operation.headers, **(KEY_HEADER if operation.runs else {})}.items()
        ),
    )
    described: JsonObject = {
        "summary": summary.rstrip("."),
        "operationId": _name(operation),
        "parameters": [
            {"in": place, "name": name, "schema": schema, "required": required} for place, name, schema, required in places
        ],
        "responses": _answers(operation),
    }
    if rest.strip():
        described["description"] = " ".join(rest.split())
    if operation.takes is not None:
        content = {"application/json": {"schema": operation.takes}}
        described["requestBody"] = {"required": operation.body_required, "content": content}
    return described


def _answers(operation: Operation) -> JsonObject:
    schema = operation.problem or {"$ref": "#/components/schemas/Error"}
    problem: JsonObject = {"application/json": {"schema": schema}}
    answers: JsonObject = {}
    for status, schema in operation.gives.items():
        content: dict[str, Any] = {operation.media_type: {"schema": schema}}
        if operation.streams:
            content[EVENTS_TYPE] = {"schema": EVENT}
        answers[str(status)] = {"description": "Done." if status < 300 else "Not healthy.", "content": content}
    if "204" in answers:
        answers["204"].pop("content", None)
    for status in sorted({*ALWAYS, *operation.fails} - set(operation.gives)):
        answers[str(status)] = {"description": "The error.", "content": problem}
    return answers


def _name(operation: Operation) -> str:
    words = re.sub(r"\W+", "_", operation.path.replace("/api/v1/", "api_")).strip("_")
    return f"{operation.method.lower()}_{words or 'root'}"


# Its routes --------------------------------------------------------------------------------------------------------------


async def _openapi(service: Service, request: Request) -> Response:
    """Return this document."""
    return json_response(document(request.app.routes))


async def _docs(service: Service, request: Request) -> Response:
    """The same for people."""
    from callgate.server.docs_page import page

    return Response(page(document(request.app.routes)), media_type="text/html")


OPERATIONS = (
    Operation("GET", "/openapi.json", _openapi, gives={200: {"type": "object"}}, right=None),
    Operation("GET", "/docs", _docs, gives={200: {"type": "string"}}, media_type="text/html", right=None),
)


def routes(service: Service) -> list[Route]:
    """The routes of the documentation."""
    return table(service, OPERATIONS)
