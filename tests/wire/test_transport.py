"""The HTTP client that a program brings along, certificates and headers of its own, and the switch for all."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callgate import Gate, Limits
from callgate.errors import ConnectionLostError, ProtocolError, RateLimitedError, RequestTimeoutError, UsageError
from callgate.gemini.surface import Surface
from callgate.models.gemini import GeminiModel
from callgate.models.openai import OpenAIModel
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_openai import FakeOpenAI
from callgate.wire.http11 import Connections

GEMINI = b'{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello."}]},"finishReason":"STOP"}]}'
KEY = "key-that-nobody-may-see"


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(30):
            return await story()

    return asyncio.run(bounded())


def surface_of(url: str) -> Surface:
    return Surface(kind="developer", base_url=url, version="v1beta", api_key=KEY)


async def texts(model: Any, **settings: Any) -> list[str]:
    """The answer to a question, asked for whole and streamed."""
    async with Gate(model, settings=settings) as gate:
        whole = (await gate.run("Go.")).text
        return [whole, "".join([getattr(event, "text", "") async for event in gate.stream("Go.")])]


class Late:
    """A client that never waits long enough."""

    def __init__(self, error: Exception) -> None:
        self.error, self.posts = error, 0

    async def post(self, url: str, *, headers: Mapping[str, str], content: bytes) -> Any:
        self.posts += 1
        raise self.error


@pytest.mark.parametrize("kind", [httpx2.ReadTimeout, httpx2.WriteTimeout, httpx2.ConnectTimeout, httpx2.PoolTimeout])
def test_a_time_out_of_the_programs_client_is_retried_and_called_what_it_is(kind: Any) -> None:
    async def story() -> None:
        client = Late(kind("mine"))
        model = GeminiModel("gemini-3.8-flash", api_key=KEY, http=client, limits=Limits(attempts=3, backoff_s=0.001))
        with pytest.raises(RequestTimeoutError, match=r"\(mine\)"):
            await Gate(model).run("Go.")
        assert client.posts == 3

    run(story)


@pytest.mark.parametrize("name", ["SSL_CERT_FILE"])
def test_certificates_that_cannot_be_read_are_named_and_not_retried(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = str(tmp_path / "nowhere.pem")
    monkeypatch.setenv(name, nowhere)
    # What the environment says of certificates may have been read before, by another test of this process.
    monkeypatch.setattr("httpx2.create_ssl_context", lambda: ssl.create_default_context(cafile=nowhere))

    async def story() -> None:
        model = GeminiModel("gemini-3.8-flash", surface=surface_of("https://127.0.0.1:9"))
        with pytest.raises(UsageError, match=rf"{name}=.*nowhere\.pem: cannot be read: No such file"):
            await Gate(model).run("Go.")

    run(story)


@pytest.fixture
def no_own_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail every request over a connection of callgate itself."""

    async def refused(*given: Any, **more: Any) -> None:
        raise AssertionError("this went over a connection of our own")

    monkeypatch.setattr(Connections, "post", refused)


@pytest.mark.parametrize("library", ["httpx2", "httpx"])
@pytest.mark.usefixtures("no_own_connections")
def test_a_client_of_the_program_is_used_with_its_headers_and_not_closed(library: str) -> None:
    module = pytest.importorskip(library)

    async def story() -> None:
        async with FakeGemini(["Hello."] * 4, api_key=KEY) as fake, module.AsyncClient(headers={"x-own": "yes"}) as http:
            model = GeminiModel("gemini-3.8-flash", surface=surface_of(fake.base_url), http=http)
            assert await texts(model) == ["Hello.", "Hello."]
            assert [seen.headers["x-own"] for seen in fake.requests] == ["yes", "yes"]
            assert not http.is_closed
            assert await texts(model) != []

    run(story)


