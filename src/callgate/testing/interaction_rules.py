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
from callgate.testing.interaction_fields import CONTENTS, STEPS, InteractionRefusal, refuse, unknown_names
from callgate.testing.interaction_tools import choice_breaches, tool_breaches
from callgate.types import JsonObject

__all__ = ["SKIP_VALUES", "InteractionState", "Stored", "interaction_judge", "steps_of_input"]

SKIP_VALUES = (SKIP_SIGNATURE, "context_engineering_is_the_way_to_go")
"""The documented values for the signature of a turn that no Gemini model wrote."""

_LEVELS = ("minimal", "low", "medium", "high")
_WITH_MINIMAL = re.compile(r"gemini-3(?:\.[0-6])?-flash|gemma-4")
_FORMATS = ("text", "image", "audio", "video")
_TIERS = ("flex", "standard", "priority", "deferred")
_HARMS = (
    "hate_speech", "dangerous_content", "harassment", "sexually_explicit", "civic_integrity", "image_hate", "jailbreak",
    "image_dangerous_content", "image_harassment", "image_sexually_explicit",
)  # fmt: skip
_THRESHOLDS = ("block_low_and_above", "block_medium_and_above", "block_only_high", "block_none", "off")
_RESOLUTIONS = ("low", "medium", "high", "ultra_high")
_MIME_TYPES = {
    "image": "png jpeg webp heic heif gif bmp tiff",
    "audio": "wav mp3 aiff aac ogg flac mpeg m4a l16 opus alaw mulaw webm",
    "video": "mp4 mpeg mpg mov avi x-flv webm wmv 3gpp",
}
_DOCUMENTS = frozenset([
    "application/pdf", "text/csv", "application/msword", "application/vnd.ms-powerpoint", "application/vnd.ms-excel",
    *(f"application/vnd.openxmlformats-officedocument.{name}" for name in (
        "presentationml.presentation", "wordprocessingml.document", "wordprocessingml.template", "spreadsheetml.sheet")),
    *(f"application/vnd.oasis.opendocument.{name}" for name in ("presentation", "text", "spreadsheet")),
])  # fmt: skip
_LANGUAGES = ("python", "bash")
_RETIRED = ("deep-research-pro-preview-12-2025",)
_NUMBERS = {"temperature": (0, 2), "top_p": (0, 1)}
_INTEGERS = ("seed", "max_output_tokens", "top_k")
_MODEL_STEPS = frozenset(STEPS) - {"user_input", "function_result"}
_BUILT_IN = frozenset(
    kind for kind in STEPS if kind.endswith(("_call", "_result")) and kind not in ("function_call", "function_result")
)
_ORDER = (
    "Please ensure that function response turn comes immediately after a function call turn. Got function response with "
    "name '{}'."
)
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the function "
    "call turn."
)
_INVALID = "Request contains an invalid argument."
_ODD: JsonObject = {"type": "processing_call", "id": "odd", "signature": "odd"}
"""Placeholder for a step that the server itself made up."""
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
    """Time of its creation, by the server's clock."""
    said: list[JsonObject] = field(default_factory=list[JsonObject])
    """Its input."""
    request: JsonObject = field(default_factory=dict[str, Any])
    events: list[JsonObject] = field(default_factory=list[JsonObject])
    is_background: bool = False
    polls_left: int = 0
    """Remaining polls that report it in progress."""
    resume: str = ""
    """Behaviour of its resumed stream: correct, `hang` or `zero`."""


@dataclass(slots=True)
class InteractionState:
    """The memory of the server."""

    kept_s: float = 86_400.0
    stored: dict[str, Stored] = field(default_factory=dict[str, Stored])
    issued: dict[str, list[JsonObject]] = field(default_factory=dict[str, list[JsonObject]])
    """Signature -> the steps of the answer from that signature on."""
    odd: list[JsonObject] = field(default_factory=list[JsonObject])
    """Steps of unknown types that the server itself sent."""
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    """Continuation tokens that were given out and not used -> the interaction that gave each; empty if it is not kept."""
    open_streams: int = 0
    """Streams that sent their last event, were not closed by the server, and are still open."""
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


def interaction_judge(body: Any, state: InteractionState, *, key: str, now: float) -> InteractionRefusal | None:
    """The first rule that a request breaks; `now` is the time of the server's clock."""
    if not isinstance(body, dict):
        return refuse("IR03", "Invalid JSON payload received: one object was expected.")
    request = as_object(body)
    request = {**request, "input": [_known(step, state) for step in as_list(request["input"])]} if isinstance(
        request.get("input"), list
    ) else request  # fmt: skip
    for rule in (
        unknown_names,
        _who,
        _input,
        _settings,
        _numbers,
        _response_format,
        tool_breaches,
        choice_breaches,
        _check_stored,
    ):
        for breach in rule(request):
            return breach
    if (breach := _chained(request, state, key, now)) is not None:
        return breach
    return _conversation(request, state, key, now)


