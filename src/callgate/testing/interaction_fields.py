"""The objects of an interaction request, name by name, and the fitting of a body to them.

Takes a JSON body; reports the first unknown name in the service's words. Knows the structure of every object and the meaning
of none: order, ids, signatures and state are in `interaction_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject

__all__ = ["CONTENTS", "STEPS", "TOOLS", "InteractionRefusal", "refuse", "unknown_names"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionRefusal:
    """A request that the service would refuse, and its error."""

    rule: str
    """Name of the broken rule."""
    message: str
    """The message of the error."""
    status: int = 400
    """The HTTP status."""
    code: str = "invalid_request"
    """The code of the error."""
    late: bool = False
    """True if the refusal comes when a stream has begun, and so in the form of an event."""
    google: str = ""
    """The status word of the gateway before the service, whose errors have Google's older form."""

    @property
    def body(self) -> Any:
        """The error as JSON."""
        if self.google:
            return [{"error": {"code": self.status, "message": self.message, "status": self.google}}]
        return {"error": {"code": self.code, "message": self.message}}


def refuse(rule: str, message: str = "Invalid input received", **fields: Any) -> InteractionRefusal:
    """A refusal by a rule."""
    return InteractionRefusal(rule=rule, message=message, **fields)


TOP = frozenset([
    "model", "agent", "input", "system_instruction", "tools", "generation_config", "response_format",
    "previous_interaction_id", "store", "stream", "background", "continuation_token", "safety_settings", "service_tier",
    "labels", "environment", "webhook_config", "response_mime_type", "response_modalities", "cached_content", "agent_config",
])  # fmt: skip
LEGACY = frozenset(["contents", "role", "outputs", "turns"])
STEPS: Mapping[str, frozenset[str]] = {
    name: frozenset(("type", *fields.split()))
    for name, fields in {
        "user_input": "content",
        "model_output": "content error",
        "thought": "signature summary",
        "function_call": "id name arguments signature",
        "function_result": "call_id result name is_error",
        "code_execution_call": "id arguments signature",
        "code_execution_result": "call_id result is_error signature",
        "google_search_call": "id arguments search_type signature",
        "google_search_result": "call_id result is_error signature",
        "url_context_call": "id arguments signature",
        "url_context_result": "call_id result is_error signature",
        "google_maps_call": "id arguments signature",
        "google_maps_result": "call_id result is_error signature",
        "file_search_call": "id arguments signature",
        "file_search_result": "call_id result is_error signature",
        "retrieval_call": "id arguments retrieval_type signature",
        "retrieval_result": "call_id result is_error signature",
        "processing_call": "id arguments signature",
        "processing_result": "call_id result is_error signature",
        "mcp_server_tool_call": "id name server_name arguments signature",
        "mcp_server_tool_result": "call_id result name server_name is_error signature",
    }.items()
}
"""Type of a step -> its names."""
CONTENTS: Mapping[str, frozenset[str]] = {
    name: frozenset(("type", *fields.split()))
    for name, fields in {
        "text": "text annotations",
        "image": "data uri mime_type resolution",
        "audio": "data uri mime_type channels sample_rate",
        "document": "data uri mime_type",
        "video": "data uri mime_type name resolution processing",
    }.items()
}
"""Type of an item of content -> its names."""
TOOLS: Mapping[str, frozenset[str]] = {
    name: frozenset(("type", *fields.split()))
    for name, fields in {
        "function": "name description parameters",
        "google_search": "search_types",
        "code_execution": "",
        "url_context": "",
        "google_maps": "latitude longitude enable_widget",
        "file_search": "file_search_store_names top_k metadata_filter",
        "computer_use": (
            "environment excluded_predefined_functions enable_prompt_injection_detection disabled_safety_policies"
        ),
        "mcp_server": "name url headers allowed_tools",
        "retrieval": (
            "retrieval_types exa_ai_search_config parallel_ai_search_config rag_store_config vertex_ai_search_config"
        ),
    }.items()
}
"""Type of a tool -> its names."""
GENERATION = frozenset([
    "temperature", "top_p", "top_k", "seed", "max_output_tokens", "stop_sequences", "thinking_level", "thinking_summaries",
    "tool_choice", "speech_config", "transcription_config", "video_config", "image_config",
])  # fmt: skip
FORMS: Mapping[str, frozenset[str]] = {
    name: frozenset(("type", *fields.split()))
    for name, fields in {
        "text": "mime_type schema",
        "image": "mime_type aspect_ratio image_size delivery",
        "audio": "mime_type delivery sample_rate bit_rate",
        "video": "delivery duration",
    }.items()
}
"""Type of a response format -> its names."""
_LEGACY_TEXT = (
    "The legacy Interactions API schema is no longer supported. Please upgrade your client SDK to a version that supports "
    "steps."
)


