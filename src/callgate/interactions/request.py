"""A request of the runtime -> the JSON body of an interaction.

Steps are joined from bytes that are kept; what stands around them (tools, configuration, system instruction) is encoded once
for each declaration. This file sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from callgate import strict_json
from callgate.content.build import text_part
from callgate.content.read import parts_of
from callgate.errors import UsageError
from callgate.events import Notice
from callgate.gemini.request import GENERATION as GENERATE_CONTENT
from callgate.gemini.request import GONE_MAX, generation_of, safety_of
from callgate.gemini.request import TOP as TOP_OF_GENERATE_CONTENT
from callgate.gemini.thinking_config import refuse_without_thinking, thinking_level, thinking_notices
from callgate.history.repair import starts_exchange
from callgate.interactions.agents import agent_config, agent_of, expect_flag, is_background, is_research
from callgate.interactions.steps import NEEDED, Chain, StepWriter, is_shown, refusal_of, user_step, without_steps
from callgate.interactions.tools import tool_choice_of, tools_of
from callgate.request import ModelRequest, extra_body, merged, unknown_setting, with_output_prompt
from callgate.schema import compile_schema
from callgate.setting_values import check_values
from callgate.translation.left_out import media_notices
from callgate.types import JsonObject

__all__ = ["SETTINGS", "BodyBuilder", "check_storage", "is_stored", "known_settings_of"]

SurfaceKind = Literal["developer", "vertex"]

_GENERATION = ("temperature", "top_p", "top_k", "seed", "max_output_tokens", "stop_sequences")
_TOP = ("service_tier", "environment", "webhook_config")
_KEPT_MAX = 64
# Written by callgate itself, so that no setting may replace them.
_OURS = (
    "input",
    "tools",
    "model",
    "agent",
    "stream",
    "store",
    "background",
    "previous_interaction_id",
    "continuation_token",
)


def is_stored(settings: Mapping[str, Any], model: str) -> bool:
    """True if the server keeps the interaction.

    Raises:
        UsageError: it must, and the settings say that it may not.
    """
    needed, given = is_background(settings, model), expect_flag(settings, "store")
    if needed and given is False:
        who = (
            "background=True"
            if agent_of(model) is None
            else f"the agent {agent_of(model)!r}, which works in the background,"
        )
        raise UsageError(f"{who} needs store=True: the server can work only on an interaction that it keeps")
    return bool(given) or needed


def check_storage(settings: Mapping[str, Any], model: str, *, is_reachable: bool) -> None:
    """Refuse that the server keeps interactions which could not be asked for, nor deleted.

    Raises:
        UsageError: it is to keep them, and they are not reachable.
    """
    if not is_reachable and is_stored(settings, model):
        raise UsageError(
            "store and background need a transport with `request(method, url, *, headers)` beside `post`: what the server "
            "keeps is asked for and deleted by it"
        )


class BodyBuilder:
    """A builder of the bodies of one model's requests."""

    def __init__(self, model: str, surface: SurfaceKind) -> None:
        self._model = model.removeprefix("models/")
        self._surface: SurfaceKind = surface
        self._agent = agent_of(model)
        self._is_research = is_research(model)
        self._generation = generation_of(model) or (3,)
        self.origin = f"interactions:{surface}:{self._model}"
        """The origin of the signatures that these bodies may carry: they are valid for one model of one API."""
        is_new = self._generation >= (3,)
        self.writer = StepWriter(self.origin, vouch=is_new, media_results=is_new)
        self._kept: dict[tuple[Any, ...], tuple[Any, bytes]] = {}
        self._gone: set[str] = set()
        """Files that the server does not have any more."""
        self._unknown: set[str] = set()
        """Types of steps that the server has sent and does not take back."""

    def body(
        self,
        request: ModelRequest,
        *,
        chain: Chain | None = None,
        own: bool = True,
        token: str | None = None,
        token_of: str | None = None,
    ) -> bytes:
        """The body of a request.

        Args:
            request: What is asked.
            chain: The interaction at the server that holds the beginning of the history.
            own: Whether this model's signatures go back; otherwise the placeholder does.
            token: Asks for the rest of an answer.
            token_of: The interaction that gave the token, if the server keeps it, which needs no input then.

        Raises:
            UsageError: a setting or a tool that this API does not have.
        """
        around = self._around(request, stream=request.stream)
        if token is not None and token_of is not None:
            more = {"continuation_token": token, "previous_interaction_id": token_of}
            return b"{" + strict_json.dump(more)[1:-1] + b"," + around[1:]
        said = request.conversation.last
        if said is not None and starts_exchange(said) and (refused := refusal_of(parts_of(said))) is not None:
            raise UsageError(refused)
        steps = [self._steps(request, start=0 if chain is None else chain.length, own=own)]
        if request.system and self._is_research:
            # It refuses an instruction, and reads what is said to it.
            steps.insert(0, _text_step(request.system))
        if request.feedback:
            steps.append(_text_step(request.feedback))
        if not any(steps):
            raise UsageError(
                "there is nothing to send: a prompt of thoughts alone says nothing, since these are the model's own"
            )
        first = {} if chain is None else {"previous_interaction_id": chain.id}
        first |= {} if token is None else {"continuation_token": token}
        head = b"{" + (strict_json.dump(first)[1:-1] + b"," if first else b"") + b'"input":['
        # One join and so one copy.
        return b"".join((head, *_separated(filter(None, steps)), b"],", memoryview(around)[1:]))

    def _steps(self, request: ModelRequest, *, start: int, own: bool) -> bytes | bytearray:
        """The steps of the conversation from a content on, with commas between them."""
        if not self._gone and not self._unknown:
            return self.writer.text(request.conversation, start=start, own=own)
        from callgate.gemini.gone_files import without_file_items  # Few conversations need it.

        pieces = without_steps(self.writer.pieces(request.conversation, start=start, own=own), self._unknown)
        return b",".join(without_file_items(pieces, self._gone))

    def leave_out_file(self, file: str) -> bool:
        """Leave a file out that the server does not have any more; False if it is left out already."""
        if file in self._gone or len(self._gone) >= GONE_MAX:
            return False
        self._gone.add(file)
        return True

    def leave_out_steps(self, kind: str) -> bool:
        """Leave out steps of a type that the server does not take back; False if they are left out, or may not be."""
        if kind in self._unknown or kind in NEEDED or len(self._unknown) >= GONE_MAX:
            return False
        self._unknown.add(kind)
        return True

    def notices(self, request: ModelRequest, chain: Chain | None) -> list[Notice]:
        """Return a notice for each setting that is not sent as it was asked for, and for media that cannot be sent."""
        talk = request.conversation
        newest = talk.newest_exchange
        refused = newest if newest == len(talk) - 1 else None
        return [
            *thinking_notices(request.settings, self._model, only_levels=True),
            *media_notices(talk, is_shown, start=0 if chain is None else chain.length, refused=refused),
        ]

    def _around(self, request: ModelRequest, *, stream: bool) -> bytes:
        key = (
            id(request.declaration), id(request.settings), id(request.output), request.system, request.tool_choice, stream,
        )  # fmt: skip
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            # The objects are kept with the bytes, so that their ids stay theirs.
            encoded = strict_json.dump(self._fields(request, stream=stream))
            kept = self._kept[key] = ((request.declaration, request.settings, request.output), encoded)
        return kept[1]

    def _fields(self, request: ModelRequest, *, stream: bool) -> JsonObject:
        if request.output is not None and self._generation < (3,) and request.declaration.tools:
            request = with_output_prompt(request)
        settings = request.settings
        body: JsonObject = {"agent": self._agent} if self._agent else {"model": self._model}
        is_behind = is_background(settings, self._model)
        if request.system and not self._is_research:
            body["system_instruction"] = strict_json.without_surrogates(request.system)
        if tools := tools_of(request.declaration):
            body["tools"] = tools
        body = merged(body, settings_of(settings, self._model, self._surface))
        if (choice := tool_choice_of(request)) is not None:
            body = merged(body, {"generation_config": {"tool_choice": choice}})
        if request.output is not None:
            schema = compile_schema(request.output, surface=self._surface).schema
            form: JsonObject = {"type": "text", "mime_type": "application/json"}
            body["response_format"] = form | ({"schema": schema} if schema is not None else {})
        if self._agent and "generation_config" in body:
            raise UsageError(
                f"the agent {self._agent!r} takes no settings of a model: {', '.join(body['generation_config'])}"
            )
        body["store"] = is_stored(settings, self._model)
        # A background run is asked for by its id, which can be done again after a crash.
        body |= {"background": True} if is_behind else {}
        body |= {"stream": True} if stream and not is_behind else {}
        return merged(body, extra_body(settings, taken=_OURS))


