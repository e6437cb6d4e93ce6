"""A server's certificate that only these tests trust."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mutual_tls(tls_server: tuple[ssl.SSLContext, str]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side of TLS that wants a certificate of the client, and a client's side that has one."""
    certificate = Path(tls_server[1])
    key = certificate.with_name("key.pem")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(certificate)
    client = ssl.create_default_context(cafile=str(certificate))
    client.load_cert_chain(certificate, key)
    return server, client


@pytest.fixture(scope="session")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    """A server's side of TLS for 127.0.0.1, and the file of the certificate to trust."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed; TLS was not tested")
    folder: Path = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=Test",
            "-addext", "subjectAltName=IP:127.0.0.1",
        ],
        cwd=folder, capture_output=True, check=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context, str(folder / "cert.pem")
