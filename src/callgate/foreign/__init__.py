"""Use tools of other frameworks as tools of a gate.

Adapts objects of LangChain, pydantic-ai or the OpenAI Agents SDK: arguments are checked against the tool's own schema,
calls have a deadline and pass the policy, and errors stay errors. A framework is imported only if one of its objects is
passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from callgate.definitions.frameworks import Framework, framework_of
from callgate.errors import ToolNotDeclarableError
from callgate.types import Limits

__all__ = ["adapt_tool"]


def adapt_tool(item: object, limits: Limits) -> object | None:
    """Adapt a tool or toolset of another framework; return None if it is of no supported framework.

    Raises:
        ToolNotDeclarableError: it is of one, but cannot be run here.
    """
    make = framework_of(item)
    return None if make is None else _FRAMEWORKS[make](item, limits)


def _langchain(item: Any, limits: Limits) -> object:
    from callgate.foreign.langchain import LangChainTool

    return LangChainTool(item, limits)


def _openai_agents(item: Any, limits: Limits) -> object:
    from callgate.foreign.openai_agents import AgentsTool

    return AgentsTool(item)


def _pydantic_ai(item: Any, limits: Limits) -> object:
    from callgate.foreign.pydantic_ai import PydanticAiTools

    return PydanticAiTools(item)


def _google_genai(item: Any, limits: Limits) -> object:
    raise ToolNotDeclarableError(
        "a google.genai.types.Tool holds declarations and no code: pass the functions too, as in "
        "tools=from_google_genai(tool, functions=[...]) of callgate.adapters"
    )


_FRAMEWORKS: Mapping[Framework, Callable[[Any, Limits], object]] = {
    "langchain": _langchain,
    "openai_agents": _openai_agents,
    "pydantic_ai": _pydantic_ai,
    "pydantic_ai_toolset": _pydantic_ai,
    "google_genai": _google_genai,
}
