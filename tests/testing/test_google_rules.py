"""The judge: what Google takes passes, and every rule refuses in Google's words."""

import copy
from typing import Any

import pytest
from google.genai import types as genai_types

from callgate.testing.google_declarations import json_schema_refusals, schema_refusals
from callgate.testing.google_fields import ENUMS, decode_base64, fit, snake
from callgate.testing.google_rules import RULES, generation, judge, judge_all, parse_body

SIGNATURE = "EjTHEzbNoaOyElECCTcBbQ=="
NEW, OLD, ELDER = "gemini-3.8-flash", "gemini-3.5-flash", "gemini-2.5-flash"
WX = {
    "name": "wx",
    "description": "Weather.",
    "parametersJsonSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def asked(text: str = "Oslo and Rome?") -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def called(*ids: str | None, signature: str | None = SIGNATURE) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"functionCall": {"name": "wx", "args": {"city": "Oslo"}} | ({"id": each} if each else {})} for each in ids
    ]
    return {"role": "model", "parts": [parts[0] | ({"thoughtSignature": signature} if signature else {}), *parts[1:]]}


def answered(*ids: str | None, name: str = "wx", response: Any = None) -> dict[str, Any]:
    made = [
        {"functionResponse": {"name": name, "response": response or {"result": 4}} | ({"id": each} if each else {})}
        for each in ids
    ]
    return {"role": "user", "parts": made}


def answered_with_media(data: str) -> dict[str, Any]:
    inner = {
        "id": "a",
        "name": "wx",
        "response": {"result": 1},
        "parts": [{"inlineData": {"mimeType": "a/b", "data": data}}],
    }
    return {"role": "user", "parts": [{"functionResponse": inner}]}


def body(*contents: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"contents": list(contents or [asked()])} | more


def with_declaration(**declaration: Any) -> dict[str, Any]:
    return body(tools=[{"functionDeclarations": [{"name": "f", "description": "F."} | declaration]}])


def with_schema(**schema: Any) -> dict[str, Any]:
    return with_declaration(parameters={"type": "object", "properties": {"x": schema}})


def message(request: Any, **options: Any) -> str:
    refusal = judge(request, **options)
    assert refusal is not None, "the body was taken"
    return refusal.message


GOOD = {
    "text": body(),
    "no role is user": body({"parts": [{"text": "hi"}]}),
    "parallel calls": body(asked(), called("a", "b"), answered("a", "b"), tools=[{"functionDeclarations": [WX]}]),
    "ids free the order": body(asked(), called("a", "b"), answered("b", "a")),
    "ids only on calls": body(asked(), called("a", "b"), answered(None, None)),
    "two steps": body(asked(), called("a"), answered("a"), called("b"), answered("b")),
    "user after responses": body(asked(), called("a"), answered("a"), asked("and now?")),
    "unsigned call of an earlier turn": body(asked(), called("a", signature=None), answered("a"), asked("next")),
    "signed empty text": body(asked(), {"role": "model", "parts": [{"text": "", "thoughtSignature": SIGNATURE}]}, asked()),
    "skipped signature": body(asked(), called("a", signature="skip_thought_signature_validator"), answered("a")),
    "snake case": {
        "contents": [asked()],
        "tool_config": {"function_calling_config": {"mode": "AUTO"}},
        "generation_config": {},
    },
    "a single part for a list": {"contents": {"parts": {"text": "hi"}}},
    "null is absent": body(tools=None, systemInstruction=None),
    "upper and lower case types": with_declaration(parameters={"type": "OBJECT", "properties": {"a": {"type": "string"}}}),
    "free json schema": with_declaration(
        parameters_json_schema={
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}, "$ref": {"type": "string"}},
            "$defs": {"A": {"const": 1}},
        }
    ),
    "numeric enum": with_schema(type="integer", format="enum", enum=["1", "2"]),
    "allowed names": body(
        tools=[{"functionDeclarations": [WX]}],
        toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["wx"]}},
    ),
    "media reference": body(
        asked(),
        called("a"),
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "a",
                        "name": "wx",
                        "response": {"img": {"$ref": "x.png"}},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA", "displayName": "x.png"}}],
                    }
                }
            ],
        },
    ),
}


