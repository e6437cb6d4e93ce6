"""Tokens of an identity provider (OpenID Connect): signed JWTs, verified with PyJWT.

Issuer, audience and a claim come in; the claim's value names the principal. Keys are fetched from the issuer, cached, and
fetched again when a token names an unknown one. Only asymmetric algorithms are accepted.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any, cast

from callgate.errors import UsageError
from callgate.server.addresses import is_loopback
from callgate.server.identity import RIGHTS, Principal, Right, rights_of

__all__ = ["Oidc", "oidc_of"]

logger = logging.getLogger("callgate.server")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_S = 30
FETCH_S = 5
KEYS_S = 300
REFRESH_S = 10.0
"""Minimum seconds between two fetches of keys for tokens that name an unknown one."""
FAILED_S = 5.0
"""Seconds without a fetch after a failure."""
TOKEN_CHARS_MAX = 16 * 1024
_KEYS = frozenset({"issuer", "audience", "claim", "rights", "jwks", "scope_prefix"})
_NAME = re.compile(r"[!-~]{1,200}")


class Oidc:
    """Principals of one identity provider."""

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        claim: str = "sub",
        rights: frozenset[Right] = frozenset({"chat", "approve"}),
        jwks: str | None = None,
        scope_prefix: str = "callgate:",
    ) -> None:
        try:
            self._jwt: Any = importlib.import_module("jwt")
            importlib.import_module("cryptography")
        except ImportError:
            raise UsageError("tokens of an identity provider need PyJWT: pip install 'callgate[oidc]'") from None
        audiences = (audience,) if isinstance(audience, str) else tuple(audience)
        self.settings = (issuer, audiences, claim, rights, jwks, scope_prefix)
        self.issuer = issuer
        """The address of the provider, which is its authorization server."""
        self._audience, self._claim, self._rights = audiences, claim, rights
        self._jwks, self._scope_prefix = jwks, scope_prefix
        self._client: Any = None
        self._failed_s = -FAILED_S
        self._refreshed_s = -REFRESH_S
        self._lock = asyncio.Lock()

    def scope_of(self, right: Right) -> str:
        """The scope of a token that has a right."""
        return f"{self._scope_prefix}{right}"

    async def principal(self, token: str) -> Principal | None:
        """Return the principal that a token was issued to; None if it is not valid here."""
        if token.count(".") != 2 or len(token) > TOKEN_CHARS_MAX:
            return None
        try:
            header = self._jwt.get_unverified_header(token)
        except self._jwt.PyJWTError:
            return None
        if header.get("alg") not in ALGORITHMS:
            return None
        key = await self._key(header.get("kid"))
        if key is None:
            return None
        try:
            claims = self._jwt.decode(
                token,
                key,
                algorithms=[header["alg"]],
                issuer=self.issuer,
                audience=list(self._audience),
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", self._claim]},
            )
        except (self._jwt.PyJWTError, ValueError, TypeError) as error:
            logger.info("a token of %s was refused: %s", self.issuer, error)
            return None
        return self._named(claims)

    def _named(self, claims: dict[str, Any]) -> Principal | None:
        name = claims.get(self._claim)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return None
        scopes = claims.get("scope", claims.get("scp", ""))
        words: object = scopes.split() if isinstance(scopes, str) else scopes
        held = cast("list[object]", words) if isinstance(words, list) else []
        granted: set[Right] = {right for right in RIGHTS if self.scope_of(right) in held}
        # Its name must not be that of a token of the file.
        return Principal(name=f"oidc:{name}", owner=f"oidc:{name}", rights=self._rights | granted)

    async def _key(self, kid: object) -> Any:
        """Return the key that a token claims to be signed with; None if the issuer has none like it."""
        async with self._lock:
            if time.monotonic() < self._failed_s + FAILED_S:
                return None
            try:
                return await asyncio.to_thread(self._fetch, kid)
            except (self._jwt.PyJWTError, OSError, ValueError) as error:
                logger.warning("the keys of %s cannot be fetched: %s", self.issuer, error)
                self._failed_s = time.monotonic()
                return None

    def _fetch(self, kid: object) -> Any:
        if self._client is None:
            url = self._jwks or self._discovered()
            self._client = self._jwt.PyJWKClient(url, cache_jwk_set=True, lifespan=KEYS_S, timeout=FETCH_S)
        keys = self._client.get_signing_keys()
        found = next((key for key in keys if key.key_id == kid), None)
        if found is None and time.monotonic() >= self._refreshed_s + REFRESH_S:
            # Strangers can name any key, so that new ones are looked for only now and then.
            self._refreshed_s = time.monotonic()
            found = next((key for key in self._client.get_signing_keys(refresh=True) if key.key_id == kid), None)
        return None if found is None else found.key

    def _discovered(self) -> str:
        url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        with urllib.request.urlopen(url, timeout=FETCH_S) as response:
            found = json.loads(response.read(1_000_000))
        if found.get("issuer") != self.issuer or not isinstance(found.get("jwks_uri"), str):
            raise ValueError(f"{url} does not describe this issuer")
        return found["jwks_uri"]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def oidc_of(fields: object, where: str, known: Oidc | None = None) -> Oidc:
    """Read the settings of an identity provider; one with the same settings is kept, with its keys.

    Raises:
        UsageError: they are invalid, or PyJWT is not installed.
    """
    if not isinstance(fields, dict):
        raise UsageError(f"{where}: write it as a table")
    given = cast("dict[str, Any]", fields)
    if unknown := sorted(set(given) - _KEYS):
        raise UsageError(f"{where}: there is no key {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}")
    for key in ("issuer", "audience", "claim", "jwks", "scope_prefix"):
        value: Any = given.get(key)
        if key == "audience" and isinstance(value, list) and value and all(map(_is_text, cast("list[Any]", value))):
            continue
        if (value is None and key in ("issuer", "audience")) or (
            value is not None and not (isinstance(value, str) and value)
        ):
            raise UsageError(f"{where}: {key} must be a text")
    for key in ("issuer", "jwks"):
        url = str(given.get(key, "https://"))
        place = urllib.parse.urlsplit(url)
        if place.scheme != "https" and not (place.scheme == "http" and is_loopback(place.hostname or "")):
            raise UsageError(f"{where}: {key} must be an https address")
    rights = rights_of(given["rights"], where) if "rights" in given else frozenset[Right]({"chat", "approve"})
    texts = {key: given[key] for key in given if key != "rights"}
    made = Oidc(**texts, rights=rights)
    return known if known is not None and known.settings == made.settings else made
