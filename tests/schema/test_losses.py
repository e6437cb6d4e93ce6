"""What is sent of a schema is never narrower, and wherever it is wider a loss says so at that place; drafts included."""

from __future__ import annotations

import json
import os
import random
from typing import Any, ClassVar

import pytest

from callgate.definitions.json_node import value_at
from callgate.errors import ToolNotDeclarableError
from callgate.schema import check_arguments, compile_schema
from callgate.schema.refs import escaped
from callgate.schema.validator import usable_validator
from callgate.types import Loss, ToolDefinition

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
SCHEMAS = 60 if SCALE == 1 else 310 * SCALE
"""For each of the drafts; in a soak of scale 20 more than 30,000 in all, with some millions of verdicts."""
INSTANCES = 30
DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
NAMES = ("a", "b", "$ref", "enum", "é")
TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
REFS = ("#", "#/definitions/A", "#/definitions/B", "#/properties/a")
TEXTS = ("", "a", "ab", "abc")
NUMBERS = (-2, -1, 0, 0.5, 1, 2, 3, 10)


INWARD = frozenset(
    ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "items", "additionalItems",
     "prefixItems", "unevaluatedItems", "contains")
)  # fmt: skip
"""Keywords whose schemas are about what is in a value."""


class Maker:
    """Makes up schemas of one draft."""

    def __init__(self, chance: random.Random, draft: int) -> None:
        self.chance = chance
        self.draft = draft

    def value(self, depth: int = 0) -> Any:
        pick = self.chance.randrange(7 if depth < 2 else 5)
        if pick < 5:
            return (None, self.chance.random() < 0.5, *[self.chance.choice(NUMBERS)] * 2, self.chance.choice(TEXTS))[pick]
        inner = [self.value(depth + 1) for _ in range(self.chance.randrange(3))]
        return inner if pick == 5 else dict(zip(self.chance.sample(NAMES, len(inner)), inner, strict=True))

    def whole(self) -> dict[str, Any]:
        schema = self.schema(0)
        schema |= {
            "properties": {name: self.schema(1) for name in self.chance.sample(NAMES, 2)},
            "$schema": DRAFTS[self.draft],
        }
        schema["definitions"] = {"A": self.schema(1), "B": self.schema(1)}
        if self.chance.random() < 0.8:
            schema["type"] = "object"
        return schema

    def schema(self, depth: int) -> dict[str, Any]:
        words = self.chance.sample(sorted(self.words), self.chance.choice((0, 1, 1, 2, 2, 3)))
        return {word: value for word in words if (value := self.words[word](self, depth)) is not None}

    def inner(self, depth: int) -> Any:
        if depth > 3:
            return {"type": self.chance.choice(TYPES)}
        return self.schema(depth + 1) if self.draft == 4 or self.chance.random() < 0.9 else self.chance.random() < 0.7

    def some(self, depth: int) -> list[Any]:
        return [self.inner(depth) for _ in range(self.chance.randrange(1, 4))]

    def named(self, depth: int) -> dict[str, Any]:
        return {name: self.inner(depth) for name in self.chance.sample(NAMES, self.chance.randrange(3))}

    def exclusive(self, depth: int) -> Any:
        return None if self.draft == 4 else self.chance.choice(NUMBERS)

    def items(self, depth: int) -> Any:
        return self.some(depth) if self.draft < 2020 and self.chance.random() < 0.3 else self.inner(depth)

    def names(self, depth: int) -> list[str] | None:
        found = self.chance.sample(NAMES, self.chance.randrange(3))
        return found or (None if self.draft == 4 else found)

    def values(self, depth: int) -> list[Any]:
        found = {repr(value): value for value in (self.value() for _ in range(self.chance.randrange(1, 5)))}
        return list(found.values())

    def keys(self, depth: int) -> Any:
        return self.chance.choice([{"enum": ["a", "b"]}, {"maxLength": 1}, {"pattern": "^a"}])

    words: ClassVar[dict[str, Any]] = {
        "type": lambda self, depth: self.chance.choice([*TYPES, self.chance.sample(TYPES, 2)]),
        "enum": values,
        "const": lambda self, depth: self.value(),
        **dict.fromkeys(("minimum", "maximum"), lambda self, depth: self.chance.choice(NUMBERS)),
        **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), exclusive),
        "multipleOf": lambda self, depth: self.chance.choice((1, 2, 3)),
        **dict.fromkeys(
            ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
            lambda self, depth: self.chance.randrange(3),
        ),
        "pattern": lambda self, depth: self.chance.choice(("^a", "b$", "^[^b]*$")),
        "format": lambda self, depth: "date",
        "uniqueItems": lambda self, depth: self.chance.random() < 0.8,
        "items": items,
        "additionalItems": lambda self, depth: self.inner(depth) if self.draft < 2020 else None,
        **dict.fromkeys(("additionalProperties", "contains", "not", "if", "then", "else"), inner),
        **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), inner),
        **dict.fromkeys(("anyOf", "oneOf", "allOf"), some),
        "prefixItems": some,
        **dict.fromkeys(("properties", "dependentSchemas"), named),
        "patternProperties": lambda self, depth: {"^a": self.inner(depth)},
        "propertyNames": keys,
        "required": names,
        "dependentRequired": lambda self, depth: {"a": ["b"]},
        "dependencies": lambda self, depth: {"a": ["b"]},
        "$ref": lambda self, depth: self.chance.choice(REFS),
        "description": lambda self, depth: "Words.",
        "default": lambda self, depth: self.value(),
    }  # fmt: skip


