"""Security checks of every request: host, origin, token, size and framing. No route runs before they passed.

Requests come in; they go on to the application, or are answered here with `{error, message, code}`. What a request wants is
not looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, cast

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callgate.server import access_log
from callgate.server.addresses import is_loopback
from callgate.server.counters import Metrics
from callgate.server.errors import (
    REQUEST_ID,
    HttpError,
    error_response,
    is_anthropics,
    problem_of,
    response_to,
    word_of,
)
from callgate.server.identity import CURRENT_PRINCIPAL, EVERYTHING, Principal
from callgate.server.mcp_discovery import PUBLIC_DOCUMENTS, challenge
from callgate.server.options import ServiceOptions
from callgate.server.quotas import RequestRates

__all__ = ["AUTHORIZED", "SecurityMiddleware", "is_loopback"]

Header = tuple[bytes, bytes]
_HEADER: Callable[[Any], Header] = cast("Any", tuple)
"""Convert a header from a server, which may be a list."""

logger = logging.getLogger("callgate.server")

LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})
LIVE = "/livez"
"""Path of the liveness probe: it costs and shows nothing, and probes know only an address."""
PROBES = frozenset({LIVE, "/health"})
"""Paths that answer for any host: without the token they show one word, and a web page learns nothing by it."""
SCRAPED = "/metrics"
"""Path that answers for any host name, given a token: monitors know pods by their addresses."""
PUBLIC = (frozenset({"/", "/docs", "/openapi.json", "/health", LIVE}) | PUBLIC_DOCUMENTS, ("/static/",))
"""Paths that need no token, and beginnings of such paths: they show nothing of any conversation."""
DISCARD_S = 2.0
DISCARD_BYTES = 64 * 1024 * 1024
"""Limits on how much of a body that is too large is still received, so that its sender reads the answer."""
HEADS_MAX = 256
"""Number of request heads that are kept, so that repeated ones are recognised."""
AUTHORIZED = "callgate.authorized"
"""In a scope: True if the request had the token; missing if there is none."""
REFUSAL = "callgate.refusal"
"""In a scope: the word for the reason why a request was refused, or failed."""
WHOLE = "callgate.whole"
"""In a scope: the body came with the head, so that nobody has to wait for it."""
WAKE = "callgate.wake"
"""In a scope: makes a `receive` that waits come back with an empty piece."""
WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
METHODS = WITH_BODY | {"GET", "HEAD", "OPTIONS"}
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")
_ABSOLUTE = re.compile(r"https?://([^/?#]*)(/.*)?", re.IGNORECASE | re.DOTALL)
_JSON_TYPE = re.compile(r'application/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?;?', re.IGNORECASE)
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)
"""Headers of every response that does not set them itself."""
EXPOSED = (
    b"X-Request-Id, Request-Id, Callgate-Run, Callgate-Session, Callgate-Left-Out, Mcp-Session-Id, Mcp-Protocol-Version, "
    b"Retry-After, X-Should-Retry, WWW-Authenticate"
)
PREFLIGHT = {"Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE", "Access-Control-Max-Age": "600"}
ALLOWED_MAX = 100
"""Maximum number of header names in one preflight; clients send fifteen or so."""
ALLOWED = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Callgate-Session"
"""The headers that a page may send if it does not say which."""
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")


class Head:
    """The head of a request, as far as it is checked here."""

    __slots__ = ("_headers", "_named", "_repeated", "has_fit_body", "is_probe", "method", "origin", "path", "scheme", "size")

    def __init__(self, method: str, path: str, scheme: str, target_bytes: int, headers: tuple[Header, ...]) -> None:
        self.method = method
        self.path = path
        self.scheme = scheme
        self.origin: str | None = None
        """The page of another origin that sent it, if that is allowed by name."""
        self.has_fit_body = False
        self.is_probe = False
        """True if it called the service by a name that only probes may use, and is shown what strangers are."""
        self.size = target_bytes + sum(len(name) + len(value) + 4 for name, value in headers)
        """In bytes, more or less."""
        self._headers = headers
        self._named = dict(headers)
        self._repeated = {name for name, count in Counter(name for name, _ in headers).items() if count > 1}

    def all(self, name: bytes) -> list[str]:
        """Every value of a header."""
        return [value.decode("latin-1") for key, value in self._headers if key == name]

    def one(self, name: bytes) -> str | None:
        """The value of a header; None if it is not there.

        Raises:
            HttpError: it is there twice.
        """
        value = self._named.get(name)
        if value is None:
            return None
        if name in self._repeated:
            raise HttpError(400, "bad_request", f"The header {name.decode()!r} is there {len(self.all(name))} times.")
        return value.decode("latin-1")


def _read_absolute(scope: Scope) -> None:
    """Read a target that is a whole address. Its host must be the one that the head names: a proxy may go by either."""
    found = _ABSOLUTE.fullmatch(scope["path"])
    if found is None:
        return
    authority, path = found.groups()
    raw = _ABSOLUTE.fullmatch((scope.get("raw_path") or b"").decode("latin-1"))
    scope["path"], scope["raw_path"] = path or "/", ((raw[2] if raw else path) or "/").encode("latin-1")
    named = authority.encode("latin-1", "replace")
    scope["headers"] = [
        (name, value if name != b"host" or value.lower() == named.lower() else value + b", " + named)
        for name, value in scope["headers"]
    ]


class SecurityMiddleware:
    """Pass on requests that may come in, and answer all others.

    Args:
        app: The application.
        options: Token, hosts, origins and limits.
        metrics: Counts responses.
        public: Paths that need no token, and beginnings of such paths.
        rates: Counts the requests of principals.
        is_leaving: True while no connection is to be used again, because the service ends soon.
    """

    def __init__(
        self,
        app: ASGIApp,
        options: ServiceOptions,
        metrics: Metrics,
        *,
        public: tuple[frozenset[str], tuple[str, ...]],
        rates: RequestRates | None = None,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self.app = app
        self._is_leaving = is_leaving
        self.options = options
        self._metrics = metrics
        self._public, self._public_folders = public
        self._hosts = LOCAL | {host.lower() for host in options.hosts}
        self._is_any_host = "*" in options.hosts
        self._origins = frozenset(origin.lower() for origin in options.origins)
        self._token = _digest(options.token) if options.token else None
        self._rates = rates or RequestRates()
        # The checks of a head have the same outcome each time that it comes, and most come often.
        self._known_head = lru_cache(HEADS_MAX)(self._checked)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        answer = _Answer(send, self._metrics, scope, is_last=self._is_leaving())
        try:
            await self._answer(scope, receive, answer)
        finally:
            answer.log()

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        if not scope["path"].startswith("/"):
            _read_absolute(scope)
        try:
            target_bytes = len(scope.get("raw_path") or b"") + len(scope["query_string"])
            scheme, headers = scope.get("scheme", "http"), tuple(map(_HEADER, scope["headers"]))
            head = self._known_head(scope["method"], scope["path"], scheme, target_bytes, headers)
            answer.origin = head.origin
            if head.origin is not None and head.method == "OPTIONS" and head.one(b"access-control-request-method"):
                await _preflight(head, answer.send)
                return
            await self._identify(head, scope)
            if not head.has_fit_body:
                self._check_body(head)
        except HttpError as error:
            await self._refuse(error, scope, receive, answer.send)
            return
        try:
            # A body that came whole is as long as its head says, which was looked at.
            await self.app(scope, receive if WHOLE in scope else _Body(receive, self.options).receive, answer.send)
        except ClientDisconnect:
            return
        except Exception as error:
            response = response_to(error, scope)
            scope[REFUSAL] = word_of(error)
            # What was foreseen has been a line in the log already, with its sentence.
            if response is None or (answer.has_begun and not isinstance(error, HttpError)):
                logger.exception("%s %s failed", head.method, head.path)
            if not answer.has_begun:
                await (response or error_response(problem_of(error), scope))(scope, receive, answer.send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle scopes other than requests: the lifespan, and web sockets."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "There are no web sockets here."})

    async def _refuse(self, error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
        problem = problem_of(error)
        scope[REFUSAL] = error.error
        # What is still on the way of a refused body must not be taken for another request.
        problem.headers = {**problem.headers, "Connection": "close"}
        if error.code == 413:
            send = _discarding(receive, send)
        await error_response(problem, scope)(scope, receive, send)

    def _checked(self, method: str, path: str, scheme: str, target_bytes: int, headers: tuple[Header, ...]) -> Head:
        """A head that is in order as far as that does not depend on who sent it.

        Raises:
            HttpError: it is not.
        """
        head = Head(method, path, scheme, target_bytes, headers)
        _check_framing(head)
        self._check_size(head)
        head.origin = self._check_origin(head, self._check_host(head))
        return head

    def _check_size(self, head: Head) -> None:
        """Limit the whole head: h11 limits only heads that arrive in pieces."""
        if head.size > self.options.header_bytes:
            raise HttpError(431, "headers_too_large", f"The head may have at most {self.options.header_bytes} bytes.")

    def _check_host(self, head: Head) -> str:
        hosts = head.all(b"host")
        found, is_scrape = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None, False
        if found is not None and not self._is_any_host and found[1].lower() not in self._hosts:
            head.is_probe = head.path in PROBES and head.method in ("GET", "HEAD")
            # A page that a foreign name leads here has no token, and cannot read what needs one.
            has_token = self._token is not None or self.options.identities is not None
            is_scrape = has_token and head.path == SCRAPED and head.method in ("GET", "HEAD")
        is_known = found is not None and (head.is_probe or is_scrape or self._is_any_host or found[1].lower() in self._hosts)
        if not is_known:
            named = ", ".join(map(repr, hosts))[:100] or "none"
            raise HttpError(
                421, "wrong_host", f"This service does not answer for the host {named}; --allow-host adds a name."
            )
        return hosts[0].lower()

    def _check_origin(self, head: Head, host: str) -> str | None:
        """Refuse other web pages; return the origin of a page that is allowed by name."""
        origin = head.one(b"origin")
        if origin is not None and origin.lower() in self._origins:
            return origin
        if origin is not None and origin.lower() != f"{head.scheme}://{host}":
            raise HttpError(403, "wrong_origin", "Web pages of other origins may not use this service.")
        if origin is None and head.one(b"sec-fetch-site") in ("cross-site", "same-site") and not _is_navigation(head):
            raise HttpError(403, "cross_site", "Other web sites may not use this service.")
        return None

    async def _identify(self, head: Head, scope: Scope) -> None:
        """Note who sent a request.

        Raises:
            HttpError: that is not known and has to be, or it has sent too many.
        """
        if head.is_probe:
            scope[AUTHORIZED] = False
            CURRENT_PRINCIPAL.set(None)
        elif self._token is None and self.options.identities is None:
            CURRENT_PRINCIPAL.set(EVERYTHING)
        else:
            principal = await self._principal(head)
            scope[AUTHORIZED] = principal is not None
            CURRENT_PRINCIPAL.set(principal)
            if principal is not None and principal.quota.requests_per_minute is not None:
                await self._rates.take(principal)

    async def _principal(self, head: Head) -> Principal | None:
        """Return who sent a request; None if that is not known, and it needs no token.

        Raises:
            HttpError: it needs one.
        """
        for given in _tokens_of(head):
            if self._token is not None and hmac.compare_digest(_digest(given), self._token):
                return EVERYTHING
            if self.options.identities is not None and (found := await self.options.identities.principal(given)):
                return found
        if head.path not in self._public and not head.path.startswith(self._public_folders):
            wanted = challenge(head.path, f"{head.scheme}://{head.one(b'host')}", self.options)
            raise HttpError(
                401, "unauthorized", "Send the token as 'Authorization: Bearer ...'.", headers={"WWW-Authenticate": wanted}
            )
        return None

    def _check_body(self, head: Head) -> None:
        length = head.one(b"content-length")
        if length is not None and int(length) > self.options.body_bytes:
            raise _too_large(self.options.body_bytes)
        kind = head.one(b"content-type")
        is_empty = head.one(b"transfer-encoding") is None and length in (None, "0")
        head.has_fit_body = head.method not in WITH_BODY or (kind is None and is_empty)
        if head.has_fit_body:
            return
        if kind is None or not _JSON_TYPE.fullmatch(kind.strip()):
            raise HttpError(415, "unsupported_media_type", "Send JSON, and say so: 'Content-Type: application/json'.")
        if head.one(b"content-encoding") not in (None, "identity"):
            raise HttpError(415, "unsupported_media_type", "Send the body as it is: no Content-Encoding.")
        head.has_fit_body = True


def _check_framing(head: Head) -> None:
    """Two ways to say where a body ends are one way to smuggle a second request in."""
    length, coding = head.one(b"content-length"), head.one(b"transfer-encoding")
    if length is not None and coding is not None:
        raise HttpError(400, "bad_request", "Content-Length and Transfer-Encoding exclude each other.")
    if length is not None and not (length.isascii() and length.isdigit() and len(length) <= 15):
        raise HttpError(400, "bad_request", "Content-Length must be one whole number.")
    if coding is not None and coding.strip().lower() != "chunked":
        raise HttpError(400, "bad_request", "The only Transfer-Encoding here is chunked.")


def _is_navigation(head: Head) -> bool:
    """A person who follows a link to a page: it is shown in a window of its own, and nothing is done."""
    is_window = (head.one(b"sec-fetch-mode"), head.one(b"sec-fetch-dest")) == ("navigate", "document")
    return is_window and head.method in ("GET", "HEAD") and head.path in ("/", "/docs")


def _tokens_of(head: Head) -> Iterable[str]:
    """Tokens of a request: a bearer token, or the API key that clients of Google and of Anthropic send."""
    scheme, _, token = (head.one(b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip()
    yield from head.all(b"x-goog-api-key")
    yield from head.all(b"x-api-key")


def _digest(token: str) -> bytes:
    """Hash a token, so that a comparison takes as long for any two of them."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _too_large(bytes_max: int) -> HttpError:
    return HttpError(413, "too_large", f"The body may have at most {bytes_max} bytes.")


