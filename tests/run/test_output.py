"""Typed answers: what a type is told as, how an answer is read, and runs that must come to a value of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from callgate import Gate, GeminiModel, Limits, OpenAIModel, ScriptedModel, tool
from callgate.errors import ModelError, OutputError, UsageError
from callgate.events import Notice, RunEnded, TextDelta, to_json
from callgate.gemini.surface import Surface
from callgate.history.repair import validate
from callgate.machine.facts import Cancelled, CheckOutput, Finish, ModelAnswered, OutputChecked, RunStarted
from callgate.machine.machine import RunMachine
from callgate.openai.quirks import QUIRKS
from callgate.run.output import Output, output_of
from callgate.sessions import load, state_from_facts
from callgate.store import MemoryStore, open_store
from callgate.testing import answer, call, empty
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_openai import FakeOpenAI
from callgate.types import Reply


class Weather(BaseModel):
    """The weather of one place."""

    city: str
    celsius: float = Field(ge=-90, le=60)

    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("there is no such place")
        return city


@dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    name: str
    when: date


class Measured(BaseModel):
    c: float
    n: int
    ok: bool


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    name: str
    children: list[Node] = []


@tool(read_only=True)
def look(city: str) -> str:
    """Looks out of the window."""
    return f"12.5 degrees in {city}"


OSLO = Weather(city="Oslo", celsius=12.5)
OSLO_JSON = '{"city": "Oslo", "celsius": 12.5}'


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await work

    return asyncio.run(bounded())


# Reading an answer --------------------------------------------------------------------------------------------------------


@pytest.mark.rows(
    ("kind", "text", "value"),
    [
        (Weather, OSLO_JSON, OSLO),
        (Weather, f"Here you are:\n```json\n{OSLO_JSON}\n```\nAnything else?", OSLO),
        (Weather, f"The weather is {OSLO_JSON}.", OSLO),
        (Point, '{"x": 1}', Point(1)),
        (Row, '{"name": "a", "when": "2026-01-31"}', {"name": "a", "when": date(2026, 1, 31)}),
        (Literal["yes", "no"], '{"answer": "yes"}', "yes"),
        (Literal["yes", "no"], '"no"', "no"),
        (Literal["yes", "no"], "yes\n", "yes"),
        (Color, '{"answer": "blue"}', Color.BLUE),
        (list[Point], '{"answer": [{"x": 1}, {"x": 2, "y": 3}]}', [Point(1), Point(2, 3)]),
        (list[int], "[1, 2]", [1, 2]),
        (int, '{"answer": 42}', 42),
        (int, "42", 42),
        (str, "Just words.", "Just words."),
        (str, '"Quoted."', "Quoted."),
        (bool, '{"answer": true}', True),
        (Weather | Point, '{"answer": {"x": 4, "y": 5}}', Point(4, 5)),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Node, '{"name": "a", "children": [{"name": "b"}]}', Node(name="a", children=[Node(name="b")])),
        (Annotated[int, Field(ge=3)], "3", 3),
        (tuple[int, str], '{"answer": [1, "a"]}', (1, "a")),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, '{"n": "5"}', {"n": 5}),
        ({"type": "array", "items": {"type": "integer"}}, '{"answer": [1]}', [1]),
    ],
)
def test_an_answer_becomes_a_value_of_the_type(kind: Any, text: str, value: Any) -> None:
    output = output_of(kind)
    read = output.read(text)
    assert read.problems == ()
    assert output.value(read.value) == value


@dataclass
class Bill:
    total: Decimal
    share: float = 0.0


@pytest.mark.parametrize("number", ["0.1234567890123456789012345", "12345678901234567890.125", "-1e-400"])
def test_a_decimal_has_every_digit_that_the_model_wrote(number: str) -> None:
    for kind, text, value in [
        (Decimal, number, Decimal(number)),
        (Decimal, f'{{"answer": {number}}}', Decimal(number)),
        (list[Decimal], f"Here: [{number}, 1.5]", [Decimal(number), Decimal("1.5")]),
        (Bill, f'{{"total": {number}, "share": 0.5}}', Bill(Decimal(number), 0.5)),
    ]:
        output = output_of(kind)
        read = output.read(text)
        assert read.problems == ()
        assert output.value(read.value) == value, kind


def test_a_float_beside_a_decimal_is_rounded_as_ever() -> None:
    output = output_of(Bill)
    third = output.read('{"total": 1.5, "share": 0.33333333333333333333}')
    assert output.value(third.value) == Bill(Decimal("1.5"), 1 / 3)
    assert output_of(float).read("0.33333333333333333333").value == 1 / 3


@pytest.mark.rows(
    ("kind", "text"),
    [
        (int, "true"), (bool, "yes"), (bool, "1"), (float, "NaN"), (float, "1e400"), (float, '"inf"'), (date, "0"),
        (set[int], "[1, 1]"), (Measured, '{"c": "inf", "n": 1, "ok": true}'), (Measured, '{"c": 1, "n": true, "ok": true}'),
        (Measured, '{"c": 1, "n": 1, "ok": "off"}'), (int | None, "none"), (date | None, "0"),
        (date, '"0"'), (datetime, '"1600000000"'), (list[date], '["86400.0"]'), (Literal[False] | float, "true"),
    ],
)  # fmt: skip
def test_a_type_takes_no_more_than_its_schema(kind: Any, text: str) -> None:
    output = output_of(kind)
    as_schema = output_of(output.schema["properties"]["answer"] if output.is_wrapped else output.schema)
    assert output.read(text).problems
    assert as_schema.read(text).problems or "date" in str(kind), "formats are checked by the type alone"


DRAFT_4, DRAFT_2019 = "http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2019-09/schema"
ADDRESSED = {"$id": "http://x/y", "$defs": {"q": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/q"}}
NULLS = {"type": ["array", "integer"], "prefixItems": [{"type": "null"}], "items": {"$ref": "#/prefixItems/0"}}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "array", "items": {"$ref": "#"}}, "[[], [[]]]", "[1]"),
        (ADDRESSED, "[1]", '["x"]'),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"additionalProperties": {"$ref": "#"}, "type": "object"}}}, "{}", '{"n": 1}'),
        ({"type": "array", "items": ADDRESSED}, "[[1]]", "[[null]]"),
        (NULLS, "[null, null]", "[null, 1]"),
        ({"$schema": DRAFT_4, "type": "array", "items": {"$ref": "#"}}, "[[]]", "[1]"),
        ({"$schema": DRAFT_2019, "type": "array", "items": {"$recursiveRef": "#"}}, "[[]]", "[1]"),
        ({"enum": [{"$ref": "#"}, {"const": "#"}]}, '{"$ref": "#"}', '{"$ref": "#/properties/answer"}'),
        ({"type": "array", "items": {"properties": {"$ref": {"type": "null"}}}}, '[{"$ref": null}]', '[{"$ref": 1}]'),
    ],
)
def test_a_schema_that_is_no_object_keeps_its_references(schema: dict[str, Any], good: str, bad: str) -> None:
    output = output_of(schema)
    assert output.read(good).problems == ()
    assert output.read(good).value == json.loads(good)
    assert output.read(bad).problems


@pytest.mark.parametrize(
    "text",
    [
        f"Not {{a}}: {OSLO_JSON}", f"[1] says {OSLO_JSON} [2]", f'{{"city": "x"}} is too little: {OSLO_JSON}',
        f"``` {OSLO_JSON}", f"Use ``` for code.\n```json\n{OSLO_JSON}\n```", f'"{{" begins it: {OSLO_JSON} }}',
    ],
)  # fmt: skip
def test_json_is_found_among_brackets_and_fences_of_other_kinds(text: str) -> None:
    assert output_of(Weather).read(text).value == {"city": "Oslo", "celsius": 12.5}


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "Here it is: {}", "{} That is all."])
@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (list[int], '{"error": "none was found", "items": []}'),
        (list[int], '{"rejected": [1, 2]}'),
        (Weather, f"[{OSLO_JSON}]"),
        (Weather, f'{{"refused": {OSLO_JSON}}}'),
        (Weather, f'{{"refused": [{OSLO_JSON}], "accepted": []}}'),
    ],
)
def test_a_part_of_an_answer_is_not_the_answer(kind: Any, answer: str, around: str) -> None:
    assert output_of(kind).read(around.replace("{}", answer)).problems


@pytest.mark.parametrize("kind", [Weather, list[int]])
@pytest.mark.parametrize("around", ["", "Here it is: ", "```json\n"])
def test_a_part_of_an_answer_that_was_cut_off_is_not_the_answer(kind: Any, around: str) -> None:
    whole = f'{{"refused": [{OSLO_JSON}, [1, 2]], "why": "n\\u00f6", "found": false, "next": [3, {OSLO_JSON}]}}'
    for end in range(len(whole)):
        assert output_of(kind).read(around + whole[:end]).problems, whole[:end]
    assert output_of(Weather).read(f"{OSLO_JSON}, {whole[:60]}").value == {"city": "Oslo", "celsius": 12.5}


@pytest.mark.parametrize(
    "unit", ["```json\n{}\n```\n", "{ ", '{"', "[", '{"a":', "```", "```\n", "[1] ", '["', "{{", "`", '{"a": "', "{}"]
)
def test_the_work_for_an_answer_grows_with_its_length_and_not_faster(unit: str) -> None:
    output = output_of(Weather)

    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        begin = time.process_time()
        assert output.read(text).problems
        return time.process_time() - begin

    assert seconds(50_000) < 20 * seconds(5_000) + 0.5


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (Weather, "It is fine.", "the answer is not JSON"),
        (Weather, " ", "the answer is empty"),
        (Weather, '{"city": "Oslo"}', "is required but missing"),
        (Weather, '{"city": "Oslo", "celsius": 1000}', "1000 is greater than the maximum of 60"),
        (Weather, '{"city": "Atlantis", "celsius": 1}', "there is no such place"),
        (Literal["yes", "no"], "perhaps", "'perhaps' is not one of 'yes', 'no'"),
        (list[int], '{"answer": [1, "x"]}', "answer[1]: 'x' is a string, but an integer is needed"),
        ({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}, "{}", "n"),
        ({"type": "object"}, "[1]", "should be an object"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(kind: Any, text: str, problem: str) -> None:
    read = output_of(kind).read(text)
    assert problem in "; ".join(read.problems)


@pytest.mark.parametrize(
    "kind", [Weather, Point, Row, Literal["a", "b"], Color, list[Point], int, str, Node, Weather | Point, dict[str, int]]
)
def test_every_schema_is_an_object_that_the_strict_judge_takes(kind: Any) -> None:
    from callgate.schema import compile_schema
    from callgate.testing.google_rules import judge

    schema = output_of(kind).schema
    assert schema["type"] == "object"
    sent = compile_schema(schema).schema
    declared = [{"functionDeclarations": [{"name": "f", "description": "f", "parametersJsonSchema": sent}]}]
    body = {"contents": [{"role": "user", "parts": [{"text": "Go."}]}], "tools": declared}
    assert judge(body) is None


def test_a_type_without_a_json_form_is_refused_with_what_to_use() -> None:
    class Odd:
        pass

    with pytest.raises(UsageError, match=r"output=Odd cannot be asked of a model.*use a pydantic model"):
        output_of(Odd)
    with pytest.raises(UsageError, match="is not a JSON Schema that can be used"):
        output_of({"type": "nonsense"})


def test_a_kept_answer_that_no_longer_fits_says_so() -> None:
    with pytest.raises(UsageError, match="does not fit output= any more"):
        output_of(Point).value({"z": 1})


def test_a_schema_of_the_journal_reads_as_the_type_did() -> None:
    for kind, text, plain in ((list[int], '{"answer": [1]}', [1]), (Point, '{"x": 1}', {"x": 1})):
        assert Output.from_schema(output_of(kind).schema).read(text) == OutputChecked(value=plain)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200)
@given(json_values, st.sampled_from(["{}", "```json\n{}\n```", "  {}\n"]))
def test_any_value_that_was_written_is_read_again(value: Any, around: str) -> None:
    text = around.replace("{}", json.dumps({"answer": value}))
    assert output_of(Any).read(text) == OutputChecked(value=value)


@settings(max_examples=200)
@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    read = output_of(Weather).read(text)
    assert read.problems


# Runs ---------------------------------------------------------------------------------------------------------------------


def test_tools_are_called_on_the_way_to_a_typed_answer() -> None:
    model = ScriptedModel([call("look", city="Oslo"), OSLO_JSON])
    reply: Reply = run(Gate(model, [look]).run("How warm is it in Oslo?", output=Weather))
    assert reply.output == OSLO
    assert (reply.text, reply.finish_reason, reply.turns, len(reply.calls)) == (OSLO_JSON, "STOP", 2, 1)
    assert validate(reply.contents) == []


def test_an_answer_that_does_not_fit_is_asked_for_again_without_tools_and_is_no_part_of_the_history() -> None:
    model = ScriptedModel([call("look", city="Oslo"), "It is 12.5 degrees.", '{"city": "Oslo"}', OSLO_JSON])
    reply: Reply = run(Gate(model, [look]).run("How warm is it?", output=Weather))
    assert (reply.output, reply.turns) == (OSLO, 2)
    assert [len(request.contents) for request in model.requests] == [1, 3, 4, 4]
    again = [request.contents[-1]["parts"][0]["text"] for request in model.requests[2:]]
    assert "the answer is not JSON" in again[0]
    assert "It is 12.5 degrees." in again[0]
    assert "is required but missing" in again[1]
    assert [content["role"] for content in reply.contents] == ["user", "model", "user", "model"]
    assert validate(reply.contents) == []


def test_after_the_last_repair_the_error_says_what_is_wrong_and_carries_the_reply() -> None:
    model = ScriptedModel([call("look", city="Oslo"), "No.", "Still no.", "Never."])
    with pytest.raises(OutputError, match=r"does not fit output= \(asked 3 times\): the answer is not JSON") as caught:
        run(Gate(model, [look]).run("How warm is it?", output=Weather))
    error = caught.value
    assert (error.reply.text, len(error.reply.calls), error.problems) == ("Never.", 1, ("the answer is not JSON",))
    assert error.reply.output is None
    assert validate(error.reply.contents) == []
    assert error.reply.contents[-1]["parts"] == [{"text": "Never."}]


@pytest.mark.parametrize(("said", "reason"), [("No.", "output_error"), (empty("STOP"), "error")])
def test_a_run_that_raised_is_not_loaded_as_a_success(said: Any, reason: str) -> None:
    gate = Gate(ScriptedModel([said] * 9), store=MemoryStore())
    with pytest.raises(ModelError):
        run(gate.run("How warm is it?", session="s", output=Weather))
    reply = run(load(gate.store, "s")).reply
    assert (reply.ok, reply.finish_reason, reply.output) == (False, reason, None)


def test_no_repairs_at_all_may_be_asked_for() -> None:
    with pytest.raises(OutputError, match="asked 1 time\\)"):
        run(Gate(ScriptedModel(["No."]), limits=Limits(output_retries=0)).run("?", output=Weather))


@pytest.mark.parametrize("last", [empty("SAFETY"), answer("half a", finish_reason="SAFETY")])
def test_an_answer_that_was_stopped_is_an_error_with_the_reason(last: Any) -> None:
    with pytest.raises(OutputError, match="ended with SAFETY before there was an answer"):
        run(Gate(ScriptedModel([last])).run("?", output=Weather))


def test_a_run_out_of_tokens_ends_with_the_answer_that_it_had() -> None:
    model = ScriptedModel([answer("No.", usage={"promptTokenCount": 90, "totalTokenCount": 100})])
    with pytest.raises(OutputError, match=r"ended with token_limit before .*: the answer is not JSON") as caught:
        run(Gate(model, limits=Limits(run_tokens=50)).run("?", output=Weather))
    assert caught.value.problems == ()
    assert caught.value.reply.finish_reason == "token_limit"
    assert caught.value.reply.text == "No."


def test_the_last_answer_of_a_limit_is_typed_too() -> None:
    model = ScriptedModel([call("look", city="Oslo"), OSLO_JSON])
    reply: Reply = run(Gate(model, [look], limits=Limits(turns=2)).run("?", output=Weather))
    assert (reply.output, reply.limited) == (OSLO, True)


def test_a_call_in_place_of_a_repaired_answer_is_refused_and_the_run_goes_on() -> None:
    model = ScriptedModel(["No.", call("look", city="Oslo"), OSLO_JSON])
    reply: Reply = run(Gate(model, [look]).run("?", output=Weather))
    assert reply.output == OSLO
    assert [record.state for record in reply.calls] == ["failed"]
    assert "only the final answer is expected now" in str(reply.calls[0].result)


def test_a_stream_ends_with_the_typed_reply_and_tells_that_it_asked_again() -> None:
    async def story() -> list[Any]:
        gate = Gate(ScriptedModel(["No.", OSLO_JSON]))
        return [event async for event in gate.stream("?", output=Weather)]

    events = run(story())
    assert isinstance(events[-1], RunEnded)
    assert events[-1].reply.output == OSLO
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "No." + OSLO_JSON
    assert [event.code for event in events if isinstance(event, Notice)] == ["asked_again"]
    assert json.loads(json.dumps(to_json(events[-1])))["reply"]["output"] == {"city": "Oslo", "celsius": 12.5}


@pytest.mark.parametrize(
    ("kind", "said", "plain"),
    [(Row, '{"name": "a", "when": "2026-01-31"}', {"name": "a", "when": "2026-01-31"}), (Color, "red", "red")],
)
def test_a_reply_with_any_value_can_be_written_as_json(kind: Any, said: str, plain: Any) -> None:
    reply: Reply = run(Gate(ScriptedModel([said])).run("?", output=kind))
    assert json.loads(json.dumps(to_json(RunEnded(reply))))["reply"]["output"] == plain


def test_run_sync_takes_a_type() -> None:
    with Gate(ScriptedModel([OSLO_JSON])) as gate:
        assert gate.run_sync("?", output=Weather).output == OSLO


def test_a_run_without_a_type_has_no_output() -> None:
    assert run(Gate(ScriptedModel([OSLO_JSON])).run("?")).output is None


@pytest.mark.parametrize("resume_with", [Weather, None], ids=["with the type", "by the journal alone"])
@pytest.mark.parametrize("survived", [1, 2], ids=["before the answer", "before the check"])
def test_a_run_that_died_goes_on_to_its_typed_answer(tmp_path: Any, resume_with: Any, survived: int) -> None:
    store = MemoryStore()

    async def story() -> tuple[Reply, list[Any]]:
        first = Gate(ScriptedModel([OSLO_JSON]), store=store)
        await first.run("How warm is it?", session="s", output=Weather)
        whole = await store.load("s")
        assert [type(fact).__name__ for fact in whole] == ["RunStarted", "ModelAnswered", "OutputChecked"]
        kept = open_store(str(tmp_path / "sessions.db"))
        facts = whole[:survived]
        lease = await kept.acquire("s", owner="before")
        await kept.append(lease, facts, position=0)
        await kept.release(lease)
        assert state_from_facts("s", facts).state == "interrupted"
        second = Gate(ScriptedModel([OSLO_JSON]), store=kept)
        reply = await second.run(session="s", output=resume_with)
        loaded = await kept.load("s")
        await kept.aclose()
        return reply, loaded

    reply, facts = run(story())
    assert reply.output == (OSLO if resume_with else {"city": "Oslo", "celsius": 12.5})
    assert [fact.output for fact in facts if isinstance(fact, RunStarted)] == [output_of(Weather).schema]
    assert sum(isinstance(fact, OutputChecked) for fact in facts) == 1


@pytest.mark.parametrize("ended", ["error", "cancelled", "turn_limit"])
def test_a_run_that_ended_early_goes_on_to_its_typed_answer_by_the_journal_alone(ended: str) -> None:
    async def story() -> tuple[Reply, list[Any]]:
        store, reached = MemoryStore(), asyncio.Event()

        async def look() -> str:
            """Looks."""
            reached.set()
            return await asyncio.Event().wait() if ended == "cancelled" else "12.5"

        gate = Gate(
            ScriptedModel([call("look"), ModelError("down")]),
            [look],
            store=store,
            limits=Limits(turns=1 if ended == "turn_limit" else 5),
        )
        task = asyncio.create_task(gate.run("How warm is it?", session="s", output=Weather))
        if ended == "cancelled":
            await reached.wait()
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        reply = await Gate(ScriptedModel([OSLO_JSON]), [look], store=store).run(session="s")
        return reply, await store.load("s")

    reply, facts = run(story())
    assert [fact.output for fact in facts if isinstance(fact, RunStarted)] == [output_of(Weather).schema] * 2
    assert reply.output == {"city": "Oslo", "celsius": 12.5}


def test_a_type_cannot_be_given_to_a_run_that_was_begun_without_one() -> None:
    async def story() -> None:
        store = MemoryStore()
        gate = Gate(ScriptedModel([ConnectionError("gone")]), store=store)
        lease = await store.acquire("s", owner="me")
        await store.append(lease, [RunStarted(content={"role": "user", "parts": [{"text": "Hi."}]})], position=0)
        await store.release(lease)
        with pytest.raises(UsageError, match="was started without output="):
            await gate.run(session="s", output=Weather)

    run(story())


def test_a_run_that_is_cancelled_before_the_check_keeps_its_answer_in_a_valid_history() -> None:
    content = {"role": "user", "parts": [{"text": "?"}]}
    said = {"role": "model", "parts": [{"text": OSLO_JSON}]}
    loop = RunMachine(
        [RunStarted(content=content, output={"type": "object"}), ModelAnswered(content=said, finish_reason="STOP")]
    )
    assert loop.todo().check_output == CheckOutput(OSLO_JSON, {"type": "object"})
    loop.apply(Cancelled())
    assert loop.todo().finish == Finish("cancelled", None, "The user cancelled the run.")
    assert loop.conversation.contents == [content, said]
    loop.apply(OutputChecked(value={}))
    assert loop.reply("s").output is None


# Every kind of model ------------------------------------------------------------------------------------------------------


def gemini(fake: FakeGemini, name: str) -> GeminiModel:
    return GeminiModel(name, surface=Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k"))


def forms(fake: Any) -> list[tuple[bool, bool, bool]]:
    """Of each request: whether it had tools, a schema, and words about one."""
    found = []
    for request in fake.requests:
        body = request.json
        schema = "responseJsonSchema" in body.get("generationConfig", {}) or "response_format" in body
        found.append((bool(body.get("tools")), schema, "JSON Schema:" in json.dumps(body)))
    return found


def test_gemini_3_is_held_to_the_schema_beside_its_tools() -> None:
    async def story() -> None:
        signed = call("look", city="Oslo", signature="c2lnbmF0dXJl")
        async with FakeGemini([signed, OSLO_JSON]) as fake:
            reply = await Gate(gemini(fake, "gemini-3.8-flash"), [look]).run("?", output=Weather)
            assert reply.output == OSLO
            assert forms(fake) == [(True, True, False)] * 2
            config = fake.requests[0].json["toolConfig"]["functionCallingConfig"]
            assert config["mode"] == "VALIDATED"
            assert fake.refusals == []

    run(story())


def test_gemini_2_is_told_in_words_and_then_held_to_the_schema_without_tools() -> None:
    async def story() -> None:
        async with FakeGemini([call("look", city="Oslo"), "It is 12.5 degrees.", OSLO_JSON]) as fake:
            reply = await Gate(gemini(fake, "gemini-2.5-flash"), [look]).run("?", output=Weather)
            assert reply.output == OSLO
            assert forms(fake) == [(True, False, True), (True, False, True), (False, True, False)]
            assert fake.refusals == []

    run(story())


def test_gemini_2_without_tools_and_gemma_are_asked_as_each_can() -> None:
    async def story() -> None:
        async with FakeGemini([OSLO_JSON, OSLO_JSON]) as fake:
            assert (await Gate(gemini(fake, "gemini-2.5-flash")).run("?", output=Weather)).output == OSLO
            assert (await Gate(gemini(fake, "gemma-3-27b-it")).run("?", output=Weather)).output == OSLO
            assert forms(fake) == [(False, True, False), (False, False, True)]

    run(story())


def test_a_prompted_model_is_told_in_words_and_then_held_to_the_schema() -> None:
    async def story() -> None:
        async with FakeGemini(['TOOL_CALL: look({"city": "Oslo"})', "It is 12.5 degrees.", OSLO_JSON]) as fake:
            gate = Gate(gemini(fake, "gemini-2.5-flash"), [look], mode="prompted")
            assert (await gate.run("?", output=Weather)).output == OSLO
            assert forms(fake) == [(False, False, True), (False, False, True), (False, True, False)]

    run(story())


def test_openai_is_held_to_the_schema_beside_its_tools_and_other_servers_after_them() -> None:
    async def story() -> None:
        script = [call("look", city="Oslo"), OSLO_JSON]
        async with FakeOpenAI(list(script)) as fake:
            model = OpenAIModel("gpt-4.1", base_url=fake.base_url, api_key="k", env={})
            model._client.quirks = QUIRKS["openai"]
            assert (await Gate(model, [look]).run("?", output=Weather)).output == OSLO
            assert forms(fake) == [(True, True, False)] * 2
        async with FakeOpenAI([script[0], "It is 12.5 degrees.", OSLO_JSON], server="vllm") as fake:
            model = OpenAIModel("some-model", base_url=fake.base_url, api_key="k", env={})
            assert (await Gate(model, [look]).run("?", output=Weather)).output == OSLO
            assert forms(fake) == [(True, False, True), (True, False, True), (False, True, False)]

    run(story())


@pytest.mark.slow
def test_the_embedded_model_answers_with_a_value_of_the_type(embedded: None) -> None:
    from callgate.models.embedded import EmbeddedModel

    gate = Gate(EmbeddedModel(announce=False), [look])
    reply: Reply = run(gate.run("What is the weather in Oslo?", output=Weather))
    assert isinstance(reply.output, Weather)
    assert reply.output.city == "Oslo"
    choice: Reply = run(Gate(EmbeddedModel(announce=False)).run("Is snow white or black?", output=Literal["white", "black"]))
    assert choice.output in ("white", "black")


def test_an_answer_of_another_type_in_the_form_that_was_asked_for_is_no_text() -> None:
    assert output_of(str).read('{"answer": 5}').problems == ("answer: 5 is an integer, but a string is needed",)
    assert output_of(str).read('{"answer": "5"}').value == "5"
    assert output_of(str).read('Say {"answer": 5}.').value == 'Say {"answer": 5}.'
