"""The surface of Gemini: the Developer API, Vertex, or Vertex express, with its URLs and credentials.

Settings and the environment come in, URLs and headers go out. Keys travel in headers only. This file sends nothing itself,
but for asking Google's auth library for a token.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import threading
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal, Protocol
from urllib.parse import quote

from callgate.base_errors import checked_values, expect
from callgate.config.known_secrets import remember_secrets
from callgate.errors import AuthError, CallgateError, ConnectionLostError, UsageError
from callgate.wire.credentials import checked_base_url, checked_key, expect_key, split_login

__all__ = ["GoogleTokens", "Surface", "Tokens", "surface_from_environment", "wants_vertex"]

_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
# A project may belong to a domain: example.com:project.
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*")
_LOCATION = re.compile(r"[a-z0-9-]+")
_NO_PROJECT = "Vertex needs a project, and the Google credentials name none: set GOOGLE_CLOUD_PROJECT"
_DEVELOPER_URL = "https://generativelanguage.googleapis.com"
# Multi-region endpoints have names of their own; every other location is a host prefix.
_VERTEX_URLS = {
    "global": "https://aiplatform.googleapis.com",
    "us": "https://aiplatform.us.rep.googleapis.com",
    "eu": "https://aiplatform.eu.rep.googleapis.com",
}


class Tokens(Protocol):
    """A source of valid bearer tokens.

    It may also have a `project` and a `quota_project`, known when the first token is, and `expire()`, which makes the next
    token a new one.
    """

    async def token(self) -> str:
        """A token for the next request."""
        ...


@checked_values
@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """One place that serves Gemini models.

    A user and a password in the base URL are sent as a header, for gateways that want them.

    Raises:
        UsageError: the base URL, the key, the project or the location cannot be used as one.
    """

    kind: Literal["developer", "vertex"]
    """The Developer API, or Vertex AI."""
    base_url: str
    """The address, without the version."""
    version: str
    """The version in the path, such as `v1beta`."""
    api_key: str | None = field(default=None, repr=False)
    """The key, if one is used."""
    project: str | None = None
    """The project on Vertex. Without it, and with `tokens`, it is the one that the credentials name."""
    location: str | None = None
    """The location on Vertex."""
    tokens: Tokens | None = field(default=None, repr=False)
    """Source of access tokens, instead of a key."""
    _login: dict[str, str] = field(default_factory=dict[str, str], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in ("developer", "vertex"):
            raise UsageError(f"Surface(kind={self.kind!r:.200}): use 'developer' or 'vertex'")
        expect(self.base_url, str, "Surface(base_url={})", "a URL")
        expect(self.version, str, "Surface(version={})", "text such as 'v1beta'")
        for name in ("api_key", "project", "location"):
            expect(getattr(self, name), (str, NoneType), f"Surface({name}={{}})", "text")
        base_url, login = split_login(checked_base_url(self.base_url))
        object.__setattr__(self, "base_url", base_url)
        object.__setattr__(self, "_login", login)
        if self.api_key is not None:
            checked_key(self.api_key, "Gemini")
        if self.project is not None and not _PROJECT.fullmatch(self.project):
            raise UsageError(f"{self.project[:100]!r} cannot be a project of Google Cloud; check GOOGLE_CLOUD_PROJECT")
        if self.location is not None:
            _checked_location(self.location)

    @property
    def is_known(self) -> bool:
        """True if URLs are known before the credentials are."""
        return self.kind == "developer" or self.tokens is None or self._project is not None

    @property
    def _project(self) -> str | None:
        return self.project or getattr(self.tokens, "project", None)

    def place(self, model: str) -> str:
        """The URL of a model, without the method.

        Raises:
            UsageError: by this name the way would lead elsewhere.
            AuthError: no project is known.
        """
        return self.within(self.resource(model))

    def within(self, path: str) -> str:
        """The URL of a path of the API, within the project where there is one.

        Raises:
            AuthError: no project is known.
        """
        if self.kind == "vertex" and self.tokens is not None and not path.startswith("projects/"):
            if self._project is None:
                raise AuthError(_NO_PROJECT)
            path = f"projects/{quote(self._project, safe=':')}/locations/{self.location}/{path}"
        return f"{self.base_url.rstrip('/')}/{quote(self.version, safe='')}/{path}"

    def resource(self, model: str) -> str:
        """The name of a model as Google's own SDK makes it: short names, and those of tuned models and other publishers.

        Raises:
            UsageError: by this name the way would lead elsewhere.
        """
        expect(model, str, "the name of a model is {}", "text such as 'gemini-flash-latest'")
        if not model.isprintable() or any(step in ("", ".", "..") for step in model.split("/")):
            raise UsageError(f"{model!r} cannot be the name of a model; names are such as 'gemini-flash-latest'")
        name = quote(model, safe="/@")
        first, slash, rest = name.partition("/")
        if self.kind == "developer":
            # Tuned models stand beside the published ones and bring their own collection.
            return name if first in ("models", "tunedModels") and slash else f"models/{name}"
        if first in ("projects", "publishers") and slash:
            return name
        if first == "models" and slash:
            # A model of the project's own has a number; any other is Google's, by its name on the Developer API.
            return name if rest.isdigit() else f"publishers/google/models/{rest}"
        return f"publishers/{first}/models/{rest}" if slash else f"publishers/google/models/{name}"

    def collection(self, path: str, *, upload: bool = False) -> str:
        """The URL of a resource beside the models, such as `cachedContents/123` or `files`.

        Raises:
            AuthError: no project is known.
        """
        path = quote(path, safe="/?=&:")
        if self.kind == "vertex" and self.tokens is not None and not path.startswith("projects/"):
            if self._project is None:
                raise AuthError(_NO_PROJECT)
            path = f"projects/{quote(self._project, safe=':')}/locations/{self.location}/{path}"
        before = "/upload" if upload else ""
        return f"{self.base_url.rstrip('/')}{before}/{quote(self.version, safe='')}/{path}"

    def url(self, model: str, *, stream: bool) -> str:
        """The URL of a request for this model."""
        return self.place(model) + (":streamGenerateContent?alt=sse" if stream else ":generateContent")

    async def headers(self) -> dict[str, str]:
        """The headers that authenticate a request."""
        if self.tokens is None:
            return self._with_key()
        bearer = {"authorization": f"Bearer {await self._token(self.tokens)}"}
        payer: Any = getattr(self.tokens, "quota_project", None)
        return {**self._login, **bearer, **({"x-goog-user-project": str(payer)} if payer else {})}

    async def _token(self, tokens: Tokens) -> str:
        """A token of the program's own object, which may raise or return anything.

        Raises:
            ModelError: there is no token.
        """
        try:
            token: Any = await tokens.token()
        except (CallgateError, OSError):
            raise
        except Exception as error:
            raise AuthError(f"no credentials: {type(tokens).__name__}.token() raised {type(error).__name__}") from error
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token.strip():
            raise AuthError(f"no credentials: {type(tokens).__name__}.token() returned no token, but {type(token).__name__}")
        return token

    def credentials(self) -> dict[str, str] | Awaitable[dict[str, str]]:
        """The headers, without an await for a key, which is always at hand."""
        return self._with_key() if self.tokens is None else self.headers()

    def renew(self) -> bool:
        """The server refused the token. Whether there will be another one."""
        expire: Any = getattr(self.tokens, "expire", None)
        return bool(expire()) if expire is not None else False

    def _with_key(self) -> dict[str, str]:
        return (
            {**self._login, "x-goog-api-key": self.api_key or ""} if self._login else {"x-goog-api-key": self.api_key or ""}
        )


def wants_vertex(env: Mapping[str, str]) -> bool:
    """True if the environment asks for Vertex, by the same variables as Google's own SDK.

    Raises:
        UsageError: the variable says neither yes nor no.
    """
    for name in ("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI"):
        if said := env.get(name, "").strip():
            if said.lower() not in _TRUE | _FALSE:
                raise UsageError(f"{name}={said!r:.100}: use 'true' or 'false'")
            return said.lower() in _TRUE
    return False


def _checked_location(location: str) -> str:
    if not _LOCATION.fullmatch(location):
        raise UsageError(f"{location[:100]!r} cannot be a location of Google Cloud; check GOOGLE_CLOUD_LOCATION")
    return location


def surface_from_environment(env: Mapping[str, str] | None = None, *, api_key: str | None = None) -> Surface:
    """The surface that the environment asks for, by the same variables as Google's own SDK.

    Raises:
        UsageError: the environment names no way in; the message says which variable to set.
    """
    expect_key(api_key)
    given = os.environ if env is None else env
    env = {name: value.strip() for name, value in given.items() if name.startswith(("GOOGLE_", "GEMINI_"))}
    # A key that was read from a file often brings its line end along.
    key = (api_key or "").strip() or env.get("GOOGLE_API_KEY") or env.get("GEMINI_API_KEY") or None
    version = env.get("GOOGLE_GENAI_API_VERSION") or "beta"
    if not wants_vertex(env):
        if key is None:
            raise UsageError("no key for Gemini: set GOOGLE_API_KEY or GEMINI_API_KEY, or pass api_key=")
        return Surface(
            kind="developer",
            base_url=env.get("GOOGLE_GEMINI_BASE_URL") or _DEVELOPER_URL,
            version="v1beta" if version == "beta" else version,
            api_key=key,
        )
    project = env.get("GOOGLE_CLOUD_PROJECT") or None
    location = _checked_location(env.get("GOOGLE_CLOUD_LOCATION") or "global")
    # A key without a project is express mode. Without either, the credentials name the project, as on Cloud Run.
    is_express = project is None and key is not None
    default_url = _VERTEX_URLS.get(location, f"https://{location}-aiplatform.googleapis.com")
    return Surface(
        kind="vertex",
        base_url=env.get("GOOGLE_VERTEX_BASE_URL") or (_VERTEX_URLS["global"] if is_express else default_url),
        version="v1beta1" if version == "beta" else version,
        api_key=key if is_express else None,
        project=project,
        location=None if is_express else location,
        tokens=None if is_express else GoogleTokens(),
    )


class GoogleTokens:
    """Tokens of `google-auth`: application default credentials, service accounts and others.

    Args:
        credentials: Credentials of `google-auth`, for example those of a service account that is impersonated, instead of
            those that the environment names.
    """

    def __init__(self, credentials: Any = None) -> None:
        self._credentials: Any = credentials
        self._refused: str | None = None
        """A token that the server refuses although it has not expired."""
        # Held only in worker threads, so that callers of several event loops can share the credentials.
        self._lock = threading.Lock()
        self.project: str | None = getattr(credentials, "project_id", None)
        """The project that the credentials name, as soon as they are known."""

    @property
    def quota_project(self) -> str | None:
        """The project that pays, if it is another one."""
        return getattr(self._credentials, "quota_project_id", None)

    async def token(self) -> str:
        """A token that is valid now, fetched or refreshed in a thread if need be.

        Raises:
            AuthError: google-auth is not installed, or finds no credentials.
        """
        credentials = self._credentials
        if not self._is_good(credentials):
            credentials = await asyncio.to_thread(self._refreshed)
        token = credentials.token
        if isinstance(token, str):
            remember_secrets(token)
        return token

    def expire(self) -> bool:
        """Drop a token that the server refused, so that the next one is fetched; return whether there can be another one."""
        credentials = self._credentials
        if credentials is None:
            return False
        self._refused = str(credentials.token)
        return True

    def _is_good(self, credentials: Any) -> bool:
        return credentials is not None and credentials.valid and str(credentials.token) != self._refused

    def _refreshed(self) -> Any:
        with self._lock:
            if self._is_good(self._credentials):
                return self._credentials  # Somebody else was quicker.
            auth, exceptions, transport = _google_auth()
            credentials = self._credentials
            try:
                if credentials is None:
                    credentials, project = auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
                    self.project = project or None
                credentials.refresh(transport.Request())
            except exceptions.TransportError as error:
                unreachable = f"the server of Google's tokens cannot be reached: {error}"
                raise ConnectionLostError(unreachable, retryable=True) from None
            except exceptions.GoogleAuthError as error:
                retryable = getattr(error, "retryable", False) is True
                raise AuthError(f"no Google credentials: {error}", retryable=retryable) from None
            self._credentials, self._refused = credentials, None
            return credentials


def _google_auth() -> tuple[Any, Any, Any]:
    try:
        return (
            importlib.import_module("google.auth"),
            importlib.import_module("google.auth.exceptions"),
            importlib.import_module("google.auth.transport.requests"),
        )
    except ImportError as error:
        missing = "requests" if (error.name or "").startswith(("requests", "google.auth.transport")) else "google-auth"
        raise AuthError(
            f"Vertex needs the package {missing}, which is not installed: pip install 'callgate[vertex]'"
        ) from None
