"""Adapters to other frameworks, both ways. Each framework is imported only by its own functions.

| framework | their tools in a gate | our tools in their agents |
|---|---|---|
| google-genai | `from_google_genai` | `to_google_genai` |
| LangChain | `from_langchain` | `to_langchain` |
| pydantic-ai | `from_pydantic_ai` | `to_pydantic_ai` |
| OpenAI Agents SDK | `from_openai_agents` | `to_openai_agents` |

`Gate(tools=[...])` accepts objects of these frameworks directly; the functions have further options. Exported tools are
`GatedTools`: arguments checked, policy, approval, limits and audit log as in a gate. `GenaiModel` is a model that uses a
`genai.Client` of yours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from callgate.adapters.gated_tools import GatedTools
from callgate.definitions.frameworks import framework_of
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.models.genai import GenaiModel
from callgate.types import Limits

if TYPE_CHECKING:
    from agents.tool import FunctionTool
    from langchain_core.tools import BaseTool
    from pydantic_ai.toolsets import FunctionToolset

__all__ = [
    "GatedTools", "GenaiModel", "from_google_genai", "from_langchain", "from_openai_agents", "from_pydantic_ai",
    "to_google_genai", "to_langchain", "to_openai_agents", "to_pydantic_ai",
]  # fmt: skip


# Their tools in our gate -------------------------------------------------------------------------------------------------


def from_langchain(*tools: Any, injected: Mapping[str, Any] | None = None) -> list[object]:
    """Use LangChain tools as tools of a gate.

    Args:
        tools: The tools.
        injected: Values of their `InjectedToolArg` arguments, by name; the model can neither see nor set them.

    Raises:
        ToolNotDeclarableError: an item is not a LangChain tool, or an argument that must be injected has no value.
        UsageError: a value is given for an argument that none of the tools has injected.
    """
    for tool in tools:
        if framework_of(tool) != "langchain":
            raise ToolNotDeclarableError(f"{tool!r} is not a tool of that framework")
    from callgate.foreign.langchain import LangChainTool

    adapted = [LangChainTool(tool, Limits(), injected=injected) for tool in tools]
    wanted = {name for one in adapted for name in one.injected_names}
    if unused := sorted(set(injected or ()) - wanted):
        known = f"they have {', '.join(map(repr, sorted(wanted)))}" if wanted else "they have none"
        raise UsageError(f"injected= has {unused[0]!r}, which no tool has as an injected argument: {known}")
    return list(adapted)


def from_openai_agents(*tools: Any, context: object = None, approved: bool = False) -> list[object]:
    """Use function tools of the OpenAI Agents SDK as tools of a gate.

    Args:
        tools: The tools.
        context: The run context passed to their functions.
        approved: Let the policy of the gate decide, instead of the tools' own `needs_approval`.

    Raises:
        ToolNotDeclarableError: a tool has a feature that needs a Runner of the SDK.
    """
    from callgate.foreign.openai_agents import AgentsTool

    return [AgentsTool(tool, context=context, approved=approved) for tool in tools]


def from_pydantic_ai(toolset: Any, *, deps: Any = None, approved: bool = False) -> list[object]:
    """Use a toolset or a tool of pydantic-ai as tools of a gate.

    Args:
        toolset: The toolset, or one `Tool`.
        deps: The `ctx.deps` passed to its functions.
        approved: Let the policy of the gate decide about tools that require approval; otherwise they are left out.
    """
    from callgate.foreign.pydantic_ai import PydanticAiTools

    return [PydanticAiTools(toolset, deps=deps, approved=approved)]


def from_google_genai(*tools: Any, functions: Iterable[Callable[..., Any]] = ()) -> list[object]:
    """Use the `tools` of `GenerateContentConfig` as tools of a gate: functions, `types.Tool`s, built-in tools.

    Args:
        tools: The tools.
        functions: The functions for the declarations of a `types.Tool`, by name.

    Raises:
        ToolNotDeclarableError: a declaration has no function, or a function no declaration.
    """
    from callgate.foreign.google_genai import tools_of

    return tools_of(tools, {function.__name__: function for function in functions})


# Our tools in their agents -----------------------------------------------------------------------------------------------


def to_langchain(tools: GatedTools | Iterable[object], **options: Any) -> list[BaseTool]:
    """Export our tools as LangChain tools, for `bind_tools`, agents and graphs; `options` are those of `GatedTools`.

    Errors are sent to the model as the content of a `ToolMessage` with the status `error`; the `ToolResult` is its artifact.
    """
    from callgate.adapters.langchain import langchain_tools

    return list(langchain_tools(GatedTools.of(tools, **options)))


def to_pydantic_ai(tools: GatedTools | Iterable[object], **options: Any) -> FunctionToolset[Any]:
    """Our tools as a toolset of pydantic-ai, for `Agent(toolsets=[...])`; `options` are those of `GatedTools`."""
    from callgate.adapters.pydantic_ai import toolset_of

    return toolset_of(GatedTools.of(tools, **options))


def to_openai_agents(tools: GatedTools | Iterable[object], **options: Any) -> list[FunctionTool]:
    """Our tools as function tools of the OpenAI Agents SDK; `options` are those of `GatedTools`."""
    from callgate.adapters.openai_agents import function_tools

    return function_tools(GatedTools.of(tools, **options))


def to_google_genai(
    tools: GatedTools | Iterable[object], *, is_async: bool = False, **options: Any
) -> list[Callable[..., Any]]:
    """Export our tools as functions for google-genai's automatic function calling; `options` are those of `GatedTools`.

    Args:
        tools: The tools.
        is_async: True for `client.aio`; plain functions work with both, but block the event loop there.
        options: Those of `GatedTools`.

    Raises:
        UsageError: google-genai is older than 2.34, and would call none of them.
        ToolNotDeclarableError: a tool cannot be expressed as a function.
    """
    from callgate.adapters.google_genai import functions_of

    return functions_of(GatedTools.of(tools, **options), is_async=is_async)
