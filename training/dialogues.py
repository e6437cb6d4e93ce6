"""Kinds of examples with several requests: follow-ups, picking from a list, using a result, filling in what was missing.

A `Studio` comes in, an `Example` goes out, or None when the dice gave nothing usable. `FOLLOW_UPS` is the table of what
people do next with a result.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training import families, invented
from training.corpus import human
from training.example import Example, reply, results
from training.families import FamilyTool
from training.kinds import missing_request, question, result_rows
from training.results import enumeration
from training.studio import Studio
from training.toollists import Variant
from training.values import Said

_SAME_AGAIN = (
    "and {}?", "what about {}?", "and for {}?", "how about {}?", "now {}", "now the same for {}", "do the same for {}",
    "and {} please", "ok, and {}?", "same for {}", "{} too", "and now {}", "what about {} then?",
)  # fmt: skip
_GIVEN = ("{}", "{}", "{}", "{} please", "it's {}", "I mean {}", "take {}", "oh, {}", "{}.", "use {}", "sorry, {}")
_RETRY = ("try {} instead", "I meant {}", "sorry, I meant {}", "then take {}", "try it with {}", "no, {}", "use {} then")
_THANKS = {
    "thanks": "You're welcome!", "thank you": "You're welcome!", "great, thanks!": "You're welcome, happy to help!",
    "perfect": "Great! Anything else?", "ok, that's all": "All right, have a nice day!", "cool": "Great! Anything else?",
    "thx": "You're welcome!",
}  # fmt: skip
_ORDINALS = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True)
class Pick:
    """A list of things, and what is done with one of them."""

    lists: str
    acts: str
    parameter: str
    kind: str
    says: list[str]


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A call and what people ask next: `take` is an argument of the first call or a field of its result."""

    first: str
    then: str
    parameter: str
    take: str
    says: list[str]
    constants: dict[str, Any] = field(default_factory=dict)


_TABLES = tomllib.loads((Path(__file__).parent / "follow_ups.toml").read_text(encoding="utf-8"))
PICKS = tuple(Pick(**row) for row in _TABLES["picks"])
FOLLOW_UPS = tuple(FollowUp(**row) for row in _TABLES["follow_ups"])


def _tools(studio: Studio, variants: list[Variant]) -> list[dict[str, Any]] | None:
    """A list with all the variants in it and no name twice."""
    tools = studio.family_list(variants)
    names = [tool["name"] for tool in tools]
    return (
        tools if len(set(names)) == len(names) and {variant.schema["name"] for variant in variants} <= set(names) else None
    )


def _variants(studio: Studio, *found: FamilyTool) -> list[Variant] | None:
    """The tools as the example shows them; the same tool once."""
    made: dict[int, Variant] = {}
    for family in found:
        made.setdefault(id(family), studio.lists.family_variant(family, plain=0.6))
    names = {variant.schema["name"] for variant in made.values()}
    return [made[id(family)] for family in found] if len(names) == len(made) else None


def _free_parameter(family: FamilyTool) -> str | None:
    names = [
        name
        for name in family.required
        if family.kinds[name] and family.properties[name]["type"] != "array" and "enum" not in family.properties[name]
    ]
    return names[0] if names else None


def same_again(studio: Studio) -> Example | None:
    """The same request for something else: "and in Paris?"."""
    values = studio.values
    family = values.pick(studio.corpus.families)
    name = _free_parameter(family)
    if name is None or family.kinds[name] in ("sentence", "long_text"):
        return None
    request = families.request(family, values)
    other = families.draw(family, name, values)
    if name not in request.args or other.value == request.args[name]:
        return None
    variant = studio.lists.family_variant(family)
    tools = _tools(studio, [variant])
    if tools is None:
        return None
    call, second = variant.call(request.args), variant.call(request.args | {name: other.value})
    failed = values.chance(0.15)
    result, answer = (
        studio.results.error(request.args) if failed else studio.results.answer(family.name, request.args, request.text)
    )
    follow = values.pick(_RETRY if failed else _SAME_AGAIN).format(other.spoken)
    turns = [
        (studio.sentence(request, family), reply([call])),
        (results([call], [result]), answer),
        (follow, reply([second])),
    ]
    if values.chance(0.4):
        result, answer = studio.results.answer(family.name, request.args | {name: other.value}, request.text)
        turns.append((results([second], [result]), answer))
    return Example(tools, turns)


