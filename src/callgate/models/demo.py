"""A scripted stand-in for a model, so that the command shows its job before any model is configured.

The newest words of the user come in; calls of declared tools, or a sentence made from their responses, go out. It is a small
table of patterns and understands nothing. It knows no wire format: its caller passes a function that builds responses.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from callgate.content.build import call_part, text_part
from callgate.content.read import call_parts, is_response, parts_of, response_of, text_of
from callgate.history.repair import starts_exchange
from callgate.models import ModelRequest
from callgate.types import Content, FunctionCall, JsonObject, Part, ToolDefinition

__all__ = ["DemoModel"]

Args: TypeAlias = dict[str, Any]


class Respond(Protocol):
    """A builder of a response chunk of parts; `finish_reason=None` when more follow. `callgate.testing.answer` is one."""

    def __call__(self, *parts: Part | str, finish_reason: str | None = "STOP") -> JsonObject:
        """The chunk."""
        ...


class DemoModel:
    """A scripted model: recognises a few questions, calls matching tools if they are declared, and reports the results."""

    is_free = True

    def __init__(self, respond: Respond) -> None:
        self._respond = respond

    @property
    def name(self) -> str:
        """The name of the model."""
        return "demo"

    async def generate(self, request: ModelRequest) -> AsyncIterator[JsonObject]:
        """The next answer: calls in one piece, text word by word."""
        await asyncio.sleep(0)
        said, exchanges = _newest(request.conversation.contents)
        tools = {} if request.tool_choice == "none" else {d.name: d for d in request.definitions}
        planned = _recovery(exchanges, tools) if exchanges else _plan(said, tools)
        if planned:
            aliases = {own: declared for declared, own in request.declaration.names.items()}
            calls = [FunctionCall(name=aliases.get(name, name), args=args) for name, args in planned]
            yield self._respond(*map(call_part, calls))
            return
        text = _report(exchanges, request.declaration.names) if exchanges else _help(said, tools)
        for piece in re.findall(r"\S+\s*", text):
            yield self._respond(text_part(piece), finish_reason=None)
            await asyncio.sleep(0)
        yield self._respond()


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A call that was made since the user spoke, and what came back."""

    name: str
    args: Args
    response: JsonObject

    @property
    def error(self) -> str | None:
        error = self.response.get("error")
        return None if error is None else str(error)


def _newest(contents: Sequence[Content]) -> tuple[str, list[_Exchange]]:
    """The user's latest message, and the calls that followed it."""
    start = max((index for index, content in enumerate(contents) if starts_exchange(content)), default=0)
    calls = [call for content in contents[start:] for call in call_parts(content)]
    answers = [response_of(part) for content in contents[start:] for part in parts_of(content) if is_response(part)]
    said = text_of(contents[start]) if contents else ""
    return said, [
        _Exchange(str(call["name"]), dict(call.get("args") or {}), dict(answer.get("response") or {}))
        for call, answer in zip(calls, answers, strict=False)
    ]


# From words to calls -----------------------------------------------------------------------------------------------------

_WEATHER = re.compile(r"\bweather\b(?:\s+like)?(?:\s+today|\s+now)?\s+(?:in|for|at)\s+([^?!.;\n]+)", re.IGNORECASE)
_BETWEEN_PLACES = re.compile(r"\s*(?:,\s*and\s+|,|&|\band\b)\s*(?:in\s+)?", re.IGNORECASE)
_UNIT = re.compile(r"\s*\b(?:in\s+)?(?:degrees\s+)?(celsius|fahrenheit)\b", re.IGNORECASE)
_AFTER_PLACE = re.compile(r"\s+(?:today|tomorrow|now|right now|please|like)$", re.IGNORECASE)
_OTHER_QUESTION = re.compile(r"\b(?:what|how|when|time)\b", re.IGNORECASE)

_OPERATORS = (
    (re.compile(r"\s+plus\s+", re.IGNORECASE), " + "),
    (re.compile(r"\s+minus\s+", re.IGNORECASE), " - "),
    (re.compile(r"\s+(?:times|multiplied by)\s+|(?<=\d)\s*[x×]\s*(?=\d)", re.IGNORECASE), " * "),
    (re.compile(r"\s+divided by\s+|\s*÷\s*", re.IGNORECASE), " / "),
    (re.compile(r"\s+to the power of\s+|\s*\^\s*", re.IGNORECASE), " ** "),
)
_EXPRESSION = re.compile(r"[-(]*\d[\d.]*[\s()]*(?:(?:\*\*|[-+*/])[\s()-]*\d[\d.]*[\s()]*)+")

