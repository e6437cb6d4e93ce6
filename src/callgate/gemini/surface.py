"""Which Gemini is spoken to: the Developer API, Vertex, or Vertex express; where it is, and how one is let in.

Settings and the environment come in, URLs and headers go out. Keys travel in headers only. This file sends nothing itself,
but for asking Google's auth library for a token.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from urllib.parse import quote

from callgate.errors import AuthError, UsageError
from callgate.wire.credentials import checked_base_url, checked_key

__all__ = ["GoogleTokens", "Surface", "Tokens", "surface_from_environment"]

_TRUE = frozenset({"1", "true", "yes", "on"})
_DEVELOPER_URL = "https://generativelanguage.googleapis.com"
# Multi-region endpoints have names of their own; every other location is a host prefix.
_VERTEX_URLS = {
    "global": "https://aiplatform.googleapis.com",
    "us": "https://aiplatform.us.rep.googleapis.com",
    "eu": "https://aiplatform.eu.rep.googleapis.com",
}


class Tokens(Protocol):
    """Gives out bearer tokens that are valid now."""

    async def token(self) -> str:
        """A token for the next request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """One place that serves Gemini models.

    Raises:
        UsageError: the base URL or the key cannot be used as one.
    """

    kind: Literal["developer", "vertex"]
    base_url: str
    version: str
    api_key: str | None = field(default=None, repr=False)
    project: str | None = None
    location: str | None = None
    tokens: Tokens | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        checked_base_url(self.base_url)
        if self.api_key is not None:
            checked_key(self.api_key, "Gemini")

    def place(self, model: str) -> str:
        """The URL of a model, without what is asked of it.

        Raises:
            UsageError: by this name the way would lead elsewhere.
        """
        if any(step in ("", ".", "..") for step in model.split("/")):
            raise UsageError(f"{model!r} cannot be the name of a model; names are such as 'gemini-flash-latest'")
        model = quote(model.removeprefix("models/"), safe="/@")
        if self.kind == "developer":
            # Tuned models stand beside the published ones and bring their own collection.
            path = model if model.startswith("tunedModels/") else f"models/{model}"
        elif self.project:
            path = f"projects/{self.project}/locations/{self.location}/publishers/google/models/{model}"
        else:
            path = f"publishers/google/models/{model}"
        return f"{self.base_url.rstrip('/')}/{self.version}/{path}"

    def url(self, model: str, *, stream: bool) -> str:
        """Where a request for this model goes."""
        return self.place(model) + (":streamGenerateContent?alt=sse" if stream else ":generateContent")

    async def headers(self) -> dict[str, str]:
        """What lets a request in."""
        if self.tokens is not None:
            return {"authorization": f"Bearer {await self.tokens.token()}"}
        return {"x-goog-api-key": self.api_key or ""}

    def credentials(self) -> dict[str, str] | Awaitable[dict[str, str]]:
        """As `headers`, without waiting where there is nothing to wait for: a key is always at hand."""
        return {"x-goog-api-key": self.api_key or ""} if self.tokens is None else self.headers()


def surface_from_environment(env: Mapping[str, str] | None = None, *, api_key: str | None = None) -> Surface:
    """The surface that the environment asks for, by the same variables as Google's own SDK.

    Raises:
        UsageError: the environment names no way in; the message says which variable to set.
    """
    given = os.environ if env is None else env
    env = {name: value.strip() for name, value in given.items() if name.startswith(("GOOGLE_", "GEMINI_"))}
    # A key that was read from a file often brings its line end along.
    key = (api_key or "").strip() or env.get("GOOGLE_API_KEY") or env.get("GEMINI_API_KEY") or None
    enterprise = env.get("GOOGLE_GENAI_USE_ENTERPRISE") or env.get("GOOGLE_GENAI_USE_VERTEXAI") or ""
    version = env.get("GOOGLE_GENAI_API_VERSION") or "beta"
    if enterprise.lower() not in _TRUE:
        if key is None:
            raise UsageError("no key for Gemini: set GOOGLE_API_KEY or GEMINI_API_KEY, or pass api_key=")
        return Surface(
            kind="developer",
            base_url=env.get("GOOGLE_GEMINI_BASE_URL") or _DEVELOPER_URL,
            version="v1beta" if version == "beta" else version,
            api_key=key,
        )
    project = env.get("GOOGLE_CLOUD_PROJECT") or None
    location = env.get("GOOGLE_CLOUD_LOCATION") or "global"
    if project is None and key is None:
        raise UsageError("Vertex needs GOOGLE_CLOUD_PROJECT (with Google credentials), or GOOGLE_API_KEY for express mode")
    default_url = _VERTEX_URLS.get(location, f"https://{location}-aiplatform.googleapis.com")
    return Surface(
        kind="vertex",
        base_url=env.get("GOOGLE_VERTEX_BASE_URL") or (default_url if project else _VERTEX_URLS["global"]),
        version="v1beta1" if version == "beta" else version,
        api_key=None if project else key,
        project=project,
        location=location if project else None,
        tokens=GoogleTokens() if project else None,
    )


class GoogleTokens:
    """Application default credentials and service accounts, through `google-auth`."""

    def __init__(self, credentials: Any = None) -> None:
        self._credentials: Any = credentials
        # Held only in worker threads, so that callers of several event loops can share the credentials.
        self._lock = threading.Lock()

    async def token(self) -> str:
        """A token that is valid now, fetched or refreshed in a thread if need be.

        Raises:
            AuthError: google-auth is not installed, or finds no credentials.
        """
        credentials = self._credentials
        if credentials is None or not credentials.valid:
            credentials = await asyncio.to_thread(self._refreshed)
        return str(credentials.token)

    def _refreshed(self) -> Any:
        with self._lock:
            credentials = self._credentials
            if credentials is not None and credentials.valid:
                return credentials  # Somebody else was quicker.
            try:
                auth: Any = importlib.import_module("google.auth")
                exceptions: Any = importlib.import_module("google.auth.exceptions")
                transport: Any = importlib.import_module("google.auth.transport.requests")
            except ImportError as error:
                missing = (
                    "requests" if (error.name or "").startswith(("requests", "google.auth.transport")) else "google-auth"
                )
                raise AuthError(
                    f"Vertex needs the package {missing}, which is not installed: pip install 'callgate[vertex]'"
                ) from None
            try:
                if credentials is None:
                    credentials, _ = auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
                credentials.refresh(transport.Request())
            except exceptions.GoogleAuthError as error:
                retryable = getattr(error, "retryable", False) is True
                raise AuthError(f"no Google credentials: {error}", retryable=retryable) from None
            self._credentials = credentials
            return credentials