def _known(step: Any, state: InteractionState) -> Any:
    """Steps of unknown types that the server sent are legal when they come back unchanged."""
    return _ODD if step in state.odd else step


# One after another -------------------------------------------------------------------------------------------------------


def _who(request: JsonObject) -> Iterator[InteractionRefusal]:
    model, agent = request.get("model"), request.get("agent")
    if (model is None) == (agent is None):
        yield refuse("IR08", "Exactly one of 'model' and 'agent' must be set.")
    if agent is not None:
        yield from _agent(str(agent), request)
    elif "agent_config" in request:
        yield refuse("IR66", "Unknown parameter 'agent_config'.")
    if "labels" in request:
        yield refuse("IR64", "'labels' is not available on the Gemini API.")


def _agent(agent: str, request: JsonObject) -> Iterator[InteractionRefusal]:
    if "generation_config" in request:
        yield refuse("IR66", "Unknown parameter 'generation_config'.")
    if agent in _RETIRED:
        yield refuse("IR09", f"Agent '{agent}' not found.", status=404, code="not_found")
    is_research = agent.startswith("deep-research")
    if is_research and request.get("background") is not True:
        yield refuse("IR66", "Agents are required to use background=true")
    if agent.startswith("antigravity-preview-05") and request.get("background") is True:
        yield refuse("IR66", "Agent does not support using background=True")
    if is_research and "system_instruction" in request:
        yield refuse("IR66", "'system_instruction' is not supported for the deep-research-* agent")
    if is_research and any(as_object(tool).get("type") == "function" for tool in as_list(request.get("tools"))):
        yield refuse("IR67", "Function tools are not supported for the deep-research-* agent")
    if agent.startswith("antigravity") and "environment" not in request:
        yield refuse("IR67", "'environment' is required for this agent")


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
            yield refuse("IR11", "'input' must not be empty.")
        return
    if not isinstance(given, (str, dict, list)):
        yield refuse("IR11", "'input' must be a string, a content or a list.")
        return
    items = [as_object(item) for item in as_list(given)]
    if items and len({item.get("type") in CONTENTS for item in items}) > 1:
        yield refuse("IR12", "'input' must be a list of contents or a list of steps, not both.")
    for place, step in enumerate(steps_of_input(given)):
        yield from _step(step, f"input[{place}]", str(request.get("model") or ""))


def _step(step: JsonObject, at: str, model: str) -> Iterator[InteractionRefusal]:
    kind = step.get("type")
    if kind in ("user_input", "model_output"):
        content = step.get("content")
        if kind == "user_input" and not isinstance(content, (str, list)):
            yield refuse("IR14", f"'content' is required at '{at}'")
        for item in as_list(content):
            yield from _content(as_object(item), at)
    elif kind == "function_call":
        yield from _call(step, at)
    elif kind == "function_result":
        yield from _result(step, at, model)
    elif kind == "code_execution_call":
        language = as_object(step.get("arguments")).get("language", "python")
        if language not in _LANGUAGES:
            yield refuse("IR76", f"Invalid enum value '{language}' at '{at}'")


def _call(step: JsonObject, at: str) -> Iterator[InteractionRefusal]:
    if not all(isinstance(step.get(name), str) and step[name] for name in ("id", "name")):
        yield refuse("IR17", f"'id' and 'name' are required at '{at}'")
    if not isinstance(step.get("arguments"), dict):
        yield refuse("IR17", f"'arguments' must be an object at '{at}'")


def _result(step: JsonObject, at: str, model: str) -> Iterator[InteractionRefusal]:
    result = step.get("result")
    if not isinstance(step.get("call_id"), str) or "result" not in step:
        yield refuse("IR19", f"'call_id' and 'result' are required at '{at}'")
    if not isinstance(step.get("name"), str) or not step["name"]:
        yield refuse("IR21")
    if not isinstance(result, (str, dict, list)):
        yield refuse("IR22", f"'result' must be a string, an object or a list of contents at '{at}'")
    for item in as_list(result):
        content = as_object(item)
        if content.get("type") not in CONTENTS:
            yield refuse("IR22", f"'result' must be a string, an object or a list of contents at '{at}'")
        if generation(model) < (3, 0):
            yield refuse("IR23", "Multimodal function responses are not supported for this model")
        yield from _content(content, at)


