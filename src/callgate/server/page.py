"""The web page: the files of `static/`, read once, with the headers that keep a page from doing anything but its work.

Nothing comes in but the name of a file. Names are looked up in a table of what the package ships, so no request ever touches
the file system. What the page does is the business of the files; what it may ask for is that of the other routes.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.server.bundle import bundle
from callgate.server.errors import HttpError

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["HEADERS", "StaticFile", "routes", "static_files"]

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"
ENTRY = "app.js"
STYLES = ("base.css", "page.css", "talk.css")
"""In the order in which a later rule beats an earlier one."""

CSP = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' blob: data:",
    "media-src blob:",
    "connect-src 'self'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    # Where a browser knows it: no string ever becomes HTML or a script, whatever the page's code tried.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))  # fmt: skip

HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # A file is asked for again each time, and sent only if it changed: a new version shows at once.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page as it is sent, plain and compressed."""

    data: bytes
    zipped: bytes
    kind: str
    etag: str


def static_files() -> dict[str, StaticFile]:
    """The files that the package ships, by name, and the script and the style that are made of them."""
    shipped = {entry.name: entry for entry in resources.files("callgate.server").joinpath("static").iterdir()}
    found = {name: entry.read_bytes() for name, entry in shipped.items() if name[name.rfind(".") :] in TYPES}
    modules = {name: data.decode() for name, data in found.items() if name.endswith(".js")}
    found["bundle.js"] = bundle(modules, ENTRY).encode()
    found["bundle.css"] = b"\n".join(found[name] for name in STYLES)
    return {name: _static_file(name, data) for name, data in found.items()}


def _static_file(name: str, data: bytes) -> StaticFile:
    digest = hashlib.sha256(data).hexdigest()[:32]
    return StaticFile(data, gzip.compress(data, mtime=0), TYPES[name[name.rfind(".") :]], f'"{digest}"')


def routes(service: Service) -> list[Route]:
    """The page at `/`, and what it is made of under `/static/`."""
    files = static_files()

    async def index(request: Request) -> Response:
        return _answer(request, files[INDEX])

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            raise HttpError(404, "not_found", f"there is no file {name!r}")
        return _answer(request, files[name])

    return [Route("/", index, name="page"), Route("/static/{name}", static, name="static")]


def _answer(request: Request, file: StaticFile) -> Response:
    # Neither form has a secret in it, so its length tells nothing.
    headers = {**HEADERS, "ETag": file.etag, "Vary": "Accept-Encoding"}
    known = request.headers.get("if-none-match", "")
    if known == "*" or file.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    headers["Content-Type"] = file.kind
    if not takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(file.data, headers=headers)
    # The two forms are two representations: what a cache knows of one says nothing of the other's bytes.
    return Response(file.zipped, headers={**headers, "Content-Encoding": "gzip", "ETag": f"W/{file.etag}"})


def takes_gzip(accepted: str) -> bool:
    """True if a client says that it reads gzip; `gzip;q=0` says that it does not."""
    for item in accepted.split(","):
        coding, _, weight = item.partition(";")
        if coding.strip().lower() in ("gzip", "x-gzip", "*"):
            return weight.replace(" ", "").lower().rstrip("0").rstrip(".") not in ("q=0", "q=")
    return False
