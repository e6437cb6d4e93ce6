"""A judge as strict as Google: the service's answer to a request body that breaks a rule.

Takes a body, a model name and a surface; returns refusals, in Google's own words as far as known. Written from the
documented and reported behaviour of the service; its texts were not compared with the live service. It must never use
callgate's own code for declarations or conversations: an error there has to be caught here, not repeated.

    refusal = judge(body, model="gemini-3.8-flash")
    assert refusal is None, refusal.message
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from callgate.testing.google_declarations import BARE, TOOL_RULES, Case, Refusal, Rule, generation
from callgate.testing.google_fields import Surface, as_list, as_object, decode_base64, fit
from callgate.types import JsonObject

__all__ = ["RULES", "SKIPS", "Case", "Refusal", "Rule", "generation", "judge", "judge_all", "parse_body"]

SKIPS: dict[Surface, frozenset[str]] = {
    "developer": frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}),
    "vertex": frozenset({"skip_thought_signature_validator"}),
}
"""The documented signatures for calls that no model made, by surface."""

_VALID_ROLES = "SYSTEM, SYSTEM_1, USER, ASSISTANT, DEVELOPER, CONTEXT, USER_CONTEXT, MODEL, USER."
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the function "
    "call turn."
)
_CALL_PLACE = "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
_RESPONSE_PLACE = "Please ensure that function response turn comes immediately after a function call turn."
_DATA_FIELDS = (
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
)  # fmt: skip


def judge(
    body: Any,
    *,
    model: str = "gemini-3.8-flash",
    surface: Surface = "developer",
    streaming: bool = False,
    signatures: Iterable[str] | None = None,
) -> Refusal | None:
    """The answer that Google would refuse this body with, or None for a body that it would take.

    `body` is the raw bytes of a request or the parsed object. `signatures` are the thought signatures that were really given
    out; without them every well-formed signature is believed.
    """
    return next(judge_all(body, model=model, surface=surface, streaming=streaming, signatures=signatures), None)


def judge_all(
    body: Any,
    *,
    model: str = "gemini-3.8-flash",
    surface: Surface = "developer",
    streaming: bool = False,
    signatures: Iterable[str] | None = None,
) -> Iterator[Refusal]:
    """Return every refusal of the body, the one that Google would send first."""
    parsed: Any = parse_body(body) if isinstance(body, bytes) else body
    if isinstance(parsed, Refusal):
        yield parsed
        return
    clean, violations = fit(parsed, surface)
    if violations:
        message = "\n".join(violation.description for violation in violations)
        places = tuple((violation.field, violation.description) for violation in violations)
        yield Refusal(message, violations[0].field, "fields", violations=places)
        return  # a body that does not parse never reaches the rules
    known = None if signatures is None else frozenset(decode_base64(text) or b"" for text in signatures)
    case = Case(clean, model, surface, streaming, known)
    for name, rule in RULES.items():
        for refusal in rule(case):
            yield refusal if refusal.rule else Refusal(refusal.message, refusal.field, name)


def parse_body(body: bytes) -> Any:
    """The JSON of a body, or a `Refusal` when it is not JSON that Google reads."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate parses, but is not text
    except RecursionError:
        return Refusal("Invalid JSON payload received. Message too deep. Max recursion depth reached.", rule="json")
    except UnicodeError:
        return Refusal("Invalid JSON payload received. Encountered non UTF-8 code points.", rule="json")
    except ValueError as error:
        return Refusal(f"Invalid JSON payload received. Unexpected token.\n{error}", rule="json")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


# Views -------------------------------------------------------------------------------------------------------------------


def _parts(content: JsonObject) -> list[JsonObject]:
    return [as_object(part) for part in as_list(content.get("parts"))]


def _inner(content: JsonObject, key: str) -> list[JsonObject]:
    return [as_object(part[key]) for part in _parts(content) if key in part]


def _is_model(content: JsonObject) -> bool:
    return content.get("role") == "model"


# Single contents ---------------------------------------------------------------------------------------------------------


