"""instructor: structured values by each API."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import instructor
from google import genai
from pydantic import BaseModel, Field
from report import BASE, MODEL, TOKEN, UNKNOWN, WEATHER_ASKED, Way, run

import anthropic
import openai


class Weather(BaseModel):
    """The weather of a city."""

    city: str = Field(description="The city.")


NO_TEXT = "every request of instructor declares a tool of its own, and its answer is a call of it"


class Chat(Way):
    """chat completions"""

    lacks = MappingProxyType(
        {"parallel": "instructor asks for one value", "ours": NO_TEXT, "text": NO_TEXT, "abort": NO_TEXT}
    )
    extra: Mapping[str, Any] = MappingProxyType({})

    def _client(self) -> Any:
        return instructor.from_openai(openai.OpenAI(api_key=TOKEN, base_url=f"{BASE}/v1", max_retries=0))

    def _ask(self, prompt: str, model: str = MODEL, kind: Any = Weather) -> Any:
        messages = [{"role": "user", "content": prompt}]
        return self._client().create(model=model, messages=messages, response_model=kind, max_retries=1, **self.extra)

    def its(self, prompt: str) -> str:
        city = self._ask(prompt).city
        WEATHER_ASKED.append(city)
        return f"{city} is cold"

    def stream(self, prompt: str) -> list[str]:
        messages = [{"role": "user", "content": prompt}]
        found = self._client().create_partial(model=MODEL, messages=messages, response_model=Weather, **self.extra)
        words = [each.city or "" for each in found]
        return [new.removeprefix(old) for old, new in zip(["", *words], words, strict=False)]

    def error(self, prompt: str) -> Any:
        return self._ask(prompt, UNKNOWN)


class Responses(Chat):
    """Responses"""

    def _client(self) -> Any:
        made = openai.OpenAI(api_key=TOKEN, base_url=f"{BASE}/v1", max_retries=0)
        return instructor.from_openai(made, mode=instructor.Mode.RESPONSES_TOOLS)


class Messages(Chat):
    """Messages"""

    extra = MappingProxyType({"max_tokens": 1_000})

    def _client(self) -> Any:
        return instructor.from_anthropic(anthropic.Anthropic(api_key=TOKEN, base_url=BASE, max_retries=0))


class Generate(Chat):
    """generateContent"""

    def _client(self) -> Any:
        made = genai.Client(api_key=TOKEN, http_options={"base_url": BASE})
        return instructor.from_genai(made, mode=instructor.Mode.GENAI_TOOLS)


run([Chat, Responses, Messages, Generate])
