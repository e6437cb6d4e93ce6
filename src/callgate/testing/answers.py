"""Answers of a fake Gemini: written in one line, and turned into response messages.

Takes parts and options, returns GenerateContentResponse objects (whole, or cut into chunks). Knows the envelope of an
answer (ids, signatures, usage, finish reasons) and nothing of sockets or faults.

    answer(thought("Two cities."), calls(("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})))
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from callgate.errors import UsageError
from callgate.testing.google_fields import MESSAGES, Surface, as_list, as_object
from callgate.testing.google_rules import generation
from callgate.testing.scripted_model import Answer as ScriptedAnswer
from callgate.testing.scripted_model import script_part
from callgate.types import FunctionCall, JsonObject, Part

__all__ = [
    "Answer", "Chunk", "Counts", "Mint", "Ready", "answer", "call", "calls", "chunks_of", "encode_json", "partial_args",
    "raw", "text", "thought", "to_answer",
]  # fmt: skip

Chunk: TypeAlias = JsonObject | bytes
"""One response message; bytes are JSON text that is sent verbatim, valid or not."""

Cut: TypeAlias = int | Sequence[str] | None
"""Chunks of a text for streaming: so many pieces, these pieces, or (None) a few words at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The tokens of one answer and of what it answers."""

    prompt: int
    cached: int
    """Tokens of `prompt` that came out of a cache."""
    thoughts: int
    spoken: int
    """Tokens of the answer without the thoughts."""

    @property
    def written(self) -> int:
        """The tokens that the model wrote."""
        return self.thoughts + self.spoken

    @property
    def total(self) -> int:
        """The tokens of the prompt and of the answer."""
        return self.prompt + self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the model, before it is adapted to a model, a surface and an endpoint."""

    parts: tuple[Part, ...] = ()
    """The parts of the content: text, thoughts and calls."""
    finish_reason: str | None = "STOP"
    """None leaves the reason out, as a broken stream does."""
    finish_message: str | None = None
    """A sentence beside the finish reason."""
    chunks: Cut = None
    """The way the text is cut when it is streamed."""
    apart: bool = False
    """Stream every call in its own chunk, instead of adjacent calls together."""
    ids: bool | None = None
    """True if calls carry ids; None means as the model does: from Gemini 3 on, on the Developer API."""
    signed: bool | None = None
    """True if the answer carries a thought signature; None means as the model does: from Gemini 3 on."""
    usage: Mapping[str, Any] | None = None
    """Token counts in Gemini's words, as `promptTokenCount`; None counts what is sent."""

    def counts(self, *, prompt: int, thoughts: int, spoken: int) -> Counts:
        """The token counts: what `usage` says, and else the given ones."""
        said = self.usage or {}
        return Counts(
            prompt=said.get("promptTokenCount", prompt),
            cached=said.get("cachedContentTokenCount", 0),
            thoughts=said.get("thoughtsTokenCount", 0 if said else thoughts),
            spoken=said.get("candidatesTokenCount", spoken),
        )


@dataclass(frozen=True, slots=True)
class Ready:
    """Response messages that are sent as they are."""

    chunks: tuple[Chunk, ...]


def answer(*parts: Part | str | Answer, finish_reason: str | None = "STOP", **options: Any) -> Answer:
    """An answer of several parts, texts or smaller answers. `options` are the other fields of `Answer`."""
    whole: list[Part] = []
    for part in parts:
        whole += part.parts if isinstance(part, Answer) else [{"text": part} if isinstance(part, str) else part]
    return Answer(parts=tuple(whole), finish_reason=finish_reason, **options)


def text(words: str, **options: Any) -> Answer:
    """Make an answer in plain text. `chunks=` sets how it is cut for streaming: into how many pieces, or into which.

    Raises:
        UsageError: the pieces do not make up the text.
    """
    given = Answer(parts=({"text": words},), **options)
    if isinstance(given.chunks, Sequence) and "".join(given.chunks) != words:
        raise UsageError(f"the pieces {list(given.chunks)!r} do not make up the text {words!r}")
    return given