def _content(content: JsonObject, at: str) -> Iterator[InteractionRefusal]:
    kind = content.get("type")
    if kind == "text":
        if not isinstance(content.get("text"), str):
            yield refuse("IR15", f"'text' must be a string at '{at}'")
        return
    if ("data" in content) == ("uri" in content) or not isinstance(content.get("mime_type", ""), str):
        yield refuse("IR16", f"Exactly one of 'data' and 'uri' is required at '{at}'")
    if "data" in content and (not content.get("mime_type") or decode_base64(str(content["data"])) is None):
        yield refuse("IR16", f"'data' must be base64 with a 'mime_type' at '{at}'")
    mime_type = str(content.get("mime_type") or "")
    if mime_type and not _is_listed(str(kind), mime_type):
        yield refuse("IR76", f"The value '{mime_type}' is not supported for 'mime_type' at '{at}'.")
    if content.get("resolution", "low") not in _RESOLUTIONS:
        yield refuse("IR76", f"Invalid enum value '{content['resolution']}'")


def _is_listed(kind: str, mime_type: str) -> bool:
    if kind == "document":
        return mime_type in _DOCUMENTS
    return mime_type.removeprefix(f"{kind}/") in _MIME_TYPES[kind].split()


def _settings(request: JsonObject) -> Iterator[InteractionRefusal]:
    config, model = as_object(request.get("generation_config")), str(request.get("model") or "")
    level = config.get("thinking_level")
    if level is not None and level not in _LEVELS:
        told = f"'{level}' is not supported for 'thinking_level'. Supported values: {', '.join(_LEVELS)}"
        yield refuse("IR38", told)
    if level == "minimal" and not _WITH_MINIMAL.match(model):
        told = "'minimal' is not a supported thinking level for this model. Allowed values are: medium, low, high."
        yield refuse("IR39", told)
    if level in ("low", "medium", "minimal") and model.startswith("gemini-2.5-flash-lite"):
        yield refuse("IR39", f"'{level}' is not a supported thinking level for this model. Allowed values are: high.")
    if config.get("thinking_summaries", "auto") not in ("auto", "none"):
        yield refuse("IR38", f"Invalid enum value '{config['thinking_summaries']}'")
    if not isinstance(request.get("system_instruction", ""), str):
        yield refuse("IR63", "'system_instruction' must be a string")
    if request.get("service_tier", "standard") not in _TIERS:
        yield refuse("IR75", f"Invalid enum value '{request['service_tier']}'")


def _numbers(request: JsonObject) -> Iterator[InteractionRefusal]:
    config = as_object(request.get("generation_config"))
    for name, (least, most) in _NUMBERS.items():
        value = config.get(name, least)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            yield refuse("IR40", f"Expected number at 'generation_config.{name}'")
    for name in _INTEGERS:
        if isinstance(value := config.get(name, 1), bool) or not isinstance(value, int):
            yield refuse("IR40", f"Expected number at 'generation_config.{name}'")
    stops = config.get("stop_sequences", [])
    if not isinstance(stops, list) or not all(isinstance(word, str) for word in as_list(stops)):
        yield refuse("IR40", "Expected array of strings at 'generation_config.stop_sequences'")
    if isinstance(most := config.get("max_output_tokens", 1), int) and most < 1:
        yield refuse("IR41", "'max_output_tokens' must be at least 1")
    for setting in as_list(request.get("safety_settings")):
        if as_object(setting).get("type") not in _HARMS or as_object(setting).get("threshold") not in _THRESHOLDS:
            yield refuse("IR74", f"Invalid enum value in 'safety_settings': {setting!r}")


def _response_format(request: JsonObject) -> Iterator[InteractionRefusal]:
    given = request.get("response_format")
    for form in map(as_object, as_list(given) or ([given] if given is not None else [])):
        if form.get("type") not in _FORMATS:
            yield refuse("IR65", f"The value '{form.get('type')}' is not supported for 'type' at 'response_format'.")
        if "schema" in form and form.get("mime_type") != "application/json":
            yield refuse("IR65", "'schema' needs the mime_type 'application/json' at 'response_format'")
    if given is not None and "response_mime_type" in request:
        yield refuse("IR65", "'response_mime_type' cannot be used beside 'response_format'")


def _check_stored(request: JsonObject) -> Iterator[InteractionRefusal]:
    is_stored = request.get("store") is not False
    for name in ("store", "stream", "background"):
        if not isinstance(request.get(name, False), bool):
            yield refuse("IR40", f"Expected boolean at '{name}'")
    if request.get("background") is True and not is_stored:
        yield refuse("IR55", "store=true is required for background interactions")
    if "previous_interaction_id" in request and not is_stored:
        yield refuse("IR56", "store must be true when previous_interaction_id is set")


# With the state ----------------------------------------------------------------------------------------------------------


