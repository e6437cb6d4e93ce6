"""TLS, unix sockets, several processes and the access log of `callgate serve`, as real processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate.server import access_log

from .test_processes import PATIENCE_S, launch, until

__all__ = ["launch"]

DEMO = ("--provider", "demo", "--ephemeral")
HEAD = "POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"


def said(connection: socket.socket, body: Any) -> bytes:
    data = json.dumps(body).encode()
    connection.sendall(f"{HEAD}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert), *names], check=True, capture_output=True)
    return str(cert), str(key)


@pytest.mark.slow
def test_https_is_served_and_plain_http_is_not(launch, certificate) -> None:
    cert, key = certificate
    served = launch(*DEMO, "--tls-cert", cert, "--tls-key", key)
    assert "https://127.0.0.1" in served.log.read_text()
    trusted = ssl.create_default_context(cafile=cert)
    connection = http.client.HTTPSConnection("localhost", served.port, context=trusted, timeout=PATIENCE_S)
    connection.request("POST", "/api/v1/chat", json.dumps({"prompt": "hi"}), {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not raw.recv(100).startswith(b"HTTP")
    assert served.end() == 0


@pytest.mark.slow
def test_a_unix_socket_is_for_its_user_alone_and_a_stale_one_is_replaced(launch, tmp_path) -> None:
    place = str(tmp_path / "callgate.sock")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(place)
    process = subprocess.Popen(
        [sys.executable, "-m", "callgate", "serve", *DEMO, "--no-token", "--unix-socket", place],
        stderr=subprocess.PIPE, cwd=tmp_path,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if b"serves at unix:" in line:
                break
        assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            until(lambda: connection.connect_ex(place) == 0, "the socket")
            assert b" 200 OK\r\n" in said(connection, {"prompt": "hi"})
        again = [sys.executable, "-m", "callgate", "serve", *DEMO, "--no-token", "--unix-socket", place]
        second = subprocess.run(again, capture_output=True, cwd=tmp_path, timeout=PATIENCE_S, check=False)
        assert second.returncode != 0
        assert b"in use" in second.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE_S)
        if process.stderr is not None:
            process.stderr.close()
    assert code == 0
    assert not os.path.lexists(place), "the file goes with its server"


@pytest.mark.slow
def test_processes_share_a_port_a_token_and_sessions_and_are_started_again(launch, tmp_path) -> None:
    store = str(tmp_path / "sessions.db")
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "callgate",
        "serve",
        "--port",
        "0",
        "--provider",
        "demo",
        "--store",
        store,
        "--workers",
        "2",
    ]
    with log.open("w") as file:
        parent = subprocess.Popen(command, stderr=file, cwd=tmp_path, env=dict(os.environ))
    try:
        until(lambda: "#token=" in log.read_text(), "the link")
        text = log.read_text()
        port = int(text.partition("serves at http://127.0.0.1:")[2].partition(" ")[0])
        token = text.partition("#token=")[2].partition(" ")[0]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def chat(session: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            connection.request("POST", "/api/v1/chat", json.dumps({"prompt": "hi", "session": session}), headers)
            response = connection.getresponse()
            response.read()
            connection.close()
            return response.status

        assert {chat(f"s{number}") for number in range(20)} == {200}
        until(lambda: len(_children(parent.pid)) == 2, "two processes")
        for child in _children(parent.pid):
            assert token not in Path(f"/proc/{child}/cmdline").read_text()
        killed = _children(parent.pid)[0]
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(_children(parent.pid)) == 2 and killed not in _children(parent.pid), "another process")
        assert chat("s0") == 200
    finally:
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE_S) == 0


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_the_access_log_has_a_line_for_each_request_and_each_refusal(launch, tmp_path) -> None:
    place = tmp_path / "access.jsonl"
    served = launch(*DEMO, "--access-log", str(place), CALLGATE_TOKEN="a-token-of-some-length")
    good = {"Authorization": "Bearer a-token-of-some-length"}
    first = served.request("POST", "/api/v1/chat", {"prompt": "secret words"}, {**good, "X-Request-Id": "mine-1"})
    assert first.headers["x-request-id"] == "mine-1"
    other = served.request(
        "GET", "/api/v1/tools?key=hidden", None, {"Authorization": "Bearer wrong", "X-Request-Id": "a\tb"}
    )
    assert other.status == 401
    assert served.request("GET", "/api/v1/tools", None, {"Host": "evil.example"}).status == 421
    assert served.request("GET", "/none%0aforged", None, good).status == 404
    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        raw.sendall(b"NONSENSE\r\n\r\n")
        raw.recv(1000)
    served.end()
    text = place.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line.get("status"), line.get("error")) for line in lines] == [
        (200, None), (401, "unauthorized"), (421, "wrong_host"), (404, "not_found"), (400, "bad_request"),
    ]  # fmt: skip
    assert (lines[0]["id"], lines[0]["principal"], lines[0]["path"]) == ("mine-1", "token", "/api/v1/chat")
    assert lines[1]["id"] == other.headers["x-request-id"] != "a\tb"
    assert lines[3]["path"] == "/none\nforged"
    for hidden in ("secret words", "a-token-of-some-length", "hidden", "Bearer"):
        assert hidden not in text
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_an_access_log_that_was_moved_away_is_made_anew_for_its_owner_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(access_log.logger, "handlers", [])
    place = tmp_path / "access.jsonl"
    before = os.umask(0o022)
    try:
        access_log.start_access_log(str(place))
        access_log.write(path="/a")
        place.rename(moved := tmp_path / "access.jsonl.1")
        access_log.write(path="/b")
    finally:
        os.umask(before)
        access_log.logger.handlers[0].close()
    assert [json.loads(file.read_text())["path"] for file in (moved, place)] == ["/a", "/b"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in (moved, place)] == [0o600, 0o600]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_an_access_log_on_a_full_disk_is_said_once_and_counted(monkeypatch, capsys, caplog) -> None:
    monkeypatch.setattr(access_log.logger, "handlers", [])
    access_log.start_access_log("/dev/full")
    for _ in range(20):
        access_log.write(path="/a")
    assert access_log.failures() == 20
    with contextlib.suppress(OSError):
        access_log.logger.handlers[0].stream.close()  # type: ignore[attr-defined]
    assert [record.getMessage() for record in caplog.records] == [
        "the access log /dev/full cannot be written: No space left on device"
    ]
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_processes_end_with_the_one_that_started_them_however_it_ends(tmp_path, number: signal.Signals) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "callgate", "serve", "--port", "0", "--provider", "demo", "--workers", "2"]
    with log.open("w") as file:
        parent = subprocess.Popen([*command, "--store", "sessions.db"], stderr=file, cwd=tmp_path, env=dict(os.environ))
    children: list[int] = []
    try:
        until(lambda: len(_children(parent.pid)) == 2, "two processes")
        port = int(log.read_text().partition("serves at http://127.0.0.1:")[2].partition(" ")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()
        children = _children(parent.pid)
        parent.send_signal(number)
        assert parent.wait(PATIENCE_S) == (-number if number == signal.SIGKILL else 0)
        until(lambda: not any(map(_is_serving, children)), "the end of the processes")
    finally:
        parent.kill()
        parent.wait(PATIENCE_S)
        for child in filter(_is_serving, children):
            os.kill(child, signal.SIGKILL)


def _is_serving(pid: int) -> bool:
    """True if a process of that number is a service, and not a dead one that nobody has asked about."""
    try:
        return b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets a process hide itself")
@pytest.mark.parametrize("words", [("--ephemeral",), ("--store", "sessions.db", "--workers", "2")], ids=["one", "several"])
def test_other_processes_of_the_user_cannot_read_the_environment_of_the_service(tmp_path, words) -> None:
    # Root reads everything, unless it has given up its capabilities.
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    environment = {**os.environ, "GEMINI_API_KEY": "a-key-that-is-secret"}

    def is_read(pid: int) -> bool:
        read = subprocess.run([*bare, "cat", f"/proc/{pid}/environ"], capture_output=True, timeout=PATIENCE_S, check=False)
        return b"a-key-that-is-secret" in read.stdout

    log = tmp_path / "log"
    command = [*bare, sys.executable, "-m", "callgate", "serve", "--port", "0", "--provider", "demo", *words]
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, cwd=tmp_path, env=environment)
    other = subprocess.Popen([*bare, "sleep", "600"], env=environment)
    try:
        until(lambda: "Ctrl-C" in log.read_text() or process.poll() is not None, "the start")
        until(lambda: is_read(other.pid), "a look at a process that does not hide")
        assert not is_read(process.pid)
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            until(lambda child=int(child): not is_read(child), f"process {child} to hide itself")
    finally:
        other.kill()
        other.wait(PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
