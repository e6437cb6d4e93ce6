"""Tokens of an identity provider: signed ones for this audience let somebody in, all others nobody."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

from callgate import Gate, ScriptedModel
from callgate.server import Service, ServiceOptions
from callgate.server.access_file import AccessFile
from callgate.testing import answer

from .conftest import Site, serving

jwt = pytest.importorskip("jwt")
from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402


@dataclass
class Provider:
    """An identity provider with keys that can be changed."""

    url: str = ""
    keys: dict[str, Any] = field(default_factory=dict)
    fetched: int = 0

    def issue(self, kid: str = "one", *, key: Any = None, algorithm: str = "ES256", **claims: Any) -> str:
        whole = {"iss": self.url, "aud": "callgate", "sub": "carol", "exp": int(time.time()) + 3600} | claims
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(whole, key or self.keys[kid], algorithm, headers={"kid": kid})


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/.well-known/openid-configuration":
                found: Any = {"issuer": made.url, "jwks_uri": f"{made.url}/keys"}
            else:
                made.fetched += 1
                found = {"keys": [_jwk(kid, key) for kid, key in made.keys.items()]}
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    made.keys["one"] = ec.generate_private_key(ec.SECP256R1())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def _jwk(kid: str, key: Any) -> dict[str, Any]:
    return {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", "alg": "ES256"}


@pytest.fixture
def site(provider, tmp_path) -> Iterator[Site]:
    path = tmp_path / "access.toml"
    path.write_text(f'[oidc]\nissuer = "{provider.url}"\naudience = "callgate"\nrights = ["chat"]\n')
    path.chmod(0o600)
    gate = Gate(ScriptedModel([answer("Hello.")] * 100), [], store=str(tmp_path / "sessions.db"))
    with serving(Service(gate, options=ServiceOptions(identities=AccessFile(path), stop_s=2.0))) as running:
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_claim_names_the_owner_of_sessions(site, provider) -> None:
    carol, dave = provider.issue(), provider.issue(sub="dave")
    assert site.chat({"prompt": "x", "session": "s"}, **bearer(carol)).status == 200
    assert site.get("/api/v1/sessions/s", **bearer(carol)).status == 200
    assert site.get("/api/v1/sessions/s", **bearer(dave)).error == (404, "no_such_session")
    assert site.get("/metrics", **bearer(carol)).error == (403, "forbidden")
    assert site.get("/metrics", **bearer(provider.issue(scope="openid callgate:admin"))).status == 200


def test_tokens_that_are_not_valid_here_let_nobody_in(site, provider) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    public = (
        provider.keys["one"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    good = provider.issue()
    head, body, mark = good.split(".")
    wrong = [
        provider.issue(aud="another"),
        provider.issue(iss="https://login.example"),
        provider.issue(exp=int(time.time()) - 3600),
        provider.issue(exp=None),
        provider.issue(sub=None),
        provider.issue(sub=""),
        provider.issue(sub="carol\n"),
        provider.issue(nbf=int(time.time()) + 3600),
        provider.issue(key=other),
        provider.issue("two", key=other),
        f"{head}.{body}.",
        f"{head}.{body[:-2]}AA.{mark}",
        jwt.encode({"iss": provider.url, "aud": "callgate", "sub": "carol", "exp": int(time.time()) + 99}, None, "none"),
        "a.b.c",
        "..",
    ]
    hmac_head = {"kid": "one", "alg": "HS256"}
    claims = {"iss": provider.url, "aud": "callgate", "sub": "carol", "exp": int(time.time()) + 99}
    wrong.append(_signed_with_public_key(hmac_head, claims, public))
    for token in wrong:
        assert site.get("/api/v1/tools", **bearer(token)).status == 401, token
    assert site.get("/api/v1/tools", **bearer(good)).status == 200


def _signed_with_public_key(head: Any, claims: Any, public: bytes) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (head, claims)]
    mark = hmac.new(public, b".".join(parts), hashlib.sha256).digest()
    return b".".join([*parts, base64.urlsafe_b64encode(mark).rstrip(b"=")]).decode()


def test_new_keys_are_fetched_but_strangers_cannot_make_that_happen_often(site, provider) -> None:
    assert site.get("/api/v1/tools", **bearer(provider.issue())).status == 200
    provider.keys["two"] = ec.generate_private_key(ec.SECP256R1())
    assert site.get("/api/v1/tools", **bearer(provider.issue("two"))).status == 200
    fetched = provider.fetched
    for number in range(20):
        assert site.get("/api/v1/tools", **bearer(provider.issue(f"n{number}", key=provider.keys["one"]))).status == 401
    assert provider.fetched == fetched


def test_mcp_clients_learn_where_to_log_in(provider: Provider, tmp_path: Path) -> None:
    """The official SDK reads what a request without a token is answered, as a client does before a login."""
    from mcp.client.auth.utils import extract_resource_metadata_from_www_auth, handle_protected_resource_response

    path = tmp_path / "access.toml"
    path.write_text(f'[oidc]\nissuer = "{provider.url}"\naudience = ["callgate", "https://gate.example/mcp"]\n')
    path.chmod(0o600)
    service = Service(Gate(ScriptedModel([])), options=ServiceOptions(identities=AccessFile(path)))
    with serving(service) as site:
        url = f"http://127.0.0.1:{site.port}"

        async def client() -> Any:
            async with httpx2.AsyncClient(timeout=600) as http:
                refused = await http.post(f"{url}/mcp", json={})
                assert refused.status_code == 401
                place = extract_resource_metadata_from_www_auth(refused)
                assert place == f"{url}/.well-known/oauth-protected-resource/mcp"
                found = await handle_protected_resource_response(await http.get(place))
                other = await http.post(f"{url}/api/v1/chat", json={})
                assert other.headers["www-authenticate"] == "Bearer"
                return found

        found = asyncio.run(client())
        assert str(found.resource) == f"{url}/mcp"
        assert [str(one).rstrip("/") for one in found.authorization_servers] == [provider.url]
        assert found.scopes_supported == ["callgate:admin", "callgate:approve", "callgate:chat"]
        for audience in ("callgate", "https://gate.example/mcp"):
            assert site.get("/api/v1/tools", **bearer(provider.issue(aud=audience))).status == 200
        assert site.get("/api/v1/tools", **bearer(provider.issue(aud="other"))).status == 401


def test_without_an_identity_provider_there_is_nothing_to_log_in_at() -> None:
    with serving(Service(Gate(ScriptedModel([])), options=ServiceOptions(token="t" * 20))) as site:
        assert site.post("/mcp", {}).headers["www-authenticate"] == "Bearer"
        assert site.get("/.well-known/oauth-protected-resource/mcp").error == (404, "not_found")
