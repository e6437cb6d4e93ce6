"""One request for a chat completion, and everything that a server may do with it.

Same as `exchange` for Gemini, in the form of the other API: one JSON body, or server-sent events that end with `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.testing.answers import Ready, encode_json, to_answer
from callgate.testing.chat_answers import Style, chat_chunks, chat_example_call
from callgate.testing.chat_rules import ChatRefusal
from callgate.testing.exchange import SSE_TYPE, Body, Exchange
from callgate.testing.google_fields import as_object
from callgate.types import JsonObject

__all__ = ["ChatExchange"]

_JSON = "application/json"


@dataclass(slots=True, kw_only=True)
class ChatExchange(Exchange):
    """A request, its connection, and what a step may do with them."""

    style: Style = field(default_factory=Style)
    """The style of the server; a fault may change it for this answer."""

    def messages(self, item: Any) -> list[bytes]:
        """The JSON text of every chunk of an answer."""
        wire = as_object(self.request.json)
        chunks = chat_chunks(
            to_answer(item), self.mint, self.style, model=self.request.model, stream=self.request.streaming,
            usage=bool(as_object(wire.get("stream_options")).get("include_usage")),
            prompt_tokens=-(-len(self.request.body) // 4),
        )  # fmt: skip
        return [made if isinstance(made, bytes) else encode_json(made) for made in chunks]

    def body_of(self, item: Any) -> Body:
        """Return the body of an answer in the requested form."""
        return self.body_from(self.messages(item))

    def body_from(self, messages: Sequence[bytes]) -> Body:
        """The body that these messages make up."""
        if not self.request.streaming:
            return Body(_JSON, tuple(messages[:1]), streamed=False)
        last = (b"data: [DONE]\n\n",) if self.style.done else ()
        return Body(SSE_TYPE, (*(b"data: %b\n\n" % message for message in messages), *last), streamed=True)

    def message(self, message: JsonObject, reason: str | None) -> Ready:
        """Return a ready-made answer of one message, whole or as one delta."""
        key = "delta" if self.request.streaming else "message"
        kind = "chat.completion.chunk" if self.request.streaming else "chat.completion"
        choice = {"index": 0, key: message, "finish_reason": reason}
        return Ready(({"id": "chatcmpl-1", "object": kind, "created": 1, "model": self.request.model, "choices": [choice]},))

    async def send_messages(self, messages: Sequence[bytes]) -> None:
        """Send these messages, right or wrong."""
        await self.send_body(self.body_from(messages))

    async def send_json(self, value: Any, status: int = 200) -> None:
        """Send a JSON body of any kind."""
        await self.send_body(Body(_JSON, (encode_json(value),), streamed=False), status, dict(self.style.headers))

    async def send_body(self, body: Body, status: int = 200, headers: Any = None) -> None:
        """Send a whole response in good faith, with the headers that this kind of server has."""
        # `slots=True` creates the class again, so that `super()` without arguments would not find it.
        await Exchange.send_body(self, body, status, dict(self.style.headers) | dict(headers or {}))

    async def error(
        self, code: int, status: str, message: str, *, details: Sequence[JsonObject] = (), **headers: str
    ) -> None:
        """Send an error in OpenAI's form."""
        await self.refuse(ChatRefusal(message=message, status=code, type=status.lower() or "server_error"), **headers)

    async def refuse(self, refusal: ChatRefusal, **headers: str) -> None:
        """Send a refusal; `headers` are named with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.send_body(Body(_JSON, (encode_json(refusal.body),), streamed=False), refusal.status, named)

    def tool_call(self) -> tuple[str, JsonObject]:
        """The name and example arguments of the first function that the request declares."""
        return chat_example_call(self.request.json)
