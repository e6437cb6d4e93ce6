"""Definitions become declarations with legal, unique and reversible names."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callgate import strict_json
from callgate.declaration import Declaration, declare, declared_names, digest, tool_config, without_functions
from callgate.errors import JsonError, ToolNotDeclarableError, UsageError
from callgate.types import ToolDefinition

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def tools(*names: str) -> list[ToolDefinition]:
    return [ToolDefinition(name=name) for name in names]


def short_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]


# --- names ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=500 * SCALE)
@given(
    st.lists(st.text(alphabet=st.characters(), max_size=80) | st.text(alphabet="a._-", max_size=4), unique=True, max_size=12)
)
@example(["a.b", "a-b", "a_b", f"a_b_{short_hash('a.b')}", f"a_b_{short_hash('a-b')}"])
def test_declared_names_are_legal_unique_and_reversible(names: list[str]) -> None:
    declared = declared_names(tools(*names))
    assert list(declared.values()) == names
    assert all(LEGAL.fullmatch(name) for name in declared)
    assert all(declared[name] == name for name in names if LEGAL.fullmatch(name))
    assert declared_names(tools(*names)) == declared


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("f", "f"),
        ("_x9", "_x9"),
        ("a" * 64, "a" * 64),
        ("git.status", "git_status"),
        ("9lives", "_9lives"),
        ("a b/c", "a_b_c"),
        ("", "tool"),
        ("...", "tool"),
        ("a" * 65, "a" * 55 + "_" + short_hash("a" * 65)),
        ("café", "caf_" + short_hash("café")),
        ("9" * 64, "_" + "9" * 54 + "_" + short_hash("9" * 64)),
    ],
)
def test_a_name_stays_or_gets_an_alias(name: str, declared: str) -> None:
    assert declared_names(tools(name)) == {declared: name}


def test_names_that_would_be_one_get_a_hash_and_the_legal_one_stays() -> None:
    assert declared_names(tools("a.b", "a_b", "a-b")) == {
        f"a_b_{short_hash('a.b')}": "a.b",
        "a_b": "a_b",
        f"a_b_{short_hash('a-b')}": "a-b",
    }


def test_a_tool_that_is_named_like_the_alias_of_another_replaces_nothing() -> None:
    taken = f"a_b_{short_hash('a.b')}"
    declared = declared_names(tools("a.b", "a_b", taken))
    assert sorted(declared.values()) == sorted(["a.b", "a_b", taken])
    assert declared[taken] == taken


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolNotDeclarableError, match="more than one tool is named 'f'"):
        declare(tools("f", "g", "f"))


# --- the choice ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("required", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        ("validated", {"mode": "VALIDATED"}),
        ("git.status", {"mode": "ANY", "allowedFunctionNames": ["git_status"]}),
        ("git_status", {"mode": "ANY", "allowedFunctionNames": ["git_status"]}),
        ("f", {"mode": "ANY", "allowedFunctionNames": ["f"]}),
    ],
)
def test_each_choice_has_its_configuration(choice: str, config: Any) -> None:
    assert tool_config(choice, declared_names(tools("git.status", "f"))) == {"functionCallingConfig": config}


@pytest.mark.parametrize("choice", ["auto", "none", "validated"])
def test_without_tools_there_is_nothing_to_configure(choice: str) -> None:
    assert tool_config(choice, {}) is None
    declaration = declare([], tool_choice=choice)
    assert (declaration.tools, declaration.tool_config, declaration.names, declaration.losses) == ([], None, {}, [])


@pytest.mark.parametrize(
    ("choice", "names"), [("required", {}), ("f", {}), ("g", {"f": "f"}), ("AUTO", {"f": "f"}), (None, {"f": "f"})]
)
def test_a_choice_that_cannot_be_kept_is_refused(choice: Any, names: Any) -> None:
    with pytest.raises(UsageError, match=f"tool_choice={choice!r}"):
        tool_config(choice, names)


# --- declarations --------------------------------------------------------------------------------------------------------


def test_all_tools_are_declared_in_one_object_in_their_order() -> None:
    declaration = declare(
        [
            ToolDefinition(name="b.c", description="Does it.", input_schema=SCHEMA),
            ToolDefinition(name="a", title="A title"),
            ToolDefinition(name="z"),
        ],
        tool_choice="required",
    )
    assert declaration.tools == [
        {
            "functionDeclarations": [
                {"name": "b_c", "description": "Does it.", "parametersJsonSchema": SCHEMA},
                {"name": "a", "description": "A title"},
                {"name": "z", "description": "Calls z."},
            ]
        }
    ]
    assert declaration.tool_config == {"functionCallingConfig": {"mode": "ANY"}}
    assert declaration.names == {"b_c": "b.c", "a": "a", "z": "z"}


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({}, False),
        ({"type": "object"}, False),
        ({"type": "object", "properties": {}, "required": []}, False),
        ({"type": "object", "properties": {}, "additionalProperties": False, "title": "x", "$schema": "s"}, False),
        (SCHEMA, True),
        ({"type": "object", "additionalProperties": True}, True),
        ({"type": "object", "additionalProperties": {"type": "string"}}, True),
        ({"$ref": "#/$defs/A", "$defs": {"A": SCHEMA}}, True),
        ({"anyOf": [SCHEMA]}, True),
        ({"type": "object", "required": ["a"]}, True),
        ({"type": "object", "patternProperties": {"^a": {}}}, True),
        ({"type": "object", "minProperties": 1}, True),
    ],
)
def test_a_schema_is_left_out_only_if_it_says_nothing(schema: Any, sent: bool) -> None:
    (declared,) = declare([ToolDefinition(name="f", input_schema=schema)]).tools[0]["functionDeclarations"]
    assert ("parametersJsonSchema" in declared) is sent


def test_the_same_definitions_give_the_same_bytes() -> None:
    def sent() -> bytes:
        declaration = declare([ToolDefinition(name=name, input_schema=dict(SCHEMA)) for name in ("b.c", "b-c", "é", "a")])
        return strict_json.dump([declaration.tools, declaration.tool_config, declaration.names])

    assert sent() == sent()


def test_more_tools_than_a_request_may_have_are_refused() -> None:
    assert len(declare(tools(*(f"t{n}" for n in range(512)))).names) == 512
    with pytest.raises(ToolNotDeclarableError, match="at most 512"):
        declare(tools(*(f"t{n}" for n in range(513))))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"surface": "moon"}, "unknown surface 'moon'"),
        ({"schema_field": "schema"}, "unknown schema field 'schema'"),
    ],
)
def test_unknown_options_are_refused(options: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        declare([], **options)


# --- schemas -------------------------------------------------------------------------------------------------------------


def test_the_schema_message_is_sent_on_request() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"], "x-y": 1}}, "additionalProperties": False}
    tool = ToolDefinition(name="f", description="d", input_schema=schema)
    declaration = declare([tool], schema_field="parameters")
    sent = {"type": "object", "properties": {"a": {"type": "string", "nullable": True}}}
    assert declaration.tools == [{"functionDeclarations": [{"name": "f", "description": "d", "parameters": sent}]}]
    assert [(loss.tool, loss.pointer, loss.keyword) for loss in declaration.losses] == [
        ("f", "/additionalProperties", "additionalProperties"),
        ("f", "/properties/a/x-y", "x-y"),
    ]
    vertex = declare([tool], schema_field="parameters", surface="vertex").tools[0]["functionDeclarations"][0]
    assert vertex["parameters"] == {**sent, "additionalProperties": False}


def test_what_cannot_be_sent_of_free_arguments_is_said_of_the_tool() -> None:
    tool = ToolDefinition(name="f", description="Does it.", input_schema={"additionalProperties": {"type": "integer"}})
    (declared,) = declare([tool], schema_field="parameters").tools[0]["functionDeclarations"]
    assert declared == {"name": "f", "description": "Does it.\nArguments: (any keys, each value: integer)"}


def test_a_tool_that_cannot_be_declared_takes_no_other_down() -> None:
    declaration = declare(
        [
            ToolDefinition(name="good", input_schema=SCHEMA),
            ToolDefinition(name="broken", input_schema={"type": "strin"}),
            ToolDefinition(name="a.b", input_schema={"type": "string"}),
            ToolDefinition(name="a_b", input_schema=SCHEMA),
        ]
    )
    assert declaration.names == {"good": "good", "a_b": "a_b"}
    assert [d["name"] for d in declaration.tools[0]["functionDeclarations"]] == ["good", "a_b"]
    assert list(declaration.quarantined) == ["broken", "a.b"]
    assert declaration.quarantined["broken"].startswith("tool 'broken': its input schema is not usable at /type")
    assert "tool 'a.b': its input schema accepts no object" in declaration.quarantined["a.b"]


def test_a_tool_that_cannot_be_declared_cannot_be_chosen() -> None:
    broken = ToolDefinition(name="broken", input_schema={"type": "strin"})
    with pytest.raises(UsageError, match=r"tool_choice='broken' cannot be declared: tool 'broken'"):
        declare([broken, *tools("f")], tool_choice="broken")
    assert declare([broken]).tools == []


def test_heavy_declarations_are_named() -> None:
    def heavy(name: str, schema: Any) -> ToolDefinition:
        return ToolDefinition(name=name, input_schema={"type": "object", "properties": {"x": schema}})

    deep: Any = {"type": "string"}
    for _ in range(20):
        deep = {"type": "object", "properties": {"a": deep}}
    declaration = declare([heavy("deep", deep), heavy("long", {"enum": [f"value {n}" for n in range(6_000)]}), *tools("f")])
    first, *others = declaration.warnings
    assert first.startswith("the schemas of 2 tools take ")
    assert "'long' (" in first
    assert others == [
        f"schemas that take more bytes than 15000 may be refused: 'long' ({_size(declaration, 'long')})",
        "schemas that are nested deeper than 12 may be refused: 'deep' (22)",
        "schemas that list more values and alternatives than 500 may be refused: 'long' (6000)",
    ]
    assert declare(tools("f")).warnings == []


def _size(declaration: Any, name: str) -> int:
    declared = {d["name"]: d for d in declaration.tools[0]["functionDeclarations"]}
    return len(strict_json.dump(declared[name]["parametersJsonSchema"]))


# --- digests -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "g"}, True),
        ({"description": "x"}, True),
        ({"title": "x"}, True),
        ({"input_schema": SCHEMA}, True),
        ({"server": "s"}, True),
        ({"kind": "mcp"}, True),
        ({"read_only": True}, True),
        ({"idempotent": True}, True),
        ({"timeout_s": 1.0}, False),
        ({"sequential": True}, False),
    ],
)
def test_a_digest_changes_with_what_was_told_of_a_tool(change: Any, told: bool) -> None:
    definition = ToolDefinition(name="f")
    assert digest(definition) == digest(ToolDefinition(name="f"))
    assert (digest(replace(definition, **change)) != digest(definition)) is told


def test_a_schema_that_json_cannot_say_has_no_digest() -> None:
    with pytest.raises(JsonError):
        digest(ToolDefinition(name="f", input_schema={"a": float("nan")}))


def test_what_runs_at_google_stays_when_functions_are_left_out():
    declaration = declare([ToolDefinition(name="f")], built_in=["google_search"])
    assert without_functions(declaration) == Declaration(tools=[{"googleSearch": {}}], tool_config=None, names={})
    assert without_functions(declare([ToolDefinition(name="f")])).tools == []


def test_functions_beside_tools_that_run_at_google_are_validated_unless_another_choice_is_made() -> None:
    f = ToolDefinition(name="f")
    assert declare([f], built_in=["googleSearch"]).tool_config == {"functionCallingConfig": {"mode": "VALIDATED"}}
    assert declare([f], built_in=["computerUse"]).tool_config == {"functionCallingConfig": {"mode": "AUTO"}}
    assert declare([f], built_in=["googleSearch"], tool_choice="none").tool_config == {
        "functionCallingConfig": {"mode": "NONE"}
    }
    assert declare([], built_in=["googleSearch"]).tool_config is None


def test_what_is_no_definition_is_refused_with_the_way_to_make_one() -> None:
    for item in (print, {"name": "f"}, "f"):
        with pytest.raises(UsageError, match=r"make one with definition_from\(\)"):
            declare([item])  # type: ignore[list-item]
    with pytest.raises(ToolNotDeclarableError, match="the name None, which is not text"):
        declare([ToolDefinition(name=None)])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"tool_choice=\['f'\] is neither"):
        declare([ToolDefinition(name="f")], tool_choice=["f"])  # type: ignore[arg-type]


def test_a_tool_without_a_name_is_left_out_and_the_others_are_declared() -> None:
    declaration = declare([ToolDefinition(name=" "), ToolDefinition(name="f")])
    assert (declaration.names, list(declaration.quarantined)) == ({"f": "f"}, [" "])