def call(name: str, /, **args: Any) -> Answer:
    """Make an answer that calls one function."""
    return calls((name, args))


def calls(*pairs: tuple[str, Mapping[str, Any]], **options: Any) -> Answer:
    """An answer that calls several functions in parallel: `calls(("wx", {"city": "Oslo"}), ("wx", {"city": "Rome"}))`."""
    return Answer(parts=tuple({"functionCall": {"name": name, "args": dict(args)}} for name, args in pairs), **options)


def thought(words: str) -> Part:
    """Make a part with reasoning, to put before an answer's other parts."""
    return {"text": words, "thought": True}


def raw(*chunks: bytes) -> Ready:
    """Response messages as JSON text that is sent byte for byte, valid or not."""
    return Ready(chunks)


def to_answer(item: Any) -> Answer | Ready:
    """Read the short forms of an answer: text, a part, a call, a list of these, a content, a response, its chunks.

    Raises:
        UsageError: the item is none of these.
    """
    if isinstance(item, (Answer, Ready)):
        return item
    if isinstance(item, str):
        return text(item)
    if isinstance(item, ScriptedAnswer):
        return _from_script(item)
    items: list[Any] = cast("list[Any]", item) if isinstance(item, list) else [item]
    if len(items) == 1 and isinstance(as_object(items[0]).get("parts"), list):
        items = items[0]["parts"]
    items = [script_part(each) if isinstance(each, (str, FunctionCall)) else each for each in items]
    if any(isinstance(each, Answer) for each in items):
        return answer(*items)
    if items and all(as_object(each).keys() & MESSAGES["Part"].keys() for each in items):
        return Answer(parts=tuple(items))
    if all(isinstance(each, dict) or (isinstance(each, bytes) and isinstance(item, list)) for each in items):
        return Ready(tuple(items))
    kind = type(cast("object", item)).__name__
    raise UsageError(f"a script step is a text, a part, a response, a list of chunks, an Answer or a fault, not {kind!r}")


def _from_script(item: ScriptedAnswer) -> Answer:
    """An answer for a `ScriptedModel`, to be sent as the server at hand sends its own."""
    candidate = as_object(as_list(item["candidates"])[0])
    return Answer(
        parts=tuple(as_object(candidate.get("content")).get("parts", ())),
        finish_reason=candidate.get("finishReason"),
        finish_message=candidate.get("finishMessage"),
        usage=item.get("usageMetadata"),
    )


def encode_json(value: Any, *, indent: int | None = None) -> bytes:
    """JSON as Google writes it: raw Unicode. Lone surrogates, which have no UTF-8 form, are escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent).encode("ascii")


# Dressing ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Mint:
    """Issuer of deterministic ids and signatures; remembers the signatures."""

    signatures: set[str] = field(default_factory=set[str])
    """Every thought signature that was issued."""
    odd_parts: list[Part] = field(default_factory=list[Part])
    """Parts of unknown kinds that were sent anyway and so may come back."""
    count: int = 0

    def new_id(self, length: int = 8) -> str:
        """A fresh id of lower-case letters and digits."""
        return self._digest().hex()[:length]

    def signature(self) -> str:
        """A fresh signature: opaque base64 of both alphabets' common form, remembered as genuine."""
        made = base64.b64encode(b"\x12\x34" + self._digest() + self._digest()).decode("ascii")
        self.signatures.add(made)
        return made

    def remember(self, chunk: Chunk) -> None:
        """Remember the unusual parts of a ready-made response, so that they are accepted when they come back."""
        for candidate in as_list(as_object(chunk).get("candidates")):
            for part in as_list(as_object(as_object(candidate).get("content")).get("parts")):
                if isinstance(signature := as_object(part).get("thoughtSignature"), str):
                    self.signatures.add(signature)
                if not as_object(part).keys() <= MESSAGES["Part"].keys():
                    self.odd_parts.append(as_object(part))

    def _digest(self) -> bytes:
        self.count += 1
        return hashlib.sha256(f"fake gemini {self.count}".encode()).digest()