def fill_in(studio: Studio) -> Example | None:
    """A request that lacks an argument, the question, the answer, and the call."""
    values = studio.values
    family = values.pick([tool for tool in studio.corpus.families if tool.missing])
    missing = values.pick(family.missing)
    request = missing_request(studio, family, missing)
    value = families.draw(family, missing.parameter, values)
    args = {name: (request.args | {missing.parameter: value.value}).get(name) for name in family.properties}
    args = {name: given for name, given in args.items() if given is not None}
    turns = [(request.text, missing.question)]
    variant = studio.lists.family_variant(family)
    tools = _tools(studio, [variant])
    left = [name for name in family.required if name not in args]
    if tools is None or len(left) > 1:
        return None
    free_text = family.kinds[missing.parameter] in ("sentence", "long_text", "title", "song")
    spoken = families.quoted(value.spoken, values) if free_text and values.chance(0.3) else value.spoken
    turns.append(((values.pick(_GIVEN) if not free_text else "{}").format(spoken), ""))
    for name in left:
        if family.properties[name]["type"] == "boolean":
            return None
        turns[-1] = (turns[-1][0], f"And what is the {human(name)}?")
        extra = families.draw(family, name, values)
        args[name] = extra.value
        turns.append((extra.spoken, ""))
    call = variant.call({name: args[name] for name in family.properties if name in args})
    turns[-1] = (turns[-1][0], reply([call]))
    if values.chance(0.3):
        result, answer = studio.results.answer(family.name, args, request.text)
        turns.append((results([call], [result]), answer))
    return Example(tools, turns)


def pick_from_list(studio: Studio) -> Example | None:
    """A list, and then "the second one"."""
    values = studio.values
    pick = values.pick(PICKS)
    lister, actor = values.pick(studio.by_name[pick.lists]), values.pick(studio.by_name[pick.acts])
    variants = _variants(studio, lister, actor)
    tools = _tools(studio, variants) if variants else None
    if tools is None or variants is None:
        return None
    request = families.request(lister, values)
    ids, names, told, result = _rows(studio, pick.kind, request.args)
    call = variants[0].call(request.args)
    place = values.rng.randrange(len(ids))
    said = [f"the {_ORDINALS[place]} one", f"the {_ORDINALS[place]} one", f"the {_ORDINALS[place]}"]
    if place == len(ids) - 1 and len(ids) > 1:
        said.append("the last one")
    said += [str(names[place])] if pick.kind == "file" else [f"the one called {names[place]}", str(names[place])]
    pattern = values.pick(pick.says).format(values.pick(said))
    follow = families.request(actor, values, pattern=pattern)
    args = {name: (follow.args | {pick.parameter: ids[place]}).get(name) for name in actor.properties}
    second = variants[1].call({name: given for name, given in args.items() if given is not None})
    return Example(
        tools,
        [
            (studio.sentence(request, lister), reply([call])),
            (results([call], [result]), told),
            (follow.text, reply([second])),
        ],
    )


def _rows(studio: Studio, kind: str, args: dict[str, Any]) -> tuple[list[Any], list[str], str, Any]:
    """Ids, names, what is said about them, and the result that holds them."""
    values, count = studio.values, studio.values.rng.randint(2, 5)
    if kind == "file":
        folder = args.get("path", "")
        found = list(dict.fromkeys((f"{folder}/" if folder else "") + values.file_name() for _ in range(count)))
        result = values.pick([found, {"files": found}, {"result": found}, {"result": {"files": found}}])
        return (
            found,
            found,
            f"The files are {enumeration(found)}." if len(found) > 1 else f"There is one file: {found[0]}.",
            result,
        )
    ids: list[Any] = list(
        dict.fromkeys(values.rng.randint(1, 900) if kind == "number" else values.code() for _ in range(count))
    )
    names = [values.title() for _ in ids]
    rows = [{values.pick(["id", "id"]): item, "title": name} for item, name in zip(ids, names, strict=True)]
    told = result_rows([f"{name} ({item})" for item, name in zip(ids, names, strict=True)])
    return ids, names, told, values.pick([rows, {"items": rows}, {"result": rows}])


def use_result(studio: Studio) -> Example | None:
    """A call, and then one that uses an argument or the result of it: "cancel it"."""
    values = studio.values
    plan = values.pick(FOLLOW_UPS)
    first, then = values.pick(studio.by_name[plan.first]), values.pick(studio.by_name[plan.then])
    variants = _variants(studio, first, then)
    tools = _tools(studio, variants) if variants else None
    if tools is None or variants is None:
        return None
    request = families.request(first, values)
    result, answer, taken = _taken(studio, plan, request.args)
    if taken is None and plan.take != "said":
        return None
    if plan.take == "sum":
        number, sign, word = (
            values.rng.randint(2, 50),
            *values.pick(
                [
                    ("+", "add {} to that"),
                    ("*", "multiply that by {}"),
                    ("/", "divide it by {}"),
                    ("-", "subtract {} from it"),
                    ("*", "times {}"),
                ]
            ),
        )
        follow_text, args = word.format(number), {"expression": f"{taken} {sign} {number}"}
    else:
        follow = families.request(then, values, pattern=values.pick(plan.says))
        given = plan.constants | follow.args | ({plan.parameter: taken} if plan.take != "said" else {})
        follow_text, args = follow.text, {name: given[name] for name in then.properties if name in given}
        if plan.then == "get_logs" and "error" in follow_text:
            args["level"] = "error"
    if any(name not in args for name in then.required):
        return None
    call, second = variants[0].call(request.args), variants[1].call(args)
    if values.chance(0.3):
        follow_text = follow_text[0].upper() + follow_text[1:]
    text = studio.sentence(request, first)
    if plan.take.startswith("result") and values.chance(0.35):
        joined = (
            text.rstrip(".?! ") + values.pick([" and ", ", then ", " and then "]) + follow_text[0].lower() + follow_text[1:]
        )
        return Example(
            tools,
            [
                (joined, reply([call])),
                (results([call], [result]), reply([second])),
                (results([second], [{"ok": True}]), "Done."),
            ],
        )
    turns = [(text, reply([call])), (results([call], [result]), answer), (follow_text, reply([second]))]
    if values.chance(0.3):
        result, answer = studio.results.answer(then.name, args, follow_text)
        turns.append((results([second], [result]), answer))
    return Example(tools, turns)


