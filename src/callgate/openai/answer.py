"""Chunks of a chat completion -> response chunks in Gemini's form.

Chunks come in as they arrive, whole answers as one; text and thoughts go out at once, calls when the answer has ended and
all of their pieces are there. This file knows how servers differ in writing an answer, and nothing of tools but their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import call_from, say, text_part, thought_part
from callgate.content.call_args import args_from_text
from callgate.content.normalize import is_wire_id
from callgate.errors import JsonError, ProtocolError
from callgate.types import JsonObject, Part, Usage

__all__ = [
    "AnswerReader", "embeddings_in", "finish_reason_of", "is_embedding", "prompt_tokens_of", "says_something",
]  # fmt: skip

NAME_CHARS_MAX = 1_000

# What the model's own last word means. Any other one is kept, and is no success.
_REASONS = {
    "stop": "STOP", "tool_calls": "STOP", "function_call": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY",
}  # fmt: skip


def finish_reason_of(chunk: Mapping[str, Any]) -> str | None:
    """The server's own word for why the answer ended, if this chunk has it."""
    reason = _choice_of(chunk).get("finish_reason")
    return reason if isinstance(reason, str) and reason else None


def says_something(chunk: Mapping[str, Any]) -> bool:
    """True if the chunk holds text. Pieces of calls are nothing yet: nobody sees a call before it is complete."""
    return any(True for _ in _texts_of(_message_of(chunk)))


def is_embedding(chunk: Mapping[str, Any]) -> bool:
    """True for the answer to a request for embeddings."""
    return "choices" not in chunk and isinstance(chunk.get("data"), list)


def embeddings_in(chunk: Mapping[str, Any]) -> list[list[float]]:
    """The vectors of such an answer, in the order of their texts."""
    listed = [cast("JsonObject", one) for one in chunk.get("data") or () if isinstance(one, dict)]
    listed.sort(key=lambda one: one["index"] if isinstance(one.get("index"), int) else 0)
    return [cast("list[float]", one["embedding"]) for one in listed if isinstance(one.get("embedding"), list)]


def prompt_tokens_of(chunk: Mapping[str, Any]) -> int:
    """The tokens of the request, as the server counts them; 0 if it does not say."""
    usage: Any = chunk.get("usage")
    count: Any = cast("JsonObject", usage).get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else 0


class AnswerReader:
    """A reader that assembles one answer.

    ```python
    reader = AnswerReader(names)
    for chunk in chunks:
        for said in reader.feed(chunk): ...
    for said in reader.close(): ...
    ```
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = names
        self._calls: list[_Call] = []
        self._finish: str | None = None
        self._refusal: list[str] = []
        self._usage: Usage | None = None
        self._model: str | None = None

    @property
    def has_calls(self) -> bool:
        """True if any call has begun."""
        return bool(self._calls)

    def feed(self, chunk: JsonObject) -> Iterator[JsonObject]:
        """Read one chunk and yield the text in it."""
        model = chunk.get("model")
        self._model = model if isinstance(model, str) and model else self._model
        self._usage = _usage_of(chunk) or self._usage
        self._finish = finish_reason_of(chunk) or self._finish
        message = _message_of(chunk)
        for kind, text in _texts_of(message):
            if kind == "refusal":
                self._refusal.append(text)
            yield say([thought_part(text) if kind == "thought" else text_part(text)])
        # The calls of a whole message are each by themselves, whatever ids they have.
        is_whole = "message" in _choice_of(chunk)
        for place, piece in enumerate(_pieces_of(message)):
            self._take(piece, place, is_whole=is_whole)

    def close(self) -> Iterator[JsonObject]:
        """Yield the calls and the finish reason."""
        if self._finish is None:
            return  # The collector of the chunks reports that it broke off; no call of it may run.
        reason = _REASONS.get(self._finish.lower(), self._finish.upper())
        message = ""
        if self._refusal:
            reason, message = ("SAFETY" if reason == "STOP" else reason), "".join(self._refusal)
        yield say(
            [call.part() for call in self._calls],
            finish_reason=reason,
            finish_message=message,
            usage=self._usage,
            model=self._model,
        )

    def _take(self, piece: JsonObject, place: int, *, is_whole: bool) -> None:
        raw: Any = piece.get("function") or piece.get("custom")
        inner = cast("JsonObject", raw) if isinstance(raw, dict) else piece
        written = _Piece(
            index=piece.get("index"),
            id=piece["id"] if isinstance(piece.get("id"), str) and piece["id"] else None,
            name=inner["name"] if isinstance(inner.get("name"), str) else "",
            args=inner.get("arguments", inner.get("input")),
        )
        call = None if is_whole else self._call_for(written, place)
        if call is None:
            call = _Call(key=written.index if isinstance(written.index, int) else None)
            self._calls.append(call)
        call.add(written, self._names)

    def _call_for(self, piece: _Piece, place: int) -> _Call | None:
        """The call that a piece belongs to; None for a new one.

        The index tells, if there is one. Some servers give every call the same one, or none; then an id that is not the
        call's, or a name after complete arguments, begins the next call.
        """
        if isinstance(piece.index, int):
            call = next((call for call in reversed(self._calls) if call.key == piece.index), None)
        elif piece.id is not None:
            call = next((call for call in self._calls if call.id == piece.id), None)
            if call is None and not piece.name and self._calls:
                call = self._calls[-1]
        else:
            call = self._calls[-1] if self._calls and (place == 0 or not piece.name) else None
        if call is None or not piece.name or not call.name:
            return call
        is_other = piece.id is not None and call.id is not None and piece.id != call.id
        is_next = {call.name, piece.name} <= {*self._names} and call.name + piece.name not in self._names
        if (is_next and piece.name != call.name) or (is_other and not call.has_args) or call.is_complete():
            return None
        return call


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One entry of `tool_calls`."""

    index: Any
    id: str | None
    name: str
    args: Any


