"""The rules of the Interactions API, as far as a client can break them.

Takes the body of a request and the server's state; returns the first breach, in the service's words, or None. Sends nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.content.read import SKIP_SIGNATURE
from callgate.testing.google_fields import as_list, as_object, decode_base64
from callgate.testing.google_rules import generation
from callgate.testing.interaction_fields import CONTENTS, STEPS, InteractionRefusal, unknown_names
from callgate.types import JsonObject

__all__ = ["SKIP_VALUES", "InteractionState", "Stored", "interaction_judge", "steps_of_input"]

SKIP_VALUES = (SKIP_SIGNATURE, "context_engineering_is_the_way_to_go")
"""The documented values for the signature of a turn that no Gemini model wrote."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_LEVELS = ("minimal", "low", "medium", "high")
_WITH_MINIMAL = re.compile(r"gemini-3\.[56]-flash")
_CHOICES = ("auto", "any", "none", "validated")
_FORMATS = ("text", "image", "audio", "video")
_TIERS = ("flex", "standard", "priority", "deferred")
_HARMS = (
    "hate_speech", "dangerous_content", "harassment", "sexually_explicit", "civic_integrity", "image_hate", "jailbreak",
    "image_dangerous_content", "image_harassment", "image_sexually_explicit",
)  # fmt: skip
_THRESHOLDS = ("block_low_and_above", "block_medium_and_above", "block_only_high", "block_none", "off")
_RESOLUTIONS = ("low", "medium", "high", "ultra_high")
_NUMBERS = {"temperature": (0, 2), "top_p": (0, 1)}
_INTEGERS = ("seed", "max_output_tokens", "top_k")
_MODEL_STEPS = frozenset(STEPS) - {"user_input", "function_result"}
_BUILT_IN = frozenset(
    kind for kind in STEPS if kind.endswith(("_call", "_result")) and kind not in ("function_call", "function_result")
)
_DEPTH_MAX = 32
_ORDER = (
    "Please ensure that function response turn comes immediately after a function call turn. Got function response with "
    "name '{}'."
)
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the function "
    "call turn."
)
_INVALID = "Request contains an invalid argument."
_CORRUPTED = "Corrupted thought signature."


@dataclass(slots=True, kw_only=True)
class Stored:
    """An interaction that the server keeps."""

    id: str
    key: str
    """The key that made it, and may ask for it."""
    steps: list[JsonObject]
    """The whole conversation: what was said to it, and its answer."""
    output: list[JsonObject]
    status: str
    at: float
    """When it was made, by the server's clock."""
    request: JsonObject = field(default_factory=dict[str, Any])
    events: list[JsonObject] = field(default_factory=list[JsonObject])
    is_background: bool = False
    polls_left: int = 0
    """How often it is still said to be in progress."""
    resume: str = ""
    """How its stream is resumed: rightly, `hang` or `zero`."""


@dataclass(slots=True)
class InteractionState:
    """The memory of the server."""

    kept_s: float = 86_400.0
    stored: dict[str, Stored] = field(default_factory=dict[str, Stored])
    issued: dict[str, list[JsonObject]] = field(default_factory=dict[str, list[JsonObject]])
    """Signature -> the steps of the answer from that signature on."""
    odd: list[JsonObject] = field(default_factory=list[JsonObject])
    """Steps of unknown types that the server itself sent."""
    tokens: set[str] = field(default_factory=set[str])
    """Continuation tokens that were given out and not used."""
    spoiled: set[str] = field(default_factory=set[str])
    """Signatures of answers that were changed on their way, so that nobody can give them back as they were."""

    def find(self, id: Any, key: str, now: float) -> Stored | None:
        """A stored interaction of this key that is not forgotten yet."""
        found = self.stored.get(str(id))
        if found is None or found.key != key:
            return None
        if now - found.at > self.kept_s:
            del self.stored[found.id]
            return None
        return found

    def remember(self, steps: Sequence[JsonObject]) -> None:
        """Note an answer, whose signed steps must come back unchanged."""
        for place, step in enumerate(steps):
            signature = step.get("signature")
            if isinstance(signature, str) and signature:
                self.issued[signature] = list(steps[place:])
            if step.get("type") not in STEPS:
                self.odd.append(step)


def _refuse(rule: str, message: str = "Invalid input received", **fields: Any) -> InteractionRefusal:
    return InteractionRefusal(rule=rule, message=message, **fields)