_TIME = re.compile(
    r"\b(?:what(?:'s|\s+is)?\s+(?:the\s+)?(?:current\s+)?time|what\s+time\s+is\s+it|current\s+time)\b"
    r"(?:\s+is\s+it)?(?:\s+now)?(?:\s+in\s+([\w/ +-]+))?",
    re.IGNORECASE,
)
_ZONES = {
    "berlin": "Europe/Berlin", "delhi": "Asia/Kolkata", "london": "Europe/London", "new york": "America/New_York",
    "oslo": "Europe/Oslo", "paris": "Europe/Paris", "rome": "Europe/Rome", "san francisco": "America/Los_Angeles",
    "sydney": "Australia/Sydney", "tokyo": "Asia/Tokyo", "utc": "UTC",
}  # fmt: skip


def _weather_calls(said: str) -> Iterator[Args]:
    found = _WEATHER.search(said)
    if found is None:
        return
    unit = _UNIT.search(found[1])
    for piece in _BETWEEN_PLACES.split(_UNIT.sub("", found[1])):
        place = _AFTER_PLACE.sub("", piece.strip())
        if not place or _OTHER_QUESTION.search(place):
            return
        yield {"location": place} | ({"unit": unit[1].lower()} if unit else {})


def _calculations(said: str) -> Iterator[Args]:
    for pattern, operator in _OPERATORS:
        said = pattern.sub(operator, said)
    for found in _EXPRESSION.finditer(said):
        yield {"expression": found[0].strip()}


def _times(said: str) -> Iterator[Args]:
    for found in _TIME.finditer(said):
        place = _AFTER_PLACE.sub("", _BETWEEN_PLACES.split((found[1] or "UTC").strip())[0])
        yield {"place": _ZONES.get(place.lower(), place)}


_KINDS = {
    "c": "*.c", "css": "*.css", "go": "*.go", "html": "*.html", "java": "*.java", "javascript": "*.js", "json": "*.json",
    "markdown": "*.md", "python": "*.py", "rust": "*.rs", "text": "*.txt", "toml": "*.toml", "typescript": "*.ts",
    "yaml": "*.{yml,yaml}",
}  # fmt: skip
_FILES = re.compile(r"\b(?:list|show|which|what|find)\b[^.?!\n]*?\b(?:(\w+)\s+)?files\b", re.IGNORECASE)
_FILE = re.compile(r"\b(?:read|show|open|what does|what is in)\s+(?:me\s+)?(?:the\s+file\s+)?([\w./-]+\.\w+)", re.IGNORECASE)
_TEXT_TO_FILE = re.compile(r"""\bwrite\s+(?:"([^"]*)"|'([^']*)'|(.+?))\s+(?:to|into)\s+([\w./-]*\w)""", re.IGNORECASE)


def _lists(said: str) -> Iterator[Args]:
    found = _FILES.search(said)
    if found:
        pattern = _KINDS.get((found[1] or "").lower())
        yield {"pattern": pattern} if pattern else {}


def _reads(said: str) -> Iterator[Args]:
    for found in _FILE.finditer(said):
        yield {"path": found[1]}


def _writes(said: str) -> Iterator[Args]:
    for found in _TEXT_TO_FILE.finditer(said):
        yield {"path": found[4], "content": (found[1] or found[2] or found[3] or "") + "\n"}


PATTERNS: dict[str, Callable[[str], Iterator[Args]]] = {
    "get_current_weather": _weather_calls,
    "calculate": _calculations,
    "current_time": _times,
    "list_files": _lists,
    "read_file": _reads,
    "write_file": _writes,
}
"""The tool that answers a kind of question, and what finds such questions in a text."""


def _plan(said: str, tools: Mapping[str, ToolDefinition]) -> list[tuple[str, Args]]:
    """The calls that the user's words ask for; none when nothing is recognised."""
    named = _named_call(said, tools)
    if named is not None:
        return [named]
    return [(name, args) for name, find in PATTERNS.items() if name in tools for args in find(said)]


