"""One Messages request, and everything that a server may do with it.

Same as `exchange` for Gemini, in the form of the other API: one JSON body, or server-sent events with their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from callgate.testing.answers import encode_json, to_answer
from callgate.testing.exchange import SSE_TYPE, Body, Exchange, named_event
from callgate.testing.message_answers import message_chunks, message_example_call
from callgate.testing.message_rules import MessageRefusal
from callgate.types import JsonObject

__all__ = ["MessageExchange"]

_JSON = "application/json"


@dataclass(slots=True, kw_only=True)
class MessageExchange(Exchange):
    """A request, its connection, and what a step may do with them."""

    def messages(self, item: Any) -> list[bytes]:
        """The JSON text of every event of an answer."""
        chunks = message_chunks(
            to_answer(item), self.mint, model=self.request.model, stream=self.request.streaming,
            input_tokens=-(-len(self.request.body) // 4),
        )  # fmt: skip
        return [made if isinstance(made, bytes) else encode_json(made) for made in chunks]

    def body_of(self, item: Any) -> Body:
        """Return the body of an answer in the requested form."""
        return self.body_from(self.messages(item))

    def body_from(self, messages: Sequence[bytes]) -> Body:
        """The body that these messages make up."""
        if not self.request.streaming:
            return Body(_JSON, tuple(messages[:1]), streamed=False)
        return Body(SSE_TYPE, tuple(map(named_event, messages)), streamed=True)

    async def send_messages(self, messages: Sequence[bytes]) -> None:
        """Send these messages, right or wrong."""
        await self.send_body(self.body_from(messages))

    async def send_json(self, value: Any, status: int = 200) -> None:
        """Send a JSON body of any kind."""
        await self.send_body(Body(_JSON, (encode_json(value),), streamed=False), status)

    async def error(
        self, code: int, status: str, message: str, *, details: Sequence[JsonObject] = (), **headers: str
    ) -> None:
        """Send an error in Anthropic's form."""
        await self.refuse(MessageRefusal(message=message, status=code), **headers)

    async def refuse(self, refusal: MessageRefusal, **headers: str) -> None:
        """Send a refusal; `headers` are named with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.send_body(Body(_JSON, (encode_json(refusal.body),), streamed=False), refusal.status, named)

    def tool_call(self) -> tuple[str, JsonObject]:
        """The name and example arguments of the first function that the request declares."""
        return message_example_call(self.request.json)
