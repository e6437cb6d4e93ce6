"""Before any request: connections that are refused, certificates that are wrong, and proxies in between."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from callgate import Gate, Limits
from callgate.errors import ConnectionLostError, ModelError, RequestTimeoutError
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.models.gemini import GeminiModel
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.faults import refused_url

MODEL = "gemini-3.8-flash"
PATIENT = Limits(connect_s=30, first_byte_s=30, idle_s=30, total_s=60)


def gate_to(base_url: str, clock: Any, key: str, limits: Limits = PATIENT) -> Gate:
    surface = Surface(kind="developer", base_url=base_url, version="v1beta", api_key=key)
    client = GeminiClient(surface, limits=limits, clock=clock, dice=random.Random(7))
    return Gate(GeminiModel(MODEL, client=client), limits=limits)


async def ask(gate: Gate, transport: str, **options: Any) -> str:
    """The text of an answer, asked for whole or streamed."""
    if transport == "whole":
        return (await gate.run("Go.", **options)).text
    return "".join([getattr(event, "text", "") async for event in gate.stream("Go.", **options)])


def run(story: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(100):
            await story()
            while asyncio.all_tasks() != {asyncio.current_task()}:  # noqa: ASYNC110 - servers notice late that TLS failed
                await asyncio.sleep(0.001)

    asyncio.run(bounded())


# No connection -----------------------------------------------------------------------------------------------------------


def test_w15_a_refused_connection_is_tried_five_times_and_the_session_goes_on_later(
    transport: str, clock: Any, key: str
) -> None:
    async def story() -> None:
        with refused_url() as url:
            gate = gate_to(url, clock, key)
            with pytest.raises(ConnectionLostError, match="no connection to the server") as caught:
                await ask(gate, transport, session="s")
            assert caught.value.retryable
            assert key not in str(caught.value)
            assert len(clock.sleeps) == 4
        # Nobody waits for a server that is there again.
        async with FakeGemini(["Hello."], port=int(url.rpartition(":")[2])) as fake:
            assert await ask(gate, transport, session="s") == "Hello."
            assert len(fake.requests[0].json["contents"]) == 1

    run(story)


def test_w15_a_connection_that_is_never_made_times_out_and_is_tried_again(clock: Any, key: str) -> None:
    async def story() -> None:
        # TLS is spoken to somebody who never answers it.
        async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1 << 16)
            await reader.read(1 << 16)
            writer.close()

        async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            gate = gate_to(f"https://127.0.0.1:{port}", clock, key, replace(PATIENT, connect_s=0.3))
            with pytest.raises(RequestTimeoutError, match="no connection could be made in time"):
                await gate.run("Go.")
            assert len(clock.sleeps) == 4
            await asyncio.sleep(0.05)  # clock: lets the other side of the test close

    run(story)


# Certificates ------------------------------------------------------------------------------------------------------------


@dataclass
class Authority:
    """A certificate authority of this test alone."""

    folder: Path
    openssl: str
    count: int = 0

    def __post_init__(self) -> None:
        (self.folder / "index.txt").write_text("")
        (self.folder / "ca.conf").write_text(
            "[ca]\ndefault_ca=d\n[d]\ndir=.\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\n"
            "policy=p\nunique_subject=no\n[p]\ncommonName=supplied\n"
            "[req]\ndistinguished_name=n\n[n]\n[ca_ext]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n"
            "subjectKeyIdentifier=hash\n"
        )
        self._run("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Test CA",
                  "-config", "ca.conf", "-extensions", "ca_ext")  # fmt: skip

    @property
    def trusted(self) -> str:
        return str(self.folder / "ca.pem")

    def context(self, names: str, *, until: str = "20990101000000Z", own: bool = False) -> Handshakes:
        """A server's side of TLS with a certificate for these names."""
        self.count += 1
        stem = f"leaf{self.count}"
        (self.folder / "ext").write_text(
            f"subjectAltName={names}\nbasicConstraints=CA:FALSE\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        if own:
            self._run("req", "-x509", *_NEW_KEY, "-keyout", f"{stem}.key", "-out", f"{stem}.pem", "-days", "2",
                      "-subj", "/CN=Own", "-config", "ca.conf", "-addext", f"subjectAltName={names}")  # fmt: skip
        else:
            self._run("req", *_NEW_KEY, "-keyout", f"{stem}.key", "-out", f"{stem}.csr", "-subj", "/CN=Leaf",
                      "-config", "ca.conf")  # fmt: skip
            self._run("ca", "-batch", "-notext", "-config", "ca.conf", "-cert", "ca.pem", "-keyfile", "ca.key",
                      "-in", f"{stem}.csr", "-out", f"{stem}.pem", "-extfile", "ext",
                      "-startdate", "20200101000000Z", "-enddate", until)  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / f"{stem}.pem", self.folder / f"{stem}.key")
        return Handshakes(context)

    def _run(self, *words: str) -> None:
        done = subprocess.run([self.openssl, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass
class Handshakes:
    """A TLS context that counts who says hello."""

    context: ssl.SSLContext
    count: int = 0

    def __post_init__(self) -> None:
        def hello(*_: Any) -> None:
            self.count += 1

        self.context.sni_callback = hello


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed; TLS was not tested")
    return Authority(tmp_path_factory.mktemp("authority"), openssl)


@pytest.fixture
def trusting(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment trusts the authority."""
    monkeypatch.setattr(httpx2, "create_ssl_context", getattr(httpx2.create_ssl_context, "__wrapped__"))  # noqa: B009
    monkeypatch.setenv("SSL_CERT_FILE", authority.trusted)


def test_w62_a_certificate_of_an_authority_that_the_environment_trusts_is_accepted(
    transport: str, clock: Any, key: str, authority: Authority, trusting: None
) -> None:
    async def story() -> None:
        tls = authority.context("IP:127.0.0.1")
        async with FakeGemini(["Hello."], tls=tls.context) as fake:
            assert await ask(gate_to(fake.base_url, clock, key), transport) == "Hello."
            assert tls.count == 1

    run(story)


@pytest.mark.parametrize(
    ("names", "options", "told"),
    [
        ("IP:127.0.0.1", {"own": True}, "self-signed"),
        ("DNS:elsewhere.test", {}, "mismatch"),
        ("IP:127.0.0.1", {"until": "20200201000000Z"}, "expired"),
    ],
    ids=["self_signed", "wrong_host", "expired"],
)
def test_w62_a_wrong_certificate_is_refused_after_one_handshake_with_the_reason(
    transport: str, clock: Any, key: str, authority: Authority, trusting: None, names: str, options: Any, told: str
) -> None:
    async def story() -> None:
        tls = authority.context(names, **options)
        async with FakeGemini(["Hello."], tls=tls.context) as fake:
            with pytest.raises(ConnectionLostError) as caught:
                await ask(gate_to(fake.base_url, clock, key), transport)
            assert told in str(caught.value).replace("self signed", "self-signed")
            assert not caught.value.retryable
            assert tls.count == 1
            assert clock.sleeps == []
            assert fake.requests == []

    run(story)


def test_w62_an_unknown_authority_is_refused(clock: Any, key: str, authority: Authority) -> None:
    async def story() -> None:
        tls = authority.context("IP:127.0.0.1")
        async with FakeGemini(["Hello."], tls=tls.context) as fake:
            with pytest.raises(ConnectionLostError, match="no trusted connection"):
                await gate_to(fake.base_url, clock, key).run("Go.")
            assert tls.count == 1

    run(story)


def test_w62_a_server_that_speaks_no_tls_is_refused(clock: Any, key: str) -> None:
    async def story() -> None:
        async with FakeGemini(["Hello."]) as fake:
            with pytest.raises(ConnectionLostError, match="no trusted connection"):
                await gate_to(fake.base_url.replace("http:", "https:"), clock, key).run("Go.")
            assert fake.requests == []

    run(story)


# Proxies -----------------------------------------------------------------------------------------------------------------


@dataclass
class Proxy:
    """A proxy of a few lines, for plain requests and for tunnels."""

    asked: list[str] = field(default_factory=list)
    url: str = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[Proxy]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, rest = head.partition(b"\r\n")
        method, target, _ = line.decode().split(" ")
        self.asked.append(f"{method} {target}")
        url = urlsplit(target if "://" in target else f"//{target}")
        far_reader, far_writer = await asyncio.open_connection(url.hostname, url.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            far_writer.write(f"{method} {url.path}?{url.query} HTTP/1.1\r\n".encode() + rest)
        await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def test_a_proxy_of_the_environment_is_asked_for_plain_requests(
    transport: str, clock: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with FakeGemini(["Hello."], api_key=key) as fake, Proxy().serving() as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            assert await ask(gate_to(fake.base_url, clock, key), transport) == "Hello."
            (asked,) = proxy.asked
            assert asked.startswith(f"POST {fake.base_url}/v1beta/models/{MODEL}:")
            await asyncio.sleep(0.05)  # clock: lets the other side of the test close

    run(story)


def test_a_proxy_of_the_environment_tunnels_tls_and_sees_no_key(
    transport: str, clock: Any, key: str, monkeypatch: pytest.MonkeyPatch, authority: Authority, trusting: None
) -> None:
    async def story() -> None:
        tls = authority.context("IP:127.0.0.1")
        async with FakeGemini(["Hello."], api_key=key, tls=tls.context) as fake, Proxy().serving() as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            assert await ask(gate_to(fake.base_url, clock, key), transport) == "Hello."
            assert proxy.asked == [f"CONNECT {urlsplit(fake.base_url).netloc}"]
            await asyncio.sleep(0.05)  # clock: lets the other side of the test close

    run(story)


def test_hosts_that_the_environment_exempts_are_not_asked_for_through_the_proxy(
    clock: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with FakeGemini(["Hello."], api_key=key) as fake, Proxy().serving() as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            assert (await gate_to(fake.base_url, clock, key).run("Go.")).text == "Hello."
            assert proxy.asked == []

    run(story)


def test_a_proxy_that_is_not_there_is_a_lost_connection(clock: Any, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with FakeGemini(["Hello."]) as fake:
            with refused_url() as nowhere:
                monkeypatch.setenv("HTTP_PROXY", nowhere)
                with pytest.raises(ModelError) as caught:
                    await gate_to(fake.base_url, clock, key).run("Go.")
            assert type(caught.value) is ConnectionLostError

    run(story)
