"""A server of chat completions and responses for tests, on loopback: strict like OpenAI, and faulty on demand.

Takes a script of the same items as the fake Gemini, has a base URL; requests are checked with `chat_rules` and
`response_rules`. Any client of these APIs works with it.

    async with FakeOpenAI([call("add", a=1, b=2), "The sum is 3."]) as fake:
        client = openai.AsyncOpenAI(api_key="k", base_url=fake.base_url)

    with FakeOpenAI.in_thread(["Hello."]) as fake: ...                    # from code that is not async
    python -m callgate.testing.fake_openai --port 8098                    # from a shell; without a script it echoes
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from callgate.errors import UsageError
from callgate.testing.answers import Answer, answer, call, calls, raw, text, thought
from callgate.testing.chat_answers import STYLES, chat_demo
from callgate.testing.chat_exchange import ChatExchange
from callgate.testing.chat_faults import fault
from callgate.testing.chat_rules import ChatRefusal, chat_judge
from callgate.testing.exchange import Exchange, Request
from callgate.testing.fake_embeddings import vector_of
from callgate.testing.fake_server import FakeServer, model_request, run_command
from callgate.testing.google_fields import as_list, as_object
from callgate.testing.http_lines import HttpRequest
from callgate.testing.response_answers import response_demo
from callgate.testing.response_exchange import ResponseExchange
from callgate.testing.response_rules import response_judge
from callgate.types import JsonObject

__all__ = [
    "MODELS", "Answer", "ChatRefusal", "FakeOpenAI", "answer", "call", "calls", "fault", "main", "raw", "text", "thought",
]  # fmt: skip

MODELS = ("gpt-5.2", "gpt-5-mini", "gpt-4.1", "gpt-4o")
"""The models that the server lists. It accepts any other name too, unless `models` says otherwise."""

_CHAT = "/v1/chat/completions"
_RESPONSES = "/v1/responses"
_LIST = "/v1/models"
_EMBEDDINGS = "/v1/embeddings"
_PROPS = "/props"


@dataclass(eq=False)
class FakeOpenAI(FakeServer):
    """A fake server of chat completions and of the Responses API; its base URL ends with `/v1`."""

    _: KW_ONLY
    server: str = "openai"
    """The server to imitate: a key of `callgate.testing.chat_answers.STYLES`. Only OpenAI's rules are checked."""
    has_tools: bool = True
    """The tool support that the imitated server reports for its model."""

    refusals: list[ChatRefusal] = field(default_factory=list[ChatRefusal], init=False)
    """The refused requests; empty for a correct client."""
    looks: list[Request] = field(default_factory=list[Request], init=False)
    """Requests for anything but an answer, which are not among `requests`."""

    def __post_init__(self) -> None:
        if self.server not in STYLES:
            raise UsageError(f"server={self.server!r}: use one of {', '.join(map(repr, STYLES))}")
        FakeServer.__post_init__(self)

    async def __aenter__(self) -> FakeOpenAI:
        await FakeServer.__aenter__(self)
        self.base_url += "/v1"
        return self

    def _demo(self, request: JsonObject) -> Answer:
        return chat_demo(request) if "messages" in request else response_demo(request)

    def _exchange(self, http: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        request = model_request(http, at=self.clock.now())
        (self.requests if http.path in (_CHAT, _RESPONSES) else self.looks).append(request)
        kind = ResponseExchange if http.path == _RESPONSES else ChatExchange
        return kind(
            request=request, reader=reader, writer=writer, clock=self.clock, mint=self._mint, compress=self.compress,
            style=STYLES[self.server],
        )  # fmt: skip

    async def _answer(self, exchange: Exchange) -> None:
        assert isinstance(exchange, ChatExchange)
        request = exchange.request
        if refusal := self._locked(request):
            await exchange.refuse(refusal)
        elif request.method == "GET" and request.path == _LIST:
            listed = [{"id": name, "object": "model", "created": 1, "owned_by": "fake"} for name in self.models or MODELS]
            await exchange.send_json({"object": "list", "data": listed})
        elif request.method == "GET" and request.path.startswith(f"{_LIST}/"):
            name = request.path.removeprefix(f"{_LIST}/")
            if refusal := self._unknown(name):
                await exchange.refuse(refusal)
            else:
                await exchange.send_json({"id": name, "object": "model", "created": 1, "owned_by": "fake"})
        elif request.method == "GET" and request.path == _PROPS and self.server == "llama.cpp":
            caps = {"supports_tools": self.has_tools, "supports_tool_calls": self.has_tools}
            await exchange.send_json({"chat_template_caps": caps})
        elif (request.method, request.path) == ("POST", _EMBEDDINGS):
            await self._embed(exchange)
        elif refusal := self._missing_resource(request):
            await exchange.refuse(refusal)
        elif refusal := self._judged(request):
            self.refusals.append(refusal)
            await exchange.refuse(refusal)
        else:
            await self._take_step(exchange)

    async def _embed(self, exchange: ChatExchange) -> None:
        body = as_object(exchange.request.json)
        if refusal := self._unknown(exchange.request.model):
            await exchange.refuse(refusal)
        elif "embed" not in exchange.request.model:
            told = "You are not allowed to generate embeddings from this model"
            await exchange.refuse(ChatRefusal(message=told, status=403))
        else:
            vectors = [vector_of(one, body.get("dimensions")) for one in as_list(body.get("input"))]
            data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(vectors)]
            usage = {"prompt_tokens": len(vectors), "total_tokens": len(vectors)}
            await exchange.send_json({"object": "list", "data": data, "model": exchange.request.model, "usage": usage})

    def _locked(self, request: Request) -> ChatRefusal | None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.api_key is None or given == self.api_key:
            return None
        told = f"Incorrect API key provided: {given[:3]}***." if given else "You didn't provide an API key."
        return ChatRefusal(message=told, status=401, code="invalid_api_key")

    def _missing_resource(self, request: Request) -> ChatRefusal | None:
        if request.method != "POST" or request.path not in (_CHAT, _RESPONSES):
            return ChatRefusal(message=f"Invalid URL ({request.method} {request.path})", status=404)
        return self._unknown(request.model)

    def _unknown(self, model: str) -> ChatRefusal | None:
        if self.models is None or model in self.models:
            return None
        told = f"The model `{model}` does not exist or you do not have access to it."
        return ChatRefusal(message=told, status=404, code="model_not_found")

    def _judged(self, request: Request) -> ChatRefusal | None:
        if not self.strict or self.server != "openai":
            return None
        if request.path == _RESPONSES:
            return response_judge(request.json, signatures=self._mint.signatures)
        return chat_judge(request.json)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server until it is interrupted: `python -m callgate.testing.fake_openai [--port N] [--script FILE]`."""
    return run_command(FakeOpenAI, "fake_openai", argv)


if __name__ == "__main__":
    sys.exit(main())
