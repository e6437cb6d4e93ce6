"""Kinds of examples with one request: calls from families and schemas, questions, refusals and talk.

A `Studio` comes in, an `Example` goes out, or None when the dice gave nothing usable; the caller then tries again. What is
made of public data sets is in `datasets.py`, conversations of several requests in `dialogues.py`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from training import families, invented
from training import format as prompt_format
from training.corpus import human
from training.datasets import ANYTHING
from training.example import Example, reply, results
from training.families import FamilyTool, Missing, Request
from training.results import enumeration
from training.schema_requests import simple
from training.studio import OWN_SETS, Studio, clash, finish
from training.toollists import Variant
from training.values import WORDS, Said

CHAT: dict[str, str] = tomllib.loads((Path(__file__).parent / "chat.toml").read_text(encoding="utf-8"))["answers"]
_JOINTS = (" and ", ", then ", ". Then ", " and also ", ". Also, ", "; ", " and then ", ", and ", ". After that, ", " plus ")
# Tools that could answer a question of the talk: not offered there.
_TALKERS = re.compile(
    "translat|add|multiply|search|calc|joke|fact|define|math|percent|country|currency|synonym|word|dictionary|spell|poll|quiz|"
    "recipe|info|qa_|news",
    re.I,
)
_COMMON_VERBS = {"get", "set", "add", "create", "list", "find", "search", "update", "check", "book", "start"}


# Families ----------------------------------------------------------------------------------------------------------------


def pick_family(studio: Studio) -> FamilyTool:
    """Any family tool; those of the product's own sets more often."""
    values = studio.values
    if values.chance(0.3):
        return values.pick(studio.by_name[values.pick(values.pick(OWN_SETS))])
    return values.pick(studio.corpus.families)


def family_call(studio: Studio) -> Example | None:
    """One request, one call, and often the result and its answer."""
    family = pick_family(studio)
    request = families.request(family, studio.values)
    own = studio.own_list(family) is not None
    variant = studio.lists.family_variant(family, plain=0.65 if own else 0.25)
    call = variant.call(request.args)
    tools = studio.family_list([variant])
    text = studio.noisy(studio.sentence(request, family), request.said)
    example = finish(studio, tools, [call], text, restyled=0.08 if own else 0.25)
    if example is None or not studio.values.chance(0.33):
        return example
    name = prompt_format.parse_calls(example.turns[0][1])[0][0][0]
    result, answer = studio.results.answer(family.name, request.args, text)
    example.turns.append((results([(name, {})], [result]), answer))
    return example


def family_many(studio: Studio) -> Example | None:
    """Several requests in one sentence, each for its own tool."""
    values = studio.values
    count = values.pick([2, 2, 2, 3, 3, 4])
    first = pick_family(studio)
    pool = studio.lists.domains[first.domain] if values.chance(0.5) else list(studio.corpus.families)
    chosen = [first, *(values.pick(pool) for _ in range(count - 1))]
    variants: dict[int, Variant] = {}
    texts, calls, said, answers = [], [], {}, []
    for number, family in enumerate(chosen):
        request = families.request(family, values)
        if family.kinds and any(
            family.kinds.get(name) in ("sentence", "long_text") and not _is_quoted(spoken)
            for name, spoken in request.said.items()
        ):
            return None  # Free text would swallow the next request.
        variant = variants.setdefault(id(family), studio.lists.family_variant(family))
        calls.append(variant.call(request.args))
        texts.append(request.text)
        said |= {f"{name}{number}": spoken for name, spoken in request.said.items()}
        answers.append(studio.results.answer(family.name, request.args, request.text))
    text = texts[0].rstrip(".?! ")
    joint = values.pick(_JOINTS)
    for number, part in enumerate(texts[1:], 2):
        last = number == len(texts)
        between = joint if last or not values.chance(0.6) else ", "
        text += between + (part[0].upper() + part[1:] if between.endswith(". ") else part)
        text = text if last else text.rstrip(".?! ")
    if values.chance(0.5):
        text = text[0].upper() + text[1:]
    tools = studio.family_list(list(variants.values()))
    if clash(tools) or len({variant.schema["name"] for variant in variants.values()}) < len(variants):
        return None
    example = Example(tools, [(studio.noisy(text, said), reply(calls))])
    if values.chance(0.2):
        example.turns.append((results(calls, [result for result, _ in answers]), " ".join(answer for _, answer in answers)))
    return example


def _is_quoted(text: str) -> bool:
    return text[:1] in "'\"`"