@dataclass(slots=True, kw_only=True)
class _Call:
    """A call whose pieces are still arriving."""

    key: int | None
    id: str | None = None
    name: str = ""
    texts: list[str] = field(default_factory=list[str])
    value: Any = None
    """Arguments that came as something else than text."""
    checks_left: int = 100
    """The remaining checks for complete arguments, a bound against hostile servers."""

    def add(self, piece: _Piece, names: Collection[str]) -> None:
        self.id = self.id or piece.id
        # Some servers repeat the whole name in every piece, others cut it up.
        if piece.name and (piece.name != self.name or self.name + piece.name in names):
            self.name += piece.name
        if len(self.name) > NAME_CHARS_MAX:
            raise ProtocolError(f"the name of a call is longer than {NAME_CHARS_MAX} characters; nothing of it was run")
        if isinstance(piece.args, str):
            self.texts.append(piece.args)
        elif piece.args is not None:
            self.value = piece.args

    @property
    def has_args(self) -> bool:
        return self.value is not None or any(self.texts)

    def is_complete(self) -> bool:
        """True if the arguments are an object already, so that nothing can be added to them."""
        if self.value is not None:
            return True
        # An object ends with a brace, so that text is parsed only where it may be one.
        if not self.checks_left or not self.texts or not self.texts[-1].rstrip().endswith("}"):
            return False
        self.checks_left -= 1
        try:
            return isinstance(strict_json.parse_isolating("".join(self.texts)), dict)
        except JsonError:
            return False

    def part(self) -> Part:
        wire_id = self.id if is_wire_id(self.id) else None
        return call_from(self.name, self._args(), wire_id=wire_id)

    def _args(self) -> Any:
        """The arguments as an object where they are one. What cannot be read stays text, and is never taken for none."""
        if self.value is not None:
            return self.value
        return args_from_text("".join(self.texts))


# Reading chunks ----------------------------------------------------------------------------------------------------------


def _choice_of(chunk: Mapping[str, Any]) -> JsonObject:
    """The first choice; an empty object where a chunk has none, as the one that counts tokens."""
    choices: Any = chunk.get("choices")
    none: JsonObject = {}
    return next((choice for choice in strict_json.objects_in(choices) if not choice.get("index")), none)


def _message_of(chunk: Mapping[str, Any]) -> JsonObject:
    choice = _choice_of(chunk)
    found: Any = choice.get("delta") or choice.get("message")
    return cast("JsonObject", found) if isinstance(found, dict) else {}


def _texts_of(message: JsonObject) -> Iterator[tuple[str, str]]:
    """The texts of a message, each with its kind: a thought, text or a refusal."""
    # The same thoughts under two names are said once.
    thought: Any = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str) and thought:
        yield "thought", thought
    content: Any = message.get("content")
    for block in strict_json.objects_in(content) if isinstance(content, list) else [{"text": content}]:
        text: Any = block.get("text")
        if isinstance(text, str) and text:
            yield "text", text
    refusal: Any = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        yield "refusal", refusal


def _pieces_of(message: JsonObject) -> list[JsonObject]:
    legacy = [{"index": 0, "function": inner} for inner in strict_json.objects_in([message.get("function_call")])]
    return strict_json.objects_in(message.get("tool_calls")) + legacy


def _usage_of(chunk: Mapping[str, Any]) -> Usage | None:
    raw: Any = chunk.get("usage")
    if not isinstance(raw, dict):
        return None
    counts = cast("JsonObject", raw)
    answered = _count(counts, "completion_tokens")
    # Tokens of thoughts are among those of the answer.
    thoughts = min(_count(counts, "completion_tokens_details", "reasoning_tokens"), answered)
    prompt = _count(counts, "prompt_tokens")
    usage = Usage(
        input_tokens=prompt,
        cached_tokens=_count(counts, "prompt_tokens_details", "cached_tokens"),
        output_tokens=answered - thoughts,
        thought_tokens=thoughts,
        total_tokens=_count(counts, "total_tokens") or prompt + answered,
    )
    return usage if usage != Usage() else None


def _count(counts: JsonObject, *path: str) -> int:
    value: Any = counts
    for key in path:
        value = cast("JsonObject", value).get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