class _Body:
    """The body of one request, counted while it comes."""

    def __init__(self, receive: Receive, options: ServiceOptions) -> None:
        self._receive = receive
        self._options = options
        self._bytes = 0
        self._is_whole = False

    async def receive(self) -> Message:
        """The next piece.

        Raises:
            HttpError: it took too long, or the body is too large.
        """
        if self._is_whole:
            return await self._receive()
        message = await self._in_time()
        if message["type"] != "http.request":
            self._is_whole = True
            return message
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._options.body_bytes:
            error = _too_large(self._options.body_bytes)
            error.headers["Connection"] = "close"
            raise error
        self._is_whole = not message.get("more_body", False)
        return message

    async def _in_time(self) -> Message:
        try:
            async with asyncio.timeout(self._options.body_idle_s):
                return await self._receive()
        except TimeoutError:
            message = f"No byte of the body arrived for {self._options.body_idle_s:g} s."
            raise HttpError(408, "request_timeout", message, headers={"Connection": "close"}) from None


def _discarding(receive: Receive, send: Send) -> Send:
    """Return a `send` that answers at once, then discards the rest of the body for a while.

    A connection that is closed while its client still sends is reset, and most clients never see the answer then.
    """

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            await send({**message, "more_body": True})
            await _discard(receive)
            message = {"type": "http.response.body", "body": b""}
        await send(message)

    return sending