def _contents_exist(case: Case) -> Iterator[Refusal]:
    if not case.contents:
        texts = {
            "developer": "* GenerateContentRequest.contents: contents is not specified\n",
            "vertex": "Unable to submit request because at least one contents field is required.",
        }
        yield Refusal(texts[case.surface], "contents")


def _roles(case: Case) -> Iterator[Refusal]:
    is_new = case.version >= (3, 6)
    # Models before 3.6 still accept the early role of function responses.
    known = ("user", "model", "") if is_new else ("user", "model", "", "function")
    for index, content in enumerate(case.contents):
        if (role := content.get("role", "")) not in known:
            text = f"Role '{role}' is not supported. Please use a valid role: {_VALID_ROLES}"
            yield Refusal(text if is_new else "Please use a valid role: user, model.", f"contents[{index}].role")


def _parts_exist(case: Case) -> Iterator[Refusal]:
    for index, content in enumerate(case.contents):
        if not _parts(content):
            field = f"contents[{index}].parts"
            texts = {
                "developer": f"* GenerateContentRequest.{field}: contents.parts must not be empty.\n",
                "vertex": "Unable to submit request because it must include at least one parts field, which describes the "
                "prompt input.",
            }
            yield Refusal(texts[case.surface], field)


def _part_data(case: Case) -> Iterator[Refusal]:
    for place, part in _each_part(case):
        data = [key for key in part if key in _DATA_FIELDS]
        if len(data) > 1:
            text = f"Invalid value at '{place}' (oneof), oneof field 'data' is already set. Cannot set '{data[1]}'"
            yield Refusal(text, place)
        elif not data and not ("videoMetadata" in part and case.version < (3, 0)):
            problem = "required oneof field 'data' must have one initialized field"
            yield Refusal(f"* GenerateContentRequest.{place}.data: {problem}\n", place)
        elif part.get("text") == "" and "thoughtSignature" not in part and case.version >= (3, 6):
            # The one legal empty text is the trailing part that carries a signature. Earlier models take any.
            yield Refusal("Model input cannot be empty.", place)


def _check_media(case: Case) -> Iterator[Refusal]:
    for place, part in _each_part(case):
        inner = as_list(as_object(part.get("functionResponse")).get("parts"))
        below = [(f"{place}.function_response.parts[{at}]", as_object(item)) for at, item in enumerate(inner)]
        for where, one in ((place, part), *below):
            blob = as_object(one.get("inlineData"))
            missing = [key for key in ("mimeType", "data") if "inlineData" in one and not blob.get(key)]
            if missing:
                word = {"mimeType": "mime_type", "data": "data"}[missing[0]]
                yield Refusal(f"* GenerateContentRequest.{where}.inline_data.{word}: must not be empty.\n", where)


def _each_part(case: Case) -> Iterator[tuple[str, JsonObject]]:
    for index, content in enumerate(case.contents):
        for at, part in enumerate(_parts(content)):
            yield f"contents[{index}].parts[{at}]", part


def _check_names(case: Case) -> Iterator[Refusal]:
    for place, part in _each_part(case):
        for key, word in (("functionCall", "function_call"), ("functionResponse", "function_response")):
            if key in part and not as_object(part[key]).get("name"):
                yield Refusal(f"* GenerateContentRequest.{place}.{word}.name: Name cannot be empty.\n", place)


def _system_is_text(case: Case) -> Iterator[Refusal]:
    for part in _parts(as_object(case.body.get("systemInstruction"))):
        if "text" not in part:
            yield Refusal(BARE, "system_instruction")


def _cached_alone(case: Case) -> Iterator[Refusal]:
    beside = [field for field in ("systemInstruction", "tools", "toolConfig") if case.body.get(field)]
    if case.body.get("cachedContent") and beside:
        yield Refusal(
            "CachedContent can not be used with GenerateContent request setting system_instruction, tools or tool_config. "
            "Proposed fix: move those values to CachedContent from GenerateContent request.",
            "cached_content",
        )


_BUDGETS = (("gemini-2.5-pro", 128, 32_768), ("gemini-2.5-flash-lite", 512, 24_576), ("gemini-2.5-flash", 0, 24_576))
"""The least and the most tokens of thinking by model."""


