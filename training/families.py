"""Tool families: hand-written tools, with the ways in which people ask for them, read from `families/*.txt`.

A family file comes in; tools, and requests with the call that is wanted, go out. One file is one domain, so that tools of
the same file are good distractors for each other. The language of the files:

    tool NAME | DESCRIPTION                    a tool
    also NAME | DESCRIPTION                    the same tool under another name
      parameter* type kind | DESCRIPTION       * = required; kind: see `values.SAMPLERS`, a range 1-20, or a list =red,green
    say PATTERN || parameter=value, ...        a request; constants of the call after ||
    many HEAD :: ITEM :: TAIL || ...           several calls at once: an item for each, head and tail for all
    none PATTERN                               a question about the same things that no tool answers
    miss PARAMETER: PATTERN -> QUESTION        a request that lacks a required argument, and the question to ask

In a pattern `(a|b)` is one of several, `[a]` may be left out, `{parameter}` or `{parameter:kind}` is a value, `{_:kind}`
is a word that is no argument, and `{!parameter=value}` sets a constant without a word. An enum is written a/b/c.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from training.values import Said, Values

FOLDER = Path(__file__).parent / "families"
TYPES = {"string", "integer", "number", "boolean", "string[]", "number[]", "integer[]"}
_SLOT = re.compile(r"\{(!?)(\w+)(?:[:=]([^{}]*))?\}")
_CURRENCY_SIGNS = ("${}", "${}", "€{}", "{} dollars", "{} euros", "£{}")


@dataclass(frozen=True, slots=True)
class Missing:
    """A request that lacks `parameter`, and what to ask."""

    parameter: str
    pattern: str
    question: str


@dataclass(frozen=True, slots=True)
class Several:
    """A request for several calls: a head and a tail for all of them, an item for each, and constants."""

    head: str
    item: str
    tail: str
    constants: dict[str, Any]


@dataclass(slots=True)
class FamilyTool:
    """One tool of a family file."""

    domain: str
    names: list[tuple[str, str]]
    properties: dict[str, dict[str, Any]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    says: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    several: list[Several] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.names[0][0]

    def schema(self, which: int = 0) -> dict[str, Any]:
        """The tool as a schema, under its first or another name."""
        name, description = self.names[which]
        properties = {key: dict(value) for key, value in self.properties.items()}
        return {
            "name": name,
            "description": description,
            "parameters": {"properties": properties, "required": list(self.required)},
        }


@dataclass(slots=True)
class Request:
    """What a person says, the arguments that are meant, and how each was said."""

    text: str
    args: dict[str, Any]
    said: dict[str, str]


def parse(text: str, domain: str) -> list[FamilyTool]:
    """The tools of one family file."""
    tools: list[FamilyTool] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            _read_line(line, domain, tools)
        except (ValueError, IndexError) as error:
            raise ValueError(f"{domain}.txt, line {number}: {error} In: {line!r}") from error
    for tool in tools:
        if not tool.says:
            raise ValueError(f"{domain}.txt: the tool {tool.name!r} has no `say` line.")
    return tools


def _read_line(line: str, domain: str, tools: list[FamilyTool]) -> None:
    word, _, rest = line.strip().partition(" ")
    if line.startswith(" "):
        _read_parameter(line, tools[-1])
    elif word == "tool":
        tools.append(FamilyTool(domain, [_named(rest)]))
    elif word == "also":
        tools[-1].names.append(_named(rest))
    elif word == "say":
        pattern, _, constants = rest.partition("||")
        tools[-1].says.append((pattern.strip(), _constants(constants, tools[-1])))
    elif word == "many":
        pattern, _, constants = rest.partition("||")
        parts = [part.strip() for part in re.split(r"(?:^|\s)::(?:\s|$)", pattern.strip())]
        if len(parts) not in (2, 3) or not parts[1]:
            raise ValueError("A `many` line reads `many HEAD :: ITEM` or `many HEAD :: ITEM :: TAIL`.")
        head, item, tail = (*parts, "")[:3]
        tools[-1].several.append(Several(head, item, tail, _constants(constants, tools[-1])))
    elif word == "none":
        tools[-1].questions.append(rest)
    elif word == "miss":
        parameter, _, pattern = rest.partition(": ")
        pattern, arrow, question = pattern.partition(" -> ")
        if parameter not in tools[-1].required or not arrow:
            raise ValueError("A `miss` line reads `miss PARAMETER: PATTERN -> QUESTION` with a required parameter.")
        tools[-1].missing.append(Missing(parameter, pattern.strip(), question.strip()))
    else:
        raise ValueError(f"A line starts with tool, also, say, many, none or miss, not with {word!r}.")


def _named(text: str) -> tuple[str, str]:
    name, bar, description = text.partition(" | ")
    if not bar:
        raise ValueError("A tool needs ` | ` and a description.")
    return name.strip(), description.strip()


def _read_parameter(line: str, tool: FamilyTool) -> None:
    left, _, description = line.partition(" | ")
    name, rest = left.strip().split(" ", 1)
    if name.endswith("*"):
        name = name[:-1]
        tool.required.append(name)
    kind_of_value = ""
    enum = "/" in rest and rest.split(" ")[0] not in TYPES
    if not enum:
        rest, _, kind_of_value = rest.partition(" ")
        if rest not in TYPES:
            raise ValueError(f"{rest!r} is no type. Types are: {', '.join(sorted(TYPES))}, or an enum a/b/c.")
    schema: dict[str, Any] = {"type": "string" if enum else rest, "description": description.strip()}
    if enum:
        schema["enum"] = rest.split("/")
    elif rest.endswith("[]"):
        schema |= {"type": "array", "items": {"type": rest[:-2]}}
    tool.properties[name] = schema
    tool.kinds[name] = kind_of_value


def _constants(text: str, tool: FamilyTool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = pair.partition("=")
        found[name] = constant(tool, name, value)
    return found


def constant(tool: FamilyTool, name: str, value: str) -> Any:
    """A constant of a family file as a value of the parameter's type."""
    kind = tool.properties[name]["type"]
    if kind == "boolean":
        return value == "true"
    return int(value) if kind == "integer" else float(value) if kind == "number" else value


