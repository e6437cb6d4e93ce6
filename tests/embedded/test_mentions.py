"""The values that a conversation mentions: numbers, dates, times, codes, and how they are offered to an argument."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from callgate.embedded.automaton import Choices
from callgate.embedded.candidates import (
    candidates_of,
    is_complete,
    is_given,
    literal_lists,
    mentioned_choices,
    number_lists,
)
from callgate.embedded.dates import dates_in, times_in
from callgate.embedded.mentions import leaves_of, mentions_in
from callgate.embedded.numbers import arithmetic_in, numbers_in
from callgate.embedded.slots import ToolSlots, slots_of
from callgate.types import ToolDefinition

TODAY = date(2026, 11, 17)


@pytest.mark.rows(
    ("text", "values"),
    [
        ("Give Rex 200 grams", [200]),
        ("two hundred and five nights", [205]),
        ("half an hour", [0.5]),
        ("an hour and a half", [1.5]),
        ("two and a half kg", [2.5]),
        ("1,250.50 euros and 3,5 kg", [1250.5, 3.5]),
        ("minus ten and -5 degrees", [-10, -5]),
        ("the third floor, 2nd door", [3, 2]),
        ("15% of 213 million", [15, 213e6]),
        ("a dozen eggs", [12]),
        ("[22,33,42] and 1e-9", [22, 33, 42, 1e-9]),
        ("[-50000, 10000,15000] and (1,250)", [-50000, 10000, 15000, 1250]),
        ("8.5 million square kilometers", [8.5e6]),
        ("5ft 10in", [5, 10, 5 + 10 / 12]),
        ("zwei Stunden, quinze minutes", [2, 15, 2.25]),
        ("version 3.2.1 at 192.168.1.1, ISO-9001, 2027-09-30, 555-1234", []),
        ("the first one, this one", [1]),
        ("of 5,10 and 15, but 1,250 and 300", [5, 10, 15, 1250, 300]),
    ],
)
def test_numbers_are_read_in_digits_and_words(text: str, values: list[float]) -> None:
    assert [mention.value for mention in numbers_in(text) if not mention.is_indefinite or mention.unit] == values


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("by 30 September 2027 or 2027-01-31", ["2027-09-30", "2027-01-31"]),
        ("31.01.2027, 12/25/2026, 25/12/2026", ["2027-01-31", "2026-12-25", "2026-12-25"]),
        ("March 14, the 3rd of June", ["2027-03-14", "2027-06-03"]),
        ("tomorrow, next Monday, in two weeks", ["2026-11-18", "2026-11-23", "2026-12-01"]),
        ("am 3. Mai, le 3 mai, 5 de enero de 2028", ["2027-05-03", "2027-05-03", "2028-01-05"]),
        ("at closing March.11, 2022, Jun.20,2023", ["2022-03-11", "2023-06-20"]),
        ("from 2023 April 4th to April 8th", ["2023-04-04", "2023-04-08"]),
        ("April 4 until April 8, 2023, and on 3 May", ["2023-04-04", "2023-04-08", "2027-05-03"]),
        ("object 1978.3, may I, 31 February 2027, 3/4 of it", []),
    ],
)
def test_dates_are_read_and_nothing_else_is_one(text: str, days: list[str]) -> None:
    assert [mention.value.isoformat() for mention in dates_in(text, TODAY)] == days


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        ("at 14:30 or 3pm", ["14:30:00", "15:00:00"]),
        ("half past seven pm, quarter to nine", ["19:30:00", "08:45:00"]),
        ("um 14 Uhr 30, noon, 7 o'clock", ["14:30:00", "12:00:00", "07:00:00"]),
        ("five p.m.", ["17:00:00"]),
        ("a quarter past ten in the morning, half past two in the afternoon", ["10:15:00", "14:30:00"]),
        ("at 3 in the afternoon, 7:15 in the evening, nine in the morning", ["15:00:00", "19:15:00", "09:00:00"]),
        ("25:10 and 3.14", []),
    ],
)
def test_times_are_read(text: str, clock: list[str]) -> None:
    assert [str(mention.value) for mention in times_in(text)] == clock


# --- candidates ----------------------------------------------------------------------------------------------------------


def owner(name: str = "do_it", description: str = "", **properties: Any) -> ToolSlots:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return slots_of(ToolDefinition(name=name, description=description, input_schema=schema))


def offered(said: str, *, leaves: Any = (), of: str | None = None, **properties: Any) -> list[Any]:
    tool = owner(**properties)
    slot = next(slot for slot in tool.slots if of is None or slot.name == of)
    mentions = mentions_in([said], leaves=leaves_of(leaves), today=TODAY)
    return [json.loads(value) for value in candidates_of(slot, tool, mentions).values]


INTEGER, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}


@pytest.mark.rows(
    ("said", "properties", "wanted"),
    [
        ("for 2 hours", {"minutes": INTEGER}, [120]),
        ("half an hour", {"duration": {**INTEGER, "description": "Length in minutes"}}, [30]),
        ("3 kg please", {"grams": INTEGER}, [3000]),
        ("5 euros", {"minutes": INTEGER}, []),
        ("locker 5 floor 2", {"floor": INTEGER, "locker": INTEGER}, [2]),
        ("a room for 4 nights", {"nights": INTEGER, "rooms": INTEGER}, [4]),
        ("a room for 4 nights", {"rooms": INTEGER, "nights": INTEGER}, [1]),
        ("set a timer", {"minutes": INTEGER}, []),
        ("2.5 litres", {"count": INTEGER}, []),
        ("close it", {"position": {**INTEGER, "description": "0 is open, 100 is closed"}}, [100]),
        ("150 or 7", {"level": {**INTEGER, "maximum": 10}}, [7]),
        ("20%", {"share": {**NUMBER, "maximum": 1}}, [0.2]),
        ("on 3 May 2027", {"year": INTEGER}, [2027]),
        ("started at 300K", {"temperature": {**NUMBER, "description": "Temperature in Kelvin"}}, [300]),
        ("two charges of 5C and 7C", {"charge": NUMBER}, [5, 7]),
        ("500 lbs of trash", {"trash_weight": {**INTEGER, "description": "The weight of the trash in pounds"}}, [500]),
        ("2 pounds of flour", {"grams": NUMBER}, [907.18474]),
        ("20 pounds a month", {"fee": {**NUMBER, "description": "Amount in pounds"}}, [20]),
        ("the numbers 45 and 60", {"other": {**INTEGER, "description": "Second number."}}, [45, 60]),
        ("discounted at 8%", {"discount_rate": NUMBER}, [8, 0.08]),
        ("a return of 5%", {"return": {**NUMBER, "description": "The return as a decimal"}}, [0.05]),
        ("5% annual yield after 3 years", {"annual_yield": NUMBER}, [5, 0.05]),
        ("a room for 2 adults and 3 children", {"child_count": INTEGER}, [3]),
        ("ironing in Bangkok", {"province": {**INTEGER, "description": "1 corresponds to Bangkok, 2 to Phuket"}}, [1]),
        ("1,200 bottles of 330 ml", {"bottles": INTEGER}, [1200]),
        ("it flew for an hour and ten minutes", {"minutes": INTEGER}, [70]),
        ("expose for a minute and a half", {"seconds": INTEGER}, [90]),
        ("two stars: Mira at 5.1 and Algol at 2.9", {"magnitude": NUMBER}, [5.1, 2.9]),
        ("cleaning", {"id": {**INTEGER, "description": "1 for cleaning, 2 for ironing, 3 for dry cleaning"}}, [1, 3]),
        ("an ironing service", {"id": {**INTEGER, "description": "1 for cleaning service, 2 for ironing service"}}, [2]),
        ("a full house", {"deck": {**INTEGER, "description": "The size of the deck. Default is 52."}}, [52]),
        ("3 hectares", {"area": {**NUMBER, "description": "Area in square meters"}}, [30000]),
        ("ironing", {"kind": {**INTEGER, "description": "'1' for cleaning, '2' for ironing"}}, [2]),
    ],
)
def test_a_number_is_offered_in_the_unit_of_its_argument_and_to_no_other(
    said: str, properties: dict[str, Any], wanted: list[Any]
) -> None:
    assert offered(said, **properties) == wanted


@pytest.mark.parametrize(
    ("said", "schema", "wanted"),
    [
        ("by 30 September 2027", {"format": "date"}, ["2027-09-30"]),
        ("by 30 September 2027", {"description": "DD/MM/YYYY"}, ["30/09/2027"]),
        ("tomorrow", {}, ["tomorrow"]),
        ("tomorrow", {"description": "Date as YYYY-MM-DD"}, ["2026-11-18"]),
        ("object 1978.3", {"format": "date"}, []),
        ("tomorrow at 5pm", {"format": "date-time"}, ["2026-11-18T17:00:00Z"]),
        ("tomorrow", {"format": "date-time"}, []),
        ("at 5pm", {"description": "Time as HH:MM"}, ["17:00"]),
        ("to a@b.org", {"format": "email"}, ["a@b.org"]),
        ("see https://x.org/a?b=1.", {"format": "uri"}, ["https://x.org/a?b=1"]),
        ("code ab-12 or AB12", {"pattern": "^[A-Z]{2}\\d{2}$"}, ["AB12"]),
    ],
)
def test_typed_text_is_offered_in_the_form_that_the_schema_wants(said: str, schema: Any, wanted: list[str]) -> None:
    name = "time" if "HH" in str(schema) else "date"
    assert offered(said, **{name: {**TEXT, **schema}}) == wanted


def test_codes_come_from_beside_their_name_and_results_count_as_said() -> None:
    assert offered("block badge K77 at gate B2", badge_id=TEXT) == ["K77"]
    assert offered("cancel my booking", booking_id=TEXT) == []
    assert offered("cancel it", leaves={"bookings": [{"ref": "X-9"}]}, booking_id=TEXT) == ["X-9"]


def copied(said: str, value: str, schema: Any = TEXT, *, name: str = "place", description: str = "Do it.") -> bool:
    tool = owner(description=description, **{name: schema})
    found = candidates_of(tool.slots[0], tool, mentions_in([said], today=TODAY))
    state = Choices(found.values, texts=found.texts).start()
    for char in f" {json.dumps(value, ensure_ascii=False)}":
        if char not in state.moves():
            return False
        stepped = state.step(char)
        assert stepped is not None
        state = stepped[1]
    return state.is_end


def test_text_is_copied_from_word_to_word_and_untouched() -> None:
    said = "Deliver the rye rolls to Mateusz Ørsted's shop in Łódź."
    assert copied(said, "rye rolls")
    assert copied(said, "Mateusz Ørsted")
    assert copied(said, "Łódź")
    assert not copied(said, "ricene rolls")
    assert not copied(said, "Mateus")
    assert not copied(said, "the rye rolls")


def test_words_of_the_request_itself_give_no_value() -> None:
    assert not copied("Send an email, please", "email", name="to", description="Send an email.")
    assert copied("Send an email to Bob, please", "Bob", name="to", description="Send an email.")


def test_a_choice_is_recognised_in_other_languages() -> None:
    tool = owner(colour={"type": "string", "enum": ["red", "green"]})
    assert mentioned_choices(tool.slots[0], mentions_in(["eine rote Lampe"], today=TODAY)) == ["red"]
    assert mentioned_choices(tool.slots[0], mentions_in(["une lampe verte"], today=TODAY)) == ["green"]
    assert mentioned_choices(tool.slots[0], mentions_in(["a lamp"], today=TODAY)) == []


# --- the automaton -------------------------------------------------------------------------------------------------------


def test_a_path_keeps_its_own_letters_whatever_case_leads_along_it() -> None:
    state = Choices(['"oslo"', '"Ötzi"'], endings=["})", ', "b":']).start()
    taken = state.take(b' "Os')
    assert taken is not None
    assert taken[0] == ' "os'
    whole = taken[1].take(b'lo"})\nmore')
    assert whole is not None
    assert (whole[0], whole[1].is_end) == ('lo"})', True)
    other = state.take(' "Ö'.encode()[:-1])
    assert other is not None
    assert other[0] == ' "Ö'
    assert state.take(b' "x') is None


# --- sums and pairs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sums"),
    [
        ("What is 15% of 240?", ["240 * 15 / 100"]),
        ("Was ist 3 mal 4?", ["3 * 4"]),
        ("Please add 19 and 23.", ["19 + 23"]),
        ("two times seven", ["2 * 7"]),
        ("(3+4)*2 please", ["(3+4)*2"]),
        ("1,200 divided by 12", ["1200 / 12"]),
        ("room 12", []),
    ],
)
def test_a_sum_in_words_is_offered_in_signs(text: str, sums: list[str]) -> None:
    assert arithmetic_in(text) == sums
    if sums:
        assert offered(text, expression=TEXT) == sums


def test_of_two_pairs_a_number_goes_with_the_value_beside_it() -> None:
    tool = owner(crop=TEXT, tonnes=NUMBER)
    mentions = mentions_in(["Sell 5 tonnes of rye and 3 tonnes of barley."], today=TODAY)
    by_crop = {crop: candidates_of(tool.slots[1], tool, mentions, used=[crop]).values for crop in ("rye", "barley")}
    assert by_crop == {"rye": ("5",), "barley": ("3",)}


def test_a_number_that_was_said_once_is_not_offered_twice() -> None:
    tool = owner(spot=INTEGER, percent=INTEGER)
    once, twice = (mentions_in([said], today=TODAY) for said in ("Dim spotlight 9.", "Dim spotlight 9 to 9."))
    assert candidates_of(tool.slots[1], tool, once, used=[9]).values == ()
    assert candidates_of(tool.slots[1], tool, twice, used=[9]).values == ("9",)


def test_of_two_choices_the_one_beside_the_copied_value_is_meant() -> None:
    days = {"type": "string", "enum": ["monday", "friday"]}
    tool = owner(lesson=TEXT, day=days)
    mentions = mentions_in(["Spinning on Monday for Ayodele and pilates on Friday for Franziska"], today=TODAY)
    assert mentioned_choices(tool.slots[1], mentions) == ["monday", "friday"]
    assert mentioned_choices(tool.slots[1], mentions, used=["pilates"]) == ["friday"]


def test_a_number_beside_the_name_of_an_argument_counts_more_than_one_in_the_clause_of_the_last_value() -> None:
    said = "Density of Brazil in 2022 if the population is 213 million and the land area is 8.5 million square kilometers"
    of = owner("density", country=TEXT, land_area={**NUMBER, "description": "The area in square kilometers."})
    found = candidates_of(of.slots[1], of, mentions_in([said], today=TODAY), used=["Brazil"])
    assert found.values == ("8500000",)


@pytest.mark.parametrize(
    ("said", "lists"),
    [
        ("the mean of [22,33,42]", ["[22, 33, 42]"]),
        ("flows [-50000, 10000, 15000, 10000]", ["[-50000, 10000, 15000, 10000]"]),
        ("for 3 pupils: 1, 1 and 2", ["[1, 1, 2]"]),
        ("between [1,2] and [3,4]", ["[1, 2]", "[3, 4]"]),
        ("5 of 7", []),
    ],
)
def test_a_list_of_numbers_is_offered_whole_with_its_repeated_items(said: str, lists: list[str]) -> None:
    of = owner(numbers={"type": "array", "items": INTEGER})
    assert number_lists(of.slots[0], mentions_in([said], today=TODAY)) == lists


def test_a_list_that_another_argument_has_taken_is_not_offered_again() -> None:
    of = owner(a={"type": "array", "items": INTEGER}, b={"type": "array", "items": INTEGER})
    said = mentions_in(["between [1,2] and [3,4]"], today=TODAY)
    assert number_lists(of.slots[1], said, used=[[1, 2]]) == ["[3, 4]"]


def test_a_quoted_string_may_have_an_apostrophe() -> None:
    said = mentions_in(["the review 'I love it! It's fresh.'."], today=TODAY)
    assert [quote.text for quote in said.messages[0].quotes] == ["I love it! It's fresh."]


@pytest.mark.parametrize(
    ("said", "piece", "is_offered"),
    [
        ("concerts in San Diego next month (April 2022)", "San Diego", True),
        ("concerts in San Diego (April 2022)", "San Diego (April 2022", False),
        ("the weather in Moscow, specifying the wind", "Moscow, specifying the wind", False),
        ("the weather in Portland, Oregon", "Portland, Oregon", True),
    ],
)
def test_a_piece_does_not_go_across_an_aside_or_into_the_next_clause(said: str, piece: str, is_offered: bool) -> None:
    assert copied(said, piece) is is_offered


def test_a_piece_that_says_nothing_new_is_no_way_to_go() -> None:
    of = owner("search", county=TEXT, state=TEXT)
    said = mentions_in(["lawsuits against Apple in Clara County"], today=TODAY)
    found = candidates_of(of.slots[1], of, said, used=["Apple", "Clara County"])
    starts = [text.text[start:] for text in found.texts for start in text.starts]
    assert starts[0] == "lawsuits against Apple in Clara County"
    assert not any(start.startswith(("Apple", "Clara")) for start in starts)


def test_a_letter_with_a_stroke_is_met_by_the_plain_one() -> None:
    assert copied("Book it for Łukasz Wiśniewski.", "Łukasz Wiśniewski")
    start = Choices(['"Łukasz"']).start()
    taken = start.take(b' "Lukasz"')
    assert taken is not None
    assert taken[0] == ' "Łukasz"'


def test_a_code_beside_the_name_of_its_argument_is_not_missing() -> None:
    of = owner(berth={**TEXT, "description": "Berth such as C-14"}, boat=TEXT)
    said = mentions_in(["Berth A-02 for Marguerite please"], today=TODAY)
    assert [is_complete(slot, of, said) for slot in of.slots] == [True, False]


def test_a_further_call_is_offered_the_numbers_that_nothing_names() -> None:
    tool, mentions = (
        owner(purchase_amount=NUMBER),
        mentions_in(["a purchase amount of $30 in Rome, $52 in Oslo"], today=TODAY),
    )
    first, further = (candidates_of(tool.slots[0], tool, mentions, is_further=is_further) for is_further in (False, True))
    assert (first.values, further.values) == (("30",), ("30", "52"))


@pytest.mark.parametrize(
    ("said", "piece"),
    [
        ("buy a pizza at McDonald's today", "McDonald's"),
        ("buy Anna's bike", "Anna"),
        ("drive from Boston to Washington D.C.", "Washington D.C."),
        ("call Apple Inc. now", "Apple Inc."),
    ],
)
def test_a_name_may_end_with_what_belongs_to_it(said: str, piece: str) -> None:
    assert copied(said, piece)


def test_a_message_in_quotes_is_no_quoted_value() -> None:
    assert not mentions_in(["'Get the price of Apple for the last 5 days.'"], today=TODAY).messages[0].quotes
    assert mentions_in(["Search for 'last 5 days'."], today=TODAY).messages[0].quotes


@pytest.mark.parametrize(
    ("description", "said", "wanted"),
    [
        ("Departure in the format 'dd/mm/yyyy HH:MM'", "on 12 March 2023 at 3pm", ["12/03/2023 15:00"]),
        ("Departure in the format 'dd/mm/yyyy'", "on 12 March 2023 at 3pm", ["12/03/2023"]),
        ("Departure in the format 'dd/mm/yyyy'", "on 04/03/2023", ["04/03/2023"]),
        ("Departure in the format 'YYYY-MM-DDTHH:MM:SSZ'", "on 12 March 2023 at 3pm", ["2023-03-12T15:00:00Z"]),
        ("The time zone to leave from", "at 3pm", []),
    ],
)
def test_a_form_that_the_description_spells_out_counts_more_than_the_name(
    description: str, said: str, wanted: list[str]
) -> None:
    assert offered(said, departure_time={**TEXT, "description": description})[: len(wanted) or None] == wanted or (
        not wanted and "3pm" not in offered(said, zone={**TEXT, "description": description})
    )


def test_a_moment_or_a_period_is_offered_where_no_form_is_asked_for() -> None:
    assert offered("closed until 15:30", until=TEXT) == ["15:30"]
    assert offered("concerts for next month (April 2022)", date=TEXT) == ["next month", "April 2022"]
    assert offered("closed until 15:30", until={**TEXT, "format": "date"}) == []


def test_currencies_are_offered_as_codes() -> None:
    assert offered("How many Canadian dollars for 500 US dollars?", base_currency=TEXT) == ["CAD", "USD"]


def test_an_optional_flag_is_offered_where_its_own_name_was_said() -> None:
    schema = {
        "type": "object",
        "properties": {"place": TEXT, "allow_transfer": {"type": "boolean", "description": "Allows transfer"}},
        "required": ["place"],
    }
    tool = slots_of(ToolDefinition(name="route", description="Find transportation", input_schema=schema))
    mentions = [mentions_in([said], today=TODAY) for said in ("to Oslo, I can transfer", "a bus to Oslo")]
    assert [candidates_of(tool.slots[1], tool, one).values for one in mentions] == [("true", "false"), ()]


@pytest.mark.parametrize(
    "description",
    ["The flight, in the format 'XX123' where 'XX' is the airline", 'JSON such that "{" and "}" surround it'],
)
def test_what_a_description_quotes_to_explain_a_form_is_no_list_of_choices(description: str) -> None:
    assert owner(flight={**TEXT, "description": description}).slots[0].kind != "choice"


def test_a_parameter_is_a_url_only_if_its_description_says_so() -> None:
    described = ["The URL to send it to", "A name that is put into the URL", "A readable URL slug"]
    kinds = [owner(fabric={**TEXT, "description": description}).slots[0].kind for description in described]
    assert kinds == ["url", "text", "text"]


def test_a_name_after_of_is_copied_from_its_beginning() -> None:
    said = "12 metres of Harris tweed for Ann Lee"
    assert [copied(said, piece) for piece in ("Harris tweed", "tweed", "Ann Lee")] == [True, False, True]
    assert copied("the life of Pope Innocent III", "Innocent III")


@pytest.mark.parametrize(("piece", "is_offered"), [("Marguerite", True), ("A-02 for Marguerite", False), ("A-02", False)])
def test_a_code_that_stands_after_the_name_of_another_argument_is_no_part_of_a_piece(piece: str, is_offered: bool) -> None:
    tool, mentions = owner(boat=TEXT, berth=TEXT), mentions_in(["Berth A-02 for Marguerite please"], today=TODAY)
    pieces = [text for one in candidates_of(tool.slots[0], tool, mentions).texts for text in one.pieces(chars_max=60)]
    assert (piece in pieces) is is_offered


@pytest.mark.parametrize(
    ("said", "piece", "is_offered"),
    [
        ("Rescue 2 to Brook Street 9 now", "Brook Street 9", True),
        ("Rescue 2 to Brook Street 9 now", "Brook Street", False),
        ("the ranking in the NBA 2021", "NBA", True),
        ("Pebbles the penguin with 25 a month", "Pebbles the penguin", True),
        ("Pebbles the penguin with 25 a month", "penguin with 25 a month", False),
    ],
)
def test_a_number_after_a_name_belongs_to_it_and_one_after_a_preposition_does_not(
    said: str, piece: str, is_offered: bool
) -> None:
    assert copied(said, piece) is is_offered


def test_an_optional_text_is_no_bare_number_where_the_tool_takes_numbers() -> None:
    schema = {"type": "object", "properties": {"amount": NUMBER, "month": TEXT}, "required": ["amount"]}
    tool = slots_of(ToolDefinition(name="record", description="Record it", input_schema=schema))
    said = mentions_in(["from Pauline, 640"], today=TODAY)
    assert "640" not in [
        piece for one in candidates_of(tool.slots[1], tool, said).texts for piece in one.pieces(chars_max=40)
    ]


@pytest.mark.parametrize(
    ("said", "piece", "is_offered"),
    [
        ("weather in Chennai, Tamil Nadu today", "Chennai, Tamil Nadu", True),
        ("weather in Chennai, Tamil Nadu today", "Chennai", False),
        ("weather in Rome, Oslo and Bern", "Rome", True),
        ("I'm at Riga, Latvia, Can you tell me the weather?", "Riga, Latvia", True),
    ],
)
def test_a_place_of_two_names_is_whole_where_both_are_asked_for(said: str, piece: str, is_offered: bool) -> None:
    assert copied(said, piece, {**TEXT, "description": "In the format 'City, State'"}) is is_offered


def test_an_optional_value_is_not_the_one_that_another_argument_has() -> None:
    schema = {"type": "object", "properties": {"to_email": TEXT, "cc_email": TEXT}, "required": ["to_email"]}
    tool = slots_of(ToolDefinition(name="write", description="Write", input_schema=schema))
    mentions = mentions_in(["write to a@example.com"], today=TODAY)
    assert candidates_of(tool.slots[1], tool, mentions, used=["a@example.com"]).values == ()
    assert candidates_of(tool.slots[0], tool, mentions).values == ('"a@example.com"',)


@pytest.mark.parametrize(
    ("said", "is_wanted"), [("with main contributions", True), ("no contributions", False), ("all", False)]
)
def test_a_flag_whose_name_was_said_is_given(said: str, is_wanted: bool) -> None:
    tool = owner(include_contributions={"type": "boolean"})
    assert is_given(tool.slots[0], tool, mentions_in([said], today=TODAY)) is is_wanted


def test_numbers_of_listed_things_are_one_list_and_a_table_is_copied_whole() -> None:
    counts = owner(counts={"type": "array", "items": INTEGER}).slots[0]
    assert number_lists(counts, mentions_in(["five burgers and six wings"], today=TODAY)) == ["[5, 6]"]
    table = owner(table={"type": "array", "items": {"type": "array", "items": INTEGER}}).slots[0]
    assert literal_lists(table, mentions_in(["the table [ [10, 20], [30, 40] ]"], today=TODAY)) == ["[[10, 20], [30, 40]]"]
    for odd in ("[[a 1]]", "[[1, 2], [x]]", "[1, 2]", "[[]]", "[" * 5_000, "[[1" * 5_000 + "]" * 9_999):
        assert literal_lists(table, mentions_in([odd], today=TODAY)) == []
    both = mentions_in(["[[1]], [[2, 3.5]]"], today=TODAY)
    assert literal_lists(table, both) == ["[[1]]", "[[2, 3.5]]"]
    assert literal_lists(table, mentions_in(["the table [10, 20]"], today=TODAY)) == []


def test_a_code_that_another_argument_has_is_no_beginning_of_a_name() -> None:
    tool = owner("reserve", glider=TEXT, pilot=TEXT)
    mentions = mentions_in(["Reserve D-0923 for Henrik"], today=TODAY)
    texts = candidates_of(tool.slots[1], tool, mentions, used=["D-0923"]).texts
    assert [piece for one in texts for piece in one.pieces(chars_max=60)] == ["Henrik"]