def chunks_of(  # noqa: PLR0913 - what an answer depends on
    given: Answer | Ready,
    mint: Mint,
    *,
    model: str,
    surface: Surface,
    streaming: bool,
    partial_args: bool = False,
    prompt_tokens: int = 1,
    cached_tokens: int = 0,
) -> list[Chunk]:
    """Return the response messages of an answer: one for a whole answer, several for a streamed one."""
    if isinstance(given, Ready):
        for chunk in given.chunks:
            mint.remember(chunk)
        return list(given.chunks) if streaming else [_joined(given.chunks)]
    dressed = _dressed(given, mint, model, surface)
    groups = list(_cut(dressed)) if streaming else [list(dressed.parts)]
    if partial_args:
        groups = [[piece] for group in groups for part in group for piece in streamed_call(part)]
    if streaming and (signature := _trailing_signature(groups)):
        # A streamed text is signed on an empty part of its own, after the last piece.
        groups.append([{"text": "", "thoughtSignature": signature}])
    response_id = mint.new_id(22)
    messages: list[Chunk] = []
    thoughts = spoken = 0
    for index, group in enumerate(groups):
        thoughts += sum(_tokens(part) for part in group if part.get("thought"))
        spoken += sum(_tokens(part) for part in group if not part.get("thought"))
        candidate: JsonObject = {"content": {"parts": group, "role": "model"} if group else {"role": "model"}, "index": 0}
        if index == len(groups) - 1:
            candidate |= _ending(given)
        usage = {"promptTokenCount": prompt_tokens, "candidatesTokenCount": spoken}
        usage |= {"cachedContentTokenCount": cached_tokens} if cached_tokens else {}
        usage |= {"thoughtsTokenCount": thoughts} if thoughts else {}
        usage["totalTokenCount"] = prompt_tokens + spoken + thoughts
        usage = usage if given.usage is None else dict(given.usage)
        messages.append({
            "candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": response_id,
        })  # fmt: skip
    return messages


def _ending(given: Answer) -> JsonObject:
    ending = {"finishReason": given.finish_reason, "finishMessage": given.finish_message}
    return {key: value for key, value in ending.items() if value is not None}


def _dressed(given: Answer, mint: Mint, model: str, surface: Surface) -> Answer:
    thinks = generation(model) >= (3, 0)
    with_ids = given.ids if given.ids is not None else thinks and surface == "developer"
    with_signature = given.signed if given.signed is not None else thinks
    parts = [dict(part) for part in given.parts]
    for part in parts:
        if with_ids and "functionCall" in part and "id" not in part["functionCall"]:
            part["functionCall"] = {"id": mint.new_id()} | part["functionCall"]
    if with_signature and parts and not any("thoughtSignature" in part for part in parts):
        # Parallel calls are signed once, on the first; an answer without calls is signed on its last part.
        _signed_part(parts)["thoughtSignature"] = mint.signature()
    for part in parts:
        if "thoughtSignature" in part:
            mint.signatures.add(part["thoughtSignature"])
    return replace(given, parts=tuple(parts))


def _signed_part(parts: list[Part]) -> Part:
    return next((part for part in parts if "functionCall" in part), parts[-1])


def _trailing_signature(groups: list[list[Part]]) -> str | None:
    last = groups[-1][-1] if groups and groups[-1] else {}
    if "text" in last and not last.get("thought"):
        return last.pop("thoughtSignature", None)
    return None