async def _discard(receive: Receive) -> None:
    discarded = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_S):
            while discarded < DISCARD_BYTES:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                discarded += len(message.get("body", b""))


class _Answer:
    """Responder that adds what every response carries, and counts it."""

    __slots__ = ("_began_s", "_id", "_is_last", "_metrics", "_scope", "_send", "_sent", "_status", "has_begun", "origin")

    def __init__(self, send: Send, metrics: Metrics, scope: Scope, *, is_last: bool) -> None:
        self._send = send
        self._is_last = is_last
        """True if the connection is closed after it."""
        self.origin: str | None = None
        self._metrics = metrics
        self._scope = scope
        self.has_begun = False
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
        self._id = scope[REQUEST_ID] = access_log.request_id(given)
        self._began_s = time.monotonic()
        self._status = self._sent = 0

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.has_begun = True
            message = {**message, "headers": self._headers(message["headers"])}
            method, route = self._scope["method"], getattr(self._scope.get("route"), "path", "other")
            self._metrics.requests[method if method in METHODS else "other", route, message["status"]] += 1
            self._status = message["status"]
        elif message["type"] == "http.response.body":
            self._sent += len(message.get("body", b""))
        return self._send(message)

    def log(self) -> None:
        """Write the line of the request into the access log."""
        principal, client = CURRENT_PRINCIPAL.get(), self._scope.get("client")
        access_log.write(
            id=self._id,
            client=client[0] if client else None,
            principal=None if principal is None else principal.name,
            method=self._scope["method"],
            path=self._scope["path"],
            status=self._status,
            error=self._scope.get(REFUSAL),
            bytes=self._sent,
            ms=round((time.monotonic() - self._began_s) * 1000, 1),
        )

    def _headers(self, own: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        id = self._id.encode("ascii")
        own = [*own, (b"x-request-id", id), *([(b"request-id", id)] if is_anthropics(self._scope) else ())]
        if self._is_last and not any(name.lower() == b"connection" for name, _ in own):
            own.append((b"connection", b"close"))
        headers = [*own, *SAFE_HEADERS]
        if len(dict(headers)) < len(headers):
            names = {name for name, _ in own}
            headers = [*own, *(pair for pair in SAFE_HEADERS if pair[0] not in names)]
        if self.origin is not None:
            cors = {b"access-control-allow-origin": self.origin.encode("latin-1"), b"vary": b"Origin"}
            cors[b"access-control-expose-headers"] = EXPOSED
            headers += [pair for pair in cors.items() if pair[0] not in dict(headers)]  # Twice, browsers take none of them.
        return headers


def _allowed(head: Head) -> str:
    """The headers that a page may send: all that it asks for.

    The page was allowed by name, and a header opens nothing here that its token does not. Clients have headers of their own
    (`x-stainless-os`, `mcp-method`), with every version others, so that a list of them would never be complete.
    """
    asked = [name.strip() for value in head.all(b"access-control-request-headers") for name in value.split(",")]
    return ", ".join([name for name in asked if _NAME.fullmatch(name)][:ALLOWED_MAX]) or ALLOWED


async def _preflight(head: Head, send: Send) -> None:
    headers = {"Access-Control-Allow-Headers": _allowed(head), **PREFLIGHT}
    headers["Vary"] = "Origin, Access-Control-Request-Headers"
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 204, "headers": pairs})
    await send({"type": "http.response.body", "body": b""})
