"""A Messages server for tests and demonstrations, on loopback: strict like Anthropic, and faulty on demand.

Takes a script of the same items as the fake Gemini, has a base URL; requests are checked with `message_rules`. Any client
of the API works with it.

    async with FakeAnthropic([call("add", a=1, b=2), "The sum is 3."]) as fake:
        client = anthropic.AsyncAnthropic(api_key="k", base_url=fake.base_url)

    with FakeAnthropic.in_thread(["Hello."]) as fake: ...                 # from code that is not async
    python -m callgate.testing.fake_anthropic --port 8097                 # from a shell; without a script it echoes
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from callgate.testing.answers import Answer, answer, call, calls, raw, text, thought
from callgate.testing.exchange import Exchange, Request
from callgate.testing.fake_server import FakeServer, model_request, run_command
from callgate.testing.http_lines import HttpRequest
from callgate.testing.message_answers import message_demo
from callgate.testing.message_exchange import MessageExchange
from callgate.testing.message_faults import fault
from callgate.testing.message_rules import MessageRefusal, message_judge
from callgate.types import JsonObject

__all__ = [
    "MODELS", "Answer", "FakeAnthropic", "MessageRefusal", "answer", "call", "calls", "fault", "main", "raw", "text",
    "thought",
]  # fmt: skip

MODELS = ("claude-opus-4-6", "claude-sonnet-4-5", "claude-haiku-4-5")
"""The models that the server lists. It accepts any other name too, unless `models` says otherwise."""

_MESSAGES = "/v1/messages"
_COUNT = "/v1/messages/count_tokens"
_LIST = "/v1/models"


@dataclass(eq=False)
class FakeAnthropic(FakeServer):
    """A fake server of the Messages API; its base URL ends before `/v1`."""

    refusals: list[MessageRefusal] = field(default_factory=list[MessageRefusal], init=False)
    """The refused requests; empty for a correct client."""
    looks: list[Request] = field(default_factory=list[Request], init=False)
    """Requests for anything but a message, which are not among `requests`."""

    def _demo(self, request: JsonObject) -> Answer:
        return message_demo(request)

    def _exchange(self, http: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        request = model_request(http, at=self.clock.now())
        (self.requests if http.path == _MESSAGES else self.looks).append(request)
        return MessageExchange(
            request=request, reader=reader, writer=writer, clock=self.clock, mint=self._mint, compress=self.compress
        )  # fmt: skip

    async def _answer(self, exchange: Exchange) -> None:
        assert isinstance(exchange, MessageExchange)
        request = exchange.request
        if refusal := self._locked(request):
            await exchange.refuse(refusal)
        elif request.method == "GET" and request.path == _LIST:
            names = self.models or MODELS
            page = {"first_id": names[0], "last_id": names[-1], "has_more": False}
            await exchange.send_json({"data": [*map(_model, names)], **page})
        elif request.method == "GET" and request.path.startswith(f"{_LIST}/"):
            name = request.path.removeprefix(f"{_LIST}/")
            refusal = self._unknown(name)
            await (exchange.refuse(refusal) if refusal else exchange.send_json(_model(name)))
        elif refusal := self._missing_resource(request):
            await exchange.refuse(refusal)
        elif refusal := self._judged(request):
            self.refusals.append(refusal)
            await exchange.refuse(refusal)
        elif request.path == _COUNT:
            await exchange.send_json({"input_tokens": -(-len(request.body) // 4)})
        else:
            await self._take_step(exchange)

    def _locked(self, request: Request) -> MessageRefusal | None:
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.api_key is not None and given != self.api_key:
            return MessageRefusal(message="invalid x-api-key" if given else "x-api-key header is required", status=401)
        if "anthropic-version" not in request.headers:
            return MessageRefusal(message="anthropic-version: header is required")
        return None

    def _missing_resource(self, request: Request) -> MessageRefusal | None:
        if request.method != "POST" or request.path not in (_MESSAGES, _COUNT):
            return MessageRefusal(message="Not Found", status=404)
        return self._unknown(request.model)

    def _unknown(self, model: str) -> MessageRefusal | None:
        known = self.models is None or model in self.models
        return None if known else MessageRefusal(message=f"model: {model}", status=404)

    def _judged(self, request: Request) -> MessageRefusal | None:
        if not self.strict:
            return None
        return message_judge(request.json, signatures=self._mint.signatures, counts_only=request.path == _COUNT)


def _model(name: str) -> JsonObject:
    return {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server until it is interrupted: `python -m callgate.testing.fake_anthropic [--port N] [--script FILE]`."""
    return run_command(FakeAnthropic, "fake_anthropic", argv)


if __name__ == "__main__":
    sys.exit(main())
