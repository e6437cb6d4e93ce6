"""Kinds of examples out of public data sets: BFCL's training part, Seal-Tools, and utterances of spoken assistants.

A `Studio` comes in, an `Example` goes out, or None when the dice gave nothing usable. Values are changed and tools are
mixed, so that few examples are seen twice; values that a data set made up out of nothing are left out.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from training import score
from training.corpus import human
from training.example import Example
from training.format import Call
from training.studio import Studio, clash, finish
from training.values import WORDS, Values

INTENTS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "intents.toml").read_text(encoding="utf-8"))
# Tools that can do almost anything: never offer them when the point is that no tool fits.
ANYTHING = re.compile("search|query|fetch|http|command|shell|exec|lookup|factoid|creative|chat|ask|assistant|general", re.I)


def bfcl(studio: Studio) -> Example | None:
    """A BFCL case of the training part, its values changed and its tools mixed with others."""
    values = studio.values
    case = values.pick(studio.corpus.requests["bfcl"])
    schemas = {tool["name"]: tool["parameters"] for tool in case["tools"]}
    if not case["wanted"]:
        return _bfcl_irrelevant(studio, case) if values.chance(0.36) else None
    text, calls = case["question"], []
    for wanted in case["wanted"]:
        ((name, accepted),) = wanted.items()
        if name not in schemas:
            return None
        calls.append((name, bfcl_args(accepted, text, schemas[name])))
    if values.chance(0.6):
        text = _swap_values(studio, text, calls, schemas)
    called = {name for name, _ in calls}
    short = len(str(case["tools"])) < 6000
    tools = case["tools"] if short and values.chance(0.75) else [tool for tool in case["tools"] if tool["name"] in called]
    size = len(tools) + values.pick([0, 0, 0, 1, 2, 3, 5]) if short else studio.lists.size()
    tools = [tool | {"source": "bfcl"} for tool in tools]
    return finish(studio, studio.lists.fill(tools, size, near=0.7), calls, text, extra=case["system"][:600])


def _bfcl_irrelevant(studio: Studio, case: dict[str, Any]) -> Example | None:
    if len(str(case["tools"])) > 6000 or not case["tools"]:
        return None
    return Example(case["tools"], [(studio.noisy(case["question"]), studio.refusal())], extra=case["system"][:400])


def bfcl_args(accepted: dict[str, list[Any]], text: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments to train on: of BFCL's accepted values those that the request spells, nothing optional unnamed."""
    folded, args = score.fold(text), {}
    order = list(schema["properties"])
    for name in sorted(accepted, key=lambda name: order.index(name) if name in order else len(order)):
        options = [option for option in accepted[name] if option != ""]
        if not options:
            continue
        spelled = [
            option
            for option in options
            if isinstance(option, str | int | float) and not isinstance(option, bool) and str(option) in text
        ]
        if "" in accepted[name] and name not in schema["required"] and not spelled and not _named(options, folded):
            continue
        texts = [option for option in spelled if isinstance(option, str)]
        args[name] = _plain(max(texts, key=len) if texts else (spelled or options)[0], folded)
    return args


def _named(options: list[Any], folded: str) -> bool:
    first = options[0]
    if isinstance(first, list | dict):
        return any(score.fold(item) in folded for item in (first if isinstance(first, list) else first.values()))
    return any(isinstance(option, str) and len(option) > 2 and score.fold(option) in folded for option in options)