def _thinking_level(case: Case) -> Iterator[Refusal]:
    config = as_object(as_object(case.body.get("generationConfig")).get("thinkingConfig"))
    level, budget = str(config.get("thinkingLevel") or "").upper(), config.get("thinkingBudget")
    field = "generation_config.thinking_config.thinking_level"
    if level and budget is not None:
        yield Refusal("You can only set only one of thinking budget and thinking level.", field)
    least, most = next(((a, b) for name, a, b in _BUDGETS if case.model.startswith(name)), (-1, 32_768))
    is_off = budget == 0 and "-pro" not in case.model
    if isinstance(budget, int) and budget != -1 and not is_off and not least <= budget <= most:
        text = f"The thinking budget {budget} is invalid. Please choose a value between {least} and {most}."
        yield Refusal(text, "generation_config.thinking_config.thinking_budget")
    elif budget is not None and case.version >= (4,) and re.match(r"gemini-(?!robotics-er-1)", case.model):
        yield Refusal("Thinking budget is not supported for this model.", field)
    if level and case.version < (3, 0) and case.model.startswith("gemini-"):
        yield Refusal("Thinking level is not supported for this model.", field)
    elif level == "MINIMAL" and case.model.startswith("gemini-") and ("-pro" in case.model or case.version >= (3, 7)):
        yield Refusal(f"Thinking level {level} is not supported for this model.", field)


# The order of turns ------------------------------------------------------------------------------------------------------


def _first_turn(case: Case) -> Iterator[Refusal]:
    if case.contents and _is_model(case.contents[0]) and not _inner(case.contents[0], "functionCall"):
        yield Refusal("Please ensure that multiturn requests alternate between user and model.", "contents[0].role")


def _call_turns(case: Case) -> Iterator[Refusal]:
    for index, content in enumerate(case.contents):
        if not _inner(content, "functionCall"):
            continue
        if not _is_model(content) or index == 0 or _is_model(case.contents[index - 1]):
            yield Refusal(_CALL_PLACE, f"contents[{index}]")


def _response_turns(case: Case) -> Iterator[Refusal]:
    for index, content in enumerate(case.contents):
        if not _inner(content, "functionResponse"):
            continue
        before = case.contents[index - 1] if index else {}
        if _is_model(content) or not (_is_model(before) and _inner(before, "functionCall")):
            yield Refusal(_RESPONSE_PLACE, f"contents[{index}]")


def _pairs(case: Case) -> Iterator[tuple[int, list[JsonObject], JsonObject]]:
    """Every call turn's calls with the content after it, and that content's place."""
    for index, content in enumerate(case.contents):
        if _is_model(content) and (calls := _inner(content, "functionCall")):
            yield index + 1, calls, case.contents[index + 1] if index + 1 < len(case.contents) else {}


def _response_count(case: Case) -> Iterator[Refusal]:
    for index, calls, after in _pairs(case):
        is_last = index == len(case.contents)
        if is_last and case.version >= (3, 6):
            continue  # the rule for the last turn speaks
        if len(_inner(after, "functionResponse")) != len(calls):
            yield Refusal(_COUNT, f"contents[{index}]")


def _responses_alone(case: Case) -> Iterator[Refusal]:
    for index, content in enumerate(case.contents):
        responses = len(_inner(content, "functionResponse"))
        if responses and responses != len(_parts(content)):
            yield Refusal(_COUNT, f"contents[{index}]")


def _response_names_and_ids(case: Case) -> Iterator[Refusal]:
    for index, calls, after in _pairs(case):
        responses = _inner(after, "functionResponse")
        if len(responses) == len(calls) and not _matches(calls, responses):
            yield Refusal(BARE, f"contents[{index}]")


