"""The OpenAI Agents SDK, by Responses and by chat completions."""

from __future__ import annotations

from typing import Any

import agents
from report import BASE, MODEL, TOKEN, UNKNOWN, Way, first_of, run
from report import weather as _weather

from openai import AsyncOpenAI

agents.set_tracing_disabled(True)


@agents.function_tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return _weather(city)


class Responses(Way):
    """Responses"""

    kind: Any = agents.OpenAIResponsesModel

    def _agent(self, name: str = MODEL, tools: Any = ()) -> Any:
        client = AsyncOpenAI(api_key=TOKEN, base_url=f"{BASE}/v1", max_retries=0)
        return agents.Agent(name="it", model=self.kind(model=name, openai_client=client), tools=list(tools))

    async def _ask(self, prompt: str, **given: Any) -> str:
        return (await agents.Runner.run(self._agent(**given), prompt)).final_output

    async def text(self, prompt: str) -> str:
        return await self._ask(prompt)

    ours = text

    async def _pieces(self, prompt: str) -> Any:
        async for event in agents.Runner.run_streamed(self._agent(), prompt).stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta

    async def stream(self, prompt: str) -> list[str]:
        return [piece async for piece in self._pieces(prompt)]

    async def its(self, prompt: str) -> str:
        return await self._ask(prompt, tools=[weather])

    parallel = its

    async def error(self, prompt: str) -> str:
        return await self._ask(prompt, name=UNKNOWN)

    async def abort(self, prompt: str) -> str:
        result = agents.Runner.run_streamed(self._agent(), prompt)

        async def pieces() -> Any:
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    yield event.data.delta

        words = await first_of(pieces())
        result.cancel()
        return words


class Chat(Responses):
    """chat completions"""

    kind = agents.OpenAIChatCompletionsModel


run([Responses, Chat])
