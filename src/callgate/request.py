"""Requests to a model, and settings common to all models.

Built by the runtime, read by the models. Knows nothing of either.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from callgate import strict_json
from callgate.base_errors import expect
from callgate.content.prompt import user_content
from callgate.declaration import Declaration, tool_config
from callgate.errors import UsageError
from callgate.history.conversation import Conversation
from callgate.types import Content, JsonObject, ToolChoice, ToolDefinition

__all__ = [
    "Accepted", "ContextCache", "Embeddings", "ModelRequest", "PartialCall", "extra_body", "is_of_interactions",
    "merged", "unknown_setting", "with_output_prompt",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCache:
    """Policy for caching the beginning of requests at the provider: `Gate(..., cache=ContextCache())`.

    Cached are the system text, the tools, and the exchanges of a history that are over. A cache costs storage, so it is
    made only for a long beginning that is sent again. What Google caches by itself needs no setting.
    """

    min_tokens: int = 4_096
    """The least number of tokens, as estimated, that a cache is made for."""
    uses: int = 2
    """The request with the same beginning that makes the cache: 1 makes it at once."""
    ttl_s: float = 3600.0
    """Seconds that a cache is kept after its last use; it is renewed while it is used."""
    history: bool = True
    """True to cache exchanges of the history too; False for system text and tools alone."""

    def __post_init__(self) -> None:
        numbers: tuple[tuple[Any, Any], ...] = ((self.min_tokens, int), (self.uses, int), (self.ttl_s, (int, float)))
        for value, kind in numbers:
            if isinstance(value, bool) or not isinstance(value, kind) or not 1 <= value < float("inf"):
                raise UsageError(f"{self!r}: expected numbers of at least 1")
        expect(self.history, bool, "ContextCache(history={})", "True or False")


@dataclass(frozen=True, slots=True)
class Accepted:
    """The id of a request that the server has accepted, by which any process can request its answer later."""

    id: str
    """The server's id of the request."""
    origin: str
    """The API and the model that accepted it."""
    cancel: Callable[[], Awaitable[None]] | None = field(default=None, compare=False, repr=False)
    """Stop it at the server; None for a request that the server works on only while it is connected."""
    background: bool | None = None
    """True if the server works on it by itself, also when nobody is connected; None if that is not known."""


@dataclass(frozen=True, slots=True)
class PartialCall:
    """A piece of the arguments of a call that the model still writes; a chunk with the whole call follows."""

    wire_id: str
    """The id that the whole call will have."""
    name: str
    """Name of the tool."""
    text: str
    """The next piece of the arguments' JSON text."""
    is_first: bool = False
    """True for the first piece of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """The vectors of several contents, in their order."""

    vectors: Sequence[Sequence[float]]
    """One vector for each content."""
    tokens: int = 0
    """The tokens of the contents; 0 if the server does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request to a model."""

    conversation: Conversation
    """The contents so far."""
    definitions: tuple[ToolDefinition, ...] = ()
    """The tools that the model may call."""
    declaration: Declaration = field(default_factory=lambda: Declaration(tools=[], tool_config=None, names={}))
    """The same tools in Gemini's form."""
    tool_choice: ToolChoice = "auto"
    """The rule for calls: the model may, must or must not make one."""
    system: str | None = None
    """The system instruction."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Model settings, such as `temperature`."""
    feedback: str | None = None
    """A sentence appended to the conversation, for this request only."""

    output: JsonObject | None = None
    """The JSON Schema of the answer, if it must fit one. The same object from request to request."""

    cache: ContextCache | None = None
    """Policy for caching the beginning of the request at the provider; None: never explicitly."""

    stream: bool = True
    """True if the answer is observed while it arrives. Otherwise it may be requested whole, and retried if it breaks."""

    background_s: float | None = None
    """The time that the program gives a run in the background, if it is less than the model's own."""
    accepted: Accepted | None = None
    """The server's word that it has taken this request already."""

    @property
    def contents(self) -> list[Content]:
        """The contents to send: the conversation, and the feedback if there is any."""
        contents = self.conversation.contents
        return [*contents, user_content(self.feedback)] if self.feedback else contents

    @property
    def tool_config(self) -> JsonObject | None:
        """The configuration for the tool choice of this request."""
        return tool_config(self.tool_choice, self.declaration.names)


_INSTRUCTION = (
    "When you have everything you need, give your final answer as JSON alone: no other words before or after it, no code "
    "fence. It must fit this JSON Schema:\n{}"
)


def with_output_prompt(request: ModelRequest) -> ModelRequest:
    """Replace the schema by text, for a model without structured output, or not in combination with tools."""
    if request.output is None:
        return request
    told = _INSTRUCTION.format(strict_json.dump(request.output).decode())
    return replace(request, output=None, system="\n\n".join(filter(None, [request.system, told])))


def extra_body(settings: Mapping[str, Any], *, taken: Collection[str]) -> JsonObject:
    """Return fields to send that have no setting in callgate.

    Raises:
        UsageError: they are not fields, or are `taken`.
    """
    extra: Any = settings.get("extra_body")
    extra = {} if extra is None else extra
    if not isinstance(extra, Mapping):
        raise UsageError(f"extra_body={extra!r}: use a mapping of fields such as {{'store': True}}")
    fields = cast("Mapping[str, Any]", extra)
    if ours := [name for name in taken if name in fields]:
        raise UsageError(f"extra_body cannot hold {ours[0]!r}, which callgate writes itself")
    return dict(fields)


def merged(body: JsonObject, extra: Mapping[str, Any]) -> JsonObject:
    """The body with the extra fields: objects are merged, so that a field of a configuration does not cost the others."""
    result = dict(body)
    for key, value in extra.items():
        inner = result.get(key)
        both = isinstance(inner, dict) and isinstance(value, Mapping)
        result[key] = merged(cast("JsonObject", inner), cast("Mapping[str, Any]", value)) if both else value
    return result


def is_of_interactions(name: str, value: Any) -> bool:
    """True for a setting of the Interactions API that promises nothing, so that a conversation keeps it in any other.

    Raises:
        UsageError: a background run, which no other API has.
    """
    if name == "background" and value is not False:
        raise UsageError("the setting 'background' exists in the Interactions API only: use api='interactions'")
    return name in ("store", "background")


def unknown_setting(name: str, known: Collection[str]) -> str:
    """The error for an unknown setting: the nearest one, or all of them."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"unknown setting {name!r}" + (
        f": did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
    )
