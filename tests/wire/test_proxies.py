"""Proxies that the environment names: which one for which URL, of every kind that desktops have."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from callgate import Limits
from callgate.errors import AuthError, ConnectionLostError, RequestTimeoutError, UsageError
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.testing.fake_gemini import FakeGemini
from callgate.wire.proxies import Proxy, proxy_for

BODY = b'{"contents":[{"role":"user","parts":[{"text":"Hi."}]}]}'
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await story()

    return asyncio.run(bounded())


async def ask(url: str) -> int:
    surface = Surface(kind="developer", base_url=url, version="v1beta", api_key="k")
    client = GeminiClient(surface, limits=Limits(backoff_s=0.001))
    try:
        return len([item async for item in client.chunks("m", BODY, stream=False, tools=[])])
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    ("env", "url", "expected"),
    [
        ({}, ("https", "a.example", 443), None),
        ({"ALL_PROXY": " "}, ("https", "a.example", 443), None),
        ({"HTTPS_PROXY": "http://p:1"}, ("https", "a.example", 443), Proxy("http://p:1", "HTTPS_PROXY")),
        ({"HTTPS_PROXY": "http://p:1"}, ("http", "a.example", 80), None),
        ({"ALL_PROXY": "socks://p:1"}, ("http", "a.example", 80), Proxy("socks5://p:1", "ALL_PROXY")),
        ({"ALL_PROXY": "socks5h://p:1", "HTTP_PROXY": "p:2"}, ("http", "a.example", 80), Proxy("http://p:2", "HTTP_PROXY")),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "a.example"}, ("https", "a.example", 443), None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "a.example:8443"}, ("https", "a.example", 8443), None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": ".example"}, ("https", "a.example", 443), None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "*"}, ("https", "a.example", 443), None),
        ({"ALL_PROXY": " http://p:1 "}, ("https", "a.example", 443), Proxy("http://p:1", "ALL_PROXY")),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "b.example, 10.0.0.0/8"}, ("http", "10.1.2.3", 4000), None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "fd00::/8"}, ("http", "fd12::1", 4000), None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "[::1]"}, ("http", "::1", 4000), None),
        (
            {"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8,999.0.0.0/99"},
            ("http", "11.1.2.3", 4000),
            Proxy("http://p:1", "ALL_PROXY"),
        ),
        (
            {"ALL_PROXY": "http://p:1", "NO_PROXY": "b.example"},
            ("https", "a.example", 443),
            Proxy("http://p:1", "ALL_PROXY"),
        ),
    ],
)
def test_each_url_has_the_proxy_that_the_environment_names_for_it(
    env: dict[str, str], url: tuple[str, str, int], expected: Proxy | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(*url) == expected


@pytest.mark.parametrize("proxy", ["socks://127.0.0.1:9", "socks5://127.0.0.1:9", "socks4://127.0.0.1:9", "ftp://x"])
def test_a_proxy_of_any_kind_is_nothing_to_a_host_that_is_exempt(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")

    async def story() -> None:
        async with FakeGemini(["Hello."]) as fake:
            assert await ask(fake.base_url) == 1

    run(story)


@pytest.mark.parametrize("proxy", ["socks4://ada:secret@127.0.0.1:9", "ftp://ada:secret@x"])
def test_a_proxy_of_an_unknown_kind_is_refused_by_the_name_of_its_variable(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(UsageError, match="of ALL_PROXY cannot be used") as caught:
        run(lambda: ask("http://127.0.0.1:9"))
    assert "secret" not in str(caught.value).partition("cannot be used")[0]


@pytest.mark.parametrize("proxy", ["http://", "http://ada:secret@[::1", "http://ada:secret@p:port", "p:0"])
def test_what_is_no_url_of_a_proxy_is_refused_by_the_name_of_its_variable(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(UsageError, match="ALL_PROXY names no proxy that can be used") as caught:
        run(lambda: ask("http://127.0.0.1:9"))
    assert "secret" not in str(caught.value)


def test_a_proxy_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("HTTP_PROXY", f"http://ada:secret@{place}")
        with pytest.raises(ConnectionLostError, match=f"through the proxy http://{place} of HTTP_PROXY") as caught:
            run(lambda: ask("http://model.example"))
        assert "secret" not in str(caught.value)


def test_socks_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(UsageError, match=r"of ALL_PROXY needs .*callgate\[socks\]"):
        run(lambda: ask("http://127.0.0.1:9"))


@asynccontextmanager
async def socks_server(asked: list[tuple[str, int]]) -> AsyncGenerator[str]:
    """A SOCKS5 proxy of a few lines, without a login."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(b"\x05\x00")
        _, _, _, kind = await reader.readexactly(4)
        size = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
        raw = await reader.readexactly(size)
        host = ".".join(map(str, raw)) if kind == 1 else raw.decode()
        port = int.from_bytes(await reader.readexactly(2), "big")
        asked.append((host, port))
        far_reader, far_writer = await asyncio.open_connection(host, port)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["socks", "socks5", "socks5h"])
def test_a_socks_proxy_is_asked(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("socksio", reason="callgate[socks] is not installed")

    async def story() -> None:
        asked: list[tuple[str, int]] = []
        async with FakeGemini(["Hello."]) as fake, socks_server(asked) as at:
            monkeypatch.setenv("ALL_PROXY", f"{scheme}://{at}")
            assert await ask(fake.base_url) == 1
            assert asked == [("127.0.0.1", int(fake.base_url.rpartition(":")[2]))]

    run(story)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_another_login_is_asked_once(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def story() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            proxy = f"http://ada:wrong-password@127.0.0.1:{server.sockets[0].getsockname()[1]}"
            monkeypatch.setenv(f"{scheme.upper()}_PROXY", proxy)
            with pytest.raises(AuthError, match="the proxy wants another login") as caught:
                await ask(f"{scheme}://nowhere.invalid")
            assert "wrong-password" not in str(caught.value)

    run(story)
    assert len(asked) == 1
    assert b"proxy-authorization: basic" in asked[0].lower()


def test_a_proxy_that_does_not_answer_connect_is_left_after_the_time_for_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        await reader.read()  # Until the client has had enough.
        writer.close()
        await writer.wait_closed()
        over.set()

    over = asyncio.Event()

    async def story() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
            surface = Surface(kind="developer", base_url="https://a.example", version="v1beta", api_key="k")
            client = GeminiClient(surface, limits=Limits(connect_s=0.1, attempts=1))
            with pytest.raises(RequestTimeoutError, match="no connection could be made in time"):
                _ = [item async for item in client.chunks("m", BODY, stream=False, tools=[])]
            await client.aclose()
            await over.wait()

    run(story)
    assert asked == [b"CONNECT a.example:443 HTTP/1.1\r\n"]
