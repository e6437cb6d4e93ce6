"""Invented tools: a verb, a thing, some parameters, and requests for them in ordinary words.

Dice come in; tools that exist nowhere, with a request and its call, go out. There are as many of them as wanted, so that
nothing can be learned by heart: the model has to read the list and copy the values.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.corpus import human
from training.families import Request, quoted
from training.format import Call
from training.toollists import UNSPOKEN
from training.values import Said, Values

_TABLES = tomllib.loads((Path(__file__).parent / "invented.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Trait:
    """A parameter that any tool may have: its names, type, kind of value, description and phrases."""

    names: list[str]
    type: str
    kind: str
    description: str
    phrases: list[str]


_IDENTITIES = tuple(Trait(**row) for row in _TABLES["identities"])
_TRAITS = tuple(Trait(**row) for row in _TABLES["traits"])


@dataclass(slots=True)
class Invented:
    """A tool that exists nowhere. `phrases` and `kinds` are by parameter; one without them is never spoken of."""

    verb: str
    thing: str
    schema: dict[str, Any] = field(default_factory=dict)
    phrases: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)


def invent(values: Values, *, verb: str | None = None, thing: str | None = None) -> Invented:
    """A new tool, with a given verb or thing at times."""
    verb = verb or values.pick(_TABLES["verbs"])
    thing = thing or (values.pick(_TABLES["things"]) if values.chance(0.8) else values.word().lower())
    tool = Invented(verb, thing)
    parameters: dict[str, Any] = {"properties": {}, "required": []}
    if values.chance(0.85):
        trait = values.pick(_IDENTITIES)
        _add(
            tool,
            parameters,
            values,
            trait.names,
            _schema(trait, thing),
            (trait.phrases, trait.kind),
            needed=values.chance(0.9),
        )
    for _ in range(values.pick([0, 1, 1, 2, 2, 3])):
        names, schema, said = _parameter(values, thing)
        _add(tool, parameters, values, names, schema, said, needed=said[1] != "flag" and values.chance(0.35))
    if values.chance(0.2):
        for name in values.rng.sample(sorted(UNSPOKEN), values.rng.randint(1, 2)):
            parameters["properties"].setdefault(name, dict(UNSPOKEN[name]))
    if values.chance(0.3):
        order = list(parameters["properties"])
        values.rng.shuffle(order)
        parameters["properties"] = {name: parameters["properties"][name] for name in order}
    tool.schema = {"name": _name(values, tool), "description": _description(values, tool), "parameters": parameters}
    return tool


def _parameter(values: Values, thing: str) -> tuple[list[str], dict[str, Any], tuple[Any, str]]:
    """Names, schema, and phrases with their kind, of any parameter that a tool may have."""
    roll = values.rng.random()
    if roll < 0.65:
        trait = values.pick(_TRAITS)
        return trait.names, _schema(trait, thing), (trait.phrases, trait.kind)
    if roll < 0.88:
        row = values.pick(_TABLES["enums"])
        schema = {"type": "string", "description": row["names"][0].capitalize(), "enum": row["options"]}
        return row["names"], schema, (row["phrases"], "enum")
    row = values.pick(_TABLES["flags"])
    schema = {"type": "boolean", "description": f"{row['yes'][0].capitalize()} or not"}
    return row["names"], schema, ((row["yes"], row["no"]), "flag")


def _add(
    tool: Invented,
    parameters: dict[str, Any],
    values: Values,
    names: list[str],
    schema: dict[str, Any],
    said: tuple[Any, str],
    *,
    needed: bool,
) -> None:
    name = values.pick(names).format(tool.thing.replace(" ", "_"))
    if name in parameters["properties"]:
        return
    parameters["properties"][name] = schema
    tool.phrases[name], tool.kinds[name] = said
    if needed:
        parameters["required"].append(name)


def _name(values: Values, tool: Invented) -> str:
    verb, word = tool.verb, tool.thing.replace(" ", "_")
    camel = verb + "".join(part.capitalize() for part in word.split("_"))
    return values.pick([f"{verb}_{word}", f"{verb}_{word}", f"{word}_{verb}", f"{word}.{verb}", camel])


def _article(thing: str) -> str:
    return "an" if thing[0] in "aeiou" else "a"


def _description(values: Values, tool: Invented) -> str:
    forms = ("{v} {a} {t}.", "{v} the {t}.", "Use this to {lv} {a} {t}.", "{v}s {a} {t}", "{v} {a} {t} for the user.")
    return values.pick(forms).format(v=tool.verb.capitalize(), lv=tool.verb, a=_article(tool.thing), t=tool.thing)


def _schema(trait: Trait, thing: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": trait.type, "description": trait.description.format(thing)}
    if trait.type.endswith("[]"):
        schema |= {"type": "array", "items": {"type": trait.type[:-2]}}
    return schema


def draw(values: Values, tool: Invented, name: str) -> Said:
    kind, schema = tool.kinds[name], tool.schema["parameters"]["properties"][name]
    if kind == "enum":
        return Said(option := values.pick(schema["enum"]), option)
    if kind == "percent":
        said = values.integer(1, 100)
        return Said(said.value, f"{said.value}{values.pick(['%', ' percent', ' %'])}")
    if schema["type"] == "array":
        items = list({item.value: item for item in (values.sample(kind) for _ in range(values.rng.randint(1, 3)))}.values())
        return Said([item.value for item in items], values.listed([item.spoken for item in items]))
    return values.sample(kind)


_FORMS = (
    "{v} {b}", "{v} {b}", "{v} {b}", "please {v} {b}", "can you {v} {b}?", "could you {v} {b}", "I want to {v} {b}",
    "I need to {v} {b}", "I'd like to {v} {b}", "let's {v} {b}", "{v} {b} please", "we have to {v} {b}",
    "would you mind to {v} {b}?", "help me {v} {b}",
)  # fmt: skip
_AFTER = ("The {k} is {v}.", "{k}: {v}.", "Use {v} as the {k}.", "The {k} should be {v}.", "{k} {v}.")
_NAMING = ("code", "slug", "sku", "path", "title", "venue")


def request(tool: Invented, values: Values, *, without: str = "") -> Request:
    """A request for the tool in ordinary words, `without` one argument if that is wanted."""
    parameters = tool.schema["parameters"]
    args: dict[str, Any] = {}
    said: dict[str, str] = {}
    named, parts, after = [], [], []
    for name in parameters["properties"]:
        if name == without or name not in tool.kinds or not (name in parameters["required"] or values.chance(0.5)):
            continue
        if tool.kinds[name] == "flag":
            args[name] = values.chance(0.7)
            parts.append(values.pick(tool.phrases[name][0 if args[name] else 1]))
            continue
        value = draw(values, tool, name)
        args[name], said[name] = value.value, value.spoken
        phrase = values.pick(tool.phrases[name])
        bare = phrase in ("{v}", "{q}")
        if "{t}" not in phrase and not bare and values.chance(0.12):
            after.append(values.pick(_AFTER).format(k=human(name), v=value.spoken))
            continue
        text = phrase.format(t=tool.thing, v=value.spoken, q=quoted(value.spoken, values) if "{q}" in phrase else "")
        names_thing = "{t}" in phrase or (bare and tool.kinds[name] in _NAMING)
        (named if names_thing else parts).append(text)
    if not named:
        named = [values.pick([f"{_article(tool.thing)} {tool.thing}", f"the {tool.thing}", f"our {tool.thing}"])]
    if values.chance(0.2):
        values.rng.shuffle(parts)
    text = values.pick(_FORMS).format(v=tool.verb, b=" ".join([*named, *parts]))
    if after:
        text = " ".join([text if text.endswith("?") else f"{text}.", *(part[0].upper() + part[1:] for part in after)])
    return Request(text[0].upper() + text[1:] if values.chance(0.4) else text, args, said)


def call(tool: Invented, made: Request) -> Call:
    """The call that the request means."""
    return tool.schema["name"], made.args
