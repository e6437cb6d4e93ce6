"""An MCP server behind an authorization server, both at one address of this machine, in plain ASGI: metadata, registration,
PKCE, tokens that run out, and their renewal. `Authority(...)` is the app's memory; a test looks into it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode

import uvicorn
from mcp.server.mcpserver import MCPServer


class Authority:
    """Who may come in."""

    def __init__(
        self,
        *,
        lasts_s: int = 3600,
        refuses_login: bool = False,
        secrets_of: dict[str, str] | None = None,
        methods: tuple[str, ...] = ("none",),
    ) -> None:
        self.secrets_of = secrets_of
        """Clients that were registered beforehand, and their secrets: no other can register then."""
        self.methods = methods
        self.scopes: list[str | None] = []
        """The scopes that were requested."""
        self.base = ""
        self.lasts_s = lasts_s
        self.refuses_login = refuses_login
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.access: dict[str, float] = {}
        self.refresh: set[str] = set()
        self.log: list[str] = []

    def answer(
        self, method: str, path: str, query: str, body: bytes, header: str = ""
    ) -> tuple[int, dict[str, str], Any] | None:
        """Status, headers and JSON for a request to the authority; None if it is none."""
        pages = {
            "/.well-known/oauth-protected-resource/mcp": self._resource,
            "/.well-known/oauth-authorization-server": self._metadata,
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._token,
        }
        if path not in pages:
            return (404, {}, {}) if path.startswith("/.well-known/") else None
        self.log.append(f"{method} {path}")
        self._header = header
        if path == "/register" and self.secrets_of is not None:
            return 404, {}, {"detail": "<!DOCTYPE html>"}
        return pages[path]({key: values[0] for key, values in parse_qs(query).items()}, body)

    def _resource(self, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        return 200, {}, {"resource": f"{self.base}/mcp", "authorization_servers": [self.base], "scopes_supported": ["all"]}

    def _metadata(self, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        return 200, {}, {
            "issuer": self.base, "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token", "registration_endpoint": f"{self.base}/register",
            "response_types_supported": ["code"], "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": list(self.methods),
        }  # fmt: skip

    def _register(self, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        asked = json.loads(body)
        client = {**asked, "client_id": secrets.token_hex(4), "token_endpoint_auth_method": "none"}
        self.clients[client["client_id"]] = client
        return 201, {}, client

    def _authorize(self, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        self.scopes.append(query.get("scope"))
        if self.secrets_of is not None:
            assert query["client_id"] in self.secrets_of
        else:
            assert query["redirect_uri"] in self.clients[query["client_id"]]["redirect_uris"]
        assert query["code_challenge_method"] == "S256"
        if self.refuses_login:
            back = {"error": "access_denied", "error_description": "not today", "state": query["state"]}
        else:
            code = secrets.token_hex(8)
            self.codes[code] = query
            back = {"code": code, "state": query["state"]}
        return 302, {"location": f"{query['redirect_uri']}?{urlencode(back)}"}, {}

    def _token(self, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        self.log[-1] += f" {form['grant_type']}"
        if self.secrets_of is not None and not self._knows(form):
            return 401, {}, {"error": "invalid_client"}
        if form["grant_type"] == "client_credentials":
            self.scopes.append(form.get("scope"))
            self.access["machine"] = time.time() + self.lasts_s
            return 200, {}, {"access_token": "machine", "token_type": "Bearer", "expires_in": self.lasts_s}
        if form["grant_type"] == "authorization_code":
            known = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if known is None or proof != known["code_challenge"] or form["resource"] != f"{self.base}/mcp":
                return 400, {}, {"error": "invalid_grant"}
        elif form["refresh_token"] not in self.refresh:
            return 400, {}, {"error": "invalid_grant"}
        else:
            self.refresh.discard(form["refresh_token"])
        access, refresh = secrets.token_hex(8), secrets.token_hex(8)
        self.access[access] = time.time() + self.lasts_s
        self.refresh.add(refresh)
        return 200, {}, {
            "access_token": access, "token_type": "Bearer", "expires_in": self.lasts_s, "refresh_token": refresh,
        }  # fmt: skip

    def _knows(self, form: dict[str, str]) -> bool:
        given = (form.get("client_id", ""), form.get("client_secret", ""))
        how = "client_secret_post" if given[1] else "none"
        if self._header.startswith("Basic "):
            how, given = "client_secret_basic", tuple(base64.b64decode(self._header[6:]).decode().split(":"))
        return how in self.methods and (self.secrets_of or {}).get(given[0]) == given[1]

    def lets_in(self, header: str) -> bool:
        return self.access.get(header.removeprefix("Bearer "), 0) > time.time()


def guarded(authority: Authority) -> Any:
    """The app: the authority's pages, and the MCP server for those whom it lets in."""
    server = MCPServer("guarded")

    @server.tool()
    def secret() -> str:
        """What only those know who were let in."""
        return "the cake is real"

    inner = server.streamable_http_app()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await inner(scope, receive, send)
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        if scope["path"] == "/mcp":
            if authority.lets_in(headers.get("authorization", "")):
                return await inner(scope, receive, send)
            where = f'Bearer resource_metadata="{authority.base}/.well-known/oauth-protected-resource/mcp"'
            return await _send(send, 401, {"www-authenticate": where}, {"error": "invalid_token"})
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer = authority.answer(
            scope["method"], scope["path"], scope["query_string"].decode(), body, headers.get("authorization", "")
        )
        return await _send(send, *(answer or (404, {}, {})))

    return app


async def _send(send: Any, status: int, headers: dict[str, str], value: Any) -> None:
    listed = {"content-type": "application/json", **headers}
    await send({
        "type": "http.response.start", "status": status,
        "headers": [(key.encode(), text.encode()) for key, text in listed.items()],
    })  # fmt: skip
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


class ServerWithStart(uvicorn.Server):
    """A server that says when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_started.set()


@contextlib.contextmanager
def serving(authority: Authority) -> Iterator[str]:
    """The address of the MCP server, in a thread of its own."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    authority.base = f"http://127.0.0.1:{sock.getsockname()[1]}"
    config = uvicorn.Config(guarded(authority), log_level="critical", timeout_graceful_shutdown=1)
    server = ServerWithStart(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        assert server.has_started.wait(60)
        yield f"{authority.base}/mcp"
    finally:
        server.should_exit = True
        thread.join()
        sock.close()