def unknown_names(body: JsonObject) -> Iterator[InteractionRefusal]:
    """Every name in a request that the service does not know, and every type."""
    yield from _top_names(body)
    for place, item in enumerate(as_list(body.get("input"))):
        yield from _step_names(as_object(item), f"input[{place}]")
    for place, item in enumerate(as_list(body.get("tools"))):
        yield from _tool_names(as_object(item), f"tools[{place}]")
    yield from _form_names(body.get("response_format"))
    for name in as_object(body.get("generation_config")):
        if name not in GENERATION:
            yield InteractionRefusal(rule="IR37", message=f"Unknown parameter '{name}' at 'generation_config'")
    given = as_object(body.get("generation_config")).get("speech_config")
    for voice in given if isinstance(given, list) else [given]:  # pyright: ignore[reportUnknownVariableType]
        for name in as_object(voice).keys() - {"voice", "language", "speaker"}:
            told = f"Unknown parameter '{name}' at 'generation_config.speech_config'"
            yield InteractionRefusal(rule="IR37", message=told)


def _top_names(body: JsonObject) -> Iterator[InteractionRefusal]:
    for name in body:
        if name in LEGACY:
            yield InteractionRefusal(rule="IR10", message=_LEGACY_TEXT)
        elif name == "tool_choice":
            yield InteractionRefusal(rule="IR42", message="Unknown parameter 'tool_choice'.")
        elif name == "tool_config":
            yield InteractionRefusal(rule="IR54", message="Unknown parameter 'tool_config'.")
        elif name not in TOP:
            rule = "IR07" if name != name.lower() else "IR05"
            yield InteractionRefusal(rule=rule, message=f"Unknown parameter '{name}'.")


def _form_names(given: Any) -> Iterator[InteractionRefusal]:
    for form in map(as_object, as_list(given) or [given]):
        for name in form:
            if name not in FORMS.get(str(form.get("type")), form):
                yield InteractionRefusal(rule="IR06", message=f"Unknown parameter '{name}' at 'response_format'")


def _step_names(step: JsonObject, at: str) -> Iterator[InteractionRefusal]:
    if "role" in step or "parts" in step:
        yield InteractionRefusal(rule="IR10", message=_LEGACY_TEXT)
    kind = step.get("type")
    known = STEPS.get(str(kind)) or CONTENTS.get(str(kind))
    if known is None:
        supported = ", ".join(STEPS)
        told = f"The value '{kind}' is not supported for 'type' at '{at}'. Supported values: {supported}"
        yield InteractionRefusal(rule="IR13", message=told)
        return
    rules = {("function_call", "call_id"): "IR18", ("function_result", "id"): "IR20"}
    for name in step:
        if name not in known:
            rule = rules.get((str(kind), name), "IR06")
            yield InteractionRefusal(rule=rule, message=f"Unknown parameter '{name}' at '{at}'")
    for field in ("content", "summary", "result"):
        for place, item in enumerate(as_list(step.get(field))):
            content = as_object(item)
            if str(kind) in ("user_input", "model_output", "thought", "function_result") and content:
                yield from _content_names(content, f"{at}.{field}[{place}]")


def _content_names(content: JsonObject, at: str) -> Iterator[InteractionRefusal]:
    known = CONTENTS.get(str(content.get("type")))
    if known is None:
        told = f"The value '{content.get('type')}' is not supported for 'type' at '{at}'."
        yield InteractionRefusal(rule="IR14", message=told)
        return
    for name in content:
        if name not in known:
            yield InteractionRefusal(rule="IR06", message=f"Unknown parameter '{name}' at '{at}'")


def _tool_names(tool: JsonObject, at: str) -> Iterator[InteractionRefusal]:
    if "function_declarations" in tool or "function" in tool:
        name = "function_declarations" if "function_declarations" in tool else "function"
        yield InteractionRefusal(rule="IR47", message=f"Unknown parameter '{name}' at '{at}'")
    known = TOOLS.get(str(tool.get("type")))
    if known is None:
        told = f"The value '{tool.get('type')}' is not supported for 'type' at '{at}'. Supported values: {', '.join(TOOLS)}"
        yield InteractionRefusal(rule="IR46", message=told)
        return
    for name in tool:
        if name not in known:
            yield InteractionRefusal(rule="IR06", message=f"Unknown parameter '{name}' at '{at}'")