def family_each(studio: Studio) -> Example | None:
    """One request for several things of a kind: one call for each."""
    values = studio.values
    family = pick_family(studio)
    pattern, constants = values.pick(family.says)
    names = [
        name
        for name in family.required
        if f"{{{name}}}" in pattern and family.properties[name]["type"] == "string" and "enum" not in family.properties[name]
    ]
    if not names:
        return None
    name = values.pick(names)
    items = list(
        {
            item.value: item for item in (families.draw(family, name, values) for _ in range(values.pick([2, 2, 3, 4])))
        }.values()
    )
    if len(items) < 2:
        return None
    spoken = values.listed([item.spoken for item in items])
    spoken = f"both {items[0].spoken} and {items[1].spoken}" if len(items) == 2 and values.chance(0.15) else spoken
    request = families.request(family, values, pattern=pattern, fixed={name: Said("", spoken)})
    args = constants | request.args
    variant = studio.lists.family_variant(family)
    calls = [
        variant.call({key: item.value if key == name else args[key] for key in family.properties if key in args})
        for item in items
    ]
    return finish(studio, studio.family_list([variant]), calls, studio.noisy(studio.sentence(request, family), request.said))


def family_several(studio: Studio) -> Example | None:
    """One sentence for several calls of one tool, each with values of its own: "T5 with acid and T6 with steam"."""
    values = studio.values
    family = values.pick(_with_several(studio))
    made = families.several(family, values, values.pick(family.several))
    if len(made) < 2:
        return None
    variant = studio.lists.family_variant(family)
    calls = [variant.call(request.args) for request in made]
    text = studio.sentence(made[-1], family)
    return finish(studio, studio.family_list([variant]), calls, studio.noisy(text, made[0].said))


def _with_several(studio: Studio) -> list[FamilyTool]:
    return [tool for tool in studio.corpus.families if tool.several]


def told(studio: Studio) -> Example | None:
    """A request in the words of a trade: mostly a statement, among the other tools of that trade."""
    values = studio.values
    family = values.pick(_with_several(studio))
    request = families.request(family, values)
    variant = studio.lists.family_variant(family, plain=0.5)
    near = studio.lists.neighbours(family, values.rng.randint(2, 4))
    tools = [variant.schema, *(tool for tool in near if tool["name"] != variant.schema["name"])]
    values.rng.shuffle(tools)
    text = studio.noisy(studio.sentence(request, family), request.said)
    return finish(studio, tools, [variant.call(request.args)], text, restyled=0.1)


def domain_question(studio: Studio) -> Example | None:
    """A question about the things that the tools are for, which none of them answers."""
    values = studio.values
    asked = [tool for tool in studio.corpus.families if tool.questions]
    family = values.pick(asked)
    text = families.choose(values.pick(family.questions), values)
    if values.chance(0.6):
        text = text[0].upper() + text[1:]
    tools = [tool.schema() for tool in asked if tool.domain == family.domain]
    tools += [tool for tool in studio.lists.neighbours(family, values.rng.randint(1, 5)) if tool["name"] != family.name]
    tools = list({tool["name"]: tool for tool in tools}.values())
    values.rng.shuffle(tools)
    return Example(tools, [(studio.noisy(text), studio.refusal())])


def missing_request(studio: Studio, family: FamilyTool, missing: Missing) -> Request:
    """A request that lacks an argument, worded politely or not."""
    request = families.request(family, studio.values, pattern=missing.pattern)
    if not request.text.endswith("?"):
        request.text = studio.values.pick(
            ["{}", "{}", "please {}", "{}.", "can you {}?", "I'd like you to {}", "{} please"]
        ).format(request.text)
    if studio.values.chance(0.4):
        request.text = request.text[0].upper() + request.text[1:]
    return request


def question(studio: Studio, parameter: str) -> str:
    """A question for an argument that names its parameter."""
    forms = (
        "Which {} do you mean?",
        "What is the {}?",
        "What should the {} be?",
        "Which {} should I use?",
        "Could you tell me the {}?",
    )
    return studio.values.pick(forms).format(human(parameter))


