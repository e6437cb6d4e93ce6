"""`/api/v1/files`: large media for prompts, uploaded in pieces and handed on to the provider.

A client announces a file, sends its pieces as base64 in order, and gets the part to put into a prompt. Pieces are kept in a
temporary file until the last one is there; an upload that breaks off goes on at `received`.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import time
import uuid
import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.content.build import media_part
from callgate.errors import StoreError
from callgate.run.media import files_of
from callgate.server.body import off_loop, read_json
from callgate.server.errors import HttpError, json_response
from callgate.server.identity import CURRENT_PRINCIPAL
from callgate.server.openapi import Operation, table
from callgate.server.peers import FORWARDED, PassedOn, number_in
from callgate.server.upload_folder import UploadFolder
from callgate.store.uploads import note_upload
from callgate.types import JsonObject, Media

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

logger = logging.getLogger("callgate.server")

SIZE_MAX = 2 * 1024**3
PENDING_MAX = 16
"""Uploads that are not complete. An owner with fewer of them takes the place of the one with most; otherwise the oldest idle
one makes room for another."""
IDLE_S = 600.0
"""Seconds of idleness after which an upload makes room for another one of an owner at the limit."""
PIECE_BYTES = 6 * 1024 * 1024
"""The size of a piece that fits into a body of 10 MiB."""

NEW: JsonObject = {
    "type": "object",
    "required": ["name", "size"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 200, "description": "Name of the file."},
        "mime_type": {
            "type": "string",
            "pattern": "^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+$",
            "maxLength": 200,
            "description": "Type of the file; by default by its name.",
        },
        "size": {"type": "integer", "minimum": 1, "maximum": SIZE_MAX, "description": "Bytes of the file."},
    },
    "additionalProperties": False,
}
PIECE: JsonObject = {
    "type": "object",
    "required": ["offset", "data"],
    "properties": {
        "offset": {
            "type": "integer",
            "minimum": 0,
            "maximum": SIZE_MAX,
            "description": "Place of the piece in the file: the bytes received so far.",
        },
        "data": {"type": "string", "contentEncoding": "base64", "description": "The bytes, at most `piece_bytes`."},
    },
    "additionalProperties": False,
}
STATE: JsonObject = {
    "type": "object",
    "required": ["id", "received", "size", "piece_bytes"],
    "properties": {
        "id": {"type": "string", "description": "Id of the upload."},
        "received": {"type": "integer", "description": "Bytes received so far."},
        "size": {"type": "integer", "description": "Bytes of the file."},
        "piece_bytes": {"type": "integer", "description": "The most bytes of a piece."},
        "part": {"type": "object", "description": "The part for a prompt, once the file is complete."},
    },
}


@dataclass(slots=True)
class _Upload:
    """A file that is being received."""

    id: str
    name: str
    mime_type: str
    size: int
    path: str
    owner: str | None
    """The principal that it belongs to; None without any."""
    received: int = 0
    is_busy: bool = False
    touched_s: float = field(default_factory=time.monotonic)

    def state(self) -> JsonObject:
        return {"id": self.id, "received": self.received, "size": self.size, "piece_bytes": PIECE_BYTES}

    def write(self, data: bytes) -> None:
        with open(self.path, "r+b") as file:
            file.seek(self.received)
            file.write(data)
        self.received += len(data)

    def remove(self) -> None:
        if os.path.exists(self.path):
            os.unlink(self.path)


_FOLDERS: weakref.WeakKeyDictionary[Service, UploadFolder] = weakref.WeakKeyDictionary()
_PENDING: weakref.WeakKeyDictionary[Service, dict[str, _Upload]] = weakref.WeakKeyDictionary()


async def begin(service: Service, request: Request) -> Response:
    """Announce a file for prompts. Its pieces follow in order; the answer to the last one has the part for a prompt."""
    body = await read_json(request, NEW)
    if files_of(service.gate.model) is None:
        raise HttpError(
            422, "no_uploads", f"The model {service.gate.model.name!r} has no uploads: send media in the prompt."
        )
    pending = _PENDING.setdefault(service, {})
    if len(pending) >= PENDING_MAX:
        _make_room(pending, _owner())
    path = _FOLDERS.setdefault(service, UploadFolder()).new_file()
    peers = service.options.peers
    id = uuid.uuid4().hex if peers is None else f"{peers.number}-{uuid.uuid4().hex}"
    upload = _Upload(id, body["name"], body.get("mime_type", ""), body["size"], path, _owner())
    pending[upload.id] = upload
    return json_response(upload.state(), 201)


def _make_room(pending: dict[str, _Upload], owner: str | None) -> None:
    """Give up an upload, so that nobody keeps all others out: one of the owner with most of them, or an idle one.

    Raises:
        HttpError: there is none.
    """
    counts = Counter(upload.owner for upload in pending.values())
    most = max(counts.values())
    is_due_s = time.monotonic() - IDLE_S
    found = [
        upload
        for upload in pending.values()
        if not upload.is_busy
        # Who has the most gives way to who would have no more than that with one more; nobody loses the only one.
        and ((counts[upload.owner] == most > max(counts[owner], 1)) or upload.touched_s <= is_due_s)
    ]
    if not found:
        raise HttpError(503, "busy", "Too many uploads are in progress: try again later.", headers={"Retry-After": "60"})
    pending.pop(min(found, key=lambda upload: upload.touched_s).id).remove()


async def piece(service: Service, request: Request) -> Response:
    """Receive the next chunk of a file, and pass the whole file on to the provider after the last one."""
    if (passed_on := _passed_on(service, request)) is not None:
        return passed_on
    body = await read_json(request, PIECE)
    upload = _found(service, request)
    if upload.is_busy:
        raise HttpError(409, "busy", "Another piece of this file is being received.")
    if body["offset"] != upload.received:
        raise HttpError(409, "wrong_offset", f"The next piece begins at {upload.received}.")
    try:
        data = await off_loop(request, lambda: base64.b64decode(body["data"], validate=True))
    except binascii.Error:
        raise HttpError(422, "invalid_request", "data: not base64") from None
    if upload.received + len(data) > upload.size:
        raise HttpError(422, "invalid_request", f"The file was announced with {upload.size} bytes, and this is more.")
    upload.is_busy = True
    if data:
        upload.touched_s = time.monotonic()
    try:
        await off_loop(request, lambda: upload.write(data))
        if upload.received < upload.size:
            return json_response(upload.state())
        files = files_of(service.gate.model)
        assert files is not None
        file = await files.upload(Media(path=upload.path, mime_type=upload.mime_type, name=upload.name))
    finally:
        upload.is_busy = False
    _PENDING[service].pop(upload.id, None)
    upload.remove()
    try:
        await note_upload(service.store, file)
    except StoreError as error:  # It expires by itself after two days.
        logger.warning("file %s at the provider may outlive its session: %s", file.name, error)
    return json_response(upload.state() | {"part": media_part(Media(uri=file.uri, mime_type=file.mime_type))})


async def shown(service: Service, request: Request) -> Response:
    """Return the number of bytes received: an interrupted upload continues there."""
    return _passed_on(service, request) or json_response(_found(service, request).state())


async def dropped(service: Service, request: Request) -> Response:
    """Cancel an upload."""
    if (passed_on := _passed_on(service, request)) is not None:
        return passed_on
    upload = _found(service, request)
    if upload.is_busy:
        raise HttpError(409, "busy", "A piece of this file is being received.")
    _PENDING[service].pop(upload.id, None)
    upload.remove()
    return json_response({"deleted": upload.id})


def _owner() -> str | None:
    principal = CURRENT_PRINCIPAL.get()
    return None if principal is None else principal.owner


def _passed_on(service: Service, request: Request) -> Response | None:
    """The response of the process that has the upload; None if it is this one."""
    peers = service.options.peers
    number = number_in(request.path_params["upload"])
    if peers is None or number in (None, peers.number) or FORWARDED in request.scope:
        return None
    return PassedOn(peers, number, _no_upload())


def _found(service: Service, request: Request) -> _Upload:
    upload = _PENDING.get(service, {}).get(request.path_params["upload"])
    if upload is None or upload.owner != _owner():
        raise _no_upload()
    return upload


def _no_upload() -> HttpError:
    return HttpError(404, "no_such_upload", "There is no such upload: it is complete, or was given up.")


OPERATIONS = (
    Operation("POST", "/api/v1/files", begin, takes=NEW, gives={201: STATE}, fails=(422, 503)),
    Operation(
        "POST", "/api/v1/files/{upload}", piece, takes=PIECE, gives={200: STATE}, fails=(404, 409, 422, 500, 502, 504)
    ),
    Operation("GET", "/api/v1/files/{upload}", shown, gives={200: STATE}, fails=(404,)),
    Operation("DELETE", "/api/v1/files/{upload}", dropped, gives={200: {"type": "object"}}, fails=(404, 409)),
)


def routes(service: Service) -> list[Route]:
    """The routes of uploads."""
    service.beside.append(_FOLDERS.setdefault(service, UploadFolder()).running)
    return table(service, OPERATIONS)
