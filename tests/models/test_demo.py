"""The scripted stand-in: what it recognises, what it calls, and what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Gate, Reply, ToolError, tool
from callgate.cli.demo_tools import DEMO_TOOLS, calculate, current_time, get_current_weather
from callgate.models.demo import DemoModel
from callgate.testing import answer


def ask(prompt: str, *tools: Any, **options: Any) -> Reply:
    gate = Gate(DemoModel(answer), tools)
    return asyncio.run(gate.run(prompt, **options))


def calls(prompt: str, *tools: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(record.call.name, dict(record.call.args)) for record in ask(prompt, *(tools or DEMO_TOOLS)).calls]


@pytest.mark.parametrize(
    ("prompt", "places"),
    [
        ("What is the weather in Oslo?", ["Oslo"]),
        ("weather in Oslo", ["Oslo"]),
        ("What's the weather like in Oslo and in Rome?", ["Oslo", "Rome"]),
        ("weather in Oslo, Rome and New York please", ["Oslo", "Rome", "New York"]),
        ("What is the weather for Zürich today?", ["Zürich"]),
    ],
)
def test_each_place_is_one_call(prompt: str, places: list[str]) -> None:
    assert calls(prompt) == [("get_current_weather", {"location": place}) for place in places]


def test_two_places_are_two_calls_of_one_turn() -> None:
    reply = ask("weather in Oslo and Rome in fahrenheit?", *DEMO_TOOLS)
    assert [dict(record.call.args) for record in reply.calls] == [
        {"location": "Oslo", "unit": "fahrenheit"},
        {"location": "Rome", "unit": "fahrenheit"},
    ]
    assert reply.turns == 2
    assert reply.text == "In Oslo it is 39 °F and foggy. In Rome it is 45 °F and windy."


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("What is 12*7?", "12*7 = 84."),
        ("what is 3 plus 4", "3 + 4 = 7."),
        ("6 times 7?", "6 * 7 = 42."),
        ("(1 + 2) * 3", "(1 + 2) * 3 = 9."),
        ("2 ^ 10", "2 ** 10 = 1024."),
        ("7 divided by 2", "7 / 2 = 3.5."),
        ("1 / 0", "calculate failed: Division by zero has no result."),
    ],
)
def test_sums_are_worked_out(prompt: str, said: str) -> None:
    assert ask(prompt, *DEMO_TOOLS).text == said


def test_the_time_is_told_for_a_place_that_has_a_zone() -> None:
    assert calls("What time is it?") == [("current_time", {"place": "UTC"})]
    assert calls("what's the time in New York?") == [("current_time", {"place": "America/New_York"})]


def test_a_zone_that_does_not_exist_is_tried_again_as_utc() -> None:
    reply = ask("What time is it in Atlantis?", *DEMO_TOOLS)
    assert [(dict(record.call.args), record.state) for record in reply.calls] == [
        ({"place": "Atlantis"}, "failed"),
        ({"place": "UTC"}, "finished"),
    ]
    assert "no time zone 'Atlantis'" in reply.text
    assert "In UTC it is " in reply.text


def test_several_questions_in_one_prompt_are_all_answered() -> None:
    found = calls("What is the weather in Oslo and what time is it in Tokyo, and what is 2 + 2?")
    assert found == [
        ("get_current_weather", {"location": "Oslo"}),
        ("calculate", {"expression": "2 + 2"}),
        ("current_time", {"place": "Asia/Tokyo"}),
    ]


def test_tools_that_are_not_declared_are_not_called() -> None:
    reply = ask("weather in Oslo and 2 + 2", current_time)
    assert reply.calls == []
    assert "scripted demo" in reply.text
    assert "What time is it in Tokyo?" in reply.text
    assert "weather" not in reply.text


def test_without_tools_it_says_so() -> None:
    assert "I have no tools" in ask("hello").text
    assert ask("2 + 2", calculate, tool_choice="none").calls == []


@tool(name="roll-dice")
def roll(sides: int, label: str = "", lucky: bool = False) -> str:
    """Rolls."""
    return f"{label}:{sides}:{lucky}"


@pytest.mark.parametrize(
    ("prompt", "args"),
    [
        ("roll-dice sides=6", {"sides": 6}),
        ("  roll-dice sides=6 label=5 lucky=true ", {"sides": 6, "label": "5", "lucky": True}),
        ("roll-dice sides=6 'label=two words'", {"sides": 6, "label": "two words"}),
        ("roll-dice sides=6 label='a=b'", {"sides": 6, "label": "a=b"}),
    ],
)
def test_a_tool_is_called_by_its_name(prompt: str, args: dict[str, Any]) -> None:
    assert calls(prompt, roll) == [("roll-dice", args)]
    assert ask(prompt, roll).text.startswith('roll-dice returned "')


@pytest.mark.parametrize("prompt", ["roll-dice please", "roll-dice label='", "roll-dice 6"])
def test_a_call_that_cannot_be_read_is_explained_and_not_made(prompt: str) -> None:
    reply = ask(prompt, roll)
    assert (reply.calls, reply.text) == ([], "To call roll-dice, write: roll-dice sides=... label=... lucky=...")


def test_arguments_that_do_not_fit_are_reported() -> None:
    reply = ask("roll-dice sides=many", roll)
    assert reply.calls[0].state == "failed"
    assert reply.text.startswith("roll-dice failed: ")


def test_a_tool_of_the_same_name_may_return_something_else() -> None:
    def calculate(expression: str) -> str:
        return "a lot"

    def get_current_weather(location: str) -> str:
        return "fine"

    assert ask("2 + 2", calculate).text == 'calculate returned "a lot".'
    assert ask("weather in Oslo", get_current_weather).text == 'get_current_weather returned "fine".'


def test_only_the_newest_words_of_the_user_count() -> None:
    async def talk() -> Reply:
        gate = Gate(DemoModel(answer), DEMO_TOOLS)
        first = await gate.run("weather in Oslo")
        return await gate.run("2 + 2", session=first.session)

    reply = asyncio.run(talk())
    assert (reply.text, len(reply.calls)) == ("2 + 2 = 4.", 1)


# --- the tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1 + 2 * 3", 7), ("-(2 - 5)", 3), ("+4", 4), ("2 ** 0.5 * 2 ** 0.5", pytest.approx(2)), ("2**-1", 0.5), ("1e3", 1000)],
)
def test_calculate_knows_arithmetic(expression: str, value: float) -> None:
    assert calculate(expression) == value


@pytest.mark.rows(
    ("expression", "said"),
    [
        ("9**9**9", "too large"),
        ("2**4097", "too large"),
        ("1e308*10", "too large"),
        ("1e999", "too large"),
        ("10.0**400", "too large"),
        ("(-8)**0.5", "not a real number"),
        ("1/0", "Division by zero"),
        ("0**-1", "Division by zero"),
        ("__import__('os')", "Only numbers"),
        ("True + 1", "Only numbers"),
        ("'a' * 9", "Only numbers"),
        ("1 if 2 else 3", "Only numbers"),
        ("7 // 2", "Only numbers"),
        ("1 +", "is not a sum"),
        ("", "is not a sum"),
        ("\x00", "is not a sum"),
        ("(" * 150 + "1" + ")" * 40, "is not a sum"),
        ("1+" * 150 + "1", "longer than 200"),
    ],
)
def test_calculate_refuses_what_is_no_small_sum(expression: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        calculate(expression)


def test_the_weather_is_the_same_every_time() -> None:
    assert get_current_weather("Oslo") == get_current_weather("oslo ") | {"location": "Oslo"}
    assert get_current_weather("Oslo", "fahrenheit")["temperature"] == 39


@pytest.mark.parametrize("zone", ["Atlantis", "../etc/passwd", "/etc/passwd", "", "a\x00b", "Europe"])
def test_a_zone_that_is_none_is_a_sentence(zone: str) -> None:
    with pytest.raises(ToolError, match="There is no time zone"):
        current_time(zone)


@pytest.mark.parametrize(("city", "zone"), [("tokyo", "Asia/Tokyo"), ("New York", "America/New_York"), ("EST", "EST")])
def test_a_city_is_a_name_of_its_zone(city: str, zone: str) -> None:
    from callgate.cli.demo_tools import _zone  # pyright: ignore[reportPrivateUsage]

    assert str(_zone(city)) == zone


def test_utc_needs_no_database() -> None:
    assert set(current_time("utc")) == {"place", "time", "date"}
