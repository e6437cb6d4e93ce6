"""The list of tools of an example: distractors, other names, other parameters.

Tools come in; lists with more tools and changed names go out, and calls are changed with them. The changes teach the
model to read the list: the same request must work whatever a tool and its parameters are called.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.corpus import Corpus, human
from training.families import FamilyTool
from training.format import Call, tool_text
from training.values import Values

LIST_CHARS = 5200
_VERBS = {
    "get": ("fetch", "lookup", "retrieve", "show", "read"),
    "find": ("search", "lookup", "locate"),
    "search": ("find", "query", "lookup"),
    "create": ("add", "make", "new", "register"),
    "add": ("create", "insert", "append", "put"),
    "set": ("change", "update", "configure", "adjust"),
    "delete": ("remove", "drop", "erase"),
    "remove": ("delete", "drop"),
    "list": ("show", "get", "enumerate"),
    "send": ("deliver", "post", "submit"),
    "book": ("reserve", "schedule", "order"),
    "cancel": ("revoke", "drop", "stop"),
    "update": ("change", "edit", "modify"),
    "start": ("run", "launch", "begin"),
    "check": ("verify", "get", "query"),
    "log": ("record", "add", "track"),
    "convert": ("transform", "change"),
    "track": ("follow", "locate"),
}
_PARAMETERS = {
    "path": ("file_path", "filename", "file", "filepath"),
    "location": ("city", "place", "where"),
    "city": ("location", "town", "place"),
    "query": ("q", "search_text", "term", "keywords"),
    "text": ("content", "message", "input"),
    "to": ("recipient", "target", "receiver"),
    "name": ("title", "label"),
    "title": ("name", "subject", "heading"),
    "date": ("day", "on_date", "when"),
    "time": ("at", "start_time", "hour"),
    "amount": ("sum", "value", "total"),
    "quantity": ("count", "number", "qty"),
    "limit": ("max_results", "top", "max_items"),
    "room": ("room_name", "area"),
    "service": ("service_name", "app", "target"),
    "person": ("user", "who", "member"),
    "order_id": ("order_number", "order", "id"),
    "message": ("text", "comment"),
    "body": ("text", "message", "content"),
    "email": ("mail", "email_address"),
    "language": ("lang", "target_lang"),
    "symbol": ("ticker", "stock"),
    "content": ("text", "data"),
    "people": ("guests", "persons", "party_size"),
    "restaurant": ("place", "venue"),
    "sku": ("article", "product_id", "item"),
    "number": ("no", "id"),
}
# Optional parameters that no request speaks of: the model must leave them out.
UNSPOKEN = {
    "verbose": {"type": "boolean", "description": "More output"},
    "dry_run": {"type": "boolean", "description": "Only show what would be done"},
    "timeout": {"type": "integer", "description": "Seconds to wait"},
    "format": {"type": "string", "description": "Output format", "enum": ["json", "text", "csv"]},
    "lang": {"type": "string", "description": "Language of the answer"},
    "tags": {"type": "array", "description": "Labels", "items": {"type": "string"}},
    "request_id": {"type": "string", "description": "Id to trace the request"},
    "max_retries": {"type": "integer", "description": "How often to try again"},
    "notify_email": {"type": "string", "description": "Address to notify"},
    "page": {"type": "integer", "description": "Page of the results. Default 1."},
    "region": {"type": "string", "description": "Region, default eu"},
    "owner": {"type": "string", "description": "Who it belongs to"},
    "priority": {"type": "string", "description": "Priority", "enum": ["low", "normal", "high"]},
    "comment": {"type": "string", "description": "Free text"},
    "callback_url": {"type": "string", "description": "URL called when finished"},
    "sort_by": {"type": "string", "description": "Field to sort by"},
    "include_archived": {"type": "boolean", "description": "Also old ones. Default false."},
}


@dataclass(slots=True)
class Variant:
    """A family tool as one example shows it."""

    family: FamilyTool
    schema: dict[str, Any]
    renamed: dict[str, str]

    def call(self, args: dict[str, Any]) -> Call:
        """The call of this variant with a family's arguments, in the order of the schema."""
        given = {self.renamed[name]: value for name, value in args.items()}
        return self.schema["name"], {name: given[name] for name in self.schema["parameters"]["properties"] if name in given}