def ask(studio: Studio) -> Example | None:
    """A needed argument is missing: the reply asks for it."""
    values = studio.values
    if values.chance(0.65):
        family = values.pick([tool for tool in studio.corpus.families if tool.missing])
        missing = values.pick(family.missing)
        request = missing_request(studio, family, missing)
        variant = studio.lists.family_variant(family)
        tools = studio.family_list([variant])
        asked = missing.question if values.chance(0.6) else question(studio, variant.renamed[missing.parameter])
        return None if clash(tools) else Example(tools, [(studio.noisy(request.text, request.said), asked)])
    tool = values.pick(studio.pools["seal"])
    required = tool["parameters"]["required"]
    if not required:
        return None
    name = values.pick(required)
    request = studio.schemas.request(tool, without=name)
    if str(request.args[name]).lower() in request.text.lower():
        return None
    return Example(studio.lists.fill([tool], studio.lists.size()), [(request.text, question(studio, name))])


_LEFT_OUT = "\u2063"  # Stands for the value that is left out; no text has it.
_UNSAID = re.compile(
    r"(?:\s*[,:]|\s+(?:for|at|on|to|in|from|with|by|of|as|until|into|called|named|saying|over|about|via|and|is|than))*(?:\s+(?:the|a|an|my|least|most))?"
    rf"\s*['\"`]?{_LEFT_OUT}['\"`]?(?:\s*(?:%|°C?|percent|degrees|stars|people|pixels|km|kg|GB|pods|replicas|nights|days|years|shares|tickets|hours))?"
)


def family_ask(studio: Studio) -> Example | None:
    """A family's request with a needed value left out of it; the reply asks for that one."""
    values = studio.values
    family = values.pick(studio.corpus.families)  # Evenly: the tools of the product must not learn to ask.
    pattern, constants = values.pick(family.says)
    names = [name for name in family.required if f"{{{name}" in pattern and family.properties[name]["type"] != "boolean"]
    if not names or constants:
        return None
    name = values.pick(names)
    request = families.request(family, values, pattern=pattern, fixed={name: Said(None, _LEFT_OUT)})
    text = _UNSAID.sub("", request.text)
    text = re.sub(r"\s+([,.?!:])", r"\1", re.sub(r"\s+", " ", text)).strip(" ,:;")
    if _LEFT_OUT in text or len(text.split()) < 3:
        return None
    variant = studio.lists.family_variant(family)
    tools = studio.family_list([variant])
    asked = [missing.question for missing in family.missing if missing.parameter == name]
    reply_text = values.pick(asked) if asked and values.chance(0.5) else question(studio, variant.renamed[name])
    if values.chance(0.4):
        text = text[0].upper() + text[1:]
    return None if clash(tools) else Example(tools, [(text, reply_text)])


# Schemas -----------------------------------------------------------------------------------------------------------------


def _any_tool(studio: Studio) -> dict[str, Any]:
    return studio.values.pick(studio.pools[studio.values.pick(["seal", "seal", "seal", "bfcl", "bfcl", "api"])])


def schema_call(studio: Studio) -> Example | None:
    """A request for a tool of which only the schema is known."""
    values, tool = studio.values, _any_tool(studio)
    request = studio.schemas.request(tool)
    text, said, calls = request.text, dict(request.said), [(tool["name"], request.args)]
    tools = studio.lists.fill([tool], studio.lists.size())
    if values.chance(0.1):
        other = tool if values.chance(0.4) else values.pick([item for item in tools if simple(item)] or [tool])
        second = studio.schemas.request(other)
        text = text.rstrip(".?! ") + values.pick(_JOINTS) + second.text[0].lower() + second.text[1:]
        said |= {f"{name}2": spoken for name, spoken in second.said.items()}
        calls.append((other["name"], second.args))
    return finish(studio, tools, calls, studio.noisy(text, said))


def schema_each(studio: Studio) -> Example | None:
    """A request with one argument given several times: one call for each value."""
    values, tool = studio.values, _any_tool(studio)
    properties, args = tool["parameters"]["properties"], studio.schemas.arguments(tool)
    names = [
        name
        for name in args
        if properties[name].get("type") in ("string", "integer", "number") and not properties[name].get("enum")
    ]
    if not names:
        return None
    name = values.pick(names)
    items = list(
        {
            str(item.value): item
            for item in (studio.schemas.value(name, properties[name]) for _ in range(values.pick([2, 2, 3, 4])))
        }.values()
    )
    if len(items) < 2:
        return None
    together = args | {name: Said(None, values.listed([item.spoken for item in items]))}
    request = studio.schemas.request(tool, given=together)
    calls = [
        (tool["name"], {key: item.value if key == name else value.value for key, value in args.items()}) for item in items
    ]
    return finish(studio, studio.lists.fill([tool], studio.lists.size()), calls, studio.noisy(request.text, request.said))