def interaction_judge(body: Any, state: InteractionState, *, key: str, now: float) -> InteractionRefusal | None:
    """The first rule that a request breaks; `now` is the time of the server's clock."""
    if not isinstance(body, dict):
        return _refuse("IR03", "Invalid JSON payload received: one object was expected.")
    request = as_object(body)
    request = {**request, "input": [_known(step, state) for step in as_list(request["input"])]} if isinstance(
        request.get("input"), list
    ) else request  # fmt: skip
    for rule in (unknown_names, _who, _input, _settings, _numbers, _response_format, _tools, _choice, _kept):
        for breach in rule(request):
            return breach
    if (breach := _chained(request, state, key, now)) is not None:
        return breach
    return _conversation(request, state, key, now)


def _known(step: Any, state: InteractionState) -> Any:
    """Steps of unknown types that the server sent are legal when they come back unchanged."""
    return {"type": "processing_call", "id": "odd", "signature": "odd"} if step in state.odd else step


# One after another -------------------------------------------------------------------------------------------------------


def _who(request: JsonObject) -> Iterator[InteractionRefusal]:
    model, agent = request.get("model"), request.get("agent")
    if (model is None) == (agent is None):
        yield _refuse("IR08", "Exactly one of 'model' and 'agent' must be set.")
    if agent is not None:
        if "generation_config" in request:
            yield _refuse("IR66", "Unknown parameter 'generation_config'.")
        is_research = str(agent).startswith("deep-research")
        if is_research and request.get("background") is not True:
            yield _refuse("IR66", "Agents are required to use background=true")
        if is_research and "system_instruction" in request:
            yield _refuse("IR66", "'system_instruction' is not supported for the deep-research-* agent")
        if is_research and any(as_object(tool).get("type") == "function" for tool in as_list(request.get("tools"))):
            yield _refuse("IR67", "Function tools are not supported for the deep-research-* agent")
        if str(agent).startswith("antigravity") and "environment" not in request:
            yield _refuse("IR67", "'environment' is required for this agent")
    elif "agent_config" in request:
        yield _refuse("IR66", "Unknown parameter 'agent_config'.")
    if "labels" in request:
        yield _refuse("IR64", "'labels' is not available on the Gemini API.")


def steps_of_input(given: Any) -> list[JsonObject]:
    """The steps of an input in any of its forms."""
    if isinstance(given, str):
        return [{"type": "user_input", "content": [{"type": "text", "text": given}]}]
    items = [as_object(item) for item in (as_list(given) or [given])]
    if items and items[0].get("type") in CONTENTS:
        return [{"type": "user_input", "content": items}]
    return items


def _input(request: JsonObject) -> Iterator[InteractionRefusal]:
    given = request.get("input")
    if not given:
        if not ("continuation_token" in request and request.get("store") is not False):
            yield _refuse("IR11", "'input' must not be empty.")
        return
    if not isinstance(given, (str, dict, list)):
        yield _refuse("IR11", "'input' must be a string, a content or a list.")
        return
    items = [as_object(item) for item in as_list(given)]
    if items and len({item.get("type") in CONTENTS for item in items}) > 1:
        yield _refuse("IR12", "'input' must be a list of contents or a list of steps, not both.")
    for place, step in enumerate(steps_of_input(given)):
        yield from _step(step, f"input[{place}]", str(request.get("model") or ""))


def _step(step: JsonObject, at: str, model: str) -> Iterator[InteractionRefusal]:
    kind = step.get("type")
    if kind in ("user_input", "model_output"):
        content = step.get("content")
        if kind == "user_input" and not isinstance(content, (str, list)):
            yield _refuse("IR14", f"'content' is required at '{at}'")
        for item in as_list(content):
            yield from _content(as_object(item), at)
    elif kind == "function_call":
        if not all(isinstance(step.get(name), str) and step[name] for name in ("id", "name")):
            yield _refuse("IR17", f"'id' and 'name' are required at '{at}'")
        if not isinstance(step.get("arguments"), dict):
            yield _refuse("IR17", f"'arguments' must be an object at '{at}'")
    elif kind == "function_result":
        if not isinstance(step.get("call_id"), str) or "result" not in step:
            yield _refuse("IR19", f"'call_id' and 'result' are required at '{at}'")
        if not isinstance(step.get("name"), str) or not step["name"]:
            yield _refuse("IR21")
        yield from _result(step["result"], at, model)


