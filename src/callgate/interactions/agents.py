"""Agents of the Interactions API, and what they take of a request that is made for models.

A model's name, settings or a request come in; a request that the agent takes goes out, with a notice of what it does not
take. Nothing is sent here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from callgate.base_errors import expect
from callgate.declaration import without_functions
from callgate.errors import UsageError
from callgate.events import Notice
from callgate.request import ModelRequest, with_output_prompt
from callgate.types import JsonObject

__all__ = ["agent_config", "agent_of", "expect_flag", "is_background", "is_research", "request_for_agent"]

_AGENTS = re.compile(r"(?:deep-research|antigravity|code-mender)\b")
_RESEARCH = "deep-research"


def agent_of(model: str) -> str | None:
    """The name of the agent that a model's name stands for; None for a model."""
    if model.startswith("agents/"):
        return model.removeprefix("agents/")
    return model if _AGENTS.match(model) else None


def is_research(model: str) -> bool:
    """True for Deep Research, which takes neither functions nor a system instruction nor a schema."""
    return (agent_of(model) or "").startswith(_RESEARCH)


def is_background(settings: Mapping[str, Any], model: str) -> bool:
    """True if the server works on a request by itself, and is asked for the answer.

    Raises:
        UsageError: the settings exclude it, and the agent has no other way.
    """
    given = expect_flag(settings, "background")
    if is_research(model):
        if given is False:
            raise UsageError(f"the agent {agent_of(model)!r} works in the background alone: leave background=False out")
        return True
    return bool(given)


def expect_flag(settings: Mapping[str, Any], name: str) -> bool | None:
    """Return a setting that is True, False or not there.

    Raises:
        UsageError: it is something else.
    """
    value = settings.get(name)
    expect(value, (bool, type(None)), f"{name}={{}}", "True or False")
    return value


def request_for_agent(model: str, request: ModelRequest) -> tuple[ModelRequest, list[Notice]]:
    """The request as a model or agent takes it, and a notice of the tools that it cannot be given."""
    if not is_research(model):
        return request, []
    request = with_output_prompt(request)
    if not request.declaration.names:
        return request, []
    names = sorted(request.declaration.names.values())
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} others" if len(names) > 10 else "")
    said = f"The agent {agent_of(model)} takes no functions, and is asked without {shown}."
    bare = replace(request, declaration=without_functions(request.declaration), definitions=())
    return bare, [Notice("tools_left_out", said, "warning")]


def agent_config(settings: Mapping[str, Any], model: str) -> JsonObject:
    """The configuration of an agent. Research reports its progress by summaries of its thoughts, unless it may not.

    Raises:
        UsageError: a configuration that is no object.
    """
    given: Any = settings.get("agent_config")
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise UsageError(f"agent_config={given!r}: use an object such as {{'type': 'deep-research'}}")
    fields = dict(cast("Mapping[str, Any]", given))
    if not is_research(model):
        return fields
    shows = "none" if settings.get("include_thoughts") is False else "auto"
    return {"type": _RESEARCH, "thinking_summaries": shows, **fields}