def schema_result(studio: Studio) -> Example | None:
    """A call, its result, and the answer; at times only one field of the result is asked for."""
    values, tool = studio.values, _any_tool(studio)
    request = studio.schemas.request(tool)
    text, call = request.text, (tool["name"], request.args)
    result, answer = studio.results.answer(tool["name"], request.args, text)
    if values.chance(0.3):
        fields = studio.results.record(values.rng.randint(2, 6))
        name = values.pick(list(fields))
        key, about = next(
            ((key, value) for key, value in request.args.items() if isinstance(value, str) and len(value) < 30), ("", "")
        )
        if about and set(tool["parameters"]["required"]) <= {key}:
            forms = [
                "what is the {f} of {a}?",
                "{f} of {a}",
                "tell me the {f} of {a}",
                "I need the {f} for {a}",
                "what's {a}'s {f}?",
            ]
            text, call = values.pick(forms).format(f=human(name), a=about), (tool["name"], {key: about})
            result, answer = values.pick([fields, {"result": fields}]), studio.results.field(fields, name, about)
    tools = studio.lists.fill([tool], values.rng.randint(1, 5))
    return Example(tools, [(text, reply([call])), (results([call], [result]), answer)])


# No call -----------------------------------------------------------------------------------------------------------------


def chat(studio: Studio) -> Example | None:
    """Talk that needs no tool."""
    values, roll = studio.values, studio.values.rng.random()
    if roll < 0.12:
        first, second, sign = values.rng.randint(0, 50), values.rng.randint(0, 50), values.pick("+-*")
        total = {"+": first + second, "-": first - second, "*": first * second}[sign]
        word = {"+": "plus", "-": "minus", "*": "times"}[sign]
        text = values.pick(
            [f"What is {first} {sign} {second}?", f"{first}{sign}{second}", f"how much is {first} {word} {second}?"]
        )
        answer = f"{first} {sign} {second} = {total}."
    elif roll < 0.24:
        country = values.pick(list(WORDS["capitals"]))
        text = values.pick(
            [f"What is the capital of {country}?", f"capital of {country}?", f"Which city is the capital of {country}?"]
        )
        answer = f"The capital of {country} is {WORDS['capitals'][country]}."
    else:
        text = values.pick(list(CHAT))
        answer = CHAT[text]
    if values.chance(0.5):
        tools = [values.pick(studio.by_name[name]).schema() for name in values.pick(OWN_SETS[:3])]
    else:
        tools = studio.lists.fill([], studio.lists.size())
    tools = [tool for tool in tools if not _TALKERS.search(tool["name"] + tool["description"])]
    if values.chance(0.08):
        return Example([], [(text, answer)])
    return Example(tools, [(studio.noisy(text), answer)]) if tools and not clash(tools) else None


def _no_invented_tool(studio: Studio) -> Example | None:
    """A request for an invented tool, with tools that share its verb or its thing but not both."""
    values = studio.values
    tool = invented.invent(values)
    made = invented.request(tool, values)
    tools = []
    for _ in range(values.rng.randint(1, 6)):
        same_verb = values.chance(0.4)
        other = invented.invent(values, verb=tool.verb if same_verb else None, thing=None if same_verb else tool.thing)
        if (other.verb, other.thing) != (tool.verb, tool.thing) and other.schema["name"] != tool.schema["name"]:
            tools.append(other.schema)
    if not tools or clash(tools):
        return None
    return Example(tools, [(studio.noisy(made.text, made.said), studio.refusal())])


def no_tool(studio: Studio) -> Example | None:
    """A request for which no tool of the list is good, though some are about the same things."""
    values = studio.values
    if values.chance(0.25):
        return _no_invented_tool(studio)
    family = values.pick(studio.corpus.families)
    request = families.request(family, values)
    near = values.chance(0.45)
    others = [
        tool for tool in studio.corpus.families if not ANYTHING.search(tool.name) and (tool.domain == family.domain) == near
    ]
    chosen = {tool.name: tool for tool in values.rng.sample(others, min(len(others), values.rng.randint(1, 9)))}
    alike = set(human(family.name).split()) - _COMMON_VERBS
    tools = [tool.schema() for tool in chosen.values() if not alike & set(human(tool.name).split())]
    if not tools or clash(tools):
        return None
    return Example(tools, [(studio.noisy(studio.sentence(request, family), request.said), studio.refusal())])


def result_rows(texts: list[str]) -> str:
    """Rows told in a sentence."""
    return f"I found {len(texts)}: {enumeration(texts)}." if len(texts) > 1 else f"I found one: {texts[0]}."