def _result(result: Any, at: str, model: str) -> Iterator[InteractionRefusal]:
    if not isinstance(result, (str, dict, list)):
        yield _refuse("IR22", f"'result' must be a string, an object or a list of contents at '{at}'")
    for item in as_list(result):
        content = as_object(item)
        if content.get("type") not in CONTENTS:
            yield _refuse("IR22", f"'result' must be a string, an object or a list of contents at '{at}'")
        if generation(model) < (3, 0):
            yield _refuse("IR23", "Multimodal function responses are not supported for this model")
        yield from _content(content, at)


def _content(content: JsonObject, at: str) -> Iterator[InteractionRefusal]:
    kind = content.get("type")
    if kind == "text":
        if not isinstance(content.get("text"), str):
            yield _refuse("IR15", f"'text' must be a string at '{at}'")
        return
    if ("data" in content) == ("uri" in content) or not isinstance(content.get("mime_type", ""), str):
        yield _refuse("IR16", f"Exactly one of 'data' and 'uri' is required at '{at}'")
    if "data" in content and (not content.get("mime_type") or decode_base64(str(content["data"])) is None):
        yield _refuse("IR16", f"'data' must be base64 with a 'mime_type' at '{at}'")
    if content.get("resolution", "low") not in _RESOLUTIONS:
        yield _refuse("IR76", f"Invalid enum value '{content['resolution']}'")


def _settings(request: JsonObject) -> Iterator[InteractionRefusal]:
    config, model = as_object(request.get("generation_config")), str(request.get("model") or "")
    level = config.get("thinking_level")
    if level is not None and level not in _LEVELS:
        told = f"'{level}' is not supported for 'thinking_level'. Supported values: {', '.join(_LEVELS)}"
        yield _refuse("IR38", told)
    if level == "minimal" and not _WITH_MINIMAL.match(model):
        told = "'minimal' is not a supported thinking level for this model. Allowed values are: medium, low, high."
        yield _refuse("IR39", told)
    if config.get("thinking_summaries", "auto") not in ("auto", "none"):
        yield _refuse("IR38", f"Invalid enum value '{config['thinking_summaries']}'")
    if not isinstance(request.get("system_instruction", ""), str):
        yield _refuse("IR63", "'system_instruction' must be a string")
    if request.get("service_tier", "standard") not in _TIERS:
        yield _refuse("IR75", f"Invalid enum value '{request['service_tier']}'")


def _numbers(request: JsonObject) -> Iterator[InteractionRefusal]:
    config = as_object(request.get("generation_config"))
    for name, (least, most) in _NUMBERS.items():
        value = config.get(name, least)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            yield _refuse("IR40", f"Expected number at 'generation_config.{name}'")
    for name in _INTEGERS:
        if isinstance(value := config.get(name, 1), bool) or not isinstance(value, int):
            yield _refuse("IR40", f"Expected number at 'generation_config.{name}'")
    stops = config.get("stop_sequences", [])
    if not isinstance(stops, list) or not all(isinstance(word, str) for word in as_list(stops)):
        yield _refuse("IR40", "Expected array of strings at 'generation_config.stop_sequences'")
    if isinstance(most := config.get("max_output_tokens", 1), int) and most < 1:
        yield _refuse("IR41", "'max_output_tokens' must be at least 1")
    for setting in as_list(request.get("safety_settings")):
        if as_object(setting).get("type") not in _HARMS or as_object(setting).get("threshold") not in _THRESHOLDS:
            yield _refuse("IR74", f"Invalid enum value in 'safety_settings': {setting!r}")


def _response_format(request: JsonObject) -> Iterator[InteractionRefusal]:
    given = request.get("response_format")
    for form in map(as_object, as_list(given) or ([given] if given is not None else [])):
        if form.get("type") not in _FORMATS:
            yield _refuse("IR65", f"The value '{form.get('type')}' is not supported for 'type' at 'response_format'.")
        if "schema" in form and form.get("mime_type") != "application/json":
            yield _refuse("IR65", "'schema' needs the mime_type 'application/json' at 'response_format'")
    if given is not None and "response_mime_type" in request:
        yield _refuse("IR65", "'response_mime_type' cannot be used beside 'response_format'")


