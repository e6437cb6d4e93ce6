"""The openai SDK, by chat completions and by Responses."""

from __future__ import annotations

import json
from typing import Any

from report import BASE, MODEL, TOKEN, UNKNOWN, WEATHER, Way, run, weather

import openai

CLIENT = openai.OpenAI(api_key=TOKEN, base_url=f"{BASE}/v1", max_retries=0)


class Chat(Way):
    """chat completions"""

    def _ask(self, messages: Any, **given: Any) -> Any:
        said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return CLIENT.chat.completions.create(**{"model": MODEL, "messages": said, **given})

    def text(self, prompt: str) -> str:
        return self._ask(prompt).choices[0].message.content

    ours = text

    def stream(self, prompt: str) -> list[str]:
        return [
            c.choices[0].delta.content for c in self._ask(prompt, stream=True) if c.choices and c.choices[0].delta.content
        ]

    def its(self, prompt: str) -> str:
        tools = [{"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": WEATHER}}]
        messages: list[Any] = [{"role": "user", "content": prompt}]
        while True:
            message = self._ask(messages, tools=tools).choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message)
            for call in message.tool_calls:
                content = weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    parallel = its

    def error(self, prompt: str) -> Any:
        return self._ask(prompt, model=UNKNOWN)

    def abort(self, prompt: str) -> str:
        with self._ask(prompt, stream=True) as stream:
            return next(c.choices[0].delta.content for c in stream if c.choices and c.choices[0].delta.content)


class Responses(Way):
    """Responses"""

    def _ask(self, given: Any, **others: Any) -> Any:
        return CLIENT.responses.create(**{"model": MODEL, "input": given, **others})

    def text(self, prompt: str) -> str:
        return self._ask(prompt).output_text

    ours = text

    def stream(self, prompt: str) -> list[str]:
        return [e.delta for e in self._ask(prompt, stream=True) if e.type == "response.output_text.delta"]

    def its(self, prompt: str) -> str:
        tools = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}]
        response = self._ask(prompt, tools=tools)
        while calls := [item for item in response.output if item.type == "function_call"]:
            results = [
                {"type": "function_call_output", "call_id": call.call_id, "output": weather(**json.loads(call.arguments))}
                for call in calls
            ]
            response = self._ask(results, tools=tools, previous_response_id=response.id)
        return response.output_text

    parallel = its

    def error(self, prompt: str) -> Any:
        return self._ask(prompt, model=UNKNOWN)

    def abort(self, prompt: str) -> str:
        with self._ask(prompt, stream=True) as stream:
            return next(e.delta for e in stream if e.type == "response.output_text.delta")


run([Chat, Responses])
