"""LiteLLM, by each of its providers whose API the service speaks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import litellm
from report import BASE, MODEL, TOKEN, UNKNOWN, WEATHER, Way, first_of, run, weather

litellm.telemetry = False
litellm.suppress_debug_info = True


class Chat(Way):
    """`openai/`"""

    prefix, base = "openai/", f"{BASE}/v1"

    def _given(self, messages: Any, name: str = MODEL, **given: Any) -> Any:
        said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return {
            "model": self.prefix + name,
            "api_base": self.base,
            "api_key": TOKEN,
            "messages": said,
            "num_retries": 0,
            **given,
        }

    def text(self, prompt: str) -> str:
        return litellm.completion(**self._given(prompt)).choices[0].message.content

    ours = text

    def stream(self, prompt: str) -> list[str]:
        chunks = litellm.completion(**self._given(prompt, stream=True))
        return [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]

    def its(self, prompt: str) -> str:
        tools = [{"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": WEATHER}}]
        messages: list[Any] = [{"role": "user", "content": prompt}]
        while True:
            message = litellm.completion(**self._given(messages, tools=tools)).choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.model_dump())
            for call in message.tool_calls:
                content = weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    parallel = its

    def error(self, prompt: str) -> str:
        return litellm.completion(**self._given(prompt, UNKNOWN)).choices[0].message.content

    async def abort(self, prompt: str) -> str:
        async def pieces() -> Any:
            async for chunk in await litellm.acompletion(**self._given(prompt, stream=True)):
                yield chunk.choices[0].delta.content if chunk.choices else ""

        words = await first_of(pieces())
        await asyncio.sleep(0)
        return words


class Messages(Chat):
    """`anthropic/`"""

    prefix, base = "anthropic/", BASE


class Generate(Chat):
    """`gemini/`"""

    prefix, base = "gemini/", f"{BASE}/v1beta"


class Responses(Way):
    """`responses()`"""

    def _ask(self, given: Any, name: str = MODEL, **others: Any) -> Any:
        return litellm.responses(model=f"openai/{name}", api_base=f"{BASE}/v1", api_key=TOKEN, input=given, **others)

    def _text(self, said: Any) -> str:
        return "".join(part.text for item in said.output if item.type == "message" for part in item.content)

    def text(self, prompt: str) -> str:
        return self._text(self._ask(prompt))

    ours = text

    def stream(self, prompt: str) -> list[str]:
        return [e.delta for e in self._ask(prompt, stream=True) if e.type == "response.output_text.delta"]

    def its(self, prompt: str) -> str:
        tools = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}]
        said = self._ask(prompt, tools=tools)
        while calls := [item for item in said.output if item.type == "function_call"]:
            results = [
                {"type": "function_call_output", "call_id": call.call_id, "output": weather(**json.loads(call.arguments))}
                for call in calls
            ]
            said = self._ask(results, tools=tools, previous_response_id=said.id)
        return self._text(said)

    parallel = its

    def error(self, prompt: str) -> str:
        return self._text(self._ask(prompt, UNKNOWN))

    async def abort(self, prompt: str) -> str:
        async def pieces() -> Any:
            stream = await litellm.aresponses(
                model=f"openai/{MODEL}", api_base=f"{BASE}/v1", api_key=TOKEN, input=prompt, stream=True
            )
            async for event in stream:
                yield event.delta if event.type == "response.output_text.delta" else ""

        return await first_of(pieces())


run([Chat, Messages, Generate, Responses])