def _functions(request: JsonObject) -> list[str]:
    tools = map(as_object, as_list(request.get("tools")))
    return [str(tool.get("name")) for tool in tools if tool.get("type") == "function"]


def _tools(request: JsonObject) -> Iterator[InteractionRefusal]:
    names = _functions(request)
    for place, tool in enumerate(map(as_object, as_list(request.get("tools")))):
        at = f"tools[{place}]"
        if tool.get("type") == "mcp_server":
            url, headers = str(tool.get("url") or ""), as_object(tool.get("headers"))
            if not url.startswith("https://") or "-" in str(tool.get("name") or "-"):
                yield _refuse("IR53", f"Invalid MCP server at '{at}'")
            if not all(isinstance(value, str) for value in headers.values()):
                yield _refuse("IR53", f"Invalid headers at '{at}'")
        if tool.get("type") != "function":
            continue
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield _refuse("IR48", f"Invalid function name at '{at}'")
        if names.count(str(name)) > 1:
            yield _refuse("IR49", f"Duplicate function declaration found: {name}")
        schema = tool.get("parameters", {"type": "object", "properties": {}})
        if as_object(schema).get("type") != "object":
            yield _refuse("IR50", f"'parameters' must be a schema of an object at '{at}'")
        yield from _schema(schema, as_object(schema), at, 0)


def _schema(schema: Any, root: JsonObject, at: str, depth: int) -> Iterator[InteractionRefusal]:
    node = as_object(schema)
    if depth > _DEPTH_MAX:
        yield _refuse("IR52", f"The schema at '{at}' is too deep.")
        return
    kinds = as_list(node.get("type")) or ([node["type"]] if "type" in node else [])
    if any(kind not in _TYPES for kind in kinds):
        yield _refuse("IR50", f"Unknown type at '{at}': {node.get('type')!r}")
    if isinstance(target := node.get("$ref"), str) and not _resolves(target, root):
        yield _refuse("IR50", f"'{target}' at '{at}' does not resolve")
    properties = as_object(node.get("properties"))
    required = node.get("required")
    if required is not None and (not required or (properties and not set(as_list(required)) <= set(properties))):
        yield _refuse("IR51", f"'required' at '{at}' must name properties")
    inner = [*properties.values(), *as_list(node.get("anyOf")), *as_list(node.get("prefixItems"))]
    inner += [*as_object(node.get("$defs")).values(), node.get("items")]
    for child in inner:
        if isinstance(child, dict):
            yield from _schema(child, root, at, depth + 1)


def _resolves(target: str, root: JsonObject) -> bool:
    node: Any = root
    for name in target.removeprefix("#").strip("/").split("/"):
        node = as_object(node).get(name) if name else node
    return target.startswith("#") and node is not None


def _choice(request: JsonObject) -> Iterator[InteractionRefusal]:
    choice = as_object(request.get("generation_config")).get("tool_choice")
    if choice is None:
        return
    allowed = as_object(as_object(choice).get("allowed_tools"))
    if choice not in _CHOICES and not (allowed and allowed.get("mode") in _CHOICES):
        yield _refuse("IR43", f"Invalid enum value '{choice}'")
    names = _functions(request)
    if choice not in ("auto", "none") and not names:
        yield _refuse("IR44", "Function calling config is set without function_declarations.")
    if unknown := [name for name in as_list(allowed.get("tools")) if name not in names]:
        yield _refuse("IR45", f"'{unknown[0]}' in 'allowed_tools' is not declared.")


def _kept(request: JsonObject) -> Iterator[InteractionRefusal]:
    is_stored = request.get("store") is not False
    for name in ("store", "stream", "background"):
        if not isinstance(request.get(name, False), bool):
            yield _refuse("IR40", f"Expected boolean at '{name}'")
    if request.get("background") is True and not is_stored:
        yield _refuse("IR55", "store=true is required for background interactions")
    if "previous_interaction_id" in request and not is_stored:
        yield _refuse("IR56", "store must be true when previous_interaction_id is set")


# With the state ----------------------------------------------------------------------------------------------------------


