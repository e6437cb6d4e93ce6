"""pydantic-ai, by each API that it has a model for."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from report import BASE, MODEL, TOKEN, UNKNOWN, Way, first_of, run, weather

from anthropic import AsyncAnthropic


class Chat(Way):
    """chat completions"""

    def _model(self, name: str) -> Any:
        return OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{BASE}/v1", api_key=TOKEN))

    async def text(self, prompt: str) -> str:
        return (await Agent(self._model(MODEL)).run(prompt)).output

    ours = text

    async def _pieces(self, prompt: str) -> Any:
        async with Agent(self._model(MODEL)).run_stream(prompt) as stream:
            async for piece in stream.stream_text(delta=True, debounce_by=None):
                yield piece

    async def stream(self, prompt: str) -> list[str]:
        return [piece async for piece in self._pieces(prompt)]

    async def its(self, prompt: str) -> str:
        return (await Agent(self._model(MODEL), tools=[weather]).run(prompt)).output

    parallel = its

    async def error(self, prompt: str) -> str:
        return (await Agent(self._model(UNKNOWN)).run(prompt)).output

    async def abort(self, prompt: str) -> str:
        return await first_of(self._pieces(prompt))


class Responses(Chat):
    """Responses"""

    def _model(self, name: str) -> Any:
        return OpenAIResponsesModel(name, provider=OpenAIProvider(base_url=f"{BASE}/v1", api_key=TOKEN))


class Messages(Chat):
    """Messages"""

    def _model(self, name: str) -> Any:
        client = AsyncAnthropic(api_key=TOKEN, base_url=BASE, max_retries=0)
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))


class Generate(Chat):
    """generateContent"""

    def _model(self, name: str) -> Any:
        return GoogleModel(name, provider=GoogleProvider(api_key=TOKEN, base_url=BASE))


run([Chat, Responses, Messages, Generate])
