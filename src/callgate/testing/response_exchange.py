"""One Responses request, and everything that a server may do with it.

Same as `chat_exchange`, in the form of the other API of the same servers: one JSON body, or server-sent events with names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from callgate.testing.answers import encode_json, to_answer
from callgate.testing.chat_exchange import ChatExchange
from callgate.testing.exchange import SSE_TYPE, Body, named_event
from callgate.testing.google_fields import as_list, as_object
from callgate.testing.response_answers import response_chunks, response_example_call
from callgate.types import JsonObject

__all__ = ["ResponseExchange"]


@dataclass(slots=True, kw_only=True)
class ResponseExchange(ChatExchange):
    """A request, its connection, and what a step may do with them."""

    def messages(self, item: Any) -> list[bytes]:
        """The JSON text of every event of an answer."""
        wanted = as_list(as_object(self.request.json).get("include"))
        chunks = response_chunks(
            to_answer(item), self.mint, model=self.request.model, stream=self.request.streaming,
            input_tokens=-(-len(self.request.body) // 4), encrypts="reasoning.encrypted_content" in wanted,
        )  # fmt: skip
        return [made if isinstance(made, bytes) else encode_json(made) for made in chunks]

    def body_from(self, messages: Sequence[bytes]) -> Body:
        """The body that these messages make up."""
        if not self.request.streaming:
            return Body("application/json", tuple(messages[:1]), streamed=False)
        return Body(SSE_TYPE, tuple(map(named_event, messages)), streamed=True)

    def tool_call(self) -> tuple[str, JsonObject]:
        """The name and example arguments of the first function that the request declares."""
        return response_example_call(self.request.json)