def _named_call(said: str, tools: Mapping[str, ToolDefinition]) -> tuple[str, Args] | None:
    """`name key=value ...`, when there is a tool of that very name."""
    name, _, rest = said.strip().partition(" ")
    if name not in tools:
        return None
    try:
        words = shlex.split(rest)
    except ValueError:  # A quote that is not closed.
        return None
    if not all(re.match(r"\w+=", word) for word in words):
        return None
    properties = cast("Mapping[str, Any]", tools[name].input_schema.get("properties", {}))
    pairs = [word.split("=", 1) for word in words]
    return name, {key: _value(text, properties.get(key, {})) for key, text in pairs}


def _value(text: str, schema: Any) -> Any:
    if isinstance(schema, Mapping) and cast("Mapping[str, Any]", schema).get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _recovery(exchanges: Sequence[_Exchange], tools: Mapping[str, ToolDefinition]) -> list[tuple[str, Args]]:
    """One more try, with other arguments, where an error says that there is no such time zone."""
    tried = [exchange for exchange in exchanges if exchange.name == "current_time"]
    if "current_time" not in tools or not tried or any(e.args.get("place") == "UTC" for e in tried):
        return []
    return [("current_time", {"place": "UTC"})] if all("time zone" in (e.error or "") for e in tried) else []


# From responses to words -------------------------------------------------------------------------------------------------


def _report(exchanges: Sequence[_Exchange], names: Mapping[str, str]) -> str:
    return " ".join(_sentence(exchange, names.get(exchange.name, exchange.name)) for exchange in exchanges)


def _sentence(exchange: _Exchange, name: str) -> str:
    if exchange.error is not None:
        return f"{name} failed: {exchange.error}"
    value = exchange.response.get("result")
    given: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
    match name:
        case "get_current_weather" if {"location", "temperature", "condition"} <= set(given):
            degrees = "°F" if given.get("unit") == "fahrenheit" else "°C"
            return f"In {given['location']} it is {given['temperature']} {degrees} and {given['condition']}."
        case "calculate" if isinstance(value, (int, float)):
            return f"{exchange.args.get('expression')} = {value}."
        case "current_time" if {"place", "time"} <= set(given):
            return f"In {given['place']} it is {given['time']}."
        case "list_files" if isinstance(value, list):
            paths = [str(path) for path in cast("list[Any]", value)]
            more = f", and {len(paths) - 20} more" if len(paths) > 20 else ""
            return f"{len(paths)} files{': ' if paths else ''}{', '.join(paths[:20])}{more}."
        case "read_file" if isinstance(value, str):
            lines = value.splitlines()
            return f"{exchange.args.get('path')} has {len(lines)} lines and begins: {' '.join(lines[:3])[:200]}"
        case "write_file" if isinstance(value, str):
            return value
        case _:
            return f"{name} returned {json.dumps(value, ensure_ascii=False)}."


_EXAMPLES = {
    "get_current_weather": "What is the weather in Oslo and Rome?",
    "calculate": "What is 12 * 7?",
    "current_time": "What time is it in Tokyo?",
    "list_files": "List the Python files",
    "read_file": "What does README.md do?",
    "write_file": 'Write "hello" to notes.txt',
}


def _help(said: str, tools: Mapping[str, ToolDefinition]) -> str:
    """Help on possible questions, for the declared tools."""
    name = said.strip().partition(" ")[0]
    if name in tools:
        return f"To call {name}, write: {_usage(tools[name])}"
    known = [f'"{example}"' for name, example in _EXAMPLES.items() if name in tools]
    others = [_usage(definition) for name, definition in tools.items() if name not in _EXAMPLES]
    if not known and not others:
        return "I am a scripted demo and not a language model, and I have no tools, so there is nothing that I can do."
    asked = f" Ask me {', '.join(known)}." if known else ""
    called = f" Call a tool by its name: {'; '.join(others)}." if others else ""
    return f"I am a scripted demo and not a language model, so I understand very little.{asked}{called}"


def _usage(definition: ToolDefinition) -> str:
    properties = cast("Mapping[str, Any]", definition.input_schema.get("properties", {}))
    return " ".join([definition.name, *(f"{key}=..." for key in properties)])
