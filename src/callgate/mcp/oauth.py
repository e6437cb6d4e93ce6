"""OAuth for remote servers, by the SDK's own client.

An address comes in, something that signs requests goes out. A token that is kept is used, and renewed when it has run out;
a login is started only if the host can ask a person; otherwise the error says what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from callgate.errors import UsageError
from callgate.mcp.clock import PersonClock
from callgate.mcp.errors import ServerFailedError, is_safe_page, leaves
from callgate.mcp.host import Host
from callgate.mcp.oauth_callback import PATH, bound_socket, expect_redirect
from callgate.mcp.oauth_client import OAuthClient, login_provider, machine_provider, registered
from callgate.mcp.tokens import TokenFile
from callgate.types import JsonObject

if TYPE_CHECKING:
    import socket

    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

__all__ = ["OAuthSession"]


LOGIN_S = 600.0
"""The time-out of a login."""


class OAuthSession:
    """The authentication of one attempt to connect."""

    def __init__(
        self, server: str, url: str, host: Host, clock: PersonClock, tokens: TokenFile, client: OAuthClient | None = None
    ) -> None:
        self._server, self._url = server, url
        self._client = client or OAuthClient()
        self._host, self._clock = host, clock
        self._tokens = tokens
        self._socket: socket.socket | None = None
        self._port = 0
        self._visit: asyncio.Task[dict[str, str]] | None = None
        self._state = ""
        self._unreadable = ""
        self._provider: OAuthClientProvider | None = None
        self.problem = ""
        """The reason of a failed login."""
        self.is_shut = False
        """True if another attempt would only ask the same person again."""

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[httpx2.Auth]:
        """The authentication of requests, for as long as the block lasts."""
        known: JsonObject = {}
        try:
            known = await asyncio.to_thread(self._tokens.read, self._url)
        except UsageError as error:
            # Most servers want no login, and are none the worse for it.
            self._unreadable = str(error)
        can_log_in = self._host.login is not None or self._client.is_machine
        if self._unreadable or not (can_log_in or "tokens" in known):
            yield _unsigned(self)
            return
        self._provider = self._made(known)
        try:
            yield self._provider
        finally:
            if self._visit is not None:
                self._visit.cancel()
            if self._socket is not None:
                self._socket.close()

    def refused(self) -> None:
        """Record that the server requires a login and no person can be asked."""
        self.is_shut = True
        how = f"log in once with `callgate mcp login FILE {self._server}` at a terminal, or give it a token in headers"
        why = self._unreadable or f"there is no one to ask here: {how}"
        self.problem = f"it requires a login, and {why}"

    def is_final(self, error: BaseException) -> bool:
        """True if another attempt after this error would end in the same way, or ask a person again who has said no."""
        from mcp.client.auth import OAuthRegistrationError

        if not self.is_shut and any(isinstance(one, OAuthRegistrationError) for one in leaves(error)):
            self.is_shut = True
            self.problem = (
                "it requires a login, and does not let clients register themselves: get a client id from its operator, and "
                f'add it to the entry of {self._server!r} as "oauth": {{"clientId": "..."}}, with "clientSecret" if there '
                "is one"
            )
        return self.is_shut

    def _made(self, known: dict[str, Any]) -> OAuthClientProvider:
        if self._client.is_machine:
            storage = _Storage(self._tokens, self._url, self._client, with_client=False)
            provider = machine_provider(self._client, self._url, storage)
            storage.context = provider.context
            return provider
        # An address that was registered is used again; if its port is taken, callgate registers anew.
        port = self._client.callback_port or _port_of(known)
        if self._host.login is not None:
            self._socket = bound_socket(port) if port else None
            if self._socket is None and self._client.callback_port is not None:
                raise ServerFailedError(f"the port {port} for its login is taken by another program")
            self._socket = self._socket or bound_socket()
            if self._socket is None:
                raise ServerFailedError("no port of this machine is free for a login")
        self._port = here = self._socket.getsockname()[1] if self._socket else port or 1
        redirect_uri = f"http://127.0.0.1:{here}{PATH}"
        storage = _Storage(self._tokens, self._url, self._client, with_client=here == port, redirect_uri=redirect_uri)
        provider = login_provider(
            self._client,
            self._url,
            redirect_uri,
            storage=storage,
            redirect_handler=self._send_away,
            callback_handler=self._come_back,
        )
        storage.context = provider.context
        return provider

    async def _send_away(self, url: str) -> None:
        """Have the person log in, unless the token can be refreshed."""
        known = await asyncio.to_thread(self._tokens.read, self._url)
        if known.get("tokens", {}).get("refresh_token") and known.get("expires_at") != 0:
            assert self._provider is not None
            await asyncio.to_thread(self._tokens.update, self._url, expires_at=0)
            self._provider.context.token_expiry_time = 1.0
            self.problem = "its token was refused and is being renewed"
            raise ServerFailedError(self.problem)
        if self._host.login is None:
            self.refused()
            raise ServerFailedError(self.problem, again=False)
        if not is_safe_page(url):
            self.is_shut, self.problem = True, "it sends people to log in at a page that is not encrypted"
            raise ServerFailedError(self.problem, again=False)
        self._state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        self.is_shut, self.problem = True, "the login was not completed"
        try:
            # In a task of its own: some `login` functions return only when the browser is closed.
            self._visit = None if self._socket is None else expect_redirect(self._socket, self._state)
        except OSError:
            self._visit = None
        if self._visit is None:
            self.is_shut, self.problem = False, "the port for a login is taken by another program; try again later"
            raise ServerFailedError(self.problem)
        with self._clock.stopped():
            await self._host.login(self._server, url)

    async def _come_back(self) -> Any:
        from mcp.shared.auth import AuthorizationCodeResult

        assert self._visit is not None
        with self._clock.stopped():
            try:
                async with asyncio.timeout(LOGIN_S):
                    parameters = await self._visit
            except TimeoutError:
                self.problem = f"the login was not completed within {LOGIN_S:g} s"
                raise ServerFailedError(self.problem, again=False) from None
            finally:
                self._socket = bound_socket(self._port)  # For the next time: this address is the one that is registered.
        if "error" in parameters:
            why = " ".join(filter(None, [parameters["error"], parameters.get("error_description")]))
            self.problem = f"the login was refused: {why[:300]}"
            raise ServerFailedError(self.problem, again=False)
        self.is_shut, self.problem = False, ""
        return AuthorizationCodeResult(
            code=parameters.get("code", ""), state=parameters.get("state"), iss=parameters.get("iss")
        )


def _unsigned(session: OAuthSession) -> httpx2.Auth:
    import httpx2

    class Unsigned(httpx2.Auth):
        """Authentication that sends requests unchanged, and detects that the server requires a login."""

        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            response = yield request
            if response.status_code == 401:
                session.refused()

    return Unsigned()


class _Storage:
    """The SDK's token storage for one server, with the scope and expiry of its tokens."""

    def __init__(self, file: TokenFile, url: str, client: OAuthClient, *, with_client: bool, redirect_uri: str = "") -> None:
        self._file, self._url = file, url
        self._client, self._redirect_uri = client, redirect_uri
        self._with_client = with_client
        self.context: Any = None

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthMetadata, OAuthToken, ProtectedResourceMetadata

        known, context = await asyncio.to_thread(self._file.read, self._url), self.context
        if self._client.client_id is not None and known.get("client_id") != self._client.client_id:
            return None  # They were given to another client.
        tokens = _valid(OAuthToken, known.get("tokens"))
        if tokens is not None:
            # The SDK forgets these with the process, and would then renew a token never, or at the wrong place.
            context.token_expiry_time = 1.0 if known.get("expires_at") == 0 else known.get("expires_at")
            context.auth_server_url = known.get("issuer")
            context.oauth_metadata = _valid(OAuthMetadata, known.get("metadata"))
            context.protected_resource_metadata = _valid(ProtectedResourceMetadata, known.get("resource"))
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.context
        await asyncio.to_thread(
            self._file.update,
            self._url,
            tokens=_plain(tokens),
            client_id=self._client.client_id,
            expires_at=None if tokens.expires_in is None else time.time() + tokens.expires_in,
            issuer=context.auth_server_url,
            metadata=_plain(context.oauth_metadata),
            resource=_plain(context.protected_resource_metadata),
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        if self._client.client_id is not None:
            return registered(self._client, self._redirect_uri, self.context.oauth_metadata)
        known = (await asyncio.to_thread(self._file.read, self._url)).get("client")
        return _valid(OAuthClientInformationFull, known) if self._with_client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await asyncio.to_thread(self._file.update, self._url, client=_plain(client_info))
        self._with_client = True


def _valid(kind: Any, value: Any) -> Any:
    """A stored value as the SDK's type; None if it is not valid, so that it is fetched anew."""
    try:
        return None if value is None else kind.model_validate(value)
    except ValueError:
        return None


def _plain(model: Any) -> Any:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _port_of(known: dict[str, Any]) -> int | None:
    uris: Any = known.get("client", {}).get("redirect_uris") or [""]
    with contextlib.suppress(ValueError):
        return urlsplit(str(uris[0])).port
    return None