def _taken(studio: Studio, plan: FollowUp, args: dict[str, Any]) -> tuple[Any, str, Any]:
    """A result of the first call, its answer, and the value that the second call takes from it."""
    values = studio.values
    source, _, key = plan.take.partition(":")
    if source == "arg":
        result, answer = studio.results.answer(plan.first, args)
        return result, answer, args.get(key)
    if source == "sum" or key == "value":
        value = values.number().value
        result = values.pick([value, {"result": value}, {"value": value}])
        return result, f"The result is {value}.", value if source == "sum" else str(value)
    if key == "content":
        text = values.sentence()
        return (
            values.pick([{"content": text}, {"result": {"content": text}}, {"result": text}]),
            f"{args.get('path')} contains: {text}",
            text,
        )
    if source == "result":
        value = {"email": values.email, "phone": values.phone, "id": values.code}[key]()
        fields = {key: value} if values.chance(0.4) else {"name": values.person(), key: value}
        return values.pick([fields, {"result": fields}]), studio.results.tell(fields, ""), value
    result, answer = studio.results.answer(plan.first, args)
    return result, answer, None


def thanks(studio: Studio) -> Example | None:
    """A call, its answer, and a word of thanks that needs no call."""
    values = studio.values
    family = values.pick(studio.corpus.families)
    request = families.request(family, values)
    variant = studio.lists.family_variant(family)
    tools = _tools(studio, [variant])
    if tools is None:
        return None
    call = variant.call(request.args)
    result, answer = studio.results.answer(family.name, request.args, request.text)
    word = values.pick(list(_THANKS))
    return Example(tools, [(request.text, reply([call])), (results([call], [result]), answer), (word, _THANKS[word])])


def new_request(studio: Studio) -> Example | None:
    """Two requests one after the other that have nothing to do with each other."""
    values = studio.values
    first, second = values.rng.sample(studio.corpus.families, 2)
    variants = _variants(studio, first, second)
    tools = _tools(studio, variants) if variants else None
    if tools is None or variants is None:
        return None
    one, two = families.request(first, values), families.request(second, values)
    call = variants[0].call(one.args)
    result, answer = studio.results.answer(first.name, one.args, one.text)
    follow = values.pick(["{}", "{}", "ok, {}", "thanks. {}", "now {}", "next: {}"]).format(two.text)
    return Example(
        tools,
        [(one.text, reply([call])), (results([call], [result]), answer), (follow, reply([variants[1].call(two.args)]))],
    )


# Invented tools ----------------------------------------------------------------------------------------------------------


def invented_call(studio: Studio) -> Example | None:
    """A request for an invented tool among others, some of which share its verb or its thing."""
    values = studio.values
    tool = invented.invent(values)
    made = invented.request(tool, values)
    size = studio.lists.size()
    tools = [tool.schema]
    while len(tools) < min(size, 8) and values.chance(0.8):
        roll = values.rng.random()
        other = invented.invent(
            values, verb=tool.verb if roll < 0.2 else None, thing=tool.thing if 0.2 <= roll < 0.6 else None
        )
        same = (other.verb, other.thing) == (tool.verb, tool.thing)
        if not same and other.schema["name"] not in {item["name"] for item in tools}:
            tools.append(other.schema)
    tools = studio.lists.fill(tools, size)
    call = invented.call(tool, made)
    example = Example(tools, [(studio.noisy(made.text, made.said), reply([call]))])
    if values.chance(0.15):
        result, answer = studio.results.answer(call[0], made.args, made.text)
        example.turns.append((results([call], [result]), answer))
    return example


def invented_ask(studio: Studio) -> Example | None:
    """A request for an invented tool that lacks a needed argument, the question, and at times the answer and the call."""
    values = studio.values
    tool = invented.invent(values)
    parameters = tool.schema["parameters"]
    names = [name for name in parameters["required"] if tool.kinds[name] not in ("flag",)]
    if not names:
        return None
    name = values.pick(names)
    made = invented.request(tool, values, without=name)
    tools = studio.lists.fill([tool.schema], studio.lists.size())
    turns = [(made.text, question(studio, name))]
    if values.chance(0.4):
        value: Said = invented.draw(values, tool, name)
        args = made.args | {name: value.value}
        ordered = {key: args[key] for key in parameters["properties"] if key in args}
        turns.append((values.pick(_GIVEN).format(value.spoken), reply([(tool.schema["name"], ordered)])))
    return Example(tools, turns)
