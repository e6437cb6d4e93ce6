"""A model that says what it was told: a request comes in, the user's last words go out."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from callgate.content.build import say, text_part
from callgate.content.read import text_of
from callgate.request import ModelRequest
from callgate.types import JsonObject

__all__ = ["EchoModel"]


class EchoModel:
    """Repeats the last words of the conversation."""

    supports_tools = False

    def __init__(self, name: str = "echo") -> None:
        self.name = name

    async def generate(self, request: ModelRequest) -> AsyncGenerator[JsonObject, None]:
        """One chunk with the words."""
        yield say([text_part(text_of(request.contents[-1]))], finish_reason="STOP")
