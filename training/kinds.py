"""Kinds of examples with one request: calls from families and schemas, from data sets, questions, refusals and talk.

A `Studio` comes in, an `Example` goes out, or None when the dice gave nothing usable; the caller then tries again. `KINDS` in
`generate.py` says how often each kind is used. Conversations of several requests are in `dialogues.py`.
"""

from __future__ import annotations

import random
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training import families, invented, score
from training import format as prompt_format
from training.corpus import Corpus, human
from training.example import Example, reply, results
from training.families import FamilyTool, Missing, Request
from training.format import Call
from training.results import Results, enumeration
from training.schema_requests import SchemaRequests, simple
from training.toollists import ToolLists, Variant
from training.values import WORDS, Said, Values

_HERE = Path(__file__).parent
CHAT: dict[str, str] = tomllib.loads((_HERE / "chat.toml").read_text(encoding="utf-8"))["answers"]
INTENTS: dict[str, Any] = tomllib.loads((_HERE / "intents.toml").read_text(encoding="utf-8"))
REFUSALS = (
    "None of the available tools can do that.", "I don't have a tool for that.", "I can't do that with the tools I have.",
    "Sorry, none of my tools fits this request.", "There is no tool available for this request.", "That is outside what my tools can do.",
)  # fmt: skip
OWN_SETS = (
    (
        "list_files",
        "read_file",
        "write_file",
        "get_current_weather",
        "cloudgenie_get_blueprints",
        "cloudgenie_create_resource",
    ),
    ("list_files", "read_file", "write_file", "edit_file", "search_files"),
    ("list_files", "read_file", "write_file", "edit_file", "search_files", "delete_file", "move_file", "make_directory"),
    ("get_current_weather", "calculate", "current_time"),
    ("list_files", "read_file", "write_file", "get_current_weather", "calculate", "current_time"),
)
_JOINTS = (" and ", ", then ", ". Then ", " and also ", ". Also, ", "; ", " and then ", ", and ", ". After that, ", " plus ")
_TALKERS = re.compile(
    "translat|add|multiply|search|calc|joke|fact|define|math|percent|country|currency|synonym|word|dictionary|spell|poll|quiz|recipe|info|qa_|news",
    re.I,
)
# Tools that can do almost anything: never offer them when the point is that no tool fits.
_ANYTHING = re.compile("search|query|fetch|http|command|shell|exec|lookup|factoid|creative|chat|ask|assistant|general", re.I)
_COMMON_VERBS = {"get", "set", "add", "create", "list", "find", "search", "update", "check", "book", "start"}


@dataclass(slots=True)
class Studio:
    """Everything that examples are made with."""

    corpus: Corpus
    values: Values
    lists: ToolLists
    schemas: SchemaRequests
    results: Results
    pools: dict[str, list[dict[str, Any]]]
    by_name: dict[str, list[FamilyTool]]

    @classmethod
    def open(cls, corpus: Corpus, seed: int) -> Studio:
        """A studio whose dice start at `seed`."""
        values = Values(random.Random(seed), corpus.vocabulary)
        by_name: dict[str, list[FamilyTool]] = {}
        for tool in corpus.families:
            by_name.setdefault(tool.name, []).append(tool)
        pools = {name: [tool for tool in pool if simple(tool)] for name, pool in corpus.pools.items()}
        return cls(corpus, values, ToolLists(corpus, values), SchemaRequests(values), Results(values), pools, by_name)

    def noisy(self, text: str, said: dict[str, str] | None = None) -> str:
        """The request as people type: a typo, a greeting, no full stop. Words of the arguments are left as they are."""
        values, roll = self.values, self.values.rng.random()
        if roll < 0.05 and said is not None:
            kept = {word for spoken in said.values() for word in re.findall(r"\w+", spoken)}
            words = text.split(" ")
            places = [
                place
                for place, word in enumerate(words)
                if word.isalpha() and word.islower() and len(word) > 4 and word not in kept
            ]
            if places:
                place = values.pick(places)
                words[place] = _typo(words[place], values)
                return " ".join(words)
        elif roll < 0.09:
            return text.rstrip(".?!")
        elif roll < 0.12:
            return values.pick(["hi, ", "hey, ", "ok, ", "so ", "um, ", "quick one: ", "Hello! "]) + text
        elif roll < 0.15:
            return text + values.pick([" thanks", " thx", " Thank you!", " pls", " asap", " :)"])
        return text

    def sentence(self, request: Request, family: FamilyTool) -> str:
        """A family's request as a sentence: at times a capital letter and a full stop."""
        text = request.text
        if self.values.chance(0.5):
            text = text[0].upper() + text[1:]
        last = next((name for name, spoken in request.said.items() if text.endswith(spoken)), None)
        free_text = last is not None and family.kinds.get(last) in (
            "sentence",
            "long_text",
            "expression",
            "foreign",
            "question",
        )
        if text[-1].isalnum() and not free_text and self.values.chance(0.35):
            text += "."
        return text

    def own_list(self, family: FamilyTool) -> list[FamilyTool] | None:
        """One of the tool sets of the product that holds the tool."""
        sets = [names for names in OWN_SETS if family.name in names]
        if not sets:
            return None
        chosen = [
            self.values.pick(self.by_name[name])
            for name in self.values.pick(sets)
            if name != family.name and self.values.chance(0.95)
        ]
        return [*chosen, family]

    def family_list(self, variants: list[Variant]) -> list[dict[str, Any]]:
        """A tool list for family tools: tools of the same domain first, then any others."""
        values, size = self.values, self.lists.size()
        tools = [variant.schema for variant in variants]
        names = {tool["name"] for tool in tools}
        own = self.own_list(variants[0].family) if len(variants) == 1 and values.chance(0.5) else None
        if own:
            plain = [tool.schema() for tool in own if tool.name not in names and tool is not variants[0].family]
            tools += [tool for tool in plain if tool["name"] not in names]
            if values.chance(0.6):
                values.rng.shuffle(tools)
                return tools
            return self.lists.fill(tools, len(tools) + values.rng.randint(1, 5))
        if size > len(tools):
            near = self.lists.neighbours(variants[0].family, values.rng.randint(0, min(6, size - len(tools))))
            meaning = {variant.family.name for variant in variants} | names
            tools += [tool for tool in near if tool["name"] not in meaning]
        return self.lists.fill(tools, size)

    def refusal(self) -> str:
        return self.values.pick(REFUSALS)