@pytest.mark.parametrize("library", ["httpx2", "httpx"])
def test_a_recording_transport_of_httpx_sees_what_is_sent_and_answers(library: str) -> None:
    module = pytest.importorskip(library)
    seen: list[tuple[str, bytes]] = []

    async def answer(request: Any) -> Any:
        seen.append((str(request.url), await request.aread()))
        return module.Response(200, content=GEMINI)

    async def story() -> None:
        http = module.AsyncClient(transport=module.MockTransport(answer))
        assert await texts(GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=http)) == ["Hello."] * 2
        assert seen[0][0] == "https://nowhere.invalid/v1beta/models/m:generateContent"
        assert b'"Go."' in seen[0][1]
        await http.aclose()

    run(story)


@dataclass
class Recorder:
    """A transport of a few lines, as a program may write one."""

    answers: list[Any]
    asked: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    closed: int = 0

    async def post(self, url: str, *, headers: Mapping[str, str], content: bytes) -> Recorded:
        self.asked.append((url, headers, content))
        answer = self.answers.pop(0) if self.answers else GEMINI
        if isinstance(answer, Exception):
            raise answer
        return Recorded(self, *(answer if isinstance(answer, tuple) else (200, answer)))


@dataclass
class Recorded:
    recorder: Recorder
    status_code: int
    body: bytes | None
    headers: Mapping[str, str] = field(default_factory=dict)

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        if self.body is None:
            await asyncio.get_running_loop().create_future()
        half = len(self.body or b"") // 2
        yield (self.body or b"")[:half]
        yield (self.body or b"")[half:]

    async def aclose(self) -> None:
        self.recorder.closed += 1


QUICK = Limits(backoff_s=0.001, idle_s=0.2, first_byte_s=0.2, total_s=10)


def test_any_object_with_a_post_is_a_transport_and_its_network_errors_are_tried_again() -> None:
    recorder = Recorder([ConnectionResetError("reset"), (503, b"{}"), GEMINI, GEMINI])

    async def story() -> None:
        model = GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=recorder, limits=QUICK)
        assert await texts(model) == ["Hello."] * 2
        assert len(recorder.asked) == 4
        assert recorder.closed == 3
        url, headers, content = recorder.asked[0]
        assert url.startswith("https://nowhere.invalid/v1beta/models/m:")
        assert (headers["x-goog-api-key"], headers["content-type"]) == (KEY, "application/json")
        assert b"Go." in content

    run(story)


def test_a_time_out_of_the_transport_itself_is_tried_again_and_called_one_of_the_transport() -> None:
    async def story() -> None:
        recorder = Recorder([TimeoutError("slow"), GEMINI])
        model = GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=recorder, limits=QUICK)
        assert (await Gate(model, limits=QUICK).run("Go.")).text == "Hello."
        assert len(recorder.asked) == 2
        recorder.answers = [TimeoutError()] * 2
        once = Limits(backoff_s=0.001, attempts=2)
        model = GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=recorder, limits=once)
        with pytest.raises(RequestTimeoutError, match="the transport gave up: TimeoutError"):
            await Gate(model, limits=once).run("Go.")

    run(story)


@dataclass
class Broken(Recorded):
    """A response whose body or whose end fails."""

    error: Exception = field(default_factory=RuntimeError)
    is_at_end: bool = False

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        yield self.body or b""
        if not self.is_at_end:
            raise self.error

    async def aclose(self) -> None:
        await super().aclose()
        if self.is_at_end:
            raise self.error


@dataclass
class Breaking(Recorder):
    """Its first response is broken."""

    broken: dict[str, Any] = field(default_factory=dict)

    async def post(self, url: str, *, headers: Mapping[str, str], content: bytes) -> Recorded:
        good = await super().post(url, headers=headers, content=content)
        return good if len(self.asked) > 1 else Broken(self, good.status_code, good.body, **self.broken)


def test_an_answer_that_is_there_stays_one_if_the_transport_cannot_close_it(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        recorder = Breaking([GEMINI], broken={"error": RuntimeError("no end"), "is_at_end": True})
        model = GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=recorder, limits=QUICK)
        assert (await Gate(model, limits=QUICK).run("Go.")).text == "Hello."
        assert (len(recorder.asked), recorder.closed) == (1, 1)

    run(story)
    assert "could not close a response: RuntimeError('no end')" in caplog.text


