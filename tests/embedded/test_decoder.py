"""Decoding of an answer by a model that wishes for one text: what it may write of it, and what happens where it may not."""

from __future__ import annotations

import asyncio
import re
from datetime import date
from typing import Any

import pytest

from callgate.embedded.decoder import Decoded, Decoder, Step
from callgate.embedded.mentions import mentions_in
from callgate.types import ToolDefinition

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
PROMPT = "<prompt>"


def tool(name: str, description: str, *required: str, **properties: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolDefinition(name=name, description=description, input_schema=schema)


def decoded(said: str, wished: str, *tools: ToolDefinition, chance: float = 0.99, tells: bool = True) -> Decoded:
    """The outcome for a model that would write `wished`; `tells` is False if it keeps letters beyond ASCII to itself."""

    async def ask(prompt: str, *, count: int = 1, grammar: str | None = None) -> Step:
        written = prompt.removeprefix(PROMPT)
        if not wished.startswith(written):  # It has been led elsewhere, and goes on as it was led.
            return Step("", [(b'"', 0.3), (b" ", 0.2)])
        rest = wished[len(written) :]
        if not rest:
            return Step("", [(b"<|im_end|>", 1.0)])
        token = re.match(r"\n?TO|\n|\s?[^\W\d]+|\s?\d|\s?[^\w\s]", rest)
        assert token is not None
        if not tells and not token[0].strip().isascii() and not rest[0].isascii():
            return Step("�", [])
        return Step(token[0], [(token[0].encode(), chance if not written else 0.99)])

    decoder = Decoder(ask, tools, mentions_in([said], today=date(2026, 11, 17)))
    return asyncio.run(decoder.decode(PROMPT))


def call(name: str, args: str) -> str:
    return f"TOOL_CALL: {name}({args})"


DISCHARGE = tool("discharge", "Send an animal home.", "patient", patient=TEXT)
MEASURE = tool(
    "take_measure",
    "Store a measure of a customer.",
    *("customer", "part", "centimetres"),
    customer=TEXT,
    part={"enum": ["waist", "hip", "chest"]},
    centimetres=NUMBER,
)


def test_a_name_whose_first_letter_the_model_cannot_tell_is_copied() -> None:
    made = decoded("Śnieżka can go home.", call("discharge", '{"patient": "Śnieżka"}'), DISCHARGE, tells=False)
    assert made.calls == [("discharge", {"patient": "Śnieżka"})]


def test_a_further_call_may_have_another_choice_for_the_same_name() -> None:
    wished = "\n".join([
        call("take_measure", '{"customer": "Odalys", "part": "waist", "centimetres": 71}'),
        call("take_measure", '{"customer": "Odalys", "part": "hip", "centimetres": 96}'),
    ])  # fmt: skip
    made = decoded("Waist of Odalys is 71 cm and hip is 96 cm.", wished, MEASURE)
    assert [(args["part"], args["centimetres"]) for _, args in made.calls] == [("waist", 71), ("hip", 96)]


def test_a_value_that_was_not_said_is_asked_for() -> None:
    made = decoded("Please send an animal home.", call("discharge", '{"patient": "Rex"}'), DISCHARGE)
    assert (made.calls, made.missing) == ([], ["patient"])


@pytest.mark.parametrize(("chance", "is_made"), [(0.7, True), (0.5, False)])
def test_a_call_needs_its_probability(chance: float, is_made: bool) -> None:
    made = decoded("The animal Rex goes home.", call("discharge", '{"patient": "Rex"}'), DISCHARGE, chance=chance)
    assert bool(made.calls) is is_made


@pytest.mark.parametrize(("said", "is_made"), [("1.2 tonnes of the DY-77", True), ("Paint the bridge DY-77", False)])
def test_a_measure_that_the_tool_takes_is_a_sign_that_it_is_meant(said: str, is_made: bool) -> None:
    freight = tool("book_freight", "Book room for goods.", "flight", flight=TEXT, kilograms=NUMBER)
    made = decoded(said, call("book_freight", '{"flight": "DY-77"}'), freight, chance=0.9)
    assert (bool(made.calls), made.is_declined) == (is_made, not is_made)


CLEAN = tool("clean_tank", "Clean a tank.", "tank", tank=TEXT, agent={"enum": ["acid", "steam"]})


def test_a_code_of_an_earlier_call_is_not_written_again_while_another_is_unused() -> None:
    wished = "\n".join(call("clean_tank", f'{{"tank": "T5", "agent": "{agent}"}}') for agent in ("acid", "steam"))
    made = decoded("Clean T5 with acid and T6 with steam.", wished, CLEAN)
    assert [args["tank"] for _, args in made.calls] == ["T5", "T6"]


@pytest.mark.parametrize(
    ("said", "is_made"),
    [("Milo must not get the eggs.", True), ("Milo must get the eggs?", False), ("Eat the eggs!", False)],
)
def test_a_statement_without_a_word_of_the_tool_is_a_call_if_all_is_clear(said: str, is_made: bool) -> None:
    allergy = tool("note_allergy", "Record an allergy.", "substance", substance=TEXT)
    made = decoded(said, call("note_allergy", '{"substance": "eggs"}'), allergy, chance=0.9)
    assert (bool(made.calls), made.is_declined) == (is_made, not is_made)


@pytest.mark.parametrize(
    ("said", "name", "asks"),
    [
        ("What is a glider?", "reserve_glider", False),
        ("What is the price of a glider?", "find_glider", True),
        ("Reserve a glider.", "reserve_glider", True),
    ],
)
def test_a_question_is_no_request_for_an_action_that_lacks_something(said: str, name: str, asks: bool) -> None:
    glider = tool(name, f"{name.partition('_')[0].title()} a glider.", "date", date={**TEXT, "format": "date"})
    made = decoded(said, call(name, '{"date": "2027-01-01"}'), glider)
    assert (made.missing, made.is_declined) == ((["date"], False) if asks else ([], True))


def test_a_table_that_was_written_out_is_copied() -> None:
    table = {"type": "array", "items": {"type": "array", "items": NUMBER}}
    test = tool("chi_squared_test", "Test a table.", "table", table=table)
    wished = call("chi_squared_test", '{"table": [[10, 20], [20, 20]]}')
    assert decoded("Test the table [[10, 20], [30, 40]]", wished, test).calls[0][1] == {"table": [[10, 20], [30, 40]]}
