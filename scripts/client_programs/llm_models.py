"""Simon Willison's llm, with its models for OpenAI-compatible servers."""

from __future__ import annotations

from llm.default_plugins.openai_models import AsyncChat, Chat
from report import BASE, MODEL, TOKEN, UNKNOWN, Way, first_of, run, weather


class Completions(Way):
    """chat completions"""

    def _model(self, name: str = MODEL, kind: type = Chat) -> object:
        model = kind(name, model_name=name, api_base=f"{BASE}/v1", supports_tools=True)
        model.key = TOKEN
        return model

    def text(self, prompt: str) -> str:
        return self._model().prompt(prompt, stream=False).text()

    ours = text

    def stream(self, prompt: str) -> list[str]:
        return [piece for piece in self._model().prompt(prompt, stream=True) if piece]

    def its(self, prompt: str) -> str:
        return self._model().chain(prompt, tools=[weather], stream=False).text()

    parallel = its

    def error(self, prompt: str) -> str:
        return self._model(UNKNOWN).prompt(prompt, stream=False).text()

    async def abort(self, prompt: str) -> str:
        return await first_of(self._model(kind=AsyncChat).prompt(prompt))


run([Completions])
