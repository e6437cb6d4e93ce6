"""LangChain: its agent on its model for Gemini."""

from __future__ import annotations

from typing import Any

IMPORT = "from langchain.agents import create_agent; from langchain_google_genai import ChatGoogleGenerativeAI"

MODEL = "gemini-3.8-flash"


def _model(url: str) -> Any:
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(model=MODEL, api_key="k", base_url=url, max_retries=1)


async def turns(url: str, look_up: Any, turns: int) -> None:
    from langchain.agents import create_agent

    agent = create_agent(_model(url), tools=[look_up])
    prompt: Any = {"messages": [{"role": "user", "content": "Begin."}]}
    await agent.ainvoke(prompt, {"recursion_limit": 2 * turns + 20})


async def stream(url: str) -> int:
    size = 0
    async for chunk in _model(url).astream("Talk."):
        size += len(chunk.text)
    return size


async def parallel(url: str, wait: Any, timed: Any) -> None:
    from langchain.agents import create_agent

    agent = create_agent(_model(url), tools=[wait])
    prompt: Any = {"messages": [{"role": "user", "content": "All at once."}]}
    await timed(lambda: agent.ainvoke(prompt))
