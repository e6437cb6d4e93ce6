"""Tools of other frameworks as tools of a gate.

An object of LangChain, pydantic-ai or the OpenAI Agents SDK comes in, something that an executor can run goes out: its
arguments are checked against its own schema, its calls have a deadline and pass the policy, and its errors stay errors. The
framework is imported only where one of its objects is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from callgate.definitions.frameworks import Framework, framework_of
from callgate.errors import ToolNotDeclarableError
from callgate.types import Limits

__all__ = ["adapt_tool"]


def adapt_tool(item: object, limits: Limits) -> object | None:
    """A tool, or a toolset, of another framework as one of ours; None if it is of no framework that is known.

    Raises:
        ToolNotDeclarableError: it is, and cannot be run here as it stands.
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
