"""Connections that keep the server waiting: none of them keeps others out, and none stays for ever."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from callgate import Gate, ScriptedModel
from callgate.server import Service, ServiceOptions

from .conftest import WAIT_S, Site, Slow, parsed, serving

TOKEN = "a-token-of-some-length-1234"
MINE = {"Authorization": f"Bearer {TOKEN}"}
UNREAD = (
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n",
    b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n",
    b"POST /static/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
)


@pytest.fixture
def hurried(monkeypatch) -> Iterator[Site]:
    """A service with a token, few connections, and little patience."""
    monkeypatch.setattr("callgate.server.connection.DRAIN_S", 0.2)
    options = ServiceOptions(token=TOKEN, connections=8, header_s=30.0, body_s=0.3, body_idle_s=30.0, stop_s=1.0)
    with serving(Service(Gate(ScriptedModel(["Hi."], repeat_last=True)), options=options)) as site:
        yield site


@pytest.mark.parametrize("request_head", UNREAD)
def test_a_body_that_nobody_reads_does_not_hold_its_connection(hurried: Site, request_head: bytes) -> None:
    with hurried.connect() as connection:
        connection.sendall(request_head)
        assert connection.recv(12).startswith(b"HTTP/1.1 ")
        with contextlib.suppress(OSError):
            connection.sendall(b"1")
            while connection.recv(65536):
                pass
    hurried.until(lambda: not hurried.server.server_state.connections, "the end of the connection")


def test_a_body_that_drips_is_given_up_at_its_deadline_however_often_it_goes_on(hurried: Site) -> None:
    with hurried.connect() as connection:
        connection.sendall(
            b"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %b\r\nContent-Length: 1000000\r\n\r\n" % TOKEN.encode()
        )
        connection.settimeout(0.05)  # clock: so fast the body drips
        answer = b""
        for _ in range(int(WAIT_S / 0.05)):
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(65536)
                break
            connection.sendall(b" ")
    assert parsed(answer).error == (408, "request_timeout")


@pytest.mark.parametrize("first", [b"", b"GET /hea", *UNREAD])
def test_silent_connections_give_way_to_new_ones(monkeypatch, first: bytes) -> None:
    monkeypatch.setattr("callgate.server.connection.DRAIN_S", 60.0)
    options = ServiceOptions(token=TOKEN, connections=8, header_s=60.0, body_s=60.0, body_idle_s=60.0, stop_s=1.0)
    with (
        serving(Service(Gate(ScriptedModel(["Hi."], repeat_last=True)), options=options)) as site,
        contextlib.ExitStack() as stack,
    ):
        silent = [stack.enter_context(site.connect()) for _ in range(20)]
        for connection in silent:
            with contextlib.suppress(OSError):
                connection.sendall(first)
        for _ in range(3):
            assert site.chat({"prompt": "a"}, **MINE).status == 200
        assert len(site.server.server_state.connections) <= 9


def test_a_client_that_never_reads_does_not_hold_its_connection(serve) -> None:
    site = serve(Gate(ScriptedModel([])), stalled_s=0.2)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", site.port))
        connection.settimeout(WAIT_S)
        with contextlib.suppress(OSError):
            for _ in range(500):  # More than the system's own buffers take.
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        site.until(lambda: not site.server.server_state.connections, "the end of the connection")


@pytest.mark.parametrize("more", [b"P", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"x" * 100_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_disconnects_is_noticed_whatever_it_sent_after_its_request(
    serve, slow: Slow, more: bytes, chunked: bool
) -> None:
    site = serve(Gate(ScriptedModel([{"functionCall": {"name": "slow", "args": {}}}, "done"]), [slow.tool]))
    body = b'{"prompt": "go"}'
    head = b"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    if chunked:
        head += b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        head += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    with site.connect() as connection:
        connection.sendall(head)
        assert slow.started.wait(WAIT_S)
        connection.sendall(more)
    site.until(lambda: not site.service.live, "the end of the run")
    assert slow.states == ["cancelled"]