@cache
def load() -> tuple[FamilyTool, ...]:
    """All tools of all family files."""
    files = sorted(FOLDER.glob("*.txt"))
    return tuple(tool for file in files for tool in parse(file.read_text(encoding="utf-8"), file.stem))


# Requests ----------------------------------------------------------------------------------------------------------------


def choose(pattern: str, values: Values) -> str:
    """The pattern with its alternatives chosen; slots stay."""
    while found := re.search(r"\(([^()\[\]]*)\)|\[([^()\[\]]*)\]", pattern):
        alternatives, optional = found.groups()
        if alternatives is not None:
            chosen = values.pick(alternatives.split("|"))
        else:
            chosen = values.pick(optional.split("|")) if values.chance(0.55) else ""
        pattern = pattern[: found.start()] + chosen + pattern[found.end() :]
    return re.sub(r"  +", " ", pattern).strip()


def request(
    tool: FamilyTool, values: Values, *, pattern: str | None = None, fixed: dict[str, Said] | None = None
) -> Request:
    """A request for the tool. `fixed` gives values of some parameters, `pattern` a pattern in place of a drawn one."""
    constants: dict[str, Any] = {}
    if pattern is None:
        pattern, constants = values.pick(tool.says)
    drawn: dict[str, Any] = dict(constants)
    said: dict[str, str] = {}

    def fill(found: re.Match[str]) -> str:
        mark, name, kind = found.groups()
        if mark:
            drawn[name] = constant(tool, name, kind)
            return ""
        if name == "_":
            return values.sample(kind).spoken
        value = (fixed or {}).get(name) or draw(tool, name, values, kind=kind)
        if kind == "quoted" and fixed and name in fixed:
            value = Said(value.value, quoted(value.spoken, values))
        drawn[name] = value.value
        said[name] = value.spoken
        return value.spoken

    text = _SLOT.sub(fill, choose(pattern, values))
    text = re.sub(r"\b[Oo]n (today|tomorrow|the day after tomorrow)\b", r"\1", text)
    ordered = {name: drawn[name] for name in tool.properties if name in drawn}
    return Request(text, ordered, said)


_ITEM_JOINTS = (" and ", " and ", " and ", ", and ", ", ", "; ", " and also ", " plus ")


def several(tool: FamilyTool, values: Values, line: Several) -> list[Request]:
    """The requests of one sentence: each has the whole sentence as its text. At least two, all different."""
    count = values.pick([2, 2, 2, 2, 3, 3, 4])
    around = [request(tool, values, pattern=part) if part else Request("", {}, {}) for part in (line.head, line.tail)]
    shared = line.constants | around[0].args | around[1].args
    item, made = choose(line.item, values), list[Request]()
    for _ in range(count):
        one = request(tool, values, pattern=item if values.chance(0.85) else line.item)
        args = shared | one.args
        ordered = {name: args[name] for name in tool.properties if name in args}
        if all(ordered != other.args and one.text != other.text for other in made):
            made.append(Request(one.text, ordered, one.said))
    texts = [one.text for one in made]
    joint = values.pick(_ITEM_JOINTS)
    between = joint if len(texts) == 2 or values.chance(0.25) else ", "
    text = joint.join([between.join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]
    text = " ".join(filter(None, [around[0].text, text, around[1].text])).replace(" ,", ",")
    said = {f"{name}{number}": spoken for number, one in enumerate(made) for name, spoken in one.said.items()}
    said |= around[0].said | around[1].said
    return [Request(text, one.args, said) for one in made]


def quoted(text: str, values: Values) -> str:
    """The text in quotes that it does not contain."""
    marks = [mark for mark in ("'", '"', '"', "`") if mark not in text] or ['"']
    if re.search(r"\w'\w", text) and text.count("'") == 1 and values.chance(0.4):
        marks = ["'"]  # As people do: 'It's raining'.
    mark = values.pick(marks)
    return f"{mark}{text}{mark}"


def draw(tool: FamilyTool, name: str, values: Values, *, kind: str | None = None) -> Said:
    """A value for one parameter of the tool."""
    schema = tool.properties[name]
    if options := schema.get("enum"):
        value = values.pick(options)
        return Said(value, value.replace("_", " ") if values.chance(0.7) else value)
    in_quotes = kind == "quoted"
    kind = tool.kinds[name] if kind in (None, "", "quoted") else kind
    kind = kind or {"integer": "integer", "number": "number"}.get(schema["type"], "slug")
    if schema["type"] == "array":
        kind = "number" if schema["items"]["type"] == "number" and kind == "slug" else kind
        items = list({item.value: item for item in (values.sample(kind) for _ in range(values.rng.randint(1, 4)))}.values())
        return Said([item.value for item in items], values.listed([item.spoken for item in items]))
    value = values.sample(kind)
    if kind == "money" and not any("currency" in other for other in tool.properties) and values.chance(0.3):
        value = Said(value.value, values.pick(_CURRENCY_SIGNS).format(value.spoken))
    if in_quotes:
        end = values.pick([".", "!", "?"]) if kind in ("sentence", "long_text") and values.chance(0.15) else ""
        value = Said(value.value + end, quoted(value.value + end, values))
    return value
