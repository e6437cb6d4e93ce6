"""A request of the runtime -> the JSON body that Gemini takes.

Contents are joined from bytes that were encoded when they were added; what stays the same from request to request (tools,
configuration, system instruction) is encoded once and kept. This file sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from callgate import strict_json
from callgate.content.build import text_part
from callgate.content.prompt import user_content
from callgate.declaration import AT_CLIENT, BUILT_IN, in_schema_field
from callgate.errors import UsageError
from callgate.events import Notice
from callgate.gemini.thinking_config import generation_of, refuse_without_thinking, thinking_fields, thinking_notices
from callgate.request import ModelRequest, extra_body, is_of_interactions, merged, unknown_setting, with_output_prompt
from callgate.schema import compile_schema
from callgate.setting_values import check_values
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.gemini.unknown_fields import UnknownFields

__all__ = ["GENERATION", "SETTINGS", "TOP", "BodyBuilder", "counting", "generation_of", "safety_of"]

SurfaceKind = Literal["developer", "vertex"]

GENERATION = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_output_tokens": "maxOutputTokens",
    "stop_sequences": "stopSequences",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "candidate_count": "candidateCount",
    "response_mime_type": "responseMimeType",
    "response_json_schema": "responseJsonSchema",
    "response_modalities": "responseModalities",
    "media_resolution": "mediaResolution",
    "speech_config": "speechConfig",
    "response_logprobs": "responseLogprobs",
    "logprobs": "logprobs",
}
"""Setting -> its name in generationConfig."""
TOP = {"cached_content": "cachedContent", "service_tier": "serviceTier", "labels": "labels"}
"""Setting -> its name beside contents."""
_ONLY_ON: dict[str, SurfaceKind] = {"service_tier": "developer", "labels": "vertex", "stream_arguments": "vertex"}
# "JSON mode is not enabled for models/gemma-..."
_WITHOUT_SCHEMA = re.compile(r"(?:.*/)?gemma-")
_COUNTED = ("contents", "systemInstruction", "tools", "generationConfig")
"""The fields that Vertex takes in countTokens."""


class BodyBuilder:
    """A builder of the bodies of one model's requests."""

    def __init__(self, model: str, surface: SurfaceKind, endpoint: str | None = None) -> None:
        self._endpoint: Hashable = endpoint or self
        self._model = model
        self._surface: SurfaceKind = surface
        self._vouch = (generation_of(model) or (3,)) >= (3,)
        self.origin = f"{surface}:{model.removeprefix('models/')}"
        """The origin of the signatures that these bodies may carry: they are valid for one model on one surface."""
        self._kept: dict[tuple[Any, ...], tuple[Any, tuple[bytes, ...]]] = {}
        self._gone: set[str] = set()
        """Files that the server does not have any more."""

    def cacheable(self, request: ModelRequest) -> tuple[list[bytes], JsonObject]:
        """Return the contents of a request, and the fields beside them, for a cached content.

        Raises:
            UsageError: a setting or a mix of tools that this model or surface is known to refuse.
        """
        request = self._with_output_prompt(request)
        return self._contents(request), self._around(request, None)

    def _contents(self, request: ModelRequest) -> list[bytes]:
        contents = request.conversation.encoded_for(self.origin, vouch=self._vouch)
        unknown = _UNKNOWN.get(self._endpoint)
        contents = [*contents] if unknown is None else unknown.without(contents)
        if self._gone:
            from callgate.gemini.gone_files import without_files  # Few conversations need it.

            contents = without_files(contents, self._gone)
        return contents

    def leave_out_file(self, file: str, body: bytes) -> bool:
        """Leave a file out that the server does not have any more; False if the refused body does not refer to it."""
        from callgate.gemini.gone_files import refers_to

        if not refers_to(body, file) or len(self._gone) >= GONE_MAX:
            return False
        self._gone.add(file)
        return True

    def learn_unknown(self, names: Sequence[tuple[str, str]], body: bytes) -> tuple[str, ...]:
        """Leave the fields out that an error calls unknown, here and wherever else requests go to this endpoint.

        Returns those that the refused body has, to be shown; none if the request would be refused again without them.
        """
        if not names:
            return ()
        from callgate.gemini.unknown_fields import UnknownFields  # Few conversations need it.

        if len(_UNKNOWN) >= ENDPOINTS_MAX and self._endpoint not in _UNKNOWN:
            del _UNKNOWN[next(iter(_UNKNOWN))]
        return _UNKNOWN.setdefault(self._endpoint, UnknownFields()).learn(names, body)

    def notices(self, request: ModelRequest) -> list[Notice]:
        """Return a notice for each setting that is not sent as it was asked for."""
        return thinking_notices(request.settings, self._model)

    def _with_output_prompt(self, request: ModelRequest) -> ModelRequest:
        is_told = request.output is not None and not self._holds_to_schema(request)
        return with_output_prompt(request) if is_told else request

    def body(
        self, request: ModelRequest, *, continuation: str | None = None, cached: tuple[str, int] | None = None
    ) -> bytes:
        """The body of a request. `cached` is the name of a cached content, and how many contents are in it.

        Raises:
            UsageError: a setting or a mix of tools that this model or surface is known to refuse.
        """
        request = self._with_output_prompt(request)
        contents = self._contents(request)
        if cached is not None:
            del contents[: cached[1]]
        if request.feedback:
            contents.append(strict_json.dump(user_content(request.feedback)))
        token = b',"continuationToken":' + strict_json.dump(continuation) if continuation is not None else b""
        # One join and so one copy: brackets are put to the first and the last of the contents.
        rest = self._rest(request, None if cached is None else cached[0])
        contents = contents or [b""]
        contents[0] = b'{"contents":[' + contents[0]
        contents[-1] += b"]" + token + (b"" if rest else b"}")
        return b",".join((*contents, *rest))

    def _rest(self, request: ModelRequest, cached: str | None) -> tuple[bytes, ...]:
        """The members after the contents, without the commas between them; the last one with the closing brace."""
        key = (
            id(request.declaration), id(request.settings), id(request.output), request.system, request.tool_choice,
            request.stream, cached,
        )  # fmt: skip
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) > 64:
                self._kept.clear()
            around = self._around(request, cached)
            tools = around.pop("tools", None)
            rest = (strict_json.dump(around)[1:],) if around else ()
            if tools is not None:
                encoded = _encoded_tools(tools)
                rest = (encoded, *rest) if rest else (encoded + b"}",)
            # The objects are kept with the bytes, so that their ids stay theirs.
            kept = self._kept[key] = ((request.declaration, request.settings, request.output), rest)
        return kept[1]

    def _around(self, request: ModelRequest, cached: str | None) -> JsonObject:
        body: JsonObject = {} if cached is None else {"cachedContent": cached}
        # A cached content brings these three along, and is refused beside them.
        is_cached = cached is not None or bool(request.settings.get("cached_content"))
        if request.system and not is_cached:
            body["systemInstruction"] = {"parts": [text_part(strict_json.without_surrogates(request.system))]}
        if request.declaration.tools and not is_cached:
            built_in = [key for tool in request.declaration.tools for key in tool if key != "functionDeclarations"]
            mixed = bool(request.declaration.names) and any(name not in AT_CLIENT for name in built_in)
            self._refuse_impossible(built_in, mixed=mixed)
            body["tools"] = self._tools(request)
            config = self._tool_config(request, mixed=mixed)
            if config:
                body["toolConfig"] = config
        extra = extra_body(request.settings, taken=("contents", "tools", "continuationToken"))
        body = merged(body | settings_of(request.settings, self._surface, self._model), extra)
        return body if request.output is None else merged(body, {"generationConfig": self._answer_form(request.output)})

    def _tools(self, request: ModelRequest) -> list[JsonObject]:
        field = request.settings.get("schema_field")
        if field is None:
            return request.declaration.tools
        return in_schema_field(request.declaration, request.definitions, field, surface=self._surface)

    def _holds_to_schema(self, request: ModelRequest) -> bool:
        """True if the model can be held to a schema now: before generation 3 not beside tools of any kind."""
        generation = generation_of(self._model)
        if _WITHOUT_SCHEMA.match(self._model):
            return False
        return not request.declaration.tools or generation is None or generation >= (3,)

    def _answer_form(self, schema: JsonObject) -> JsonObject:
        sent = compile_schema(schema, surface=self._surface).schema
        return {"responseMimeType": "application/json"} | ({"responseJsonSchema": sent} if sent is not None else {})

    def _tool_config(self, request: ModelRequest, *, mixed: bool) -> JsonObject:
        config = dict(request.tool_config or {})
        calling = cast("JsonObject", config.get("functionCallingConfig", {}))
        # Beside an answer of a fixed form the server's own default is VALIDATED too.
        if (mixed or request.output is not None) and calling.get("mode") == "AUTO":
            config["functionCallingConfig"] = {**calling, "mode": "VALIDATED"}
        if mixed and self._surface == "developer":
            config["includeServerSideToolInvocations"] = True
        if self._surface == "vertex" and request.stream and config and request.settings.get("stream_arguments"):
            config["functionCallingConfig"] = {**config["functionCallingConfig"], "streamFunctionCallArguments": True}
        return config

    def _refuse_impossible(self, built_in: list[str], *, mixed: bool) -> None:
        for name in built_in:
            only = BUILT_IN.get(name)
            if only is not None and only != self._surface:
                raise UsageError(f"the built-in tool {name!r} exists on the {only} surface only; leave it out")
        generation = generation_of(self._model)
        if mixed and generation is not None and generation < (3,):
            raise UsageError(
                f"{self._model!r} cannot mix built-in tools ({', '.join(built_in)}) with functions: "
                "use a model of generation 3 or later, or leave one kind out"
            )


