"""A request of the runtime -> the fields around the messages in another API's body.

Settings and declarations come in; fields go out, encoded once for each declaration. What a field is called is known to the
wire of that API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, cast

from callgate import strict_json
from callgate.errors import UsageError
from callgate.request import ModelRequest, is_of_interactions, merged, unknown_setting
from callgate.types import JsonObject

__all__ = ["KeptFields", "Special", "choice_of", "fields_of_settings", "joined", "mime_type_fields", "output_schema"]

Special = Callable[[Any, Mapping[str, Any]], JsonObject]
"""A setting's value and all settings -> its fields."""

_KEPT_MAX = 64


class KeptFields:
    """The encoded fields around messages, kept for the requests that follow."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Hashable, ...], tuple[Any, bytes]] = {}

    def encoded(self, request: ModelRequest, variant: tuple[Hashable, ...], make: Callable[[], JsonObject]) -> bytes:
        """The fields of a request, which depend on nothing of its conversation and, besides it, on `variant` alone."""
        key = (
            id(request.declaration), id(request.settings), id(request.output), request.system, request.tool_choice, *variant
        )  # fmt: skip
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            # The objects are kept with the bytes, so that their ids stay theirs.
            objects = (request.declaration, request.settings, request.output)
            kept = self._kept[key] = (objects, strict_json.dump(make()))
        return kept[1]


def joined(name: str, messages: Collection[bytes], fields: bytes) -> bytes:
    """A body of encoded messages, under this name, and of encoded fields."""
    return b'{"%s":[' % name.encode() + b",".join(messages) + b"]," + fields[1:]


def choice_of(request: ModelRequest) -> tuple[str, str | None]:
    """The tool choice of a request: `auto`, `required` or `none`; or `one`, with the declared name of that tool."""
    choice = request.tool_choice
    if choice in ("auto", "validated", "required", "none"):
        return ("auto" if choice == "validated" else choice), None
    return "one", next(declared for declared, own in request.declaration.names.items() if choice in (own, declared))


def fields_of_settings(
    settings: Mapping[str, Any],
    plain: Mapping[str, str],
    special: Mapping[str, Special],
    *,
    skipped: Collection[str] = (),
    known: Collection[str],
) -> JsonObject:
    """Settings in plain words -> the fields of a request: `plain` ones under another name, `special` ones by a function.

    Raises:
        UsageError: an unknown setting, or one that the API does not have.
    """
    body: JsonObject = {}
    for name, value in settings.items():
        if value is None or name in ("extra_body", "headers") or name in skipped:
            continue
        if name in plain:
            body[plain[name]] = value
        elif name in special:
            body = merged(body, special[name](value, settings))
        elif not is_of_interactions(name, value):
            raise UsageError(unknown_setting(name, known))
    return body


def mime_type_fields(value: Any, settings: Mapping[str, Any], fields: JsonObject) -> JsonObject:
    """The fields of JSON without a schema, if the setting `response_mime_type` asks for it.

    Raises:
        UsageError: it asks for something else.
    """
    if value not in ("application/json", "text/plain"):
        raise UsageError(f"response_mime_type={value!r}: use 'application/json' or 'text/plain'")
    return fields if value == "application/json" and settings.get("response_json_schema") is None else {}


def output_schema(value: Any) -> JsonObject:
    """The schema of the setting `response_json_schema`.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"response_json_schema={value!r}: use a JSON Schema, as a mapping")
    return dict(cast("Mapping[str, Any]", value))
