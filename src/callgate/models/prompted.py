"""Tools for a model without function calling: declared in its prompt, and calls parsed from its text.

A request comes in; another one without any declarations goes to the inner model, and its answer comes back with calls where
it had written some. To the rest of callgate the two ways of calling look alike. The grammar is in `callgate.prompted`;
this file knows how an answer is taken apart and put together, and nothing of what the inner model is.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from callgate.content.build import call_part, text_part, with_args, with_parts, with_text
from callgate.content.normalize import UNREADABLE
from callgate.content.read import CandidateChoice, candidate_of, finish_of, is_plain_text, is_thought, parts_of, role_of
from callgate.declaration import Declaration, without_functions
from callgate.events import Notice
from callgate.history.conversation import Conversation
from callgate.machine.facts import HOW_TO_CALL
from callgate.models import (
    AnsweredBy,
    Embeddings,
    Item,
    Model,
    answering,
    close_model,
    count_tokens,
    describe,
    embed,
    known_settings,
    provider_of_model,
)
from callgate.prompted import (
    HOW_TO_WRITE,
    STOP_SEQUENCE,
    CallError,
    CallParser,
    Outcome,
    ParsedCall,
    Text,
    render_content,
    render_tools,
)
from callgate.request import ModelRequest, with_output_prompt
from callgate.strict_json import AnnotatedObject, Bad
from callgate.types import FunctionCall, JsonObject, Part, ToolChoice

__all__ = ["PromptedModel"]

logger = logging.getLogger("callgate.prompted")

CONVERSATIONS_KEPT = 16
"""Conversations whose rendering is kept, so that a long one is not rendered again for every turn."""

STOP_SEQUENCES_MAX = 5
"""More are refused by Gemini."""

RAW_CHARS_MAX = 2_000
TOLD_CHARS_MAX = 200

_RESULT_LINE = re.compile(r"^[ \t>*-]*TOOL_RESULT\b", re.MULTILINE)


class PromptedModel:
    """A model without function calling, with tools by prompt.

    ```python
    gate = Gate(PromptedModel(model), tools=[get_weather])
    ```

    Args:
        inner: The model to ask.
        stop_sequences: Ask the inner model to stop where it begins to write a result itself. False for models that know no
            such setting; what they write there is left out of the answer in any case.
    """

    def __init__(self, inner: Model, *, stop_sequences: bool = True) -> None:
        self._inner = inner
        self._stop_sequences = stop_sequences
        self._rendered: OrderedDict[int, _Rendering] = OrderedDict()
        self._prompts: dict[tuple[int, ToolChoice], tuple[ModelRequest, str, Declaration]] = {}
        self._settings: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None

    @property
    def native(self) -> Model:
        """The model that is asked."""
        return self._inner

    @property
    def name(self) -> str:
        """The inner model's name."""
        return self._inner.name

    @property
    def provider(self) -> str:
        """The provider."""
        return provider_of_model(self._inner)

    @property
    def origin(self) -> str:
        """The origin of the answers: calls that were parsed from text carry no signatures of the inner model."""
        return f"prompted:{self._inner.name}"

    @property
    def known_settings(self) -> frozenset[str] | None:
        """The settings that the model understands."""
        return known_settings(self._inner)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Item, None]:
        """Ask the inner model; what it writes as calls comes as calls.

        Raises:
            ModelError: as the inner model does.
        """
        names = request.declaration.names
        answer = _Answer(names, may_call=request.tool_choice != "none") if names else None
        async with answering(self._inner, self._inner_request(request)) as items:
            async for item in items:
                if isinstance(item, AnsweredBy):
                    yield AnsweredBy(item.model, f"prompted:{item.model}")
                elif answer is None or not isinstance(item, dict):
                    yield item
                else:
                    for known in answer.take(item):
                        yield known
        if answer is not None:
            logger.debug("the answer as it came: %s", answer.raw)
            for known in answer.end():
                yield known

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The number of tokens of a request with its tools as text, if the inner model can count them."""
        return await count_tokens(self._inner, self._inner_request(request))

    async def describe(self) -> JsonObject | None:
        """The description of the inner model by its server, if there is one."""
        return await describe(self._inner)

    async def embed(self, requests: Sequence[JsonObject]) -> Embeddings | None:
        """The embeddings of contents by the inner model, if it has them."""
        return await embed(self._inner, requests)

    async def aclose(self) -> None:
        """Let go of what the inner model holds open."""
        await close_model(self._inner)

    def _inner_request(self, request: ModelRequest) -> ModelRequest:
        """The request that the inner model gets."""
        key = (id(request.declaration), request.tool_choice)
        kept = self._prompts.get(key)
        if kept is None:
            if len(self._prompts) >= CONVERSATIONS_KEPT:
                self._prompts.clear()
            text = render_tools(request.definitions, tool_choice=request.tool_choice, names=request.declaration.names)
            logger.debug("the tools are declared in the prompt: %s", text)
            # The request is kept with what was made of it, so that the id of its declaration stays its own.
            kept = self._prompts[key] = (request, text, without_functions(request.declaration))
        _, text, declaration = kept
        if text:  # Held to a schema, it could not write calls.
            request = with_output_prompt(request)
        return replace(
            request,
            conversation=self._conversation(request.conversation),
            definitions=(),
            declaration=declaration,
            tool_choice="auto",
            system="\n\n".join(filter(None, [request.system, text])) or None,
            settings=self._with_stop(request.settings) if text else request.settings,
            feedback=request.feedback and request.feedback.replace(HOW_TO_CALL, HOW_TO_WRITE),
        )

    def _with_stop(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        known = self.known_settings
        if not self._stop_sequences or (known is not None and "stop_sequences" not in known):
            return settings
        if self._settings is None or self._settings[0] is not settings:
            given: Any = settings.get("stop_sequences")
            stops: list[Any] = [*cast("list[Any]", given)] if isinstance(given, (list, tuple)) else []
            if STOP_SEQUENCE not in stops and len(stops) < STOP_SEQUENCES_MAX:
                stops.append(STOP_SEQUENCE)
            self._settings = (settings, {**settings, "stop_sequences": stops})
        return self._settings[1]

    def _conversation(self, source: Conversation) -> Conversation:
        rendering = self._rendered.get(id(source))
        if rendering is None:
            rendering = self._rendered[id(source)] = _Rendering(source)
            if len(self._rendered) > CONVERSATIONS_KEPT:
                self._rendered.popitem(last=False)
        self._rendered.move_to_end(id(source))
        return rendering.brought_up()


@dataclass(slots=True)
class _Rendering:
    """A conversation in words, which grows with its source."""

    source: Conversation
    conversation: Conversation = field(default_factory=Conversation)
    seen: list[bytes] = field(default_factory=list[bytes])
    """The contents of the source that are rendered, each known by its bytes."""
    lengths: list[int] = field(default_factory=list[int])
    """The length of the rendered conversation before each content of the source."""

    def brought_up(self) -> Conversation:
        encoded = self.source.encoded
        same = 0
        while same < min(len(encoded), len(self.seen)) and encoded[same] is self.seen[same]:
            same += 1
        if same < len(self.seen):
            self.conversation.cut(self.lengths[same])
            del self.seen[same:], self.lengths[same:]
        for index in range(same, len(encoded)):
            self.seen.append(encoded[index])
            self.lengths.append(len(self.conversation))
            rendered = render_content(self.source[index])
            if rendered is None:
                continue
            if role_of(rendered) == "model":
                self.conversation.add_model(rendered)
            else:
                self.conversation.add_user(parts_of(rendered))
        return self.conversation


class _Answer:
    """One answer of the inner model, taken apart while it arrives."""

    def __init__(self, names: Mapping[str, str], *, may_call: bool) -> None:
        self._parser = CallParser(names)
        self._may_call = may_call
        self._raw: list[str] = []
        self._ready: list[Part] = []
        self._notices: list[Notice] = []
        self._pending: list[str] = []
        """Text since the last call: it is shown if another call follows, and is no answer if none does."""
        self._choice = CandidateChoice()
        self._calls = 0
        self._midline: list[CallError] = []
        self._is_cut = False
        self._last: JsonObject | None = None
        """The chunk with the finish reason; kept until the end, because a call may become complete by that."""

    @property
    def raw(self) -> str:
        """The text of the answer, calls and all. Whole: a secret that came in pieces could not be masked in a log."""
        return "".join(self._raw)

    def take(self, chunk: JsonObject) -> list[JsonObject | Notice]:
        """Take a chunk in; gives out what is certain by now."""
        chunk = self._choice.alone_in(chunk)
        self._notices += self._choice.notices()
        for part in parts_of(candidate_of(chunk).get("content") or {}):
            text: Any = part.get("text")
            if is_thought(part) or not isinstance(text, str):
                self._ready.append(part)
                continue
            self._raw.append(text)
            self._sort(self._parser.feed(text))
            if not is_plain_text(part):
                self._ready.append(with_text(part, ""))  # Its signature stays, whatever becomes of its text.
        candidate = candidate_of(chunk)
        if candidate.get("content") is not None or self._ready:
            chunk = with_parts(chunk, self._drained())
        known: list[JsonObject | Notice] = [*self._take_notices(), *([self._last] if self._last else [])]
        self._last = chunk if finish_of(candidate)[0] is not None else None
        return known if self._last else [*known, chunk]

    def end(self) -> list[JsonObject | Notice]:
        """End the text and yield the rest."""
        self._sort(self._parser.close())
        if not self._calls and self._may_call:
            # The model waits for a result that would never come: an error tells it why, and how to do it right.
            for error in self._midline:
                self._add(_failed(error))
        if rest := "".join(self._pending).strip():
            self._notices.append(
                Notice("text_after_calls", f"The model went on after its calls; that is no answer yet: {_short(rest)}")
            )
        known: list[JsonObject | Notice] = [*self._take_notices()]
        if rest := self._drained():
            last = self._last or {}
            given = parts_of(candidate_of(last).get("content") or {})
            known.append(with_parts(last, [*given, *rest]))
        elif self._last:
            known.append(self._last)
        return known

    def _drained(self) -> list[Part]:
        ready, self._ready = self._ready, []
        return ready

    def _sort(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Text):
                self._text(outcome.text)
            elif isinstance(outcome, CallError) and outcome.code == "midline_call":
                self._midline.append(outcome)
                self._notices.append(Notice("midline_call", outcome.message, "warning"))
            elif not self._is_invented():
                self._text_before_call()
                if not self._may_call:
                    text = f"The call of {outcome.name!r} was not run: no tool may be called now. Answer in plain text."
                    outcome = CallError("bad_syntax", outcome.name, text, outcome.raw)
                self._add(_made(outcome) if isinstance(outcome, ParsedCall) else _failed(outcome))

    def _text(self, text: str) -> None:
        if self._calls:
            self._pending.append(text)
        else:
            self._ready.append(text_part(text))

    def _text_before_call(self) -> None:
        if self._pending:
            self._ready.append(text_part("".join(self._pending)))
            self._pending.clear()

    def _is_invented(self) -> bool:
        """True if the model has written results itself: what it calls after that rests on nothing."""
        if not self._is_cut and self._pending and _RESULT_LINE.search("".join(self._pending)):
            self._is_cut = True
            text = "The model wrote results of its calls itself; everything from there on was left out."
            self._notices.append(Notice("invented_result", text, "warning"))
        return self._is_cut

    def _add(self, part: Part) -> None:
        self._calls += 1
        self._ready.append(part)

    def _take_notices(self) -> list[Notice]:
        notices, self._notices = self._notices, []
        return notices


def _made(call: ParsedCall) -> Part:
    part = call_part(FunctionCall(name=call.name, args=call.args))
    return with_args(part, AnnotatedObject(call.args, call.notes)) if call.notes else part


def _failed(error: CallError) -> Part:
    """A call that gets an error as its result, and nothing else."""
    args: JsonObject = dict(error.args or {})
    part = call_part(FunctionCall(name=error.name, args=args))
    if error.code == "unknown_tool":
        return part  # The executor knows the tools, and reports unknown ones.
    return with_args(part, cast("JsonObject", Bad(error.message, {UNREADABLE: _short(error.raw, RAW_CHARS_MAX)})))


def _short(text: str, chars_max: int = TOLD_CHARS_MAX) -> str:
    return text if len(text) <= chars_max else f"{text[:chars_max]} …"