def _chained(request: JsonObject, state: InteractionState, key: str, now: float) -> InteractionRefusal | None:
    token, previous = request.get("continuation_token"), request.get("previous_interaction_id")
    if token is not None and (why := _bad_token(request, state)):
        return refuse("IR68", why)
    if previous is None:
        return None
    found = state.find(previous, key, now)
    if found is None and str(previous) in state.stored:
        return refuse("IR58", f"Interaction '{previous}' not found.", status=404, code="not_found")
    if found is None:
        return refuse("IR57", f"Interaction '{previous}' not found.", status=404, code="not_found")
    if found.status in ("in_progress", "queued"):
        return refuse("IR59", "The previous interaction is still in_progress.")
    return None


def _bad_token(request: JsonObject, state: InteractionState) -> str | None:
    """The reason why a continuation token cannot be used, if it cannot."""
    token = str(request["continuation_token"])
    if token not in state.tokens:
        return "Invalid continuation_token."
    if request.get("store") is False:
        return None if request.get("input") else "continuation_token needs the input again where nothing is stored."
    if request.get("input"):
        return "continuation_token takes no input where the interaction is stored."
    if request.get("previous_interaction_id") != state.tokens[token]:
        return "continuation_token needs the previous_interaction_id of the interaction that gave it."
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
                return refuse("IR29", _ORDER.format(pending[0].get("name")))
            if (breach := (_signed(turn, state) if is_new else None) or _turn(turn, state)) is not None:
                return breach
            pending = [call for call in turn if call.get("type") == "function_call"]
            place += len(turn)
            continue
        step = steps[place]
        if step.get("type") != "function_result":
            if pending:
                return refuse("IR60" if previous is not None and place == 0 else "IR25", _COUNT)
        elif (breach := _answers(step, pending, steps)) is not None:
            return breach
        pending = [call for call in pending if call.get("id") != step.get("call_id")]
        place += 1
    return refuse("IR25", _COUNT) if pending else None


def _answers(result: JsonObject, pending: Sequence[JsonObject], steps: Sequence[JsonObject]) -> InteractionRefusal | None:
    call = next((call for call in pending if call.get("id") == result.get("call_id")), None)
    if call is None:
        is_known = any(other.get("id") == result.get("call_id") for other in steps)
        return refuse("IR25" if is_known else "IR26" if pending else "IR24", _ORDER.format(result.get("name")))
    if call.get("name") != result.get("name"):
        return refuse("IR27", f"The function response name '{result.get('name')}' is not that of its call.")
    return None


def _turn(turn: Sequence[JsonObject], state: InteractionState) -> InteractionRefusal | None:
    ids = [step.get("id") for step in turn if step.get("type") == "function_call"]
    if len(set(ids)) < len(ids):
        return refuse("IR28", "Function call ids must be unique within a turn.")
    last = turn[-1]
    if last.get("type") == "thought" and state.issued.get(str(last.get("signature"))) != [last]:
        return refuse("IR36", _INVALID)
    return _built_in(turn, state)


def _built_in(turn: Sequence[JsonObject], state: InteractionState) -> InteractionRefusal | None:
    """Steps of tools at the server: each with its other half, and signed by this server."""
    halves = [step for step in turn if step.get("type") in _BUILT_IN and step != _ODD]
    calls = [step.get("id") for step in halves if str(step["type"]).endswith("_call")]
    results = [step.get("call_id") for step in halves if str(step["type"]).endswith("_result")]
    if sorted(map(str, calls)) != sorted(map(str, results)):
        return refuse("IR35", _INVALID)
    is_own = all(step.get("signature") in state.issued for step in halves)
    return None if is_own else refuse("IR35", _INVALID)


def _signed(turn: Sequence[JsonObject], state: InteractionState) -> InteractionRefusal | None:
    if not any(step.get("type") == "function_call" for step in turn) and turn[0].get("type") != "thought":
        return None
    if turn[0].get("type") != "thought":
        # The signature may be on the call itself.
        own = next(step for step in turn if step.get("type") == "function_call").get("signature")
        if not own or own not in (*SKIP_VALUES, *state.issued):
            return refuse("IR32" if own else "IR30", _CORRUPTED if own else _INVALID, late=True)
    for place, step in enumerate(turn):
        if step.get("type") != "thought":
            continue
        signature = step.get("signature")
        if not signature:
            return refuse("IR31", _INVALID, late=True)
        if signature in SKIP_VALUES:
            continue
        issued = state.issued.get(str(signature))
        if issued is None:
            return refuse("IR32", _CORRUPTED, late=True)
        if (
            signature not in state.spoiled
            and list(turn[place:]) != issued
            and "processing_call" not in {step.get("type") for step in turn}
        ):
            return refuse("IR33", _CORRUPTED, late=True)
    return None
