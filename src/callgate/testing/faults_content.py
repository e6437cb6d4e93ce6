"""Content faults: answers that are sent correctly and are wrong, odd or hostile in content.

Takes a request, returns response messages, which can be sent whole and streamed. Knows Gemini's calls and parts, and
nothing of transport.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from callgate.testing.answers import Ready, answer, calls, encode_json, raw, text, thought
from callgate.testing.exchange import Exchange
from callgate.testing.fault_row import Act, Fault, content, row
from callgate.types import JsonObject, Part

__all__ = ["CONTENT_FAULTS", "FINISH_REASONS"]

FINISH_REASONS = (
    "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL",
    "PROHIBITED_CONTENT", "FOO",
)  # fmt: skip
"""The finish reasons of an empty answer; the last is not one of Gemini's."""


def _message(parts: list[Part] | None, finish_reason: str | None = "STOP", **candidate: Any) -> JsonObject:
    said = {"content": {"parts": parts, "role": "model"}} if parts is not None else {}
    reason = {"finishReason": finish_reason} if finish_reason else {}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [said | {"index": 0} | reason | candidate], "usageMetadata": usage, "responseId": "fault"}


def _call(exchange: Exchange, **changes: Any) -> Part:
    name, args = exchange.tool_call()
    return {"functionCall": {"name": name, "args": args} | changes}


def _signed(exchange: Exchange, *parts: Part) -> list[Part]:
    """The parts with a signature on the first, as a thinking model would send them."""
    return [parts[0] | {"thoughtSignature": exchange.mint.signature()}, *parts[1:]]


def _parts(make: Callable[[Exchange], list[Part]], finish_reason: str = "STOP") -> Act:
    return content(lambda exchange: _message(_signed(exchange, *make(exchange)), finish_reason))


def _with_args(exchange: Exchange, odd: bytes, *beside: Part) -> Ready:
    """A call whose arguments are bytes that no encoder would write."""
    return raw(encode_json(_message(_signed(exchange, _call(exchange, args="@"), *beside))).replace(b'"@"', odd))


def _args(odd: bytes) -> Act:
    return content(lambda exchange: _with_args(exchange, odd))


# Empty and blocked -------------------------------------------------------------------------------------------------------


def _blocked(reason: str | None) -> Act:
    ratings = [{"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH"}]
    feedback = {"promptFeedback": {"blockReason": reason, "safetyRatings": ratings}} if reason else {}
    usage = {"promptTokenCount": 1, "totalTokenCount": 1}
    return content(lambda _: feedback | {"usageMetadata": usage, "modelVersion": "fake"})


_EMPTY_SHAPES: dict[str, Callable[[str], JsonObject]] = {
    "no_content": lambda reason: _message(None, reason),
    "empty_content": lambda reason: _message(None, reason, content={}),
    "no_parts": lambda reason: _message(None, reason, content={"role": "model"}),
    "empty_parts": lambda reason: _message([], reason),
    "empty_text": lambda reason: _message([{"text": ""}], reason),
}


def _empty(shape: Callable[[str], JsonObject], reason: str) -> Act:
    return content(lambda _: shape(reason))


# Broken calls ------------------------------------------------------------------------------------------------------------


def _cut_call(exchange: Exchange) -> Any:
    """A whole call and one whose arguments the token limit cut off."""
    whole = _call(exchange)
    cut = dict(list(whole["functionCall"]["args"].items())[:-1])
    return _message(_signed(exchange, whole, _call(exchange, args=cut)), "MAX_TOKENS")


def _cut_partial(exchange: Exchange) -> Any:
    """The same for streamed arguments: the call is opened and never closed."""
    opened = {"functionCall": {"name": exchange.tool_call()[0], "willContinue": True}}
    piece = {"jsonPath": "$.path", "stringValue": "src/", "willContinue": True}
    more = {"functionCall": {"partialArgs": [piece], "willContinue": True}}
    return [_message(_signed(exchange, opened), None), _message([more], None), _message([], "MAX_TOKENS")]


