"""The certificate of a service while it serves: renewed, halfway renewed, expired."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from callgate import Gate, ScriptedModel
from callgate.server import Service
from callgate.server.certificate import Certificate
from callgate.server.listen import listening_socket, server_for

from .conftest import WAIT_S


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates and their keys: one, two, and one that has expired."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    for name, days in (("one", "2"), ("two", "2"), ("old", "-1")):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", f"/CN={name}", "-days", days]
        done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode and name == "old":  # OpenSSL 3 refuses days that are over.
            ca = ["openssl", "x509", "-in", "one.crt", "-signkey", "one.key", "-out", "old.crt", "-days", "-1"]
            subprocess.run(ca, cwd=folder, capture_output=True, check=False)
            shutil.copy(folder / "one.key", folder / "old.key")
    return folder


def put(made: Path, name: str, place: Path, *kinds: str) -> tuple[str, str]:
    for kind in kinds or ("crt", "key"):
        shutil.copyfile(made / f"{name}.{kind}", place / f"new.{kind}")
        os.replace(place / f"new.{kind}", place / f"tls.{kind}")
    return str(place / "tls.crt"), str(place / "tls.key")


def shown(port: int) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as raw, context.wrap_socket(raw) as wrapped:
        found = wrapped.getpeercert(binary_form=True)
        assert found is not None
        return found


def der(made: Path, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((made / f"{name}.crt").read_text())


def test_a_renewed_certificate_is_used_and_a_half_renewed_one_is_said_and_not_used(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(Gate(ScriptedModel([])))
    listener = listening_socket("127.0.0.1", 0)
    server = server_for(service, tls=put(made, "one", tmp_path))
    certificate, ready, startup = service.certificate, threading.Event(), server.startup
    assert certificate is not None

    async def started(sockets: list[socket.socket] | None = None) -> None:
        await startup(sockets)
        ready.set()

    server.startup = started  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        assert ready.wait(WAIT_S)
        port = listener.getsockname()[1]
        assert shown(port) == der(made, "one")
        put(made, "two", tmp_path, "crt")
        certificate.look()
        certificate.look()
        assert "cannot be used" in str(certificate.trouble)
        assert shown(port) == der(made, "one")
        put(made, "two", tmp_path, "key")
        certificate.look()
        assert (certificate.trouble, shown(port)) == (None, der(made, "two"))
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        listener.close()
    said = [record.getMessage().partition(str(tmp_path / "tls.crt"))[2][:15] for record in caplog.records]
    assert [line for line in said if line] == [" cannot be used", " was read again"]


def test_an_expired_certificate_is_said_once_and_has_its_end_in_the_metrics(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if not (made / "old.crt").exists():
        pytest.skip("this openssl makes no certificate that has expired")
    certificate = Certificate(*put(made, "old", tmp_path))
    certificate.look()
    certificate.look()
    assert "expired on" in str(certificate.trouble)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert certificate.expires_s is not None


def test_a_file_that_is_gone_leaves_the_certificate_in_use(made: Path, tmp_path: Path) -> None:
    crt, key = put(made, "one", tmp_path)
    certificate = Certificate(crt, key)
    Path(crt).unlink()
    certificate.look()
    assert "cannot be used" in str(certificate.trouble)
    put(made, "one", tmp_path)
    certificate.look()
    assert certificate.trouble is None


def test_a_hangup_without_a_terminal_reloads_and_with_one_ends(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(Gate(ScriptedModel([])))
    server = server_for(service, is_alone=True, tls=put(made, "one", tmp_path))
    assert service.certificate is not None
    before = service.certificate.expires_s
    put(made, "two", tmp_path)
    monkeypatch.setattr("callgate.server.listen.has_terminal", lambda: False)
    looks: list[int] = []
    monkeypatch.setattr(service.certificate, "look", lambda: looks.append(1))
    server.handle_hangup(signal.SIGHUP, None)
    assert (looks, server.should_exit, before is not None) == ([1], False, True)
    monkeypatch.setattr("callgate.server.listen.has_terminal", lambda: True)
    server.handle_hangup(signal.SIGHUP, None)
    assert server.should_exit
