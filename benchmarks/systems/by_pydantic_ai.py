"""pydantic-ai: an agent with a Google model."""

from __future__ import annotations

from typing import Any

IMPORT = "from pydantic_ai import Agent; from pydantic_ai.models.google import GoogleModel"

MODEL = "gemini-3.8-flash"


def _agent(url: str, *tools: Any) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return Agent(GoogleModel(MODEL, provider=GoogleProvider(api_key="k", base_url=url)), tools=list(tools))


async def turns(url: str, look_up: Any, turns: int) -> None:
    from pydantic_ai.usage import UsageLimits

    await _agent(url, look_up).run("Begin.", usage_limits=UsageLimits(request_limit=turns + 10))


async def stream(url: str) -> int:
    size = 0
    async with _agent(url).run_stream("Talk.") as result:
        async for text in result.stream_text(delta=True, debounce_by=None):
            size += len(text)
    return size


async def parallel(url: str, wait: Any, timed: Any) -> None:
    agent = _agent(url, wait)
    await timed(lambda: agent.run("All at once."))


async def large_call(url: str, store: Any) -> None:
    async with _agent(url, store).run_stream("Store it.") as result:
        async for _ in result.stream_text(delta=True, debounce_by=None):
            pass