def _chained(request: JsonObject, state: InteractionState, key: str, now: float) -> InteractionRefusal | None:
    token, previous = request.get("continuation_token"), request.get("previous_interaction_id")
    if token is not None:
        if token not in state.tokens:
            return _refuse("IR68", "Invalid continuation_token.")
        if request.get("store") is not False and previous is None:
            return _refuse("IR68", "continuation_token needs the previous_interaction_id of the interaction that gave it.")
    if previous is None:
        return None
    found = state.find(previous, key, now)
    if found is None:
        return _refuse("IR57", f"Interaction '{previous}' not found.", status=404, code="not_found")
    if found.status in ("in_progress", "queued"):
        return _refuse("IR59", "The previous interaction is still in_progress.")
    return None


def _pending(steps: Sequence[JsonObject]) -> list[JsonObject]:
    """The calls at the end of a conversation that have no results."""
    last = len(steps)
    while last and steps[last - 1].get("type") in _MODEL_STEPS:
        last -= 1
    turn = steps[last:]
    done = {step.get("call_id") for step in turn if step.get("type") == "function_result"}
    return [step for step in turn if step.get("type") == "function_call" and step.get("id") not in done]


def _conversation(request: JsonObject, state: InteractionState, key: str, now: float) -> InteractionRefusal | None:
    """Walk through the conversation: turns of the model, and what answers them."""
    if not request.get("input"):
        return None
    previous = state.find(request.get("previous_interaction_id"), key, now)
    pending = _pending(previous.steps) if previous is not None else []
    is_new = generation(str(request.get("model") or "")) >= (3, 0) and "agent" not in request
    steps = steps_of_input(request["input"])
    place = 0
    while place < len(steps):
        turn = [*itertools.takewhile(lambda step: step.get("type") in _MODEL_STEPS, steps[place:])]
        if turn:
            if pending:
                return _refuse("IR29", _ORDER.format(pending[0].get("name")))
            if (breach := (_signed(turn, state) if is_new else None) or _turn(turn)) is not None:
                return breach
            pending = [call for call in turn if call.get("type") == "function_call"]
            place += len(turn)
            continue
        step = steps[place]
        if step.get("type") != "function_result":
            if pending:
                return _refuse("IR60" if previous is not None and place == 0 else "IR25", _COUNT)
        elif (breach := _answers(step, pending, steps)) is not None:
            return breach
        pending = [call for call in pending if call.get("id") != step.get("call_id")]
        place += 1
    return _refuse("IR25", _COUNT) if pending else None


def _answers(result: JsonObject, pending: Sequence[JsonObject], steps: Sequence[JsonObject]) -> InteractionRefusal | None:
    call = next((call for call in pending if call.get("id") == result.get("call_id")), None)
    if call is None:
        is_known = any(other.get("id") == result.get("call_id") for other in steps)
        return _refuse("IR25" if is_known else "IR26" if pending else "IR24", _ORDER.format(result.get("name")))
    if call.get("name") != result.get("name"):
        return _refuse("IR27", f"The function response name '{result.get('name')}' is not that of its call.")
    return None


def _turn(turn: Sequence[JsonObject]) -> InteractionRefusal | None:
    ids = [step.get("id") for step in turn if step.get("type") == "function_call"]
    if len(set(ids)) < len(ids):
        return _refuse("IR28", "Function call ids must be unique within a turn.")
    if turn[-1].get("type") == "thought" and turn[-1].get("signature") in SKIP_VALUES:
        return _refuse("IR36", _INVALID)
    for step in turn:
        if step.get("type") in _BUILT_IN and not step.get("signature"):
            return _refuse("IR35", _INVALID)
    return None


def _signed(turn: Sequence[JsonObject], state: InteractionState) -> InteractionRefusal | None:
    if not any(step.get("type") == "function_call" for step in turn) and turn[0].get("type") != "thought":
        return None
    if turn[0].get("type") != "thought":
        return _refuse("IR30", _INVALID, late=True)
    for place, step in enumerate(turn):
        if step.get("type") != "thought":
            continue
        signature = step.get("signature")
        if not signature:
            return _refuse("IR31", _INVALID, late=True)
        if signature in SKIP_VALUES:
            continue
        issued = state.issued.get(str(signature))
        if issued is None:
            return _refuse("IR32", _CORRUPTED, late=True)
        if (
            signature not in state.spoiled
            and list(turn[place:]) != issued
            and "processing_call" not in {step.get("type") for step in turn}
        ):
            return _refuse("IR33", _CORRUPTED, late=True)
    return None
