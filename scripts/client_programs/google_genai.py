"""The google-genai SDK, by generateContent and by Interactions."""

from __future__ import annotations

from typing import Any

from google import genai
from report import BASE, MODEL, TOKEN, UNKNOWN, WEATHER, Way, first_of, run, weather

CLIENT = genai.Client(api_key=TOKEN, http_options={"base_url": BASE})


class Generate(Way):
    """generateContent"""

    def text(self, prompt: str) -> str:
        return CLIENT.models.generate_content(model=MODEL, contents=prompt).text or ""

    ours = text

    def stream(self, prompt: str) -> list[str]:
        return [chunk.text for chunk in CLIENT.models.generate_content_stream(model=MODEL, contents=prompt) if chunk.text]

    def its(self, prompt: str) -> str:
        return CLIENT.models.generate_content(model=MODEL, contents=prompt, config={"tools": [weather]}).text or ""

    parallel = its

    def error(self, prompt: str) -> Any:
        return CLIENT.models.generate_content(model=UNKNOWN, contents=prompt)

    async def abort(self, prompt: str) -> str:
        stream = await CLIENT.aio.models.generate_content_stream(model=MODEL, contents=prompt)
        return await first_of(chunk.text async for chunk in stream)


class Interactions(Way):
    """Interactions"""

    def _ask(self, given: Any, **others: Any) -> Any:
        return CLIENT.interactions.create(**{"model": MODEL, "input": given, **others})

    def _text(self, said: Any) -> str:
        return "".join(
            part.text for step in said.steps if step.type == "model_output" for part in step.content if part.type == "text"
        )

    def text(self, prompt: str) -> str:
        return self._text(self._ask(prompt))

    ours = text

    def _pieces(self, stream: Any) -> Any:
        for event in stream:
            if event.event_type == "step.delta" and event.delta.type == "text":
                yield event.delta.text

    def stream(self, prompt: str) -> list[str]:
        return list(self._pieces(self._ask(prompt, stream=True)))

    def its(self, prompt: str) -> str:
        tools = [{"type": "function", "name": "weather", "description": "Tells it.", "parameters": WEATHER}]
        said = self._ask(prompt, tools=tools)
        while calls := [step for step in said.steps if step.type == "function_call"]:
            results = [
                {
                    "type": "function_result",
                    "call_id": call.id,
                    "name": call.name,
                    "result": weather(**dict(call.arguments)),
                }
                for call in calls
            ]
            said = self._ask(results, tools=tools, previous_interaction_id=said.id)
        return self._text(said)

    parallel = its

    def error(self, prompt: str) -> Any:
        return self._ask(prompt, model=UNKNOWN)

    def abort(self, prompt: str) -> str:
        stream = self._ask(prompt, stream=True)
        try:
            return next(self._pieces(stream))
        finally:
            stream.close()


run([Generate, Interactions])