def test_a_time_out_of_the_transport_in_the_middle_of_a_body_is_tried_again() -> None:
    async def story() -> None:
        recorder = Breaking([GEMINI[:20], GEMINI], broken={"error": TimeoutError("slow")})
        model = GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=recorder, limits=QUICK)
        assert (await Gate(model, limits=QUICK).run("Go.")).text == "Hello."
        assert len(recorder.asked) == 2

    run(story)


def test_a_transport_that_is_not_async_is_refused() -> None:
    class Sync:
        def post(self, url: str, *, headers: Mapping[str, str], content: bytes) -> None: ...

    async def story() -> None:
        model = GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=Sync())
        with pytest.raises(UsageError, match="is not async"):
            await Gate(model).run("Go.")

    run(story)
    with pytest.raises(UsageError, match="cannot send requests"):
        GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=httpx2)


def test_a_context_for_servers_is_refused_when_the_model_is_made() -> None:
    with pytest.raises(UsageError, match="a context for servers"):
        GeminiModel("m", surface=surface_of("https://nowhere.invalid"), ssl=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_a_transport_that_never_goes_on_is_left_after_the_usual_time() -> None:
    async def story() -> None:
        recorder = Recorder([(200, None)])
        model = GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=recorder, limits=QUICK)
        with pytest.raises(RequestTimeoutError, match=r"sent nothing for 0\.2 s"):
            await Gate(model, limits=QUICK).run("Go.")
        assert recorder.closed == 1

    run(story)


def test_what_a_transport_raises_by_mistake_reaches_the_program() -> None:
    async def story() -> None:
        recorder = Recorder([KeyError("a mistake")])
        model = GeminiModel("m", surface=surface_of("https://nowhere.invalid"), http=recorder)
        with pytest.raises(KeyError, match="a mistake"):
            await model._client.chunks("m", b"{}", stream=False, tools=[]).__anext__()
        assert len(recorder.asked) == 1

    run(story)


@pytest.mark.parametrize("http", [object(), 5, "httpx2"])
def test_what_cannot_send_is_refused(http: Any) -> None:
    with pytest.raises(UsageError, match="cannot send requests"):
        GeminiModel("m", api_key=KEY, http=http)


def test_a_client_without_async_is_refused() -> None:
    with httpx2.Client(timeout=None) as http, pytest.raises(UsageError, match="AsyncClient"):
        GeminiModel("m", api_key=KEY, http=http)


def test_a_server_of_chat_completions_is_reached_through_the_same_seam() -> None:
    async def story() -> None:
        async with FakeOpenAI(["Hello."] * 2) as fake, httpx2.AsyncClient(timeout=600, headers={"x-own": "yes"}) as http:
            model = OpenAIModel("m", base_url=fake.base_url, api_key=KEY, http=http, headers={"X-Gateway": "one"})
            assert await texts(model) == ["Hello."] * 2
            assert {seen.headers.get("x-gateway") for seen in fake.requests if seen.method == "POST"} == {"one"}

    run(story)


class Odd:
    """A transport with an answer as the test makes it."""

    def __init__(self, response: Any = None, *, error: BaseException | None = None) -> None:
        self.response, self.error = response, error

    async def post(self, url: str, *, headers: Mapping[str, str], content: bytes) -> Any:
        if self.error is not None:
            raise self.error
        return self.response


class OddResponse:
    def __init__(
        self, *pieces: Any, status: Any = 200, headers: Any = None, close_error: BaseException | None = None
    ) -> None:
        self.status_code, self.headers = status, {} if headers is None else headers
        self._pieces, self._close_error = pieces, close_error

    async def aiter_bytes(self) -> AsyncIterator[Any]:
        for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        if self._close_error is not None:
            raise self._close_error


def odd(transport: Odd) -> GeminiModel:
    return GeminiModel("m", surface=surface_of("http://x.test"), http=transport, limits=Limits(attempts=1))


