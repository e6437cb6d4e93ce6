"""The input of an interaction that a client sends: steps and contents that can be carried, checked as Google checks them.

The body of a request comes in, and goes out with an input that can be read; what Google refuses is refused with its words.
Where nobody has seen a refusal, the input is taken: a call without a result, or a result under another name, is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

from callgate.content.read import call_parts
from callgate.server.compat.accepted_parts import Carry, PartTable, as_is, needs, refuse, skipped
from callgate.server.errors import HttpError
from callgate.strict_json import objects_in
from callgate.types import Content, JsonObject

__all__ = ["carried_input", "check_results"]

_ORDER = (
    "Please ensure that function response turn comes immediately after a function call turn. Got function response with "
    "name '{}'."
)
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the function "
    "call turn. There is no result for: {}."
)
_MEDIA_KINDS = ("image", "audio", "video")
_RESOLUTIONS = ("low", "medium", "high", "ultra_high")
_FIELDS: Mapping[str, frozenset[str]] = {
    name: frozenset(("type", *fields.split()))
    for name, fields in {
        "text": "text annotations",
        "image": "data uri mime_type resolution",
        "audio": "data uri mime_type channels sample_rate",
        "document": "data uri mime_type",
        "video": "data uri mime_type name resolution processing",
        "user_input": "content",
        "model_output": "content error",
        "thought": "signature summary",
        "function_call": "id name arguments signature",
        "function_result": "call_id result name is_error",
    }.items()
}
"""Type of a content or step -> its fields."""


def _known(carry: Carry) -> Carry:
    """Carry a content or step that has no unknown field."""

    def checked(item: JsonObject, where: str) -> list[JsonObject]:
        made = carry(item, where)
        if unknown := [name for name in item if name not in _FIELDS[item["type"]] and item[name] is not None]:
            _refuse(f"Unknown parameter {unknown[0][:100]!r} at {where!r}")
        return made

    return checked


def _refuse(message: str) -> NoReturn:
    raise HttpError(400, "invalid_request", message)


def _media(item: JsonObject, where: str) -> list[JsonObject]:
    resolution = item.get("resolution")
    if resolution is not None and resolution not in _RESOLUTIONS:
        _refuse(f"Invalid enum value {str(resolution)[:100]!r} at '{where}.resolution'")
    if item.get("data") is not None and item.get("uri") is not None:
        _refuse(f"Exactly one of 'data' and 'uri' is required at {where!r}")
    kind, mime_type = item["type"], item.get("mime_type")
    told = str(mime_type or "").partition("/")[0].lower()
    if mime_type is not None and (told if told in _MEDIA_KINDS else "document") != kind:
        _refuse(f"The value {str(mime_type)[:100]!r} is not supported for 'mime_type' at {where!r}.")
    for name in ("channels", "sample_rate", "name"):
        if item.get(name) is not None:
            refuse(f"{where}.{name}", "it cannot be carried to the service's model: leave it out")
    way = item.get("processing")
    if way is not None and not (isinstance(way, dict) and way.get("type", "static") == "static") and way != "static":  # pyright: ignore[reportUnknownMemberType]
        refuse(f"{where}.processing", "only static processing can be carried")
    return needs("data", "uri")(item, where)


def _text(item: JsonObject, where: str) -> list[JsonObject]:
    if item.get("annotations"):
        refuse(f"{where}.annotations", "only what a model said has sources: leave them out")
    return [item]


_CONTENTS: Mapping[str, Callable[[JsonObject, str], list[JsonObject]]] = {
    "text": _text, "image": _media, "audio": _media, "video": _media, "document": _media,
}  # fmt: skip
_CONTENT = PartTable("content", {name: _known(carry) for name, carry in _CONTENTS.items()})
"""The contents of an input, and how each is carried."""


def _texts(step: JsonObject, where: str) -> list[JsonObject]:
    content: Any = step.get("content")
    if step["type"] == "model_output" and isinstance(content, list):
        # Its sources are records of an answer, which its text speaks of.
        said = cast("list[Any]", content)
        content = [_without_sources(item) if isinstance(item, dict) else item for item in said]
    return [{**step, "content": _CONTENT.carried(content, f"{where}.content")}]


def _without_sources(item: Any) -> JsonObject:
    return {name: value for name, value in item.items() if name != "annotations"}


def _call(step: JsonObject, where: str) -> list[JsonObject]:
    for name in ("id", "name"):
        if not isinstance(step.get(name), str) or not step[name]:
            refuse(f"{where}.{name}", "a function_call has an id and a name")
    if not isinstance(step.get("arguments"), dict):
        refuse(f"{where}.arguments", "the arguments of a function_call are an object")
    return [step]


def _result(step: JsonObject, where: str) -> list[JsonObject]:
    made = {**step, "result": _CONTENT.carried(step.get("result"), f"{where}.result")}
    for name in ("call_id", "name"):
        if not isinstance(step.get(name), str) or not step[name]:
            refuse(f"{where}.{name}", "a function_result has the call_id and the name of its call")
    if not isinstance(step.get("result"), (str, dict, list)):
        refuse(f"{where}.result", "a result is a text, an object or a list of contents")
    return [made]


_AT_GOOGLE = (
    "google_search", "code_execution", "url_context", "google_maps", "file_search", "mcp_server_tool", "retrieval",
    "processing",
)  # fmt: skip
_STEPS: Mapping[str, Carry] = {
    **{name: _known(carry) for name, carry in {
        "user_input": _texts, "model_output": _texts, "thought": as_is, "function_call": _call, "function_result": _result,
    }.items()},
    # Records of what an answer did at Google, which its text speaks of.
    **{f"{name}_{end}": skipped for name in _AT_GOOGLE for end in ("call", "result")},
}  # fmt: skip
_INPUT = PartTable("content or step", {**_CONTENT.taken, **_STEPS})
"""The contents or steps of an input, and how each is carried."""


def carried_input(body: JsonObject) -> JsonObject:
    """The body with an input that can be read.

    Raises:
        HttpError: the input is empty, or Google would refuse it, or it cannot be carried.
    """
    given: Any = body.get("input")
    if isinstance(given, dict):
        carried: Any = _INPUT.one(cast("JsonObject", given), "input")
    else:
        carried = _INPUT.carried(given, "input")
        if len({item.get("type") in _CONTENT.taken for item in objects_in(given)}) > 1:
            refuse("input", "expected a list of contents or a list of steps, not both")
    if not _is_said(carried):
        refuse("input", "it must not be empty")
    _check_order(objects_in(carried), is_continued=bool(body.get("previous_interaction_id")))
    return {**body, "input": carried}


def _is_said(given: Any) -> bool:
    """True if there is anything in an input but empty texts."""
    if not isinstance(given, list):
        return bool(given)
    said = cast("list[Any]", given)
    return any(not isinstance(item, dict) or _has_content(cast("JsonObject", item)) for item in said)


def _has_content(item: JsonObject) -> bool:
    kind = item.get("type")
    if kind == "text":
        return bool(item.get("text"))
    return _is_said(item.get("content")) if kind == "user_input" else True


def _check_order(steps: Sequence[JsonObject], *, is_continued: bool) -> None:
    """Refuse a result that does not come directly after its call; those that an input begins with are of the one before."""
    pending: list[Any] = []
    is_first, has_results = is_continued, False
    for step in steps:
        if step.get("type") == "function_result":
            if not is_first:
                _take(step, pending)
            has_results = True
            continue
        if has_results:
            _check_all_answered(pending)
        if has_results or step.get("type") == "user_input":
            pending = []
        is_first = has_results = False
        pending += [step.get("id")] if step.get("type") == "function_call" else []
    if has_results:
        _check_all_answered(pending)


def _check_all_answered(pending: Sequence[Any]) -> None:
    """Refuse results that come without those of the other calls of their turn."""
    if pending:
        _refuse(_COUNT.format(", ".join(str(call)[:100] for call in pending[:10])))


def _take(result: JsonObject, pending: list[Any]) -> None:
    """Take the call of a result out of those that wait for one."""
    if result.get("call_id") not in pending:
        _refuse(_ORDER.format(str(result.get("name"))[:100]))
    pending.remove(result.get("call_id"))


def check_results(given: Any, before: Iterable[Content]) -> None:
    """Refuse the results that an input begins with, unless they answer calls of the interaction that it continues.

    Args:
        given: The input.
        before: The contents of that interaction, as far as its calls are the client's.

    Raises:
        HttpError: a result has no such call, or some of the calls have none.
    """
    is_answered = False
    pending: list[Any] = [call.get("id") for content in before for call in call_parts(content)]
    for step in objects_in([given] if isinstance(given, dict) else given):
        if step.get("type") != "function_result":
            break
        _take(step, pending)
        is_answered = True
    if is_answered:
        _check_all_answered(pending)