def _encoded_tools(tools: list[JsonObject]) -> bytes:
    """The member `tools` of a body, encoded once for all models and gates that share a declaration."""
    known = _ENCODED.get(id(tools))
    if known is None or known[0] is not tools:
        if len(_ENCODED) >= ENCODED_MAX:
            _ENCODED.clear()
        known = _ENCODED[id(tools)] = (tools, b'"tools":' + strict_json.dump(tools))
    return known[1]


GONE_MAX = 10_000
"""Files that are remembered as gone."""
ENDPOINTS_MAX = 1_000
_UNKNOWN: dict[Hashable, UnknownFields] = {}
"""The fields of contents that an endpoint does not know, as far as this process has learned it."""
ENCODED_MAX = 64
_ENCODED: dict[int, tuple[list[JsonObject], bytes]] = {}
"""By the identity of the list, which is kept so that no other can have it."""


def counting(body: bytes, model: str, surface: SurfaceKind) -> bytes:
    """The body that asks how many tokens a request has."""
    if surface == "developer":
        inner = b'"model":' + strict_json.dump(f"models/{model.removeprefix('models/')}") + b","
        return b'{"generateContentRequest":{' + inner + body[1:] + b"}"
    request = cast("JsonObject", strict_json.parse(body))
    return strict_json.dump({name: value for name, value in request.items() if name in _COUNTED})