@pytest.mark.parametrize(
    "response",
    [
        OddResponse(bytearray(GEMINI)), OddResponse(memoryview(GEMINI)), OddResponse(b"", GEMINI, b""),
        OddResponse(GEMINI, close_error=OSError("gone")), OddResponse(GEMINI, close_error=httpx2.ReadError("gone")),
        OddResponse(GEMINI, headers=[("content-type", "text/plain")]),
    ],
    ids=["bytearray", "memoryview", "empty_pieces", "broken_close", "broken_close_of_httpx2", "list_of_headers"],
)  # fmt: skip
def test_an_answer_of_a_transport_that_is_complete_is_taken(response: Any) -> None:
    async def story() -> None:
        assert await texts(odd(Odd(response))) == ["Hello."] * 2

    run(story)


@pytest.mark.parametrize(
    ("response", "told"),
    [
        (None, "returned NoneType"), (OddResponse(GEMINI, status="200"), "status_code"),
        (OddResponse(GEMINI.decode()), "yielded str: it must yield bytes"), (OddResponse(None), "yielded NoneType"),
    ],
    ids=["none", "status_text", "text", "no_piece"],
)  # fmt: skip
def test_an_answer_of_a_transport_that_is_none_is_a_mistake_of_the_program(response: Any, told: str) -> None:
    async def story() -> None:
        with pytest.raises(UsageError, match=told):
            await texts(odd(Odd(response)))

    run(story)


def test_a_transport_that_ends_an_iteration_is_not_taken_for_an_empty_answer() -> None:
    async def story() -> None:
        with pytest.raises(RuntimeError, match="StopAsyncIteration"):
            await texts(odd(Odd(error=StopAsyncIteration())))

    run(story)


def test_headers_of_a_transport_are_read_in_any_case() -> None:
    async def story() -> None:
        with pytest.raises(RateLimitedError, match="asked to wait 7 s"):
            await texts(odd(Odd(OddResponse(b"{}", status=429, headers={"Retry-After": "7"}))))

    run(story)


@pytest.mark.parametrize(("status", "told"), [(304, "redirects"), (600, "no status of HTTP"), (999, "no status of HTTP")])
def test_a_status_that_is_neither_success_nor_failure_is_named(status: int, told: str) -> None:
    async def story() -> None:
        with pytest.raises(ProtocolError, match=f"HTTP {status}.*") as caught:
            await texts(odd(Odd(OddResponse(GEMINI, status=status))))
        assert told in str(caught.value)

    run(story)


# Certificates ------------------------------------------------------------------------------------------------------------


def test_a_context_of_the_program_says_whom_to_trust(tls_server: tuple[ssl.SSLContext, str]) -> None:
    async def story() -> None:
        server, trusted = tls_server
        async with FakeGemini(["Hello."] * 2, tls=server) as fake:
            surface = surface_of(fake.base_url)
            with pytest.raises(ConnectionLostError, match="no trusted connection"):
                await Gate(GeminiModel("m", surface=surface)).run("Go.")
            context = ssl.create_default_context(cafile=trusted)
            assert await texts(GeminiModel("m", surface=surface, ssl=context)) == ["Hello."] * 2

    run(story)


@pytest.mark.parametrize("library", ["own", "httpx2", "httpx"])
def test_a_certificate_of_the_client_is_shown_to_a_server_that_wants_one(
    library: str, mutual_tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    async def story() -> None:
        server, context = mutual_tls
        async with FakeGemini(["Hello."] * 2, tls=server) as fake, contextlib.AsyncExitStack() as stack:
            surface = surface_of(fake.base_url)
            if library == "own":
                model = GeminiModel("m", surface=surface, ssl=context)
            else:
                module = pytest.importorskip(library)
                http = await stack.enter_async_context(module.AsyncClient(verify=context, trust_env=False))
                model = GeminiModel("m", surface=surface, http=http)
            assert await texts(model) == ["Hello."] * 2

    run(story)


@pytest.mark.parametrize("library", ["httpx2", "httpx"])
@pytest.mark.usefixtures("no_own_connections")
def test_a_server_at_a_unix_socket_is_reached_through_a_client_of_the_program(library: str, tmp_path: Path) -> None:
    module = pytest.importorskip(library)
    place = str(tmp_path / "gemini.sock")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """Joins a connection of the socket with one to the fake server."""
        there, back = await asyncio.open_connection("127.0.0.1", port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, back), copy(there, writer))

    async def story() -> None:
        async with FakeGemini(["Hello."] * 2) as fake:
            port = int(fake.base_url.rpartition(":")[2].partition("/")[0])
            server = await asyncio.start_unix_server(lambda reader, writer: forward(reader, writer, port), place)
            async with server, module.AsyncClient(transport=module.AsyncHTTPTransport(uds=place)) as http:
                model = GeminiModel("m", surface=surface_of("http://gemini.internal"), http=http)
                assert await texts(model) == ["Hello."] * 2
            assert {seen.headers["host"] for seen in fake.requests} == {"gemini.internal"}

    run(story)