def _text_step(text: str) -> bytes:
    return strict_json.dump(user_step([text_part(strict_json.without_surrogates(text))]))


def _separated(steps: Iterable[bytes | bytearray]) -> Iterator[bytes | bytearray]:
    for place, each in enumerate(steps):
        if place:
            yield b","
        yield each


def known_settings_of(model: str, surface: SurfaceKind) -> frozenset[str]:
    """The settings that a model or an agent takes at this place."""
    absent = {*_OF_MODELS} if agent_of(model) else set[str]()
    absent |= {"include_thoughts"} if absent and not is_research(model) else set()
    return frozenset(SETTINGS) - absent - (set() if surface == "vertex" else {"labels"})


def settings_of(settings: Mapping[str, Any], model: str = "", surface: SurfaceKind = "developer") -> JsonObject:
    """Settings in plain words -> the fields of an interaction.

    Raises:
        UsageError: an unknown setting, one that this API does not have, or a value that it cannot have.
    """
    check_values(settings)
    body: JsonObject = {}
    generation: JsonObject = {}
    for name, value in settings.items():
        if value is None or name in _ELSEWHERE:
            continue
        if name in _GENERATION:
            generation[name] = value
        elif name in _TOP:
            body[name] = value
        elif name in _SPECIAL:
            _SPECIAL[name](value, body, generation, model)
        elif name == "labels" and surface == "vertex":
            body[name] = value
        elif name in _ABSENT:
            raise UsageError(f"the setting {name!r} does not exist in the Interactions API: leave it out, or use {_OTHER}")
        else:
            raise UsageError(unknown_setting(name, SETTINGS))
    if (form := _response_format(settings)) is not None:
        body["response_format"] = form
    if config := agent_config(settings, model):
        body["agent_config"] = config
    return body | ({"generation_config": generation} if generation else {})


