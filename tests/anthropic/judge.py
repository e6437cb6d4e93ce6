"""Anthropic's SDK as a judge of requests and of the fake's answers: what its types do not take is a mistake of ours."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import TypeAdapter, ValidationError


@functools.cache
def _adapter(stream: bool) -> TypeAdapter[Any]:
    from anthropic.types import message_create_params as params

    return TypeAdapter(params.MessageCreateParamsStreaming if stream else params.MessageCreateParamsNonStreaming)


def sdk_problems(body: dict[str, Any]) -> list[str]:
    """What the types of the SDK have against the body of a request."""
    from anthropic.types import message_create_params as params

    known = {*params.MessageCreateParamsBase.__annotations__, "stream", "temperature", "top_p", "top_k"}
    problems = [f"the SDK does not know the field {key!r}" for key in body if key not in known]
    try:
        _used_up(_adapter(body.get("stream") is True).validate_python(body))
    except ValidationError as error:
        problems.append(str(error))
    return problems


def _used_up(value: Any) -> None:
    """Goes through everything: what the types call iterable is checked only when it is read."""
    if isinstance(value, dict):
        for inner in value.values():
            _used_up(inner)
    elif not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
        for inner in value:
            _used_up(inner)
