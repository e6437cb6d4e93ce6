"""A model with scripted answers: for tests, examples and documentation.

Takes a script, returns answers in Gemini's form, streamed in pieces like a real model's. It understands nothing; it
checks that every request could be sent to the real API.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from callgate.base_errors import expect_list
from callgate.content.build import call_part
from callgate.content.normalize import spelled_content
from callgate.content.prompt import user_content
from callgate.content.read import candidate_of, parts_of
from callgate.errors import ConversationInvalidError, ScriptExhaustedError, UsageError
from callgate.history.repair import validate
from callgate.models import ModelRequest
from callgate.types import Content, FunctionCall, JsonObject, Part

__all__ = ["RecordedRequest", "ScriptItem", "ScriptedModel", "answer", "call", "empty", "malformed", "text", "thought"]

_Piece: TypeAlias = "str | Part | FunctionCall"
ScriptItem: TypeAlias = "_Piece | Content | Answer | Sequence[_Piece] | BaseException | Callable[[ModelRequest], ScriptItem]"
"""One answer: text, a part or a call, several of these, a content, a whole response, an error to raise, or a function of the
request."""


class Answer(dict[str, Any]):
    """A whole response in Gemini's form, made by `answer`, `malformed` or `empty`."""


def text(value: str, *, signature: str | None = None) -> Part:
    """A part of text."""
    return {"text": value} | ({"thoughtSignature": signature} if signature else {})


def thought(value: str) -> Part:
    """A part of reasoning."""
    return {"text": value, "thought": True}


def call(name: str, /, *, id: str | None = None, signature: str | None = None, **args: Any) -> Part:
    """A function call. Arguments named `id` or `signature` can be given with `call_with`, or as a raw part."""
    return call_with(name, args, id=id, signature=signature)


def call_with(name: str, args: Mapping[str, Any], *, id: str | None = None, signature: str | None = None) -> Part:
    """A function call with its arguments as a mapping."""
    inner: JsonObject = {"name": name, "args": dict(args)}
    if id is not None:
        inner = {"id": id} | inner
    return {"functionCall": inner} | ({"thoughtSignature": signature} if signature else {})


def answer(
    *parts: Part | str | FunctionCall,
    finish_reason: str | None = "STOP",
    finish_message: str = "",
    usage: JsonObject | None = None,
) -> Answer:
    """A whole answer: its parts and how it ends. `finish_reason=None` is a stream that breaks off."""
    candidate: JsonObject = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": [script_part(part) for part in parts]}
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    if finish_message:
        candidate["finishMessage"] = finish_message
    return Answer({"candidates": [candidate]} | ({"usageMetadata": usage} if usage else {}))


def malformed(message: str = "Malformed function call", *parts: Part) -> Answer:
    """An answer that ends with MALFORMED_FUNCTION_CALL."""
    return answer(*parts, finish_reason="MALFORMED_FUNCTION_CALL", finish_message=message)


def empty(finish_reason: str = "STOP") -> Answer:
    """An answer without content."""
    return answer(finish_reason=finish_reason)


class RecordedRequest:
    """One request to the model."""

    def __init__(self, request: ModelRequest) -> None:
        self._history = request.conversation.history
        self.tool_choice = request.tool_choice
        self.tool_config = request.tool_config
        self.tools = request.declaration.tools
        self.system = request.system
        self.settings = dict(request.settings)
        self.feedback = request.feedback

    @functools.cached_property
    def contents(self) -> list[Content]:
        """The contents that were sent: the conversation, and the feedback if there was any."""
        return [*self._history.contents, *([user_content(self.feedback)] if self.feedback else [])]

    @property
    def tool_names(self) -> list[str]:
        """The names that were declared."""
        return [d["name"] for tool in self.tools for d in tool.get("functionDeclarations", [])]


