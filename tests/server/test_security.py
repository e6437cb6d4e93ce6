"""Security checks: hostile requests, each with the answer that it must get."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator

import pytest

from callgate import Gate, ScriptedModel
from callgate.server import Service, ServiceOptions, create_app
from callgate.server.security import is_loopback

from .conftest import Site, add, parsed, serving

TOKEN = "a-token-of-some-length-1234"
CHAT = b'{"prompt": "hello"}'


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    options = ServiceOptions(
        origins=("https://chat.example",),
        hosts=("gate.example",),
        body_bytes=100_000,
        header_bytes=8_192,
        header_s=0.3,
        body_idle_s=0.3,
    )
    with serving(Service(Gate(ScriptedModel(["Hi."], repeat_last=True), [add]), options=options)) as running:
        yield running


@pytest.fixture(scope="module")
def locked() -> Iterator[Site]:
    options = ServiceOptions(token=TOKEN)
    with serving(Service(Gate(ScriptedModel(["Hi."], repeat_last=True), [add]), options=options)) as running:
        yield running


def post(*lines: str, body: bytes = CHAT, host: str | None = "localhost", kind: str | None = "application/json") -> bytes:
    """A chat request with these lines added; None leaves a line out."""
    head = ["POST /api/v1/chat HTTP/1.1", "Connection: close"]
    head += [f"Host: {host}"] if host is not None else []
    head += [f"Content-Type: {kind}"] if kind is not None else []
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, *lines, "", ""]).encode("latin-1") + body


def get(path: str, *lines: str, host: str = "localhost", method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *lines, "", ""]).encode("latin-1")


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


FINE = (200, None)
WRONG_HOST, WRONG_ORIGIN, CROSS_SITE = (421, "wrong_host"), (403, "wrong_origin"), (403, "cross_site")
NO_JSON, BAD, TOO_LARGE = (415, "unsupported_media_type"), (400, "bad_request"), (413, "too_large")

TABLE: dict[str, tuple[bytes, tuple[int, str | None]]] = {
    # Host
    "localhost": (post(), FINE),
    "127.0.0.1 with a port": (post(host="127.0.0.1:8081"), FINE),
    "[::1]": (post(host="[::1]:1"), FINE),
    "LOCALHOST": (post(host="LOCALHOST"), FINE),
    "a configured name": (post(host="gate.example:443"), FINE),
    "evil.test": (post(host="evil.test"), WRONG_HOST),
    "127.0.0.1.nip.io": (post(host="127.0.0.1.nip.io"), WRONG_HOST),
    "localhost.evil": (post(host="localhost.evil"), WRONG_HOST),
    "localhost with a dot": (post(host="localhost."), WRONG_HOST),
    "0.0.0.0": (post(host="0.0.0.0"), WRONG_HOST),
    "127.1": (post(host="127.1"), WRONG_HOST),
    "decimal": (post(host="2130706433"), WRONG_HOST),
    "mapped": (post(host="[::ffff:127.0.0.1]"), WRONG_HOST),
    "empty host": (post(host=""), WRONG_HOST),
    "user in host": (post(host="localhost@evil.test"), WRONG_HOST),
    "two names in one host": (post(host="localhost, evil.test"), WRONG_HOST),
    "a port that is none": (post(host="localhost:80x"), WRONG_HOST),
    "no host": (post(host=None), (400, "bad_request")),
    "two hosts": (post("Host: evil.test"), (400, "bad_request")),
    "host in the target only": (get("http://localhost/health", host="evil.test"), WRONG_HOST),
    "forwarded host": (post("X-Forwarded-Host: localhost", host="evil.test"), WRONG_HOST),
    # Origin, CORS and CSRF
    "own origin": (post("Origin: http://localhost"), FINE),
    "own origin with port": (post("Origin: http://localhost:8081", host="localhost:8081"), FINE),
    "allowed origin": (post("Origin: https://chat.example"), FINE),
    "other origin": (post("Origin: https://evil.test"), WRONG_ORIGIN),
    "null": (post("Origin: null"), WRONG_ORIGIN),
    "other port": (post("Origin: http://localhost:3000"), WRONG_ORIGIN),
    "other scheme": (post("Origin: https://localhost"), WRONG_ORIGIN),
    "a prefix of it": (post("Origin: https://chat.example.evil.test"), WRONG_ORIGIN),
    "an end of it": (post("Origin: https://evilchat.example"), WRONG_ORIGIN),
    "a file": (post("Origin: file://"), WRONG_ORIGIN),
    "an extension": (post("Origin: chrome-extension://abcdef"), WRONG_ORIGIN),
    "empty origin": (post("Origin: "), WRONG_ORIGIN),
    "two origins": (post("Origin: http://localhost", "Origin: https://evil.test"), BAD),
    "other origin that reads": (get("/api/v1/sessions", "Origin: https://evil.test"), WRONG_ORIGIN),
    "other origin that streams": (get("/api/v1/sessions/s/events", "Origin: https://evil.test"), WRONG_ORIGIN),
    "a web socket": (get("/", "Origin: https://evil.test", "Connection: Upgrade", "Upgrade: websocket"), WRONG_ORIGIN),
    "a picture on another site": (get("/api/v1/sessions", "Sec-Fetch-Site: cross-site"), CROSS_SITE),
    "a page on another port": (get("/api/v1/sessions", "Sec-Fetch-Site: same-site"), CROSS_SITE),
    "a link to the documentation": (
        get("/docs", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), FINE),
    "a frame around it": (
        get("/docs", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"), CROSS_SITE),
    "preflight of others": (
        get("/api/v1/chat", "Origin: https://evil.test", "Access-Control-Request-Method: POST", method="OPTIONS"),
        WRONG_ORIGIN),
    # What a form can send
    "text": (post(kind="text/plain"), NO_JSON),
    "a form": (post(kind="application/x-www-form-urlencoded"), NO_JSON),
    "parts": (post(kind="multipart/form-data; boundary=x"), NO_JSON),
    "no kind": (post(kind=None), NO_JSON),
    "almost JSON": (post(kind="application/json;x"), NO_JSON),
    "JSON and more": (post(kind="application/json, text/plain"), NO_JSON),
    "JSON in latin-1": (post(kind="application/json; charset=latin-1"), NO_JSON),
    "JSON in UTF-8": (post(kind="Application/JSON; charset=UTF-8"), FINE),
    "two kinds": (post("Content-Type: text/plain"), BAD),
    "compressed": (post("Content-Encoding: gzip"), NO_JSON),
    # Framing
    "both lengths": (post("Transfer-Encoding: chunked", f"Content-Length: {len(CHAT)}", body=chunked(CHAT)), BAD),
    "lengths that differ": (post("Content-Length: 19", "Content-Length: 5"), BAD),
    "a negative length": (post("Content-Length: -1"), BAD),
    "a length in words": (post("Content-Length: ten"), BAD),
    "a length with a plus": (post("Content-Length: +19"), BAD),
    "chunks": (post("Transfer-Encoding: chunked", body=chunked(CHAT[:5], CHAT[5:])), FINE),
    "chunks twice": (post("Transfer-Encoding: chunked, chunked", body=chunked(CHAT)), (400, None)),
    "another coding": (post("Transfer-Encoding: gzip", body=CHAT), (400, None)),
    "a chunk that lies": (post("Transfer-Encoding: chunked", body=b"zz\r\nhello\r\n0\r\n\r\n"), BAD),
    "a space before the colon": (post("Content-Length : 19"), BAD),
    "a folded header": (post("X-Long: a\r\n b"), BAD),
    "no HTTP": (b"hello\r\n\r\n", BAD),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 600 + b"\r\n\r\n", BAD),
    "a NUL in a header": (get("/health", "X-Odd: a\x00b"), BAD),
    "a line break in the path": (get("/health%0d%0aX-Evil:1"), (404, "not_found")),
    "up and out": (get("/static/../../etc/hostname"), (404, "not_found")),
    "up and out, hidden": (get("/static/%2e%2e/%2e%2e/etc/hostname"), (404, "not_found")),
    # Sizes
    "a long path": (get("/" + "a" * 9000), (431, "headers_too_large")),
    "a long header": (get("/health", "X-Long: " + "a" * 9000), (431, "headers_too_large")),
    "a large body": (post(body=b'{"prompt": "' + b"a" * 100_000 + b'"}'), TOO_LARGE),
    "a large body that says so first": (post("Content-Length: 99999999999999"), TOO_LARGE),
    "large chunks": (post("Transfer-Encoding: chunked", body=chunked(*[b" " * 10_000] * 11)), TOO_LARGE),
    # Time
    "a head that does not end": (b"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\n", (408, "request_timeout")),
    "nothing at all": (b"", (408, "request_timeout")),
    "a body that does not end": (post("Content-Length: 500"), (408, "request_timeout")),
    # Methods
    "a method that is not there": (get("/api/v1/chat", method="PUT"), (405, "method_not_allowed")),
    "a made-up method": (get("/api/v1/chat", method="BREW"), (405, "method_not_allowed")),
    "TRACE": (get("/", method="TRACE"), (405, "method_not_allowed")),
    "CONNECT": (get("/api/v1/chat", method="CONNECT"), (405, "method_not_allowed")),
    "HEAD of a stream": (get("/api/v1/sessions/s/events", method="HEAD"), (405, None)),
}  # fmt: skip


@pytest.mark.rows("name", TABLE)
def test_a_hostile_request_is_answered_as_the_table_says(site: Site, name: str) -> None:
    data, (status, code) = TABLE[name]
    answer = parsed(site.raw(data))
    assert answer.status == status, answer
    if code is not None:
        assert answer.error == (status, code)
    if code == "too_large" or status in (408, 431):
        assert answer.headers["connection"] == "close"
    if name == "preflight of others" or ("origin" in name and status != 200):
        assert not [header for header in answer.headers if header.startswith("access-control")]


def test_the_table_has_sixty_rows_at_least() -> None:
    assert len(TABLE) >= 60


def test_a_client_that_sends_all_of_a_far_too_large_body_first_still_reads_the_answer(site: Site) -> None:
    answer = parsed(site.raw(post(body=b" " * 20_000_000)))
    assert answer.error == TOO_LARGE


def test_two_requests_in_one_do_not_become_a_request_that_was_smuggled_in(site: Site) -> None:
    hidden = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = (
        f"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(hidden)}"
    )
    data = head.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden
    answer = site.raw(data)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_only_an_origin_that_was_named_gets_cors_headers_and_never_a_star(site: Site) -> None:
    answer = parsed(site.raw(post("Origin: https://chat.example")))
    assert (answer.headers["access-control-allow-origin"], answer.headers["vary"]) == ("https://chat.example", "Origin")
    assert "access-control-allow-credentials" not in answer.headers
    ask = ("Origin: https://chat.example", "Access-Control-Request-Method: POST")
    raw = site.raw(get("/api/v1/chat", *ask, method="OPTIONS"))
    names = [line.partition(b":")[0].lower() for line in raw.partition(b"\r\n\r\n")[0].splitlines()[1:]]
    assert sorted(names) == sorted(set(names))  # A browser takes no header of CORS that is there twice.
    preflight = parsed(raw)
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, "https://chat.example")
    assert not [name for name in parsed(site.raw(post())).headers if name.startswith("access-control")]


def test_every_answer_says_that_it_is_not_to_be_framed_sniffed_or_kept(site: Site) -> None:
    for path in ("/health", "/nowhere", "/docs", "/metrics"):
        headers = site.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({"Authorization": f"bearer  {TOKEN} "}, 200),
        ({"x-goog-api-key": TOKEN}, 200),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer \xe9\xff"}, 401),
        ({"Cookie": f"token={TOKEN}"}, 401),
    ],
)
def test_a_token_is_taken_from_the_header_and_only_whole(locked: Site, headers: dict[str, str], status: int) -> None:
    answer = locked.request("GET", "/api/v1/sessions", **headers)
    assert answer.status == status
    if status == 401:
        assert answer.error == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert locked.request("GET", f"/api/v1/sessions?token={TOKEN}").status == 401
    assert locked.chat({"prompt": "a"}, **headers).status == status


def test_without_the_token_only_public_paths_are_open(locked: Site) -> None:
    assert locked.get("/health").json == {"status": "healthy"}
    assert locked.get("/docs").status == locked.get("/openapi.json").status == 200
    for path in ("/api/v1/health", "/metrics", "/api/v1/tools", "/static", "/health/x", "//health", "/nowhere"):
        assert locked.get(path).error == (401, "unauthorized"), path
    assert set(locked.get("/health", Authorization=f"Bearer {TOKEN}").json) > {"status", "store", "model"}


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False),
     ("::", False), ("192.168.0.1", False), ("example.com", False), ("", False), ("127.0.0.1.evil", False)],
)  # fmt: skip
def test_an_address_that_others_can_reach_is_known_as_such(host: str, own: bool) -> None:
    assert is_loopback(host) is own


@pytest.mark.slow
def test_hundreds_of_dripping_connections_do_not_keep_others_waiting(serve, scale: int) -> None:
    gate = Gate(ScriptedModel(["Hi."], repeat_last=True))
    site = serve(gate, header_s=1.0, connections=250)
    dripping = [site.connect() for _ in range(240)]
    try:
        for connection in dripping:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost:")
        for _ in range(20):
            assert site.chat({"prompt": "a"}).status == 200
        crowd = [site.connect() for _ in range(20)]
        for connection in crowd:
            connection.settimeout(60)
            connection.sendall(get("/health"))
            assert connection.recv(12) == b"HTTP/1.1 200"
            connection.close()
        for connection in dripping:
            connection.settimeout(60)
            answer = connection.recv(12)
            assert answer in (b"HTTP/1.1 408", b"HTTP/1.1 503")
    finally:
        for connection in dripping:
            connection.close()
    site.until(lambda: not site.server.server_state.connections, "the end of all connections")


def test_a_connection_that_rests_between_requests_is_closed_by_the_server_and_not_as_a_slow_head(site: Site) -> None:
    with site.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}}"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.5)  # clock: longer than a head may take; more is as good


def test_one_connection_has_its_own_time_for_each_thing_that_it_waits_for(monkeypatch) -> None:
    """It rests longer than a head may take; a head that begins behind a rest has no longer than any other."""
    monkeypatch.setattr("callgate.server.listen.KEEP_ALIVE_S", 0.4)
    plain = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    with serving(Service(Gate(ScriptedModel([])), options=ServiceOptions(header_s=0.1))) as running:
        for request in (plain, get("/nowhere").replace(b"Connection: close\r\n", b"")):
            for behind, statuses in ((b"", [b"404"]), (request, [b"404", b"404"]), (request[:20], [b"404", b"408"])):
                with running.connect() as connection, connection.makefile("rb") as answers:
                    connection.sendall(request)
                    first = answers.readline()  # The answer is there, and the connection rests.
                    connection.sendall(behind)
                    assert re.findall(rb"HTTP/1.1 (\d+)", first + answers.read()) == statuses


def test_the_routes_that_are_looked_up_are_those_that_the_router_finds(site: Site) -> None:
    """Behind a proxy that adds a prefix, or with another method, a path leads where the router says."""
    app = create_app(site.service)

    async def ask(path: str, method: str = "GET", root: str = "") -> int:
        sent: list[dict[str, object]] = []

        async def send(message) -> None:
            sent.append(message)

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": root, "headers": [[b"host", b"localhost"]], "scheme": "http",
        }  # fmt: skip
        await app(scope, receive, send)
        return int(str(sent[0]["status"]))

    async def main() -> list[int]:
        return [
            await ask("/openapi.json"),
            await ask("/openapi.json", "HEAD"),
            await ask("/openapi.json", "DELETE"),
            await ask("/at/openapi.json", root="/at"),
            await ask("/at/openapi.json"),
            await ask("/openapi.json/"),
        ]

    assert asyncio.run(main()) == [200, 200, 405, 200, 404, 307]


def test_a_target_that_is_a_whole_address_is_served_by_the_host_that_it_names(serve) -> None:
    site = serve(Gate(ScriptedModel(["Hello."] * 2)))
    at = f"127.0.0.1:{site.port}"
    assert site.get(f"http://{at}/livez").status == 200
    assert site.get(f"http://{at}").status == 200
    assert site.get(f"http://{at}/api/v1/sessions?limit=1").status == 200
    assert site.get(f"http://{at}/api/v1/sessions/no%2Fne").status == site.get("/api/v1/sessions/no%2Fne").status
    assert site.chat({"prompt": "x"}).status == 200
    assert site.post(f"http://{at}/api/v1/chat", {"prompt": "x"}).json["response"] == "Hello."
    assert site.get(f"http://{at}/api/v1/tools", Host="evil.example").error == (421, "wrong_host")
    assert site.get("http://evil.example/api/v1/tools").error == (421, "wrong_host")
    assert site.get("http://evil.example/api/v1/tools", Host="evil.example").error == (421, "wrong_host")
    assert site.get(f"http://user@{at}/api/v1/tools").error == (421, "wrong_host")
    assert site.get("http:///api/v1/tools").error == (421, "wrong_host")


def test_metrics_answer_for_any_host_to_a_token_and_to_nobody_else(serve) -> None:
    site, by_ip = serve(Gate(ScriptedModel([])), token="t" * 40), {"Host": "10.1.2.3:8081"}
    token = {"Authorization": f"Bearer {'t' * 40}"}
    assert site.get("/metrics", **by_ip, **token).status == 200
    assert site.get("/metrics", **by_ip).error == (401, "unauthorized")
    assert site.get("/api/v1/health", **by_ip, **token).error == WRONG_HOST
    assert site.get("/metrics", **by_ip, **token, Origin="http://evil.test").error == WRONG_ORIGIN
    assert serve(Gate(ScriptedModel([]))).get("/metrics", **by_ip).error == WRONG_HOST