def _typo(word: str, values: Values) -> str:
    place = values.rng.randint(1, len(word) - 2)
    return values.pick([
        word[:place] + word[place + 1] + word[place] + word[place + 2 :], word[:place] + word[place + 1 :], word[:place] + word[place] + word[place:],
    ])  # fmt: skip


def _clash(tools: list[dict[str, Any]]) -> bool:
    return len({tool["name"] for tool in tools}) < len(tools)


def _finish(
    studio: Studio, tools: list[dict[str, Any]], calls: list[Call], text: str, *, restyled: float = 0.25, extra: str = ""
) -> Example | None:
    """An example of one request and its calls."""
    if _clash(tools):
        return None
    tools, names = studio.lists.restyle(tools, calls, share=restyled)
    return Example(tools, [(text, reply([(names[name], args) for name, args in calls]))], extra=extra)


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
    example = _finish(studio, tools, [call], text, restyled=0.08 if own else 0.25)
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
    if _clash(tools):
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
    return _finish(
        studio, studio.family_list([variant]), calls, studio.noisy(studio.sentence(request, family), request.said)
    )


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
        return None if _clash(tools) else Example(tools, [(studio.noisy(request.text, request.said), asked)])
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
    family = pick_family(studio)
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
    return None if _clash(tools) else Example(tools, [(text, reply_text)])


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
    return _finish(studio, tools, calls, studio.noisy(text, said))


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
    return _finish(studio, studio.lists.fill([tool], studio.lists.size()), calls, studio.noisy(request.text, request.said))


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


# Data sets ---------------------------------------------------------------------------------------------------------------


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
    return _finish(studio, studio.lists.fill(tools, size, near=0.7), calls, text, extra=case["system"][:600])


def _bfcl_irrelevant(studio: Studio, case: dict[str, Any]) -> Example | None:
    if len(str(case["tools"])) > 6000 or not case["tools"]:
        return None
    return Example(case["tools"], [(studio.noisy(case["question"]), studio.refusal())], extra=case["system"][:400])


def bfcl_args(accepted: dict[str, list[Any]], text: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments to train on out of BFCL's accepted values: those that the request spells, and no optional ones it does not name."""
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
    return _finish(studio, studio.lists.fill(needed, studio.lists.size()), calls, studio.noisy(case["question"]))


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
        tools = [item for item in tools[1:] if item["intent"].split("_")[0] != family and not _ANYTHING.search(item["name"])]
        return Example(tools, [(text, studio.refusal())]) if tools and not _clash(tools) else None
    if values.chance(0.3):
        text = (
            text[0].upper()
            + text[1:]
            + values.pick(["", ".", "?" if text.startswith(("what", "how", "is", "when", "who")) else "."])
        )
    return _finish(
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
    return Example(tools, [(studio.noisy(text), answer)]) if tools and not _clash(tools) else None


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
    if not tools or _clash(tools):
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
        tool for tool in studio.corpus.families if not _ANYTHING.search(tool.name) and (tool.domain == family.domain) == near
    ]
    chosen = {tool.name: tool for tool in values.rng.sample(others, min(len(others), values.rng.randint(1, 9)))}
    alike = set(human(family.name).split()) - _COMMON_VERBS
    tools = [tool.schema() for tool in chosen.values() if not alike & set(human(tool.name).split())]
    if not tools or _clash(tools):
        return None
    return Example(tools, [(studio.noisy(studio.sentence(request, family), request.said), studio.refusal())])


def result_rows(texts: list[str]) -> str:
    """Rows told in a sentence."""
    return f"I found {len(texts)}: {enumeration(texts)}." if len(texts) > 1 else f"I found one: {texts[0]}."
