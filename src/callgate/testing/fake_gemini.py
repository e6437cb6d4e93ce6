"""A Gemini server for tests and demonstrations, on loopback: strict like Google, and faulty on demand.

A script comes in, a base URL goes out. The server speaks HTTP/1.1 by hand, so that it can break every rule of it; it judges
requests with `google_rules` and answers them with the steps of its script. It knows nothing of callgate's own client, and
any other client of Gemini works with it.

    async with FakeGemini([call("add", a=1, b=2), "The sum is 3."]) as fake:
        client = google.genai.Client(api_key="k", http_options={"base_url": fake.base_url})

    with FakeGemini.in_thread(["Hello."]) as fake: ...                    # from code that is not async
    python -m callgate.testing.fake_gemini --port 8099                    # from a shell; without a script it echoes
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import ssl
import sys
import threading
from collections.abc import Generator, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Any

from callgate.errors import UsageError
from callgate.testing.answers import Answer, Mint, Ready, answer, call, calls, encode_json, raw, text, thought
from callgate.testing.examples import demo
from callgate.testing.exchange import JSON_TYPE, Body, Clock, Exchange, Request, reset_connection
from callgate.testing.fault_row import FaultStep
from callgate.testing.faults import fault
from callgate.testing.google_fields import MESSAGES, Surface, as_list, as_object
from callgate.testing.google_rules import Refusal, judge, parse_body
from callgate.testing.http_lines import LINE_MAX, BadHttp, HttpRequest, read_request
from callgate.testing.script import Item, Script, Step, script_from_file

__all__ = [
    "MODELS", "Answer", "Clock", "FakeGemini", "Item", "Ready", "Refusal", "Request", "answer", "call", "calls", "fault",
    "main", "raw", "text", "thought",
]  # fmt: skip

MODELS = (
    "gemini-4-argon", "gemini-3.8-flash", "gemini-3.7-flash", "gemini-3.6-flash", "gemini-3.5-flash-lite",
    "gemini-3.1-pro-preview", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-flash-latest",
)  # fmt: skip
"""The models that the server lists. It answers for any other name too, unless `models` says otherwise."""

_GENERATE = re.compile(
    r"/(?P<version>v1|v1beta|v1beta1)/(?P<cloud>(?:projects/[^/]+/locations/[^/]+/)?publishers/google/)?"
    r"models/(?P<model>[^/:]+):(?P<action>generateContent|streamGenerateContent)"
)
_LIST = re.compile(r"/(?P<version>v1|v1beta|v1beta1)/(?:publishers/google/)?models(?:/(?P<model>[^/:]+))?")
_LOOPBACK = "127.0.0.1"


@dataclass(eq=False)
class FakeGemini:
    """A fake Gemini server. Enter it to start it; leave it and every socket and task of it is gone."""

    script: Iterable[Item] | None = None
    """The answers, one per request. None means `demo`: tools are called once with example arguments, text is echoed."""
    _: KW_ONLY
    surface: Surface | None = None
    """Whose rules hold. None means that the path of a request tells: cloud paths are judged as Vertex."""
    strict: bool = True
    """Refuse what Google would refuse. A refused request takes no step of the script."""
    clock: Clock = field(default_factory=Clock)
    """The time of faults that wait."""
    api_key: str | None = None
    """The only key (or, on Vertex, bearer token) that is let in; None lets everybody in."""
    models: Sequence[str] | None = None
    """The only models that exist; None lets any name be a model."""
    repeat_last: bool = False
    """Repeat the last item when the script is at its end, instead of answering with an error."""
    compress: bool = False
    """Send gzip to clients that take it."""
    port: int = 0
    """The port to listen on; 0 lets the system choose."""
    tls: ssl.SSLContext | None = None
    """Speak TLS with this context."""

    requests: list[Request] = field(default_factory=list[Request], init=False)
    """Every request so far, refused ones included."""
    refusals: list[Refusal] = field(default_factory=list[Refusal], init=False)
    """What the judge refused; an empty list is what a correct client leaves behind."""
    errors: list[Exception] = field(default_factory=list[Exception], init=False)
    """What functions in the script raised; their requests were answered with a 500."""
    connections: int = field(default=0, init=False)
    """Connections that were ever accepted."""
    base_url: str = field(default="", init=False)
    """Where the server is, once it is started; paths begin at `/v1beta`."""

    def __post_init__(self) -> None:
        items = [demo] if self.script is None else self.script
        self._script = Script.of(items, repeat_last=self.repeat_last or self.script is None)
        self._mint = Mint()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._is_closing = False

    # Life -------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> FakeGemini:
        self._server = await asyncio.start_server(self._accept, _LOOPBACK, self.port, limit=LINE_MAX, ssl=self.tls)
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"{'https' if self.tls else 'http'}://{_LOOPBACK}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None, "the server was never started"
        self._is_closing = True
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await self.until_idle()
        await self._server.wait_closed()

    @classmethod
    @contextlib.contextmanager
    def in_thread(cls, script: Iterable[Item] | None = None, **options: Any) -> Generator[FakeGemini]:
        """The server in a thread of its own, for code that is not async. `options` are the fields of the class."""
        fake = cls(script, **options)
        ready, done = threading.Event(), asyncio.Event()
        loop = asyncio.new_event_loop()
        failed: list[BaseException] = []

        async def serve() -> None:
            async with fake:
                ready.set()
                await done.wait()

        def run() -> None:
            try:
                loop.run_until_complete(serve())
            except OSError as error:  # the port is taken; told to the thread that asked for it
                failed.append(error)
            finally:
                loop.close()
                ready.set()

        thread = threading.Thread(target=run, name="fake-gemini", daemon=True)
        thread.start()
        ready.wait()
        if failed:
            raise failed[0]
        try:
            yield fake
        finally:
            loop.call_soon_threadsafe(done.set)
            thread.join()

    @property
    def open_connections(self) -> int:
        """Connections that are open at this moment."""
        return len(self._tasks)

    async def until_idle(self) -> None:
        """Waits until no connection is open: until the server, too, has noticed that its clients are gone."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def signatures(self) -> set[str]:
        """The thought signatures that count as genuine. Add those of a history that this server did not make."""
        return self._mint.signatures

    @property
    def steps_left(self) -> int:
        """Script items that no request has taken yet."""
        return len(self._script.items)

    # Connections ------------------------------------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Called at the moment of the connection, so that no task can exist which the exit does not know of.
        if self._is_closing:
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._connection(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._script.next_on_accept(self.clock):
                reset_connection(writer)
                return
            # Every write waits until the system has it, so that a reset never swallows what was sent before it. Over TLS a
            # limit of 0 would count as reached by an empty buffer, and no write would ever end.
            writer.transport.set_write_buffer_limits(1 if self.tls else 0)
            while await self._one_request(reader, writer):
                pass
        except (ConnectionError, ssl.SSLError, asyncio.CancelledError):
            writer.transport.abort()  # the client went away, or the server is being closed: nobody is left to tell
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers the next request; says whether the connection lives on."""
        try:
            http = await read_request(reader, writer)
        except BadHttp as error:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + str(error).encode())
            await writer.drain()
            return False
        if http is None:
            return False
        exchange = Exchange(
            request=self._recorded(http),
            reader=reader,
            writer=writer,
            clock=self.clock,
            mint=self._mint,
            compress=self.compress,
        )
        await self._answer(exchange)
        if exchange.is_stale:
            await reader.read(1)
            return False
        return exchange.reusable and http.keep_alive

    def _recorded(self, http: HttpRequest) -> Request:
        found = _GENERATE.fullmatch(http.path)
        parsed = parse_body(http.body) if http.body else None
        request = Request(
            method=http.method, path=http.path, query=http.query, headers=http.headers, body=http.body, http=http,
            json=None if isinstance(parsed, Refusal) else parsed,
            model=found["model"] if found else "",
            surface=self.surface or ("vertex" if found and found["cloud"] else "developer"),
            streaming=bool(found and found["action"] == "streamGenerateContent"),
            at=self.clock.now(),
        )  # fmt: skip
        self.requests.append(request)
        return request

    # Answers ----------------------------------------------------------------------------------------------------------

    async def _answer(self, exchange: Exchange) -> None:
        request = exchange.request
        if (refusal := self._locked(request)) or (refusal := self._lost(request)):
            await _refuse(exchange, refusal)
        elif request.method == "GET":
            await self._list_models(exchange)
        elif refusal := self._judged(request):
            self.refusals.append(refusal)
            await _refuse(exchange, refusal)
        else:
            await self._take_step(exchange)

    def _locked(self, request: Request) -> Refusal | None:
        if self.api_key is None:
            return None
        given = request.headers.get("x-goog-api-key") or request.query.get("key")
        if request.surface == "vertex":
            given = request.headers.get("authorization", "").removeprefix("Bearer ") or given
        if given == self.api_key:
            return None
        if request.surface == "vertex":
            return _UNAUTHENTICATED
        return _WRONG_KEY if given else _NO_KEY

    def _lost(self, request: Request) -> Refusal | None:
        generates, lists = _GENERATE.fullmatch(request.path), _LIST.fullmatch(request.path)
        if not (request.method == "POST" and generates) and not (request.method == "GET" and lists):
            return Refusal(f"Requested entity was not found: {request.method} {request.path}", code=404, status="NOT_FOUND")
        found = generates or lists
        assert found is not None
        model, version = found["model"], found["version"]
        is_unknown = self.models is not None and model not in self.models
        # The aliases that follow the newest model exist only on the beta versions.
        is_alias = self.strict and version == "v1" and (model or "").endswith("-latest")
        if not model or not (is_unknown or is_alias):
            return None
        told = (
            f"models/{model} is not found for API version {version}, or is not supported for generateContent. "
            "Call ListModels to see the list of available models and their supported methods."
        )
        return Refusal(told, code=404, status="NOT_FOUND")

    async def _list_models(self, exchange: Exchange) -> None:
        found = _LIST.fullmatch(exchange.request.path)
        listed = [_model_entry(name) for name in self.models or MODELS]
        one = found["model"] if found else None
        body = _model_entry(one) if one else {"models": listed}
        await exchange.send_body(Body(JSON_TYPE, (encode_json(body, indent=2),), streamed=False))

    def _judged(self, request: Request) -> Refusal | None:
        if not self.strict:
            return None
        return judge(
            self._without_own_oddities(request), model=request.model, surface=request.surface, streaming=request.streaming,
            signatures=self._mint.signatures,
        )  # fmt: skip

    def _without_own_oddities(self, request: Request) -> Any:
        """The body to judge. Parts of unknown kinds that this server itself sent are legal when they come back unchanged."""
        body = as_object(request.json)
        if not self._mint.odd_parts or not body:
            return request.body
        contents = [
            as_object(content) | {"parts": [self._known(part) for part in as_list(as_object(content).get("parts"))]}
            for content in as_list(body.get("contents"))
        ]
        return body | {"contents": contents}

    def _known(self, part: Any) -> Any:
        if part not in self._mint.odd_parts:
            return part
        known = {key: value for key, value in part.items() if key in MESSAGES["Part"]}
        return known if known.keys() - {"thought", "thoughtSignature"} else {"text": "odd"} | known

    async def _take_step(self, exchange: Exchange) -> None:
        try:
            await self._perform(exchange, self._script.take(as_object(exchange.request.json), self.clock))
        except OSError:
            raise  # the connection is gone
        except Exception as error:  # a step may be the user's code: it must not take the server down
            self.errors.append(error)
            if exchange.has_sent:
                exchange.reset()
                return
            await exchange.error(500, "INTERNAL", f"A step of the fake's script failed: {type(error).__name__}: {error}")

    async def _perform(self, exchange: Exchange, step: Step | None) -> None:
        if step is None:
            told = f"The fake's script is at its end: this is request {len(self.requests)}."
            await exchange.error(500, "INTERNAL", told)
        elif isinstance(step, FaultStep):
            await step.act(exchange)
        else:
            await exchange.answer(step)


def _model_entry(name: str) -> dict[str, Any]:
    methods = ["generateContent", "streamGenerateContent"]
    return {
        "name": f"models/{name}", "baseModelId": name, "version": "fake", "displayName": name, "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536, "supportedGenerationMethods": methods,
    }  # fmt: skip


async def _refuse(exchange: Exchange, refusal: Refusal) -> None:
    named = {"X_Fake_Gemini_Rule": refusal.rule} if refusal.rule else {}
    await exchange.error(refusal.code, refusal.status, refusal.message, details=refusal.details, **named)


_NO_KEY = Refusal(
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of "
    "API consumer identity to call this API.",
    code=403, status="PERMISSION_DENIED",
)  # fmt: skip
# Google answers a wrong key with 400, not 401.
_WRONG_KEY = Refusal("API key not valid. Please pass a valid API key.", reason="API_KEY_INVALID")
_UNAUTHENTICATED = Refusal(
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
    "authentication credential.",
    code=401, status="UNAUTHENTICATED",
)  # fmt: skip


# The command -------------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the server until it is interrupted: `python -m callgate.testing.fake_gemini [--port N] [--script FILE]`."""
    parser = argparse.ArgumentParser(prog="python -m callgate.testing.fake_gemini", description="A fake Gemini server.")
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1; 0 lets the system choose")
    parser.add_argument(
        "--script", help="a JSON file with the list of answers; without one, tools are called and text echoed"
    )
    parser.add_argument("--repeat-last", action="store_true", help="repeat the last answer of the script for ever")
    parser.add_argument("--strict", action=argparse.BooleanOptionalAction, default=True, help="refuse what Google refuses")
    options = parser.parse_args(argv)
    try:
        script = script_from_file(options.script) if options.script else None
        fake = FakeGemini(script, port=options.port, strict=options.strict, repeat_last=options.repeat_last)
        asyncio.run(_serve(fake))
    except (UsageError, OSError) as error:
        sys.stderr.write(f"fake_gemini: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(fake: FakeGemini) -> None:
    async with fake:
        sys.stdout.write(f"{fake.base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