@pytest.mark.rows("name", GOOD)
def test_what_google_takes_is_not_refused(name: str) -> None:
    assert judge(GOOD[name]) is None


@pytest.mark.parametrize(
    ("model", "request_body"),
    [
        ("gemini-2.5-flash", {"contents": [{"role": "user", "parts": [{"text": ""}]}]}),
        ("gemini-3-flash-preview", {"contents": [{"role": "user", "parts": [{"text": ""}]}]}),
        (
            "gemini-2.0-flash",
            {
                "contents": [{"role": "user", "parts": [{"text": "?"}]}],
                "tools": [
                    {"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT", "properties": {}}}]},
                ],
            },
        ),
        (
            "gemini-3-pro-image-preview",
            {
                "contents": [{"role": "user", "parts": [{"text": "?"}]}],
                "tools": [{"googleSearch": {}}],
                "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            },
        ),
        (
            "gemini-2.0-flash",
            {"contents": [{"role": "user", "parts": [{"text": "?"}, {"videoMetadata": {"startOffset": "1s"}}]}]},
        ),
    ],
)
def test_what_earlier_models_took_is_not_refused_for_them(model: str, request_body: Any) -> None:
    assert list(judge_all(request_body, model=model)) == []
    assert list(judge_all(request_body, model="gemini-3.8-flash")) != []


def test_judging_changes_nothing() -> None:
    request = copy.deepcopy(GOOD["parallel calls"])
    judge(request)
    assert request == GOOD["parallel calls"]


MIXED = {"role": "user", "parts": [*answered("a")["parts"], {"text": "also"}]}
BARE = "Request contains an invalid argument."
COUNT = "number of function response parts is equal to the number of function call parts"

