"""LangChain, by each of its packages for an API."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from report import BASE, MODEL, TOKEN, UNKNOWN, Way, first_of, run, weather


class Chat(Way):
    """chat completions"""

    def _model(self, name: str = MODEL) -> Any:
        return ChatOpenAI(model=name, api_key=TOKEN, base_url=f"{BASE}/v1", max_retries=0)

    def text(self, prompt: str) -> str:
        return self._model().invoke(prompt).text

    ours = text

    def stream(self, prompt: str) -> list[str]:
        return [piece.text for piece in self._model().stream(prompt) if piece.text]

    def its(self, prompt: str) -> str:
        agent = create_agent(self._model(), tools=[weather])
        return agent.invoke({"messages": [{"role": "user", "content": prompt}]})["messages"][-1].text

    parallel = its

    def error(self, prompt: str) -> str:
        return self._model(UNKNOWN).invoke(prompt).text

    async def abort(self, prompt: str) -> str:
        return await first_of(piece.text async for piece in self._model().astream(prompt))


class Responses(Chat):
    """Responses"""

    def _model(self, name: str = MODEL) -> Any:
        return ChatOpenAI(model=name, api_key=TOKEN, base_url=f"{BASE}/v1", max_retries=0, use_responses_api=True)


class Messages(Chat):
    """Messages"""

    def _model(self, name: str = MODEL) -> Any:
        return ChatAnthropic(model=name, api_key=TOKEN, base_url=BASE, max_retries=0)


class Generate(Chat):
    """generateContent"""

    def _model(self, name: str = MODEL) -> Any:
        return ChatGoogleGenerativeAI(model=name, google_api_key=TOKEN, base_url=BASE, max_retries=1)


run([Chat, Responses, Messages, Generate])