def test_a_context_and_a_client_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="not both"):
        GeminiModel("m", api_key=KEY, http=httpx2.AsyncClient(timeout=None), ssl=ssl.create_default_context())


# Headers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["own", "httpx2"])
def test_headers_of_a_model_and_of_a_run_are_sent_and_those_of_a_run_win(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLGATE_HTTP", way)

    async def story() -> None:
        async with FakeGemini(["Hello."] * 4) as fake:
            model = GeminiModel("m", surface=surface_of(fake.base_url), headers={"X-Team": "a", "User-Agent": "mine"})
            await texts(model, headers={"x-team": "b", "x-run": "c"})
            await texts(model)
            told = [(seen.headers.get("x-team"), seen.headers.get("x-run")) for seen in fake.requests]
            assert told == [("b", "c"), ("b", "c"), ("a", None), ("a", None)]
            assert {seen.headers["user-agent"] for seen in fake.requests} == {"mine"}

    run(story)


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"Host": "x"}, "written by callgate"),
        ({"content-length": "5"}, "written by callgate"),
        ({"x": "a\r\nb: c"}, "cannot be sent"),
        ({"x y": "a"}, "cannot be sent"),
        ({"x": "ä"}, "cannot be sent"),
        ({"x": ""}, "cannot be sent"),
        ({"x": None}, "are strings"),
        ({"x": b"y"}, "are strings"),
        ({5: "x"}, "are strings"),
        ([("x", "y")], "a mapping of names to values"),
        ("x: y", "a mapping of names to values"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused(headers: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        GeminiModel("m", api_key=KEY, headers=headers)


# The switch --------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_own_connections")
def test_one_variable_sends_everything_through_httpx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLGATE_HTTP", "httpx2")

    async def story() -> None:
        async with FakeGemini(["Hello."] * 2) as fake:
            assert await texts(GeminiModel("m", surface=surface_of(fake.base_url))) == ["Hello."] * 2

    run(story)


def test_another_word_in_that_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLGATE_HTTP", "curl")
    with pytest.raises(UsageError, match="use 'own' or 'httpx2'"):
        GeminiModel("m", api_key=KEY)


@pytest.mark.parametrize("context", [False, "corporate.pem"])
def test_a_context_that_is_none_is_refused_when_the_model_is_made(context: Any) -> None:
    with pytest.raises(UsageError, match=r"pass an ssl\.SSLContext"):
        GeminiModel("gemini-3.8-flash", api_key="k", ssl=context)


@pytest.mark.parametrize("library", ["httpx2", "httpx"])
@pytest.mark.parametrize("make", [GeminiModel, OpenAIModel])
def test_a_client_of_the_program_that_is_closed_is_named_in_a_sentence(library: str, make: Any) -> None:
    module = pytest.importorskip(library)

    async def story() -> None:
        http = module.AsyncClient()
        await http.aclose()
        url = "http://127.0.0.1:9"
        model = (
            GeminiModel("gemini-3.8-flash", surface=surface_of(url), http=http)
            if make is GeminiModel
            else OpenAIModel("m", base_url=url, http=http)
        )
        with pytest.raises(UsageError, match="http= is closed: keep it open"):
            await Gate(model).run("Go.")

    run(story)