BAD_CONTENTS = {
    "contents_exist": ({"contents": []}, "contents is not specified"),
    "role": (
        body(asked(), called("a"), answered("a") | {"role": "function"}),
        "Role 'function' is not supported. Please use a",
    ),
    "parts_exist": (body({"role": "user", "parts": []}), "parts must not be empty"),
    "part_data": (body({"role": "user", "parts": [{"text": ""}]}), "Model input cannot be empty."),
    "part_data two": (
        body({"role": "user", "parts": [{"text": "a", "functionCall": {"name": "x"}}]}),
        "'data' is already set",
    ),
    "part_data none": (body({"role": "user", "parts": [{"thought": True}]}), "must have one initialized field"),
    "media_given": (
        body({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": ""}}]}),
        "inline_data.data",
    ),
    "media_given type": (body({"role": "user", "parts": [{"inlineData": {"data": "AAAA"}}]}), "inline_data.mime_type"),
    "media_given response": (
        body(asked(), called("a"), answered_with_media("")),
        "function_response.parts[0].inline_data.data",
    ),
    "names_given": (body(asked(), called("a"), answered("a", name="")), "function_response.name: Name cannot be empty."),
    "system_is_text": (body(systemInstruction={"parts": [{"inlineData": {"data": "AAAA"}}]}), BARE),
    "first_turn": (body({"role": "model", "parts": [{"text": "hi"}]}, asked()), "alternate between user and model"),
    "call_turn_place": (
        body(asked(), {"role": "model", "parts": [{"text": "a"}]}, called("a"), answered("a")),
        "function call turn",
    ),
    "call_turn_place first": (body(called("a"), answered("a")), "function call turn comes immediately after a user turn"),
    "response_turn_place": (
        body(asked(), answered("a")),
        "function response turn comes immediately after a function call turn",
    ),
    "response_count few": (body(asked(), called("a", "b"), answered("a")), COUNT),
    "response_count none": (body(asked(), called("a"), asked()), COUNT),
    "response_count split": (body(asked(), called("a", "b"), answered("a"), answered("b")), "function response turn comes"),
    "responses_alone": (body(asked(), called("a"), MIXED), COUNT),
    "response_names_and_ids name": (body(asked(), called("a"), answered("a", name="other")), BARE),
    "response_names_and_ids name without id": (body(asked(), called(None), answered(None, name="other")), BARE),
    "response_names_and_ids invented": (body(asked(), called(None), answered("made-up")), BARE),
    "response_names_and_ids twice": (body(asked(), called("a", "b"), answered("a", "a")), BARE),
    "last_turn": (
        body(asked(), {"role": "model", "parts": [{"text": "so"}]}),
        "Requests ending with a model turn are not supported.",
    ),
    "last_turn call": (body(asked(), called("a")), "Requests ending with a model turn are not supported."),
    "response_references": (body(asked(), called("a"), answered("a", response={"x": [{"$ref": "#/defs/A"}]})), BARE),
    "signature_present": (
        body(asked(), called("a", signature=None), answered("a")),
        "missing a thought_signature in functionCall",
    ),
    "signature_present second step": (
        body(asked(), called("a"), answered("a"), called("b", signature=None), answered("b")),
        "`default_api:wx` , position 4.",
    ),
}


@pytest.mark.parametrize("field", ["systemInstruction", "tools"])
def test_a_cached_content_is_refused_beside_what_it_brings_along(field: str) -> None:
    beside = {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "tools": [{"functionDeclarations": [WX]}]}
    refusal = judge(body(asked()) | {"cachedContent": "cachedContents/1", field: beside[field]})
    assert refusal is not None
    assert "CachedContent can not be used with" in refusal.message
    assert judge(body(asked(), tools=[]) | {"cachedContent": "cachedContents/1"}) is None


@pytest.mark.parametrize(
    ("model", "level", "is_taken"),
    [
        ("gemini-2.5-flash", "HIGH", False), ("gemini-3.8-flash", "HIGH", True), ("gemini-3.6-flash", "MINIMAL", True),
        ("gemini-3.1-pro-preview", "MINIMAL", False), ("gemini-3.8-flash", "MINIMAL", False),
    ],
)  # fmt: skip
def test_a_level_of_thinking_is_refused_where_the_model_does_not_have_it(model: str, level: str, is_taken: bool) -> None:
    request = body(asked()) | {"generationConfig": {"thinkingConfig": {"thinkingLevel": level}}}
    assert (judge(request, model=model) is None) is is_taken


@pytest.mark.rows("name", BAD_CONTENTS)
def test_a_content_that_breaks_a_rule_is_refused_in_googles_words(name: str) -> None:
    request, text = BAD_CONTENTS[name]
    refusals = list(judge_all(request))
    assert text in refusals[0].message
    assert (refusals[0].code, refusals[0].status) == (400, "INVALID_ARGUMENT")
    assert refusals[0].rule in RULES


MANY = [{"functionDeclarations": [{"name": f"f{index}"} for index in range(513)]}]
SEARCH = {"googleSearch": {}}
FUNCTION = {"functionDeclarations": [WX]}

BAD_TOOLS = {
    "no kind": (body(tools=[{}]), "required one_of 'tool_type'"),
    "no declarations": (body(tools=[{"functionDeclarations": []}]), "required one_of 'tool_type'"),
    "too many": (body(tools=MANY), "[FIELD_INVALID] At most 512 function declarations can be specified."),
    "first character": (with_declaration(name="1f"), "Must start with a letter or an underscore"),
    "name too long": (with_declaration(name="f" * 129), "maximum length of 128"),
    "name of other letters": (with_declaration(name="wétter"), "Invalid function name"),
    "same name": (body(tools=[{"functionDeclarations": [WX, WX]}]), "Duplicate function declaration found: wx"),
    "two schemas": (with_declaration(parameters={"type": "object"}, parametersJsonSchema={"type": "object"}), "only one of"),
    "behavior": (with_declaration(behavior="NON_BLOCKING"), "Live API"),
    "empty root": (with_declaration(parameters={"type": "object", "properties": {}}), "should be non-empty for OBJECT type"),
    "array without items": (with_schema(type="array"), "parameters.properties[x].items: missing field"),
    "required unknown": (
        with_declaration(parameters={"type": "object", "required": ["y"], "properties": {"x": {"type": "string"}}}),
        "parameters.required[0]: property is not defined",
    ),
    "enum without type": (with_schema(enum=["a"]), "enum: only allowed for STRING type"),
    "empty enum": (
        with_schema(type="string", format="enum", enum=[]),
        "should be non-empty for STRING type with enum format",
    ),
    "empty enum member": (with_schema(type="string", enum=["a", ""]), "enum[1]: cannot be empty"),
    "string format": (with_schema(type="string", format="uri"), "only 'enum' and 'date-time' are supported for STRING type"),
    "beside anyOf": (with_schema(anyOf=[{"type": "string"}], description="x"), "it must be the only field set"),
    "deep down": (with_schema(type="array", items={"type": "array"}), "properties[x].items.items: missing field"),
    "json schema root": (with_declaration(parametersJsonSchema={"type": "string"}), BARE),
    "ref with siblings": (
        with_declaration(
            parametersJsonSchema={
                "type": "object",
                "$defs": {"A": {}},
                "properties": {"x": {"$ref": "#/$defs/A", "type": "string"}},
            }
        ),
        "$ref '#/$defs/A' was set alongside unsupported fields",
    ),
    "ref elsewhere": (with_declaration(parametersJsonSchema={"properties": {"x": {"$ref": "#/definitions/A"}}}), BARE),
    "allowed names in AUTO": (
        body(tools=[FUNCTION], toolConfig={"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["wx"]}}),
        "allowed_function_names can only be set",
    ),
    "allowed name unknown": (
        body(tools=[FUNCTION], toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["no"]}}),
        "not a declared function",
    ),
    "ANY without functions": (body(toolConfig={"functionCallingConfig": {"mode": "ANY"}}), "without function_declarations"),
    "mixed": (body(tools=[FUNCTION, SEARCH]), "Please enable tool_config.include_server_side_tool_invocations"),
}


@pytest.mark.rows("name", BAD_TOOLS)
def test_a_tool_that_breaks_a_rule_is_refused_in_googles_words(name: str) -> None:
    request, text = BAD_TOOLS[name]
    assert text in message(request)


@pytest.mark.parametrize(("tools", "what"), [([FUNCTION], "Function calling"), ([SEARCH], "Tool use")])
def test_before_generation_3_an_answer_of_a_fixed_form_is_refused_beside_tools(tools: list[Any], what: str) -> None:
    form = {"generationConfig": {"responseMimeType": "application/json"}}
    refusal = judge(body(tools=tools, **form), model="gemini-2.5-flash")
    assert refusal is not None
    assert refusal.message == f"{what} with a response mime type: 'application/json' is unsupported"
    assert judge(body(tools=tools, **form), model="gemini-3.8-flash") is None
    assert judge(body(**form), model="gemini-2.5-flash") is None


UNKNOWN = 'Invalid JSON payload received. Unknown name "{}"{}: Cannot find field.'
PARAMETERS = "tools[0].function_declarations[0].parameters"

BAD_FIELDS = {
    "at the root": (body(tool_choice="auto"), UNKNOWN.format("tool_choice", "")),
    "in a tool": (body(tools=[{"functions": []}]), UNKNOWN.format("functions", " at 'tools[0]'")),
    "in a part": (body({"parts": [{"text": "a", "cache": 1}]}), UNKNOWN.format("cache", " at 'contents[0].parts[0]'")),
    "in a schema": (
        with_schema(type="string", const="x"),
        UNKNOWN.format("const", f" at '{PARAMETERS}.properties[0].value'"),
    ),
    "vertex field on developer": (
        body(toolConfig={"functionCallingConfig": {"streamFunctionCallArguments": True}}),
        UNKNOWN.format("streamFunctionCallArguments", " at 'tool_config.function_calling_config'"),
    ),
    "additionalProperties on developer": (
        with_declaration(parameters={"type": "object", "additionalProperties": False}),
        UNKNOWN.format("additionalProperties", f" at '{PARAMETERS}'"),
    ),
    "list of types": (with_schema(type=["string", "null"]), "Proto field is not repeating, cannot start list."),
    "numbers in an enum": (with_schema(type="string", enum=[1]), ".properties[0].value.enum[0]' (TYPE_STRING), 1"),
    "unknown type": (with_schema(type="date"), 'v1beta.Type), "date"'),
    "unknown mode": (body(toolConfig={"functionCallingConfig": {"mode": "auto"}}), 'v1beta.Mode), "auto"'),
    "response is a text": (body(asked(), called("a"), answered("a", response="x")), 'google.protobuf.Struct), "x"'),
    "response is a list": (body(asked(), called("a"), answered("a", response=[1])), "cannot start list"),
    "id is a number": (body(asked(), called("a"), answered(7)), "function_response.id' (TYPE_STRING), 7"),  # type: ignore[arg-type]
    "signature is not base64": (
        body(asked(), called("a", signature="!!"), answered("a")),
        "(TYPE_BYTES), Base64 decoding failed",
    ),
    "content is a text": ({"contents": ["hi"]}, 'v1beta.Content), "hi"'),
    "token limit is a text": (body(generationConfig={"maxOutputTokens": "many"}), '(TYPE_INT32), "many"'),
    "body is a list": ([], "Invalid value"),
    "unknown modality": (body(generationConfig={"responseModalities": ["PICTURE"]}), 'v1beta.Modality), "PICTURE"'),
    "unknown resolution": (body(generationConfig={"mediaResolution": "high"}), 'v1beta.MediaResolution), "high"'),
    "unknown category": (
        body(safetySettings=[{"category": "HARASSMENT", "threshold": "OFF"}]), 'v1beta.HarmCategory), "HARASSMENT"',
    ),
    "unknown threshold": (
        body(safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "NONE"}]), 'HarmBlockThreshold), "NONE"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["HarmBlockThreshold", "HarmCategory", "MediaResolution", "Modality", "ThinkingLevel"])
def test_an_enumeration_has_the_values_of_googles_own_client(name: str) -> None:
    assert {member.value for member in getattr(genai_types, name)} == ENUMS[name]


@pytest.mark.rows("name", BAD_FIELDS)
def test_a_field_that_does_not_fit_is_refused_in_googles_words(name: str) -> None:
    request, text = BAD_FIELDS[name]
    refusal = judge(request)
    assert refusal is not None
    assert text in refusal.message
    assert refusal.rule == "fields"


@pytest.mark.rows(
    "keyword",
    [
        "$schema",
        "$id",
        "$ref",
        "$defs",
        "definitions",
        "additionalProperties",
        "const",
        "oneOf",
        "allOf",
        "not",
        "if",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "uniqueItems",
        "patternProperties",
        "propertyNames",
        "unevaluatedProperties",
        "contains",
        "examples",
        "strict",
    ],
)
def test_keywords_outside_of_the_schema_message_kill_the_request(keyword: str) -> None:
    place = f"{PARAMETERS}.properties[0].value.items"
    assert UNKNOWN.format(keyword, f" at '{place}'") in message(
        with_schema(type="array", items={"type": "string", keyword: True})
    )


def test_every_unknown_field_is_reported_at_once() -> None:
    assert message(body(a=1, b=2)).count("Cannot find field.") == 2


# Models and surfaces -----------------------------------------------------------------------------------------------------


def test_old_models_take_the_function_role_and_never_the_tool_role() -> None:
    history = body(asked(), called("a"), answered("a") | {"role": "function"})
    assert judge(history, model=OLD) is None
    assert message(body(asked() | {"role": "tool"}), model=OLD) == "Please use a valid role: user, model."


def test_old_models_take_a_model_turn_at_the_end_unless_it_calls() -> None:
    assert judge(body(asked(), {"role": "model", "parts": [{"text": "so"}]}), model=OLD) is None
    assert COUNT in message(body(asked(), called("a")), model=OLD)


def test_models_before_three_need_no_signature() -> None:
    assert judge(body(asked(), called(None, signature=None), answered(None)), model=ELDER) is None


def test_only_signatures_that_were_given_out_are_genuine() -> None:
    history = body(asked(), called("a"), answered("a"))
    assert judge(history, signatures=[SIGNATURE]) is None
    assert judge(history, signatures=[SIGNATURE.rstrip("=")]) is None
    assert message(history, signatures=[]) == "Invalid/Corrupted thought signature"
    assert judge(history, model=ELDER, signatures=[]) is None


def test_the_second_skip_word_is_known_on_one_surface_only() -> None:
    history = body(asked(), called("a", signature="context_engineering_is_the_way_to_go"), answered("a"))
    assert judge(history, signatures=[]) is None
    assert message(history, signatures=[], surface="vertex") == "Invalid/Corrupted thought signature"


def test_mixing_built_in_tools_and_functions() -> None:
    mixed = body(tools=[FUNCTION | SEARCH])
    flagged = mixed | {"toolConfig": {"includeServerSideToolInvocations": True}}
    assert judge(flagged) is None
    assert "unsupported" in message(mixed, model=ELDER)
    assert "context circulation is not enabled" in message(flagged, model=ELDER)
    assert judge(mixed, surface="vertex") is None
    assert "Multiple tools are supported only when they are all search tools" in message(
        mixed, model=ELDER, surface="vertex"
    )
    assert "all search tools" in message(body(tools=[FUNCTION, SEARCH]), surface="vertex")


def test_vertex_has_fields_of_its_own_and_lacks_others() -> None:
    streamed = body(toolConfig={"functionCallingConfig": {"streamFunctionCallArguments": True}})
    assert judge(streamed, surface="vertex", streaming=True) is None
    assert message(streamed, surface="vertex") == BARE
    assert judge(with_declaration(parameters={"type": "object", "additionalProperties": True}), surface="vertex") is None
    assert judge(with_schema(type="string", format="email"), surface="vertex") is None
    for name in ("includeServerSideToolInvocations", "include_server_side_tool_invocations"):
        assert f"Unknown name \"{name}\" at 'tool_config'" in message(body(toolConfig={name: True}), surface="vertex")


def test_vertex_has_texts_of_its_own() -> None:
    assert "at least one contents field" in message({}, surface="vertex")
    assert "at least one parts field" in message(body({"role": "user"}), surface="vertex")
    unsigned = body(asked(), called("a", signature=None), answered("a"))
    assert message(unsigned, surface="vertex").startswith("Unable to submit request because function call `default_api:wx`")
    named = with_declaration(parameters={"type": "object", "properties": {"a-b": {"type": "string"}}})
    assert "parameter name `a-b`" in message(named, surface="vertex")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gemini-3.6-flash", (3, 6)),
        ("gemini-4-argon", (4, 0)),
        ("gemini-2.5-flash-lite", (2, 5)),
        ("gemini-flash-latest", (99, 0)),
        ("gemini-next", (99, 0)),
        ("gemma-3-27b", (0, 0)),
        ("gemini-3", (3, 0)),
    ],
)
def test_the_generation_of_a_model_is_in_its_name(model: str, expected: tuple[int, int]) -> None:
    assert generation(model) == expected