def is_told(schema: Any, error: Any, losses: list[Loss]) -> bool:
    """Whether a loss says why a value may pass: at the place of the keyword that refuses it, above it or below it.

    The validator names the place where a reference leads to, and a loss may stand where it comes from. So if a reference is
    on the way, or in what refuses the value, these count as well: losses of a definition, of a keyword on the way, of the
    reference itself, and of the properties that the value lies in.
    """
    steps = [str(step) for step in error.schema_path]
    at = f"{''.join(f'/{escaped(step)}' for step in steps)}/"
    within = [f"/properties/{escaped(step)}/" for step in error.instance_path]
    has_reference = (
        "$ref" in steps
        or at.startswith("/definitions/")
        or len(INWARD & {*steps}) < bool(error.instance_path)  # From inside of the value back to the whole schema.
        or '"$ref": "' in json.dumps(value_at(schema, at[:-1]))
    )

    def tells(loss: Loss) -> bool:
        where = f"{loss.pointer.removesuffix(f'/{loss.keyword}') if loss.keyword in ('enum', 'const') else loss.pointer}/"
        if at.startswith(where) or where.startswith(at) or loss.keyword == "$ref":
            return True
        if loss.keyword == "if" and {"then", "else"} & {*steps}:
            return at.startswith(where.removesuffix("if/"))
        return has_reference and (
            loss.keyword in {*steps, *INWARD} or where.startswith("/definitions/") or any(x in where for x in within)
        )

    return any(map(tells, losses))


def drawn(corpus: Any, draft: int, seed: int) -> tuple[Any, Any, list[Any]]:
    """A random schema, its validator, and values of which some fit; no values for a schema that cannot be declared."""
    chance = random.Random(seed)
    schema = Maker(chance, draft).whole()
    try:
        own = usable_validator(schema, None).root
    except ToolNotDeclarableError:
        return schema, None, []
    arguments = corpus.Arguments(schema, chance)
    made = [arguments.value() for _ in range(INSTANCES)] + [Maker(chance, draft).value() for _ in range(INSTANCES)]
    return schema, own, made


def judged(wire: Any, corpus: Any, draft: int, seed: int) -> list[Any]:
    schema, own, made = drawn(corpus, draft, seed)
    if own is None:
        return []
    instances = [args for args in made if isinstance(args, dict)]
    found: list[Any] = []
    for field, surface in wire.forms:
        try:
            compiled = compile_schema(schema, field=field, surface=surface)
        except ToolNotDeclarableError as error:
            found += [("refused", field, str(error), schema, args) for args in instances if own.is_valid(args)][:1]
            continue
        if wire.faults(compiled, field, surface):
            found.append(("faulty", field, wire.faults(compiled, field, surface), schema))
        is_empty = compiled.schema is None and not compiled.note
        for args in instances:
            is_sent = wire.accepts(compiled, field, args)
            if own.is_valid(args) and not is_sent:
                found.append(("narrower", field, compiled.schema, schema, args))
            elif is_sent and not own.is_valid(args):
                errors = list(own.iter_errors(args))
                # A tool that takes no arguments is sent none, and that says it all.
                if is_empty and any("additionalProperties" in error.schema_path for error in errors):
                    continue
                if not any(is_told(schema, error, compiled.losses) for error in errors):
                    found.append(("untold", field, [*errors[0].schema_path], compiled.schema, schema, args))
    return found