def _thinking(value: Any, body: JsonObject, generation: JsonObject, model: str) -> None:
    refuse_without_thinking(value, model)
    if isinstance(value, bool):
        generation["thinking_summaries"] = "auto" if value else "none"
        return
    if (level := thinking_level(value, model)) is not None:
        generation["thinking_level"] = level


def _include_thoughts(value: Any, body: JsonObject, generation: JsonObject, model: str) -> None:
    refuse_without_thinking(bool(value), model)
    if not is_research(model):  # Its configuration says so.
        generation["thinking_summaries"] = "auto" if value else "none"


def _safety(value: Any, body: JsonObject, generation: JsonObject, model: str) -> None:
    body["safety_settings"] = [
        {"type": key.removeprefix("HARM_CATEGORY_").lower(), "threshold": threshold.lower()}
        for key, threshold in safety_of(value).items()
    ]


def _modalities(value: Any, body: JsonObject, generation: JsonObject, model: str) -> None:
    if value:  # No word leaves the choice to the model, and an empty list is refused.
        body["response_format"] = [{"type": str(word).lower()} for word in value]


def _one_candidate(value: Any, body: JsonObject, generation: JsonObject, model: str) -> None:
    if value != 1:
        raise UsageError(f"candidate_count={value!r}: an interaction has one answer; leave it out")


def _response_format(settings: Mapping[str, Any]) -> JsonObject | None:
    mime_type, schema = settings.get("response_mime_type"), settings.get("response_json_schema")
    if mime_type is None and schema is None:
        return None
    form: JsonObject = {"type": "text", "mime_type": mime_type or "application/json"}
    return form | ({} if schema is None else {"schema": schema})


def _speech(value: Any, body: JsonObject, generation: JsonObject, model: str) -> None:
    """Send a voice, or one for each speaker, as this API has it; generateContent's form is taken too."""
    if isinstance(value, Mapping):
        fields = _snake(cast("Mapping[str, Any]", value))
        speakers = _snake(fields.pop("multi_speaker_voice_config", None)).get("speaker_voice_configs")
        if isinstance(speakers, list):
            shared = _voice(fields) if fields else {}
            generation["speech_config"] = [shared | _voice(_snake(each)) for each in cast("list[Any]", speakers)]
            return
        generation["speech_config"] = _voice(fields)
    elif isinstance(value, list):
        generation["speech_config"] = [_voice(_snake(each)) for each in cast("list[Any]", value)]
    else:
        raise UsageError(f"speech_config={value!r:.100}: {_SPEECH}")


def _voice(fields: JsonObject) -> JsonObject:
    given = dict(fields)
    named = _snake(_snake(given.pop("voice_config", None)).get("prebuilt_voice_config")).get("voice_name")
    if named is not None:
        given["voice"] = named
    if (language := given.pop("language_code", None)) is not None:
        given["language"] = language
    if not given or given.keys() - {"voice", "language", "speaker"}:
        raise UsageError(f"speech_config={fields!r:.100}: {_SPEECH}")
    return given


def _snake(value: Any) -> JsonObject:
    if not isinstance(value, Mapping):
        return {}
    fields = cast("Mapping[str, Any]", value)
    return {re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", str(name)): field for name, field in fields.items()}


_SPEECH = "an interaction takes {'voice', 'language', 'speaker'}, or a list of these"

# Settings that are more than a name.
_SPECIAL: dict[str, Callable[[Any, JsonObject, JsonObject, str], None]] = {
    "thinking": _thinking,
    "include_thoughts": _include_thoughts,
    "safety": _safety,
    "response_modalities": _modalities,
    "candidate_count": _one_candidate,
    "speech_config": _speech,
}
# Settings that are read where a body is put together.
_ELSEWHERE = (
    "extra_body", "headers", "schema_field", "stream_arguments", "store", "background", "response_mime_type",
    "response_json_schema", "agent_config",
)  # fmt: skip
SETTINGS = (*_GENERATION, *_TOP, *_SPECIAL, *_ELSEWHERE, "labels")
"""Every setting of this API."""
_OF_MODELS = frozenset({*_GENERATION, *_SPECIAL}) - {"include_thoughts", "safety", "response_modalities"}
"""Settings of a model, which no agent takes."""
_ABSENT = {*GENERATE_CONTENT, *TOP_OF_GENERATE_CONTENT} - {*SETTINGS} | {"labels"}
_OTHER = "api='generateContent'"