def _plain(value: Any, folded: str) -> Any:
    """A value without BFCL's lists of accepted ones inside objects."""
    if isinstance(value, list):
        return [_plain(item, folded) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, options in value.items():
        options = options if isinstance(options, list) else [options]
        given = [option for option in options if option != ""]
        if given and not ("" in options and all(score.fold(option) not in folded for option in given)):
            kept[key] = _plain(given[0], folded)
    return kept


_SWAPPED = re.compile(
    r"name|query|author|artist|company|id$|title|text|message|player|actor|symbol|email|path|file|keyword|topic"
)


def _swap_values(studio: Studio, text: str, calls: list[Call], schemas: dict[str, Any]) -> str:
    """The request with other numbers, names and cities, where the old ones stand in it once; the calls are changed too."""
    values = studio.values
    for name, args in calls:
        for key, value in list(args.items()):
            schema = schemas[name]["properties"].get(key, {})
            once = sum(str(other).count(str(value)) for _, others in calls for other in others.values()) == 1
            if isinstance(value, bool) or schema.get("enum") or not once:
                continue
            if isinstance(value, int | float) and values.chance(0.6):
                pattern, new = rf"(?<![\w.]){re.escape(str(value))}(?!\w|\.\d)", _other_number(value, values)
            elif isinstance(value, str) and value in WORDS["cities"]:
                pattern, new = rf"(?<!\w){re.escape(value)}(?!\w)", values.pick(WORDS["cities"])
            elif isinstance(value, str) and len(value) > 3 and _SWAPPED.search(human(key)) and values.chance(0.4):
                pattern, new = rf"(?<!\w){re.escape(value)}(?!\w)", studio.schemas.text(key, "").value
            else:
                continue
            if len(re.findall(pattern, text)) == 1:
                text = re.sub(pattern, lambda _, new=new: str(new), text)
                args[key] = new
    return text


def _other_number(value: float, values: Values) -> int | float:
    if isinstance(value, float):
        return round(value * values.rng.uniform(0.5, 1.9), 2)
    if 1900 < value < 2100:
        return values.rng.randint(1990, 2026)
    return max(1, int(abs(value) * values.rng.uniform(0.4, 2.2)) + values.rng.randint(0, 3)) * (1 if value >= 0 else -1)


def seal(studio: Studio) -> Example | None:
    """A request of Seal-Tools."""
    case = studio.values.pick(studio.corpus.requests["seal"])
    known = studio.corpus.seal_by_name
    if any(name not in known for name, _ in case["calls"]):
        return None
    calls = [(name, _seal_args(args, known[name])) for name, args in case["calls"]]
    text = score.fold(case["question"])
    if any(isinstance(value, str) and score.fold(value) not in text for _, args in calls for value in args.values()):
        return None  # The data set made this value up.
    needed = list({name: known[name] for name, _ in calls}.values())
    return finish(studio, studio.lists.fill(needed, studio.lists.size()), calls, studio.noisy(case["question"]))


def _seal_args(args: dict[str, Any], tool: dict[str, Any]) -> dict[str, Any]:
    properties = tool["parameters"]["properties"]
    plain = {}
    for name in sorted(args, key=lambda name: list(properties).index(name) if name in properties else len(properties)):
        value, kind = args[name], properties.get(name, {}).get("type")
        if kind == "integer" and isinstance(value, str) and re.fullmatch(r"-?\d+", value):
            value = int(value)
        elif kind == "number" and isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
            value = float(value)
        plain[name] = value
    return plain


def spoken(studio: Studio) -> Example | None:
    """An utterance of a spoken assistant, its intent as a tool."""
    values = studio.values
    case = values.pick(studio.corpus.requests["snips" if values.chance(0.45) else "nlu"])
    intent, text = case["intent"], case["question"]
    if answers := INTENTS["answers"].get(intent):
        return Example(studio.lists.fill([], studio.lists.size()), [(text, values.pick(answers))])
    if intent not in INTENTS["tools"]:
        return None
    tool = _intent_tool(studio, intent, keep=case["slots"])
    args = {name: case["slots"][name] for name in tool["parameters"]["properties"] if name in case["slots"]}
    family = intent.split("_")[0]
    others = [name for name in INTENTS["tools"] if name != intent and not _alike(name, intent)]
    tools = [tool, *(_intent_tool(studio, name) for name in values.rng.sample(others, values.rng.randint(0, 8)))]
    if values.chance(0.04) and family != "qa":
        tools = [item for item in tools[1:] if item["intent"].split("_")[0] != family and not ANYTHING.search(item["name"])]
        return Example(tools, [(text, studio.refusal())]) if tools and not clash(tools) else None
    if values.chance(0.3):
        text = (
            text[0].upper()
            + text[1:]
            + values.pick(["", ".", "?" if text.startswith(("what", "how", "is", "when", "who")) else "."])
        )
    return finish(
        studio, studio.lists.fill(tools, len(tools) + values.pick([0, 0, 1, 3])), [(tool["name"], args)], text, restyled=0.5
    )


def _alike(first: str, second: str) -> bool:
    groups = (
        {"GetWeather", "weather_query"},
        {"PlayMusic", "play_music"},
        {"qa_factoid", "qa_definition", "SearchCreativeWork"},
    )
    return any({first, second} <= group for group in groups)


def _intent_tool(studio: Studio, intent: str, *, keep: dict[str, str] | None = None) -> dict[str, Any]:
    values, slots = studio.values, studio.corpus.slots.get(intent, [])
    if values.chance(0.5):
        slots = [slot for slot in slots if slot in (keep or {}) or values.chance(0.7)]
    descriptions = ("", "The {}", "{} mentioned by the user")
    properties = {
        slot: {"type": "string", "description": values.pick(descriptions).format(human(slot)).capitalize()} for slot in slots
    }
    name = human(intent).replace(" ", "_") if values.chance(0.6) else intent
    description = INTENTS["tools"][intent] + values.pick([".", "", " for the user."])
    return {
        "name": name,
        "description": description,
        "parameters": {"properties": properties, "required": []},
        "intent": intent,
    }