def settings_of(settings: Mapping[str, Any], surface: SurfaceKind, model: str = "") -> JsonObject:
    """Settings in plain words -> the fields of a request.

    Raises:
        UsageError: an unknown setting, one that the surface or the model does not have, or a value that it cannot have.
    """
    check_values(settings)
    body: JsonObject = {}
    generation: JsonObject = {}
    for name, value in settings.items():
        if value is None or (value is False and name == "stream_arguments"):
            continue
        if (only := _ONLY_ON.get(name)) is not None and only != surface:
            raise UsageError(f"the setting {name!r} exists on the {only} surface only")
        if name in _ELSEWHERE:
            continue
        if name in GENERATION:
            generation[GENERATION[name]] = value
        elif name in TOP:
            body[TOP[name]] = value
        elif name in _SPECIAL:
            _SPECIAL[name](value, body, generation, model)
        elif not is_of_interactions(name, value):
            raise UsageError(unknown_setting(name, SETTINGS))
    return body | ({"generationConfig": generation} if generation else {})


def _thinking(value: Any, body: JsonObject, generation: JsonObject, model: str) -> None:
    if fields := thinking_fields(value, model):
        cast("JsonObject", generation.setdefault("thinkingConfig", {})).update(fields)


def _include_thoughts(value: Any, body: JsonObject, generation: JsonObject, model: str) -> None:
    refuse_without_thinking(bool(value), model)
    cast("JsonObject", generation.setdefault("thinkingConfig", {}))["includeThoughts"] = bool(value)


def safety_of(value: Any) -> Mapping[str, str]:
    """Return the setting for safety: categories and their thresholds.

    Raises:
        UsageError: it is something else.
    """
    found: Mapping[Any, Any] = cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else {None: value}
    if not all(isinstance(word, str) for pair in found.items() for word in pair):
        raise UsageError(f"safety={value!r}: use a mapping such as {{'HARASSMENT': 'BLOCK_NONE'}}")
    return found


def _safety(value: Any, body: JsonObject, generation: JsonObject, model: str) -> None:
    body["safetySettings"] = [
        {"category": key if key.startswith("HARM_CATEGORY_") else f"HARM_CATEGORY_{key.upper()}", "threshold": threshold}
        for key, threshold in safety_of(value).items()
    ]


# Settings that are more than a name.
_SPECIAL: dict[str, Callable[[Any, JsonObject, JsonObject, str], None]] = {
    "thinking": _thinking,
    "include_thoughts": _include_thoughts,
    "safety": _safety,
}
# Settings that touch more of a body than one field, and are read where that is put together.
_ELSEWHERE = ("extra_body", "headers", "schema_field", "stream_arguments")
SETTINGS = (*GENERATION, *TOP, *_SPECIAL, *_ELSEWHERE)
"""Every setting that Gemini has."""