def _many_calls(count: int) -> Act:
    def make(exchange: Exchange) -> Ready:
        first = _signed(exchange, _call(exchange))[0]
        one = encode_json(_call(exchange))
        parts = b", ".join([encode_json(first), *[one] * (count - 1)])
        return raw(
            b'{"candidates": [{"content": {"parts": [%b], "role": "model"}, "finishReason": "STOP", "index": 0}]}' % parts
        )

    return content(make)


def _repeated_event(exchange: Exchange) -> Any:
    part = _signed(exchange, _call(exchange, id="same"))
    return (
        [_message(part, None), _message(part, None), _message([], "STOP")]
        if exchange.request.streaming
        else _message(part * 2)
    )


def _mixed(exchange: Exchange) -> Any:
    kinds: list[Part] = [
        thought("Let me see."),
        {"text": "One moment. "},
        {"executableCode": {"id": "x1", "language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"id": "x1", "outcome": "OUTCOME_OK", "output": "1\n"}},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
        {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}}},
        {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "response": {"results": []}}},
        {"hologram": {"depth": 3}, "thoughtSignature": exchange.mint.signature()},
        _call(exchange) | {"thoughtSignature": exchange.mint.signature()},
        {"text": "That is all."},
    ]
    return [_message([kind], None) for kind in kinds[:-1]] + [_message(kinds[-1:])]


def _candidates(exchange: Exchange) -> Any:
    each = [_message(_signed(exchange, _call(exchange)), index=index)["candidates"][0] for index in range(3)]
    return {"candidates": each}


def _other_args(exchange: Exchange) -> Any:
    """A call that differs from every one before: the first text or number of its arguments is incremented."""
    name, args = exchange.tool_call()
    turn = exchange.mint.count
    key = next((key for key, value in args.items() if isinstance(value, (str, int)) and not isinstance(value, bool)), None)
    return calls((name, args | ({key: turn if isinstance(args[key], int) else f"{args[key]} {turn}"} if key else {})))


def _example(exchange: Exchange) -> Any:
    return calls(exchange.tool_call())


# Calls in text -----------------------------------------------------------------------------------------------------------


def _prompted(form: str) -> Act:
    """A prompted call, in one text that is cut at `at` or character by character."""

    def make(exchange: Exchange) -> Any:
        name, args = exchange.tool_call()
        words = form.replace("CALL", f"TOOL_CALL: {name}({json.dumps(args | {'note': ')})'}, ensure_ascii=False)})")
        at = exchange.at
        return text(words, chunks=list(words) if at is None else [words[:at], words[at:]])

    return content(make)


def _hostile(words: str) -> Act:
    return content(lambda _: text(words, chunks=16))


def _bytes_in(where: str, odd: bytes) -> Act:
    """Bytes that are not UTF-8, in the text or in the arguments."""

    def make(exchange: Exchange) -> Ready:
        if where == "args":
            return _with_args(exchange, b'{"path": "%b"}' % odd)
        return raw(encode_json(_message([{"text": "@"}])).replace(b'"@"', b'"so %b"' % odd))

    return content(make)


_NAMES = {
    "unknown": "no_such_tool", "path": "../../bin/sh", "unicode": "wétter_東京", "huge": "n" * 10_240, "empty": "",
    "dunder": "__class__",
}  # fmt: skip
_ARGS = {
    "null": b"null", "array": b"[]", "string": b'"str"', "extra": b'{"no_such_argument": 1}', "nan": b'{"n": NaN}',
    "infinity": b'{"n": Infinity}', "overflow": b'{"n": 1e999}', "long_integer": b'{"n": %b}' % (b"9" * 5_000),
    "negative_zero": b'{"n": -0}', "duplicate_keys": b'{"path": "a", "path": "b"}',
}  # fmt: skip
_LARGE: dict[str, Callable[[], bytes]] = {
    "deep": lambda: b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "many_keys": lambda: b"{%b}" % b", ".join(b'"k%d": 1' % index for index in range(1_000_000)),
    "long_string": lambda: b'{"a": "%b"}' % (b"x" * 100_000_000),
}


def _large(make_args: Callable[[], bytes]) -> Act:
    return content(lambda exchange: _with_args(exchange, make_args()))


