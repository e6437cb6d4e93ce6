"""The anthropic SDK."""

from __future__ import annotations

from typing import Any

from report import BASE, MODEL, TOKEN, UNKNOWN, WEATHER, Way, run, weather

import anthropic

CLIENT = anthropic.Anthropic(api_key=TOKEN, base_url=BASE, max_retries=0)


class Messages(Way):
    """Messages"""

    def _given(self, messages: Any, **given: Any) -> Any:
        said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return {"model": MODEL, "max_tokens": 1_000, "messages": said, **given}

    def text(self, prompt: str) -> str:
        return CLIENT.messages.create(**self._given(prompt)).content[-1].text

    ours = text

    def stream(self, prompt: str) -> list[str]:
        with CLIENT.messages.stream(**self._given(prompt)) as stream:
            return list(stream.text_stream)

    def its(self, prompt: str) -> str:
        tools = [{"name": "weather", "description": "Tells it.", "input_schema": WEATHER}]
        messages: list[Any] = [{"role": "user", "content": prompt}]
        while True:
            said = CLIENT.messages.create(**self._given(messages, tools=tools))
            calls = [block for block in said.content if block.type == "tool_use"]
            if not calls:
                return said.content[-1].text
            results = [{"type": "tool_result", "tool_use_id": b.id, "content": weather(**b.input)} for b in calls]
            messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]

    parallel = its

    def error(self, prompt: str) -> Any:
        return CLIENT.messages.create(**self._given(prompt, model=UNKNOWN))

    def abort(self, prompt: str) -> str:
        with CLIENT.messages.stream(**self._given(prompt)) as stream:
            return next(iter(stream.text_stream))


run([Messages])
