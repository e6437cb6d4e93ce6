"""The OAuth client that callgate is for a server: one that was registered beforehand, or one that speaks for itself.

Settings come in, the SDK's provider for them goes out. Without any, callgate registers itself at the server.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from callgate.errors import UsageError

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull

__all__ = ["OAuthClient", "login_provider", "machine_provider", "oauth_client_of", "registered"]

AuthMethod = Literal["client_secret_basic", "client_secret_post", "none"]
"""The way in which a client authenticates at the token endpoint."""
_METHODS = ("client_secret_basic", "client_secret_post", "none")
# Key of a file -> field. `auth` with upper-case keys is Cursor's spelling.
_FIELDS = {
    "clientId": "client_id", "clientSecret": "client_secret", "scopes": "scopes", "scope": "scopes",
    "callbackPort": "callback_port", "clientMetadataUrl": "metadata_url", "issuer": "issuer", "grant": "grant",
    "grantType": "grant", "privateKey": "private_key", "signingAlgorithm": "signing_algorithm",
    "tokenEndpointAuthMethod": "auth_method", "CLIENT_ID": "client_id", "CLIENT_SECRET": "client_secret",
}  # fmt: skip
_REMARKS = frozenset({"enabled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The client to log in as. Everything may be left out.

    Raises:
        UsageError: the settings contradict each other.
    """

    client_id: str | None = None
    """The id that the server's operator gave you; without it callgate registers itself."""
    client_secret: str | None = field(default=None, repr=False)
    """The secret that belongs to `client_id`."""
    scopes: Sequence[str] = ()
    """Scopes to request instead of those that the server proposes."""
    callback_port: int | None = None
    """The port of `http://127.0.0.1:PORT/callback`, if that address was registered."""
    metadata_url: str | None = None
    """The https address of a client metadata document, which is the client's id where the server supports that."""
    issuer: str | None = None
    """The authorization server that the id and secret belong to; they are then sent nowhere else."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """`client_credentials`: the client logs in for itself, without a person."""
    private_key: str | None = field(default=None, repr=False)
    """The PEM key that signs the client's assertions (`private_key_jwt`), instead of a secret."""
    signing_algorithm: str = "RS256"
    """The algorithm that `private_key` signs with."""
    auth_method: AuthMethod | None = None
    """Method to send the secret; None: the one that the authorization server supports."""

    def __post_init__(self) -> None:
        if self.client_id is None and (self.client_secret or self.private_key or self.is_machine):
            raise UsageError("OAuthClient: a secret, a key or the grant client_credentials needs a client_id")
        if self.grant not in ("authorization_code", "client_credentials"):
            raise UsageError(f"OAuthClient: the grant {self.grant!r} is not known; use client_credentials or leave it out")
        if self.is_machine and bool(self.client_secret) == bool(self.private_key):
            raise UsageError("OAuthClient: the grant client_credentials needs either a client_secret or a private_key")
        if self.private_key and not self.is_machine:
            raise UsageError("OAuthClient: a private_key is for the grant client_credentials")
        if self.auth_method not in (None, *_METHODS):
            raise UsageError(f"OAuthClient: the method {self.auth_method!r} is not one of {', '.join(_METHODS)}")
        if self.callback_port is not None and not 0 < self.callback_port < 65536:
            raise UsageError(f"OAuthClient: {self.callback_port} is not a port")

    @property
    def is_machine(self) -> bool:
        """True if the client logs in for itself."""
        return self.grant == "client_credentials"

    @property
    def scope(self) -> str | None:
        """The scopes as OAuth writes them; None if there are none."""
        return " ".join(self.scopes) or None


def oauth_client_of(fields: Mapping[str, Any], said: list[str]) -> OAuthClient:
    """The client of an `oauth` object in a file; `said` gets sentences on what was ignored.

    Raises:
        UsageError: the settings cannot be used.
    """
    found: dict[str, Any] = {}
    for key, value in fields.items():
        name = _FIELDS.get(key)
        if name == "scopes":
            value = value.split() if isinstance(value, str) else value
            if not isinstance(value, list) or not all(isinstance(one, str) for one in cast("list[Any]", value)):
                raise UsageError("its scopes must be a list of texts")
        elif name is not None and not isinstance(value, int if name == "callback_port" else str):
            raise UsageError(f"{key!r} of its oauth cannot be {value!r}")
        if name is not None:
            found[name] = value
        elif key not in _REMARKS:
            said.append(f"the key {key!r} of its oauth is not known and was ignored.")
    return OAuthClient(**found)


def registered(client: OAuthClient, redirect_uri: str, metadata: Any) -> OAuthClientInformationFull | None:
    """The SDK's record of a client that was registered beforehand; None if there is none."""
    from mcp.shared.auth import OAuthClientInformationFull
    from pydantic import AnyUrl

    if client.client_id is None:
        return None
    method = client.auth_method or _method(client, getattr(metadata, "token_endpoint_auth_methods_supported", None))
    return OAuthClientInformationFull(
        client_id=client.client_id,
        client_secret=client.client_secret,
        redirect_uris=[AnyUrl(redirect_uri)],
        token_endpoint_auth_method=method,
        scope=client.scope,
        issuer=client.issuer,
    )


def _method(client: OAuthClient, supported: Sequence[str] | None) -> AuthMethod:
    if client.client_secret is None:
        return "none"
    only_post = supported is not None and "client_secret_basic" not in supported and "client_secret_post" in supported
    return "client_secret_post" if only_post else "client_secret_basic"


def login_provider(client: OAuthClient, url: str, redirect_uri: str, **parts: Any) -> OAuthClientProvider:
    """The SDK's provider for a client whose user logs in."""
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.utils import union_scopes
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    class LoginProvider(OAuthClientProvider):
        """OAuth provider that requests the scopes of the settings, and sends the secret as the server supports it."""

        async def _perform_authorization(self) -> Any:
            context = self.context
            if client.scopes:
                further = context.client_metadata.scope if context.current_tokens is not None else None
                context.client_metadata.scope = union_scopes(client.scope, further)
            if client.client_id is not None:
                context.client_info = registered(client, redirect_uri, context.oauth_metadata)
            return await super()._perform_authorization()

    metadata = OAuthClientMetadata(client_name="callgate", redirect_uris=[AnyUrl(redirect_uri)], scope=client.scope)
    return LoginProvider(url, metadata, client_metadata_url=client.metadata_url, **parts)


def machine_provider(client: OAuthClient, url: str, storage: Any) -> OAuthClientProvider:
    """The SDK's provider for a client that logs in for itself."""
    from mcp.client.auth.extensions.client_credentials import (
        ClientCredentialsOAuthProvider,
        PrivateKeyJWTOAuthProvider,
        SignedJWTParameters,
    )

    assert client.client_id is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The issuer is the user's to give; the documentation recommends it.
        if client.private_key is None:
            method = "client_secret_post" if client.auth_method == "client_secret_post" else "client_secret_basic"
            return ClientCredentialsOAuthProvider(
                url, storage, client.client_id, client.client_secret or "", method, client.scope, client.issuer
            )
        signer = SignedJWTParameters(
            issuer=client.client_id,
            subject=client.client_id,
            signing_key=client.private_key,
            signing_algorithm=client.signing_algorithm,
        )
        return PrivateKeyJWTOAuthProvider(
            url, storage, client.client_id, signer.create_assertion_provider(), client.scope, client.issuer
        )