class ToolLists:
    """Makes tool lists out of a corpus."""

    def __init__(self, corpus: Corpus, values: Values) -> None:
        self.corpus, self.values = corpus, values
        self.domains: dict[str, list[FamilyTool]] = {}
        for tool in corpus.families:
            self.domains.setdefault(tool.domain, []).append(tool)
        self.plain_families = [tool.schema() for tool in corpus.families]

    def size(self) -> int:
        """How many tools a list has: often one, at times 25."""
        rng, roll = self.values.rng, self.values.rng.random()
        for share, low, high in ((0.17, 1, 1), (0.42, 2, 4), (0.74, 5, 8), (0.92, 9, 14)):
            if roll < share:
                return rng.randint(low, high)
        return rng.randint(15, 25)

    def family_variant(self, family: FamilyTool, *, plain: float = 0.3) -> Variant:
        """The tool under one of its names, at times with other parameter names, another order and more parameters."""
        values = self.values
        if values.chance(plain):
            return Variant(family, family.schema(), {name: name for name in family.properties})
        schema = family.schema(values.rng.randrange(len(family.names)))
        if values.chance(0.25):
            schema["name"] = self._other_verb(schema["name"])
        parameters = schema["parameters"]
        renamed = {name: self._other_parameter(name, family) if values.chance(0.25) else name for name in family.properties}
        if values.chance(0.1):
            renamed = {name: _camel(new) for name, new in renamed.items()}
        if len(set(renamed.values())) < len(renamed):
            renamed = {name: name for name in family.properties}
        properties = {renamed[name]: value for name, value in parameters["properties"].items()}
        if values.chance(0.3):
            for name in values.rng.sample(sorted(UNSPOKEN), values.rng.randint(1, 3)):
                properties.setdefault(name, dict(UNSPOKEN[name]))
        names = list(properties)
        if values.chance(0.25):
            values.rng.shuffle(names)
        if values.chance(0.08):
            properties = {name: value | {"description": ""} for name, value in properties.items()}
        parameters["properties"] = {name: properties[name] for name in names}
        parameters["required"] = [renamed[name] for name in family.required]
        return Variant(family, schema, renamed)

    def _other_verb(self, name: str) -> str:
        for verb, others in _VERBS.items():
            if re.match(rf"{verb}(?=[_A-Z]|$)", name):
                return self.values.pick(others) + name[len(verb) :]
        return name

    def _other_parameter(self, name: str, family: FamilyTool) -> str:
        new = self.values.pick(_PARAMETERS.get(name, (name,)))
        return name if new in family.properties else new

    def neighbours(self, family: FamilyTool, count: int) -> list[dict[str, Any]]:
        """Other tools of the same domain."""
        others = [tool for tool in self.domains[family.domain] if tool.name != family.name]
        chosen = self.values.rng.sample(others, min(count, len(others)))
        return [self.family_variant(tool).schema for tool in chosen]

    def fill(self, tools: Sequence[dict[str, Any]], count: int, *, near: float = 0.5) -> list[dict[str, Any]]:
        """The tools and others up to `count`, in any order; `near` is the share from the same origin as the first."""
        values, corpus = self.values, self.corpus
        out = list({tool["name"]: tool for tool in reversed(tools)}.values())[::-1]
        names = {tool["name"] for tool in out}
        used = sum(len(tool_text(tool)) for tool in out)
        group = corpus.groups.get(tools[0].get("source", "")) if tools else None
        for _ in range(count * 3):
            if len(out) >= count:
                break
            if group and values.chance(near):
                candidate = values.pick(group)
            else:
                pools = (
                    self.plain_families,
                    self.plain_families,
                    corpus.pools["seal"],
                    corpus.pools["bfcl"],
                    corpus.pools["api"],
                )
                candidate = values.pick(values.pick(pools))
            size = len(tool_text(candidate))
            if candidate["name"] in names or used + size > LIST_CHARS:
                continue
            names.add(candidate["name"])
            used += size
            out.append(candidate)
        values.rng.shuffle(out)
        return out

    def restyle(
        self, tools: list[dict[str, Any]], calls: list[Call], *, share: float = 0.3
    ) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The tools with their names in one style, and the new name of each; the same ones for most lists."""
        same = {tool["name"]: tool["name"] for tool in tools}
        if not self.values.chance(share):
            return tools, same
        style = self.values.pick((_snake, _snake, _camel_name, _dotted))
        new = {name: style(name) for name in same}
        if len(set(new.values())) < len(new) or not all(new.values()) or self.corpus.excluded & set(new.values()):
            return tools, same
        return [tool | {"name": new[tool["name"]]} for tool in tools], new


def _camel(name: str) -> str:
    first, *others = human(name).split()
    return first + "".join(word.capitalize() for word in others)


def _parts(name: str, count: int) -> str:
    return "_".join([part for part in re.split(r"[._]", name) if part][-count:])


def _snake(name: str) -> str:
    return human(_parts(name, 3)).replace(" ", "_")


def _camel_name(name: str) -> str:
    return _camel(_parts(name, 2))


def _dotted(name: str) -> str:
    return ".".join([part for part in re.split(r"[._]", name) if part][-2:])