class ScriptedModel:
    """A model that answers from a script.

    ```python
    model = ScriptedModel([call("add", a=1, b=2), text("3")])
    reply = await Gate(model, tools=[add]).run("What is 1 + 2?")
    assert model.requests[1].contents[-1]["parts"][0]["functionResponse"]["response"] == {"result": 3}
    ```

    Args:
        script: One item for each answer: text, a part, a `FunctionCall`, a content, a whole response, an error, a function.
            A list of parts is one answer with several parts.
        name: The name of the model.
        strict: Refuse, as the API would, a request whose history breaks a rule.
        repeat_last: Repeat the last item instead of raising `ScriptExhaustedError`.
        piece_chars: Characters of text per chunk; 0 gives each answer whole.
    """

    def __init__(
        self,
        script: Iterable[ScriptItem],
        *,
        name: str = "scripted",
        strict: bool = True,
        repeat_last: bool = False,
        piece_chars: int = 8,
    ) -> None:
        expect_list(script, "ScriptedModel(script={})", "a list of answers")
        self._script = list(script)
        self._name = name
        self._strict = strict
        self._repeat_last = repeat_last
        self._piece_chars = piece_chars
        self._next = 0
        self.requests: list[RecordedRequest] = []
        """Every request so far."""

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._name

    async def generate(self, request: ModelRequest) -> AsyncIterator[JsonObject]:
        """The next answer of the script, in pieces.

        Raises:
            ScriptExhaustedError: the script has no more answers.
            ConversationInvalidError: the request could not be sent to the real API.
        """
        self.requests.append(RecordedRequest(request))
        if self._strict and (problems := validate(request.contents, sendable=True)):
            raise ConversationInvalidError(problems)
        item = self._take()
        while callable(item) and not isinstance(item, type):
            item = item(request)
            if inspect.isawaitable(item):
                item = await item
        if isinstance(item, BaseException):
            raise item
        for chunk in self._chunks(_response(item)):
            # A real model lets other work go on between its pieces.
            await asyncio.sleep(0)
            yield chunk

    def _take(self) -> Any:
        if self._next >= len(self._script):
            if not (self._repeat_last and self._script):
                raise ScriptExhaustedError(
                    f"{self._name!r} was asked for answer {self._next + 1}; its script has {len(self._script)}"
                )
            return copy.deepcopy(self._script[-1])
        item = self._script[self._next]
        self._next += 1
        return item

    def _chunks(self, response: JsonObject) -> list[JsonObject]:
        """Return the response in the chunks of a stream: text in pieces, each call by itself, the end last."""
        candidate = candidate_of(response)
        if not self._piece_chars or not candidate:
            return [response]
        content: JsonObject = candidate.get("content") or {}
        pieces = [piece for part in parts_of(content) for piece in self._pieces(part)]
        rest = {key: value for key, value in candidate.items() if key != "content"}
        head: list[JsonObject] = [{"candidates": [{"index": 0, "content": {**content, "parts": [p]}}]} for p in pieces]
        return [*head, {**response, "candidates": [rest]}]

    def _pieces(self, part: Part) -> list[Part]:
        value = part.get("text")
        if not isinstance(value, str) or not value or set(part) - {"text", "thought"}:
            return [part]
        return [part | {"text": piece} for piece in re.findall(f"(?s).{{1,{self._piece_chars}}}", value)]


def _response(item: Any) -> JsonObject:
    if isinstance(item, (str, FunctionCall)):
        return answer(script_part(item))
    if isinstance(item, dict):
        fields = cast("JsonObject", item)
        if _RESPONSE & fields.keys():
            return fields
        return answer(*parts_of(spelled_content(fields if "parts" in fields else {"parts": [fields]})))
    if isinstance(item, Sequence):
        return answer(*cast("Sequence[Part]", item))
    raise UsageError(
        f"a script holds text, parts, lists of parts, answers, errors and functions, not {type(item).__name__!r}"
    )


_RESPONSE = frozenset({"candidates", "promptFeedback", "usageMetadata"})


def script_part(item: str | Part | FunctionCall) -> Part:
    """Make a part of an answer from one of its short forms."""
    if isinstance(item, str):
        return text(item)
    return call_part(item) if isinstance(item, FunctionCall) else dict(item)