def _malformed(exchange: Exchange) -> Any:
    written = f"Malformed function call: print(default_api.{exchange.tool_call()[0]}())"
    return answer(finish_reason="MALFORMED_FUNCTION_CALL", finish_message=written)


def _without_args(exchange: Exchange) -> list[Part]:
    return [{"functionCall": {"name": exchange.tool_call()[0]}}]


CONTENT_FAULTS: tuple[Fault, ...] = (
    row("W34", "invalid_utf8", "bytes that are not UTF-8", {
        "text": _bytes_in("text", b"\xff"), "cut": _bytes_in("text", b"\xf0\x9f\xa6"), "args": _bytes_in("args", b"\xff"),
    }),
    row("W35", "lone_surrogate", "half of a surrogate pair, escaped", {
        "args": _args(b'{"path": "\\ud800"}'), "text": content(lambda _: _message([{"text": "so \ud800"}])),
    }),
    row("W43", "blocked", "the prompt is blocked, so there are no candidates", {
        "safety": _blocked("SAFETY"), "prohibited": _blocked("PROHIBITED_CONTENT"), "other": _blocked("OTHER"),
        "unspecified": _blocked("BLOCK_REASON_UNSPECIFIED"), "silent": _blocked(None),
    }),
    row("W44", "empty_answer", "a candidate that says nothing, for every reason to end", {
        f"{name}_{reason}": _empty(shape, reason) for name, shape in _EMPTY_SHAPES.items() for reason in FINISH_REASONS
    }),
    row("W45", "max_tokens_in_call", "the token limit cuts a call", {
        "cut_args": content(_cut_call), "partial_args": content(_cut_partial),
    }),
    row("W46", "duplicate_ids", "two calls with one id", _parts(
        lambda ex: [_call(ex, id="same"), _call(ex, id="same", args={})])),
    row("W47", "odd_ids", "ids that are none", {
        "missing": _parts(lambda ex: [_call(ex), _call(ex)]), "number": _parts(lambda ex: [_call(ex, id=7)]),
        "huge": _parts(lambda ex: [_call(ex, id="i" * 10_240)]), "empty": _parts(lambda ex: [_call(ex, id="")]),
    }),
    row("W48", "repeated_event", "one event comes twice", content(_repeated_event)),
    row("W49", "many_calls", "5,000 calls in one answer", _many_calls(5_000)),
    row("W50", "far_too_many_calls", "100,000 calls in one answer", _many_calls(100_000)),
    row("W51", "odd_names", "calls to functions that do not exist", {
        key: content(lambda ex, name=name: _message(_signed(ex, _call(ex, name=name)))) for key, name in _NAMES.items()
    }),
    row("W52", "odd_args", "arguments that are none", {
        "missing": _parts(_without_args), **{key: _args(odd) for key, odd in _ARGS.items()},
    }),
    row("W53", "large_args", "arguments that are far too deep, wide or long", {
        **{key: _large(make) for key, make in _LARGE.items()},
        "many_keys_beside_another": content(lambda ex: _with_args(ex, _LARGE["many_keys"](), _call(ex, args={"path": "b"}))),
    }),
    row("W54", "mixed_parts", "every kind of part in one answer, an unknown one among them", content(_mixed)),
    row("W55", "three_candidates", "three candidates with a call in each", content(_candidates)),
    row("W56", "endless_calls", "every answer is a call", {
        "other_args": content(_other_args), "same_args": content(_example),
    }, times=None),
    row("W57", "prompted_call", "a call in the prompted form, cut anywhere", {
        "plain": _prompted("CALL"), "fenced": _prompted("An example:\n```\nhow to:\nCALL\n```\n"),
        "quoted": _prompted("> CALL\n\nThat is what you wrote."), "echoed": _prompted('The file says "CALL".'),
    }),
    row("W58", "hostile_text", "text that makes a careless parser slow", {
        "prefixes": _hostile("TOOL_CALL: " * 95_000), "brackets": _hostile("TOOL_CALL: f" + "(" * 100_000),
        "quotes": _hostile('TOOL_CALL: f({"a": "' + '\\"' * 100_000),
    }),
    row("MF", "malformed_call", "the model wrote Python instead of a call", content(_malformed)),
)  # fmt: skip
"""Content faults, by row."""