def _cut(dressed: Answer) -> Iterator[list[Part]]:
    """The parts in the groups in which they are streamed."""
    waiting: list[Part] = []
    for part in dressed.parts:
        if "functionCall" in part and not dressed.apart:
            waiting.append(part)
            continue
        if waiting:
            yield waiting
            waiting = []
        yield from _cut_text(part, dressed.chunks) if "text" in part else iter([[part]])
    if waiting or not dressed.parts:
        yield waiting


def _cut_text(part: Part, cut: Cut) -> Iterator[list[Part]]:
    pieces = _pieces(part["text"], cut)
    rest = {key: value for key, value in part.items() if key not in ("text", "thoughtSignature")}
    for index, piece in enumerate(pieces):
        signature = {"thoughtSignature": part["thoughtSignature"]} if "thoughtSignature" in part else {}
        yield [{"text": piece} | rest | (signature if index == len(pieces) - 1 else {})]


def _pieces(words: str, cut: Cut) -> Sequence[str]:
    if isinstance(cut, Sequence) and "".join(cut) == words:
        return cut
    size = 12 if not isinstance(cut, int) else -(-len(words) // max(cut, 1))
    return [words[start : start + size] for start in range(0, len(words), max(size, 1))] or [words]


def _tokens(part: Part) -> int:
    # Four characters to a token, as Google's documents estimate.
    measured = part.get("text") if "text" in part else json.dumps(part, default=str)
    return -(-len(measured or "") // 4)


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    """Join a list of chunks into the message of a whole answer."""
    if len(chunks) == 1 or not all(isinstance(chunk, dict) for chunk in chunks):
        return chunks[0] if chunks else {}
    parts: list[Any] = []
    joined: JsonObject = {}
    last: JsonObject = {}
    for chunk in chunks:
        candidates = as_list(as_object(chunk).get("candidates"))
        candidate = as_object(candidates[0]) if candidates else {}
        parts += as_list(as_object(candidate.get("content")).get("parts"))
        last |= candidate
        joined |= as_object(chunk)
    if not last:
        return joined
    return joined | {"candidates": [last | {"content": {"parts": parts, "role": "model"}}]}


# Calls whose arguments are streamed ---------------------------------------------------------------------------------------

# As on Vertex: opened by name, filled leaf by leaf, closed by an empty call.


def streamed_call(part: Part) -> Iterator[Part]:
    """Split a call part into pieces; any other part is returned unchanged."""
    call = part.get("functionCall")
    if not call:
        yield part
        return
    opening = {key: value for key, value in call.items() if key != "args"} | {"willContinue": True}
    yield part | {"functionCall": opening}
    for entry in partial_args(call.get("args") or {}):
        yield {"functionCall": {"partialArgs": [entry], "willContinue": True}}
    yield {"functionCall": {}}


def partial_args(value: Any, path: str = "$") -> Iterator[JsonObject]:
    """Return the leaves of some arguments, each with its JSON path; a string in two halves."""
    children = [(f"{path}{_segment(key)}", inner) for key, inner in as_object(value).items()]
    children += [(f"{path}[{index}]", inner) for index, inner in enumerate(as_list(value))]
    if children:
        for place, inner in children:
            yield from partial_args(inner, place)
    elif path != "$":
        yield from _leaf(value, path)


def _leaf(value: Any, path: str) -> Iterator[JsonObject]:
    if isinstance(value, str) and len(value) > 1:
        half = len(value) // 2
        yield {"jsonPath": path, "stringValue": value[:half], "willContinue": True}
        yield {"jsonPath": path, "stringValue": value[half:]}
    elif isinstance(value, list):
        yield {"jsonPath": f"{path}[]"}
    elif isinstance(value, dict):
        yield {"jsonPath": path}
    else:
        yield {"jsonPath": path, _LEAVES[type(value)]: value}


_LEAVES: dict[type, str] = {
    str: "stringValue", bool: "boolValue", int: "numberValue", float: "numberValue", type(None): "nullValue",
}  # fmt: skip


def _segment(key: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        return f".{key}"
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"