# Bytes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"a": NaN}', b'{"a": "\xff"}', b'{"a": "\\ud800"}', b"[" * 100_000 + b"]" * 100_000]
)
def test_bytes_that_are_not_json_are_refused(data: bytes) -> None:
    refusal = judge(data)
    assert refusal is not None
    assert refusal.message.startswith("Invalid JSON payload received.")
    assert refusal.rule == "json"


def test_good_bytes_are_parsed() -> None:
    assert parse_body(b'{"a": "\\ud83e\\udd8a"}') == {"a": "🦊"}


def test_a_schema_without_bottom_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    assert "Max recursion depth" in message(with_schema(**schema))


def test_the_small_functions_stand_alone() -> None:
    assert snake("parametersJsonSchema") == "parameters_json_schema"
    assert decode_base64("-_8") == decode_base64("+/8=") == b"\xfb\xff"
    assert decode_base64("not base64!") is None
    assert fit({"system_instruction": {"parts": {"text": "x"}}}) == ({"systemInstruction": {"parts": [{"text": "x"}]}}, [])
    assert [refusal.field for refusal in schema_refusals({"type": "ARRAY"}, "here")] == ["here.items"]
    assert list(json_schema_refusals({"type": ["object", "null"]}, "here")) == []


def test_a_refusal_tells_its_place_in_the_details() -> None:
    refusal = judge(with_declaration(name="1f"))
    assert refusal is not None
    violations = refusal.details[0]["fieldViolations"]
    assert violations[0]["field"] == "tools[0].function_declarations[0].name"
    bare = judge(body(asked(), called("a"), answered("a", name="other")))
    assert bare is not None
    assert bare.details == []
