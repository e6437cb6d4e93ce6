"""The official SDK as a judge of requests: what its types do not take is a mistake of ours."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError


@functools.cache
def _adapter(api: str, stream: bool) -> TypeAdapter[Any]:
    kind = "Streaming" if stream else "NonStreaming"
    if api == "responses":
        from openai.types.responses import response_create_params

        return TypeAdapter(getattr(response_create_params, f"ResponseCreateParams{kind}"))
    from openai.types.chat import completion_create_params

    return TypeAdapter(getattr(completion_create_params, f"CompletionCreateParams{kind}"))


def sdk_problems(body: dict[str, Any], api: str = "completions") -> list[str]:
    """What the types of the SDK have against the body of a request to an API, by the end of its path."""
    try:
        _used_up(_adapter(api, body.get("stream") is True).validate_python(body))
    except ValidationError as error:
        return [str(error)]
    return []


def _used_up(value: Any) -> None:
    """Goes through everything: what the types call iterable is checked only when it is read."""
    if isinstance(value, dict):
        for inner in value.values():
            _used_up(inner)
    elif not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
        for inner in value:
            _used_up(inner)


def strange_keys(body: dict[str, Any], api: str = "completions") -> Iterator[str]:
    """Top-level keys that the SDK does not know; its types let those pass."""
    from openai.types.chat import completion_create_params
    from openai.types.responses import response_create_params

    responses = response_create_params.ResponseCreateParamsBase
    known = {*(responses if api == "responses" else completion_create_params.CompletionCreateParamsBase).__annotations__}
    known.add("stream")
    yield from (key for key in body if key not in known)