def _matches(calls: list[JsonObject], responses: list[JsonObject]) -> bool:
    """True if every response belongs to a call: by its id if it has one, else by its position.

    A response without an id is accepted even if its call had one: Google's own client sends such responses.
    """
    ids = [response["id"] for response in responses if response.get("id")]
    known = Counter(call["id"] for call in calls if call.get("id"))
    if any(count > known[wire_id] for wire_id, count in Counter(ids).items()):
        return False
    if not ids:
        return all(call.get("name") == response.get("name") for call, response in zip(calls, responses, strict=True))
    names = {(call.get("id"), call.get("name")) for call in calls}
    return all((response["id"], response.get("name")) in names for response in responses if response.get("id"))


def _last_turn(case: Case) -> Iterator[Refusal]:
    if len(case.contents) > 1 and case.version >= (3, 6) and _is_model(case.contents[-1]):
        yield Refusal("Requests ending with a model turn are not supported.", f"contents[{len(case.contents) - 1}]")


# References and signatures -----------------------------------------------------------------------------------------------


def _references(case: Case) -> Iterator[Refusal]:
    for place, part in _each_part(case):
        response = as_object(part.get("functionResponse"))
        media = [as_object(inner) for inner in as_list(response.get("parts"))]
        shown = Counter(as_object(blob).get("displayName") for inner in media for blob in inner.values())
        for name in _refs(response.get("response")):
            if shown[name] != 1:
                yield Refusal(BARE, f"{place}.function_response.response")


def _refs(value: Any) -> Iterator[Any]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict) and "$ref" in item:
            yield json.dumps(item["$ref"]) if isinstance(item["$ref"], (dict, list)) else item["$ref"]
        pending.extend(as_object(item).values())
        pending.extend(as_list(item))


def _signatures_present(case: Case) -> Iterator[Refusal]:
    """In the current turn of a thinking model the first call of every step must be signed."""
    if case.version < (3, 0):
        return
    for index in range(_turn_start(case), len(case.contents)):
        calls = [(at, part) for at, part in enumerate(_parts(case.contents[index])) if "functionCall" in part]
        if calls and _is_model(case.contents[index]) and not calls[0][1].get("thoughtSignature"):
            at, part = calls[0]
            text = _UNSIGNED[case.surface].format(name=as_object(part["functionCall"]).get("name", ""), position=index + 1)
            yield Refusal(text, f"contents[{index}].parts[{at}]")


_UNSIGNED: dict[Surface, str] = {
    "developer": "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
    "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:{name}` , position {position}.",
    "vertex": "Unable to submit request because function call `default_api:{name}` in the {position}. content block is "
    "missing a `thought_signature`.",
}


def _turn_start(case: Case) -> int:
    """Return where the current exchange begins: the last content with user input besides function responses."""
    for index in range(len(case.contents) - 1, -1, -1):
        content = case.contents[index]
        if not _is_model(content) and any("functionResponse" not in part for part in _parts(content)):
            return index
    return 0


def _signatures_genuine(case: Case) -> Iterator[Refusal]:
    if case.version < (3, 0) or case.signatures is None:
        return
    for place, part in _each_part(case):
        signature = part.get("thoughtSignature")
        if signature and signature not in SKIPS[case.surface] and decode_base64(signature) not in case.signatures:
            yield Refusal("Invalid/Corrupted thought signature", f"{place}.thought_signature")


CONTENT_RULES: dict[str, Rule] = {
    "contents_exist": _contents_exist,
    "role": _roles,
    "parts_exist": _parts_exist,
    "part_data": _part_data,
    "media_given": _check_media,
    "names_given": _check_names,
    "system_is_text": _system_is_text,
    "cached_alone": _cached_alone,
    "thinking_level": _thinking_level,
    "first_turn": _first_turn,
    "call_turn_place": _call_turns,
    "response_turn_place": _response_turns,
    "response_count": _response_count,
    "responses_alone": _responses_alone,
    "response_names_and_ids": _response_names_and_ids,
    "last_turn": _last_turn,
    "response_references": _references,
    "signature_present": _signatures_present,
    "signature_genuine": _signatures_genuine,
}
"""The rules for contents by name."""

RULES: dict[str, Rule] = TOOL_RULES | CONTENT_RULES
"""Every rule by name, in the order in which they are applied to a body with valid fields."""