def checked(corpus: Any, draft: int, seed: int) -> list[Any]:
    """What is wrong with checks of arguments: valid ones must stay as they are, and others be refused or become valid."""
    schema, own, made = drawn(corpus, draft, seed)
    if own is None:
        return []
    tool = ToolDefinition(name="f", input_schema=schema)
    found: list[Any] = []
    for args in (args for args in made if isinstance(args, dict)):
        written = json.dumps(args)
        outcome = check_arguments(tool, args)
        is_kept = not outcome.problems and json.dumps(outcome.args) == written
        if own.is_valid(args) and not is_kept:
            found.append(("valid", schema, args, outcome))
        elif not own.is_valid(args) and not outcome.problems and not own.is_valid(outcome.args):
            found.append(("invalid", schema, args, outcome))
        elif json.dumps(args) != written:
            found.append(("changed", schema, args, outcome))
    return found


@pytest.mark.parametrize("draft", DRAFTS)
def test_valid_arguments_stay_and_others_are_refused_or_become_valid(corpus, draft) -> None:
    found = [fault for seed in range(SCHEMAS) for fault in checked(corpus, draft, draft * 2_000_000 + seed)]
    assert found[:1] == []


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_form_is_as_wide_as_its_schema_and_tells_where_it_is_wider(wire, corpus, draft) -> None:
    found = [fault for seed in range(SCHEMAS) for fault in judged(wire, corpus, draft, draft * 1_000_000 + seed)]
    assert found[:1] == []


def losses_of(schema: dict[str, Any], field: str) -> list[tuple[str, str]]:
    compiled = compile_schema(schema, field=field)  # pyright: ignore[reportArgumentType]
    return [(loss.pointer, loss.keyword) for loss in compiled.losses]


def test_a_word_that_its_draft_does_not_know_narrows_nothing() -> None:
    schema = {"$schema": DRAFTS[4], "type": "object", "propertyNames": {"enum": ["a"]}}
    assert compile_schema(schema).schema is None
    needed = compile_schema({**schema, "properties": {"b": {}}, "required": ["b"]}).schema
    assert needed is not None
    assert needed["required"] == ["b"]


@pytest.mark.parametrize(
    ("values", "limits", "left"),
    [
        ([1, 2, 3, 10], {"minimum": 5}, [10]),
        ([1, 2, 3], {"maximum": 2}, [1, 2]),
        ([1, 2, 3], {"exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2]),
        (["a", "bb", "ccc"], {"minLength": 2, "maxLength": 2}, ["bb"]),
        (["a", 1, True], {"minimum": 2}, ["a"]),
    ],
)
def test_listed_values_are_those_that_keep_to_the_limits_beside_them(values, limits, left) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": values, **limits}}}
    compiled = compile_schema(schema)
    assert compiled.schema is not None
    sent = compiled.schema["properties"]["x"]
    branches = sent.get("anyOf", [sent])
    assert [value for branch in branches for value in branch.get("enum", [])] == left
    assert not {loss.keyword for loss in compiled.losses} & {*limits}


@pytest.mark.parametrize("field", ["parametersJsonSchema", "parameters"])
@pytest.mark.parametrize("condition", [{}, True, False, {"required": ["b"]}])
def test_a_condition_is_told_if_anything_depends_on_it(field, condition) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "if": condition}
    assert losses_of({**schema, "then": {"required": ["a"]}}, field) == [("/if", "if")]
    assert losses_of({**schema, "else": {"required": ["a"]}}, field) == [("/if", "if")]
    assert losses_of(schema, field) == []


def test_what_cannot_be_sent_beside_or_around_listed_values_is_told() -> None:
    def tool(x: Any) -> dict[str, Any]:
        return {"type": "object", "properties": {"x": x}}

    assert losses_of(tool({"type": "string", "enum": ["a", "b"], "format": "email"}), "parametersJsonSchema") == [
        ("/properties/x/format", "format")
    ]
    assert losses_of(tool({"enum": [4, 5, 6], "multipleOf": 2}), "parameters") == [
        ("/properties/x/multipleOf", "multipleOf")
    ]
    assert losses_of({"type": "object", "enum": [{"b": 1}], "required": ["b"]}, "parameters") == [("/enum", "enum")]
    assert losses_of({"type": "object", "const": {}}, "parameters") == [("/const", "const")]


@pytest.mark.parametrize("surface", ["developer", "vertex"])
def test_what_a_tool_without_named_arguments_asks_for_is_said(surface) -> None:
    for root, words in (
        ({"minProperties": 2}, "at least 2 keys"),
        ({"maxProperties": 2}, "at most 2 keys"),
        ({"additionalProperties": {"type": "integer"}}, "any keys, each value: integer"),
    ):
        compiled = compile_schema({"type": "object", **root}, field="parameters", surface=surface)
        assert (compiled.schema, compiled.note) == (None, f"({words})")
        assert [loss.keyword for loss in compiled.losses] == [*root]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "required": ["a"],
            "$defs": {
                "A": {"type": "object", "allOf": [{"$ref": "#/$defs/B"}]},
                "B": {"properties": {"b": {"$ref": "#/$defs/A"}}, "required": ["b"]},
            },
        },
        {"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "required": ["n"]},
        {"type": "object", "properties": {"n": {"oneOf": [{"$ref": "#"}]}}, "required": ["n"]},
        {"type": "object", "properties": {"n": {"type": "array", "items": {"$ref": "#"}, "minItems": 2}}, "required": ["n"]},
        {
            "type": "object",
            "properties": {"n": {"type": "array", "minItems": 1, "prefixItems": [{"$ref": "#"}]}},
            "required": ["n"],
        },
        {"type": "object", "properties": {"n": {"type": "array", "contains": {"$ref": "#"}}}, "required": ["n"]},
        {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#"}},
        {"type": "object", "required": ["x"], "additionalProperties": {"$ref": "#"}},
        {"type": "object", "properties": {"n": {"$ref": "#"}}, "minProperties": 1, "additionalProperties": False},
    ],
)
def test_a_tool_whose_arguments_could_never_end_is_refused(schema) -> None:
    for field in ("parametersJsonSchema", "parameters"):
        with pytest.raises(ToolNotDeclarableError, match="without end"):
            compile_schema(schema, field=field)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "anyOf": [{"$ref": "#"}]},
        {"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#"}, {"enum": [{}]}]}}, "required": ["n"]},
        {"type": "object", "properties": {"n": {"type": "array", "items": {"$ref": "#"}}}, "required": ["n"]},
        {"type": "object", "minProperties": 1, "properties": {"s": {}}, "additionalProperties": {"$ref": "#"}},
        {"type": "object", "required": ["x"], "patternProperties": {"^x": {}}, "additionalProperties": {"$ref": "#"}},
        {
            "$schema": DRAFTS[2019],
            "type": "object",
            "properties": {"n": {"type": "array", "contains": {"$ref": "#"}, "minContains": 0}},
            "required": ["n"],
        },
        {
            "$schema": DRAFTS[4],
            "type": "object",
            "properties": {"n": {"type": "array", "contains": {"$ref": "#"}}},
            "required": ["n"],
        },
    ],
)
def test_a_tool_whose_arguments_may_end_is_declared(schema) -> None:
    for field in ("parametersJsonSchema", "parameters"):
        compile_schema(schema, field=field)


def test_a_required_reference_to_the_root_may_end_where_it_can_be_no_object() -> None:
    assert compile_schema({"properties": {"next": {"$ref": "#"}}, "required": ["next"]}).schema is not None
    nullable = {"type": ["object", "null"], "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert compile_schema(nullable).schema is not None
