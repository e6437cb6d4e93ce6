"""Candidates: the values that may be written into a slot, taken from what the conversation mentions.

A slot and the mentions come in; JSON values go out, and the texts whose pieces may be copied. A number is offered in the
unit of its slot, a date in its format. Where a number or a code stands beside the name of the slot ("floor 3", "4 nights"),
only that one is offered, and no other slot gets it. Nothing that was not said is offered. Pure text work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from types import MappingProxyType
from typing import Any, cast

from callgate.embedded.automaton import Span, SpanText
from callgate.embedded.mentions import Mentions, Message, Word
from callgate.embedded.numbers import UNITS, NumberMention, arithmetic_in, converted, runs_of, stem, unit_for
from callgate.embedded.slots import Slot, ToolSlots
from callgate.embedded.vocabulary import CURRENCIES, STOP_WORDS, TRANSLATIONS

__all__ = ["Candidates", "candidates_of", "is_complete", "is_given", "literal_lists", "mentioned_choices", "number_lists"]

SPAN_CHARS_MAX = 3_000
"""Characters of messages whose pieces are offered."""
_FUNCTION_WORDS = """
a an the to for of in on at with and or from by my your our his her its their please is are was be into as about that
der die das den dem ein eine einen für von zu mit und le la les un une des du de el los las y e
"""
_NO_START = frozenset(_FUNCTION_WORDS.split())
_NO_END = _NO_START | {"i", "you", "it", "which", "who", "not"}
_DATE_FORMATS = (
    (re.compile(r"YYYY[-/]MM[-/]DDTHH", re.IGNORECASE), "%Y-%m-%d"),
    (re.compile(r"YYYY-MM-DD", re.IGNORECASE), "%Y-%m-%d"),
    (re.compile(r"YYYY/MM/DD", re.IGNORECASE), "%Y/%m/%d"),
    (re.compile(r"DD/MM/YYYY", re.IGNORECASE), "%d/%m/%Y"),
    (re.compile(r"MM/DD/YYYY", re.IGNORECASE), "%m/%d/%Y"),
    (re.compile(r"DD\.MM\.YYYY", re.IGNORECASE), "%d.%m.%Y"),
    (re.compile(r"DD-MM-YYYY", re.IGNORECASE), "%d-%m-%Y"),
    (re.compile(r"\bISO\b|\b\d{4}-\d\d-\d\d\b"), "%Y-%m-%d"),
)
_PHRASE = re.compile(
    r"(-?\d+(?:\.\d+)?)['\"]?\s*(?:is|=|means|for|:|being|represents|corresponds to|stands for)\s*([^,.;)]+)", re.IGNORECASE
)
_WORD = re.compile(r"[^\W\d_]+", re.UNICODE)
_CURRENCY = stem("currency")
_PART_OF_DATE: Mapping[str, str] = MappingProxyType({"year": "year", "month": "month", "day": "day"})


@dataclass(frozen=True, slots=True)
class Candidates:
    """The values of one slot."""

    values: tuple[str, ...] = ()
    """JSON texts."""
    texts: tuple[SpanText, ...] = ()
    """Texts whose pieces are values."""
    is_open: bool = False
    """True if the value may also be composed."""
    is_sure: bool = False
    """True if a rule found them, whatever the model thinks of them."""

    def __bool__(self) -> bool:
        return bool(self.values or self.texts)


def candidates_of(
    slot: Slot,
    owner: ToolSlots,
    mentions: Mentions,
    *,
    used: Collection[Any] = (),
    spent: Collection[str] = (),
    is_further: bool = False,
) -> Candidates:
    """The values of a slot. `used` are values that other slots of the same call have taken, in their order.

    `spent` are values that belong to earlier calls of the same answer.

    A further call of the same answer may also have numbers that nothing names: its name may be left out.
    """
    numbers = [value for value in used if not isinstance(value, str)]
    used = [value for value in used if isinstance(value, str)]
    maker = _patterned if slot.schema.get("pattern") and slot.kind in _WORDY else _MAKERS.get(slot.kind)
    if _CURRENCY in slot.words and slot.kind in _WORDY:
        maker = _currencies
    for words, rule in _RULES:
        if slot.words & words and (found := [_json(value) for value in rule(slot, owner, mentions) if _fits(value, slot)]):
            return Candidates(tuple(dict.fromkeys(found)), is_sure=True)
    if slot.kind == "number":
        return _number_candidates(slot, owner, mentions, used, numbers, is_further=is_further)
    if maker is not None:
        made = [value for value in maker(slot, owner, mentions) if _fits(value, slot) and value not in spent]
        if not slot.is_required and slot.kind not in ("choice", "boolean"):
            made = [value for value in made if value not in used]  # It was said for the other one.
        return Candidates(tuple(dict.fromkeys(map(_json, made))))
    texts = tuple(_span_texts(slot, owner, mentions, [*used, *spent]))
    leaves = [leaf for leaf in mentions.leaves if isinstance(leaf, str) and leaf not in used and len(leaf) <= 120]
    quotes = [quote.text for message in mentions.messages for quote in message.quotes if quote.text not in used]
    listed = [*quotes, *leaves]
    if slot.default is not None and slot.is_required:
        listed.append(slot.default)
    values = tuple(dict.fromkeys(_json(value) for value in listed if _fits(value, slot)))
    return Candidates(values, texts, is_open=slot.kind in ("composed", "any"))


def _number_candidates(
    slot: Slot, owner: ToolSlots, mentions: Mentions, used: Collection[str], numbers: Sequence[Any], *, is_further: bool
) -> Candidates:
    """The numbers of the clause of the last copied value, or else of the whole conversation."""
    near = _near(used, mentions)
    if near is not None and not _has_named(slot, near) and _has_named(slot, mentions):
        near = None  # The slot's own number stands elsewhere.
    for source in filter(None, (near, mentions)):
        fitting = [value for value in _numbers(slot, owner, source, is_further=is_further) if _fits(value, slot)]
        described = _described(slot, mentions)
        values = [_json(value) for value in fitting if value in described or _is_unused(value, numbers, mentions)]
        if values:
            return Candidates(tuple(dict.fromkeys(values)))
    return Candidates()


def _has_named(slot: Slot, mentions: Mentions) -> bool:
    return any(not mention.is_indefinite and _is_named(mention, slot) for mention in mentions.messages[0].numbers)


def number_lists(slot: Slot, mentions: Mentions, *, used: Collection[Any] = ()) -> list[str]:
    """The lists of numbers that were said, for a slot that holds one, as JSON; without those that other slots have taken."""
    item, found = slot.item, dict[str, None]()
    if item is None or item.kind != "number":
        return []
    for message in mentions.messages:
        for run in runs_of(message.numbers, message.text):
            values = [_whole(value) for mention in run for value in _values_of(mention, item)[:1]]
            fits = len(values) == len(run) and all(_fits(value, item) for value in values)
            if (
                fits
                and _within(len(values), slot.schema.get("minItems"), slot.schema.get("maxItems"))
                and values not in used
            ):
                found[_json(values)] = None
        counts = [mention for mention in message.numbers if not mention.is_indefinite and not mention.unit]
        between = [message.text[first.end : second.start] for first, second in pairwise(counts)]
        is_listed = bool(between) and all(re.search(r",|\sand\s", text) for text in between)
        if not found and slot.is_required and is_listed:  # "five burgers and six wings"
            found[_json([_whole(mention.value) for mention in counts])] = None
    return list(found)


def literal_lists(slot: Slot, mentions: Mentions) -> list[str]:
    """The lists of lists of numbers that were written out, for a slot that holds one, as JSON."""
    if slot.item is None or slot.item.kind != "array":
        return []
    runs = (run for message in mentions.messages for run in _LIST_MARKS.findall(message.text))
    found = (value for run in runs for value in _lists_in(run[run.find("[") : run.rfind("]") + 1]))
    return list(dict.fromkeys(_json(value) for value in found if value and all(map(_is_row, value))))


_LIST_MARKS = re.compile(r"[][\d\s.,-]+")


def _lists_in(text: str) -> list[Any]:
    """Return the JSON lists that stand one after another in a text; none if it is not JSON."""
    try:
        return [value for value in json.loads(f"[{text}]") if isinstance(value, list)]
    except (ValueError, RecursionError):
        return []


def _is_row(value: Any) -> bool:
    return (
        isinstance(value, list) and value != [] and all(isinstance(item, (int, float)) for item in cast("list[Any]", value))
    )


def _has_number_for_each(owner: ToolSlots, mentions: Mentions) -> bool:
    """True if the newest message has at least as many numbers as a call requires: none of them is missing."""
    if not mentions.messages:
        return False
    texts = [slot for slot in owner.slots if slot.kind in ("identifier", "text")]
    numbers = [
        mention
        for mention in mentions.messages[0].numbers
        if not mention.is_indefinite and not any(_is_named(mention, slot) for slot in texts)
    ]
    return len(numbers) >= sum(slot.kind == "number" for slot in owner.required) > 0


def mentioned_choices(slot: Slot, mentions: Mentions, *, used: Collection[str] = ()) -> list[Any]:
    """The choices of a slot that the newest message names, in its own or another language.

    Of several, those in the clause of the value that was copied last.
    """
    if not mentions.messages:
        return []
    text = mentions.messages[0].text
    found = _named_choices(slot, text)
    clause = _clause(used, text) if len(found) > 1 else None
    return (_named_choices(slot, text[slice(*clause)]) or found) if clause else found


def _named_choices(slot: Slot, text: str) -> list[Any]:
    said = [stem(word) for word in _WORD.findall(text)]
    whole = f" {' '.join(said)} "
    found: list[Any] = []
    for choice in slot.choices:
        words = [stem(word) for word in _WORD.findall(str(choice).replace("_", " "))]
        others = TRANSLATIONS.get(str(choice).casefold().replace("_", " "), ())
        if (words and f" {' '.join(words)} " in whole) or any(stem(other) in said for other in others):
            found.append(choice)
    return found


def is_given(slot: Slot, owner: ToolSlots, mentions: Mentions) -> bool:
    """True if the newest message gives the value of a slot beyond doubt: a number beside its name, or one of the choices."""
    if not mentions.messages:
        return False
    if slot.kind == "choice":
        said = mentioned_choices(slot, mentions)
        return len(said) == 1 and not {stem(word) for word in _WORD.findall(str(said[0]))} <= owner.words
    if slot.kind == "boolean":
        return _is_wanted(slot, mentions.messages[0].text)
    if slot.kind != "number":
        return False
    named = [mention for mention in _named(mentions.messages[0].numbers, slot) if not mention.is_indefinite]
    alike = [other for other in owner.slots if other.name != slot.name and other.kind == "number" and _claims(other, named)]
    return (bool(named) and not alike) or bool(_described(slot, mentions))


def _is_wanted(slot: Slot, said: str) -> bool:
    """True if all words of the name of a flag were said, and nothing was denied."""
    words = slot.words - _FLAG_WORDS
    stems = {stem(word) for word in _WORD.findall(said)}
    return bool(words) and words <= stems and not re.search(r"\b(?:no|not|without)\b|n['’]t\b", said, re.IGNORECASE)


_FLAGS = """
include is has have with show allow enable use get want return add
"""
_FLAG_WORDS = frozenset(map(stem, _FLAGS.split()))
"""Stems of the words that names of flags begin with."""


def is_complete(slot: Slot, owner: ToolSlots, mentions: Mentions) -> bool:
    """True if a required number or code cannot be missing: there is one for each place, or it stands beside its name."""
    if not slot.is_required or not mentions.messages:
        return False
    if slot.kind == "number":
        return _has_number_for_each(owner, mentions)
    pairs = pairwise(mentions.messages[0].words)
    named = {word.text for before, word in pairs if word.is_code and stem(before.text) in slot.words}
    return slot.kind == "identifier" and len(named) == 1


def _claims(slot: Slot, mentions: Sequence[NumberMention]) -> bool:
    return any(_is_named(mention, slot) for mention in mentions)


# Values ------------------------------------------------------------------------------------------------------------------


def _choices(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    return slot.choices


def _booleans(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    """Both; but an optional one only if a word of its name or description was said."""
    told = {stem(word) for word in _WORD.findall(slot.description) if word.casefold() not in STOP_WORDS} - owner.words
    about = {word[:5] for word in told | (slot.words - STOP_WORDS)}
    said = {stem(word)[:5] for message in mentions.messages[:1] for word in _WORD.findall(message.text)}
    return (True, False) if slot.is_required or about & said else ()


def _numbers(slot: Slot, owner: ToolSlots, mentions: Mentions, *, is_further: bool = False) -> Iterable[Any]:
    offered: list[float] = []
    for message in mentions.messages:
        own = _named(message.numbers, slot)
        others = [
            mention
            for other in _others(slot, owner)
            for mention in _named(message.numbers, other)
            if not _is_topic(mention, other, owner)
        ]
        free = [mention for mention in message.numbers if not mention.is_indefinite and mention not in others]
        if is_further or all(mention.is_indefinite for mention in own):
            own = [*own, *free]
        elif not any(slot.words & {*mention.before, *mention.after} for mention in own):
            own = [*own, *(mention for mention in free if not mention.unit and mention not in own)]
        measured = {mention.start for mention in own if mention.unit}
        own = [mention for mention in own if mention.unit or mention.start not in measured]
        is_divided = any(other.dimension and other.dimension == slot.dimension for other in _others(slot, owner))
        for mention in own if is_divided else _undivided(own):
            offered += _values_of(mention, slot)
        if part := next((part for part in _PART_OF_DATE if part in slot.words or stem(part) in slot.words), None):
            offered += [getattr(mention.value, part) for mention in message.dates]
    offered += _described(slot, mentions)
    offered += [leaf for leaf in mentions.leaves if isinstance(leaf, (int, float))]
    if slot.default is not None and slot.is_required:
        offered.append(slot.default)
    return [_whole(value) for value in offered]


def _is_topic(mention: NumberMention, slot: Slot, owner: ToolSlots) -> bool:
    """True if only words further off name the slot, and they are what the whole request is about."""
    named = slot.words & {*mention.before, *mention.after}
    beside = {*mention.before[-1:], *mention.after[:1], stem(mention.unit)}
    return not mention.unit and bool(named) and named <= owner.words and not named & beside


def _undivided(mentions: Sequence[NumberMention]) -> list[NumberMention]:
    """5 ft 10 in as one number, without its parts."""
    return [
        one
        for one in mentions
        if not any(other.start <= one.start and one.end <= other.end and _size(other) > _size(one)
                   for other in mentions)
    ]  # fmt: skip


def _size(mention: NumberMention) -> int:
    return mention.end - mention.start


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _described(slot: Slot, mentions: Mentions) -> list[float]:
    """Numbers that the description gives for a word that was said: 100 for "close it" of "100 is closed"."""
    said = {stem(word)[:5] for message in mentions.messages[:1] for word in _WORD.findall(message.text)}
    phrases = [
        (float(hit[1]), {stem(word)[:5] for word in _WORD.findall(hit[2])}) for hit in _PHRASE.finditer(slot.description)
    ]
    common = [len(said & words - _VAGUE) for _, words in phrases]
    return [value for (value, _), count in zip(phrases, common, strict=True) if count and count == max(common)]


_VAGUE = frozenset({"fully", "the", "is", "a", "an", "full", "for", "to", "of"})


def _near(used: Collection[str], mentions: Mentions) -> Mentions | None:
    """The numbers of the clause that the last copied value stands in: of "5 t of rye and 3 t of barley", one pair."""
    if not mentions.messages:
        return None
    message = mentions.messages[0]
    clause = _clause(used, message.text)
    if clause is None:
        return None
    numbers = tuple(mention for mention in message.numbers if clause[0] <= mention.start < clause[1])
    return Mentions((replace(message, numbers=numbers, dates=()),)) if numbers else None


def _clause(used: Collection[str], text: str) -> tuple[int, int] | None:
    """The clause that the last of the copied values stands in."""
    for value in reversed(list(used)):
        place = text.casefold().find(value.casefold())
        if place < 0:
            continue
        start = max((hit.end() for hit in _CLAUSE.finditer(text, 0, place)), default=0)
        after = _CLAUSE.search(text, place + len(value))
        return start, after.start() if after else len(text)
    return None


def _is_unused(value: float, used: Sequence[Any], mentions: Mentions) -> bool:
    """True unless a number was only said for another slot."""
    said = sum(mention.value == value for message in mentions.messages for mention in message.numbers)
    return said > used.count(value) or value not in used


_CLAUSE = re.compile(r"\s(?:and|und|et|y|e)\s|[,;]\s|\.\s", re.IGNORECASE)


def _others(slot: Slot, owner: ToolSlots) -> list[Slot]:
    return [other for other in owner.slots if other.name != slot.name and other.kind in ("number", "identifier", "text")]


def _named(mentions: Sequence[NumberMention], slot: Slot) -> list[NumberMention]:
    """The numbers that a slot claims; a name before the number counts more than one after it."""
    found = [mention for mention in mentions if _is_named(mention, slot)]
    definite = [mention for mention in found if not mention.is_indefinite]
    most = max((len(slot.words & set(mention.before)) for mention in definite), default=0)
    closest = [mention for mention in definite if most and len(slot.words & set(mention.before)) == most]
    return closest or definite or found


def _is_named(mention: NumberMention, slot: Slot) -> bool:
    """True if the words beside a number, or its unit, say that it belongs to the slot."""
    if mention.unit and slot.kind == "number":
        if slot.unit:
            return UNITS[unit_for(mention.unit, slot.dimension)][0] == UNITS[slot.unit][0]
        if slot.dimension:
            return UNITS[unit_for(mention.unit, slot.dimension)][0] == slot.dimension
    return bool(slot.words & {*mention.before, *mention.after, stem(mention.unit)} - {"of", "for", "in", "the", "a", "to"})


def _values_of(mention: NumberMention, slot: Slot) -> list[float]:
    value = converted(mention, slot.unit)
    if value is None:
        return []
    if mention.unit in ("%", "percent", "prozent"):
        highest: object = slot.schema.get("maximum")
        fraction = round(mention.value / 100, 9)
        is_fraction = re.search(r"\b(?:decimal|fraction)\b(?! places)", slot.description, re.IGNORECASE)
        if is_fraction or (isinstance(highest, (int, float)) and highest <= 1):
            return [fraction]
        is_told = re.search(r"percent|%", f"{slot.name} {slot.description}", re.IGNORECASE)
        if not is_told and "integer" not in str(slot.schema.get("type")):
            return [value, fraction]
    return [value]


def _dates(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    form = _date_format(slot)
    for message in mentions.messages:
        for mention in message.dates:
            if form is not None:
                yield mention.text if _has_form(mention.text, form) else mention.value.strftime(form)
            else:
                yield mention.text
                if mention.has_year:
                    yield mention.value.isoformat()
        if form is None and slot.schema.get("format") is None and not message.dates:
            yield from (mention.text for mention in message.times)
            yield from (hit[0] for hit in _PERIOD.finditer(message.text))
    yield from (leaf for leaf in mentions.leaves if isinstance(leaf, str) and _has_date(leaf))


_PERIOD = re.compile(
    r"\b(?:(?:next|this|last|coming)\s+(?:week|weekend|month|year)"
    r"|(?:jan|febr)uary \d{4}|(?:march|april|may|june|july|august) \d{4}|(?:septem|octo|novem|decem)ber \d{4})\b",
    re.IGNORECASE,
)


def _date_format(slot: Slot) -> str | None:
    if slot.schema.get("format") == "date":
        return "%Y-%m-%d"
    described = f"{slot.description} {slot.schema.get('pattern', '')} {slot.schema.get('examples', '')}"
    return next((form for pattern, form in _DATE_FORMATS if pattern.search(described)), None)


def _has_form(text: str, form: str) -> bool:
    """True if digits were said in the very form that is asked for: 3/4/2027 is two dates, and only the slot knows which."""
    digits = {"%Y": r"\d{4}", "%m": r"\d\d", "%d": r"\d\d"}
    return re.fullmatch(re.sub("%.", lambda part: digits[part[0]], form.replace(".", r"\.")), text) is not None


def _has_date(text: str) -> bool:
    return len(text) <= 40 and re.search(r"\d{4}-\d\d-\d\d", text) is not None


def _times(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    for message in mentions.messages:
        for mention in message.times:
            if slot.schema.get("format") == "time":
                yield f"{mention.value:%H:%M:%S}Z"
            elif re.search(r"HH:MM:SS", slot.description, re.IGNORECASE):
                yield f"{mention.value:%H:%M:%S}"
            elif re.search(r"HH:MM|24|\b\d\d:\d\d\b", slot.description, re.IGNORECASE):
                yield f"{mention.value:%H:%M}"
            else:
                yield mention.text
                yield f"{mention.value:%H:%M}"
    yield from (leaf for leaf in mentions.leaves if isinstance(leaf, str) and re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", leaf))


def _moments(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    """Dates with the times of the same message; a date alone only where no format asks for both."""
    formal = slot.schema.get("format") == "date-time"
    strict = formal or re.search(r"YYYY.{0,12}HH|\bISO[- ]?8601\b", slot.description, re.IGNORECASE) is not None
    form = "%Y-%m-%dT%H:%M:%SZ" if formal else _moment_form(slot.description)
    for message in mentions.messages:
        pairs = [(day.value, hour.value) for day in message.dates for hour in message.times]
        yield from (datetime.combine(day, hour).strftime(form) for day, hour in pairs)
        if not strict:
            yield from _moment_phrases(message)
            yield from (mention.value.isoformat() for mention in message.dates if not message.times)
    yield from (leaf for leaf in mentions.leaves if isinstance(leaf, str) and _has_date(leaf))


_MOMENT = re.compile(
    r"(?P<day>(?:YYYY|DD|MM)(?P<mark>[-/.])(?:MM|DD)(?P=mark)(?:YYYY|DD))(?P<between>T| )"
    r"(?P<hour>HH:MM(?::SS)?)(?P<zone>Z?)",
    re.IGNORECASE,
)


def _moment_form(description: str) -> str:
    """The form of a moment that a description spells out, such as `dd/mm/yyyy HH:MM`; or else that of ISO 8601."""
    spelt = _MOMENT.search(description)
    if spelt is None:
        return "%Y-%m-%dT%H:%M:%S"
    day = spelt["day"].upper().replace("YYYY", "%Y").replace("DD", "%d").replace("MM", "%m")
    hour = spelt["hour"].upper().replace("HH", "%H").replace("MM", "%M").replace("SS", "%S")
    return f"{day}{spelt['between']}{hour}{spelt['zone']}"


def _moment_phrases(message: Message) -> Iterable[str]:
    """ "tomorrow at 5pm" as it was said, and each half of it."""
    for day in message.dates:
        yield day.text
        for hour in message.times:
            first, last = min(day.start, hour.start), max(day.end, hour.end)
            if last - first <= len(day.text) + len(hour.text) + 6:
                yield message.text[first:last]
    yield from (hour.text for hour in message.times)


def _emails(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    for message in mentions.messages:
        yield from message.emails
    yield from (leaf for leaf in mentions.leaves if isinstance(leaf, str) and "@" in leaf and " " not in leaf)


def _urls(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    for message in mentions.messages:
        yield from message.urls
        yield from (path for path in message.paths if re.fullmatch(r"[\w-]+(\.[\w-]+)*\.[a-z]{2,}(/\S*)?", path))
    yield from (leaf for leaf in mentions.leaves if isinstance(leaf, str) and "://" in leaf)


def _phones(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    for message in mentions.messages:
        yield from message.phones
        yield from (word.text for word in message.words if re.fullmatch(r"\+?\d{3,}", word.text))


def _identifiers(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    nouns = {word for word in owner.words if len(word) > 3}
    for message in mentions.messages:
        dated = [(mention.start, mention.end) for mention in (*message.dates, *message.times)]
        codes = [
            word for word in message.words
            if word.is_code and (not _is_within(word, dated) or "-" in word.text) and "@" not in word.text
        ]  # fmt: skip
        pairs = [
            (stem(before.text), word) for before, word in zip(message.words, message.words[1:], strict=False)
            if (word in codes or word.text.casefold() not in STOP_WORDS) and not _is_within(word, dated)
        ]  # fmt: skip
        named = [word for before, word in pairs if before in slot.words and word in codes]
        beside = [word for before, word in pairs if before in slot.words | nouns]
        offered = named or [*codes, *beside]
        # A code of two words, such as the plate of a car, is one code.
        pairs_of_codes = [
            (first, second) for first, second in pairwise(message.words)
            if first in offered and _is_capital(first) and _is_capital(second)
            and message.text[first.end : second.start] == " "
        ]  # fmt: skip
        yield from (message.text[first.start : second.end] for first, second in pairs_of_codes)
        halves = {word for pair in pairs_of_codes for word in pair}
        yield from (word.text for word in offered if word not in halves)
        yield from (word.text[1:] for word in codes if word.text.startswith("#"))
        yield from (quote.text for quote in message.quotes)
    yield from (leaf if isinstance(leaf, str) else str(leaf) for leaf in mentions.leaves if len(str(leaf)) <= 80)


def _is_capital(word: Word) -> bool:
    return word.is_code and word.text.upper() == word.text


def _is_within(word: Word, places: Iterable[tuple[int, int]]) -> bool:
    return any(start < word.end and word.start < end for start, end in places)


def _paths(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    for message in mentions.messages:
        yield from message.paths
        yield from (quote.text for quote in message.quotes)
        yield from (word.text for word in message.words if word.is_code)
        yield from _named_paths(message, slot, owner)
    yield from (leaf for leaf in mentions.leaves if isinstance(leaf, str) and " " not in leaf and len(leaf) <= 120)


def _named_paths(message: Message, slot: Slot, owner: ToolSlots) -> Iterable[str]:
    """Plain words that stand where a file or folder is named."""
    no_value = {*slot.words, *owner.words, "fil", "folder", "directory"}
    leading = _FILE_WORDS if slot.is_required else _FILE_WORDS | _FOLDER_WORDS
    for before, word, after in zip(["", *message.words], message.words, [*message.words[1:], ""], strict=False):
        first = before.text.casefold() if isinstance(before, Word) else ""
        last = after.text.casefold() if isinstance(after, Word) else ""
        if word.text.casefold() in STOP_WORDS or stem(word.text) in no_value:
            continue
        if first in leading or last in ("file", "folder", "directory", "dir"):
            yield word.text


def _expressions(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    return [arithmetic for message in mentions.messages[:1] for arithmetic in arithmetic_in(message.text)]


def _replacements(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    """The two sides of "replace A by B"."""
    for message in mentions.messages[:1]:
        verb = _REPLACE.search(message.text)
        between = _REPLACED_BY.search(message.text, verb.end()) if verb else None
        if verb is None or between is None:
            continue
        old, new = message.text[verb.end() : between.start()], message.text[between.end() :].strip().rstrip(".!")
        place = new.rfind(" in ")
        if place > 0 and " " not in new[place + 4 :]:
            new = new[:place]
        yield (old if "old" in slot.words else new).strip().strip("'\"`“”")


_REPLACE = re.compile(r"\b(?:replace|change|swap|substitute|ersetze)\s", re.IGNORECASE)
_REPLACED_BY = re.compile(r"\s(?:by|with|to|into|for|durch)\s", re.IGNORECASE)
_RULES = ((frozenset({"old", "new"}), _replacements), (frozenset({"expression"}), _expressions))
_FILE_WORDS = frozenset({"file", "folder", "directory", "dir", "ls", "cat", "open", "read", "called", "named", "print"})
_FOLDER_WORDS = frozenset({"in", "inside", "under", "below", "from", "of"})


def _currencies(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    for message in mentions.messages:
        low = message.text.casefold()
        named = sorted(((word, code) for code, words in CURRENCIES.items() for word in words), key=lambda one: -len(one[0]))
        for word, code in named:
            found = re.compile(rf"(?<![^\W\d]){re.escape(word)}(?![^\W\d])")
            if found.search(low):
                low = found.sub("|", low)
                yield code
        yield from (word.text for word in message.words if re.fullmatch(r"[A-Z]{3}", word.text))


def _patterned(slot: Slot, owner: ToolSlots, mentions: Mentions) -> Iterable[Any]:
    """Words, pairs of words and quoted strings; those that match the pattern are left."""
    yield from _identifiers(slot, owner, mentions)
    for message in mentions.messages:
        words = message.words
        yield from (mention.value.isoformat() for mention in message.dates)
        yield from (f"{mention.value:%H:%M}" for mention in message.times)
        for first, second in zip(words, [*words[1:], None], strict=False):
            yield from (first.text, first.text.upper())
            if second is not None:
                yield message.text[first.start : second.end]


_WORDY = frozenset({"text", "identifier", "composed", "any", "date", "time", "phone"})
_MAKERS = {
    "choice": _choices, "boolean": _booleans, "number": _numbers, "date": _dates, "time": _times, "date-time": _moments,
    "email": _emails, "url": _urls, "phone": _phones, "identifier": _identifiers, "path": _paths,
}  # fmt: skip


# Pieces of messages ------------------------------------------------------------------------------------------------------


def _span_texts(slot: Slot, owner: ToolSlots, mentions: Mentions, used: Collection[str]) -> Iterable[SpanText]:
    left = SPAN_CHARS_MAX
    is_loose = slot.kind in ("composed", "any")
    no_value = owner.words | slot.words
    taken = {stem(word) for text in used for word in [*_WORD.findall(text), *text.split()]}
    for message in mentions.messages:
        if left <= 0 or len(message.text) > left:
            break
        left -= len(message.text)
        typed = [(m.start, m.end) for m in (*message.dates, *message.times)]
        typed += [(m.start, m.end) for m in message.numbers if m.unit and "unit" not in slot.words]
        typed += [(message.text.find(one), message.text.find(one) + len(one)) for one in message.emails]
        others = [word for word in message.words if word.is_code and word.text in used]
        foreign = [] if is_loose else [*_codes_of_others(message, slot, owner), *others]
        typed += [(word.start, word.end) for word in foreign]
        counts = [] if slot.is_required else _counts(message, slot, owner)
        numbered = [] if is_loose else [*_numbered_names(message, owner), *_parts_of_places(message, slot)]
        inside = [*_inside_names(message), *foreign]
        spans = [
            Span(
                word.start,
                word.end,
                begins=is_loose or (_begins(word) and word not in inside),
                ends=word.text not in _NO_END and word not in foreign and word not in numbered,
                is_content=_says_something(word, no_value, taken)
                and (is_loose or not _is_within(word, typed))
                and word not in counts,
                full_end=word.full_end,
            )
            for word in message.words
        ]
        if any(span.is_content for span in spans):
            breaks = () if is_loose else [*_breaks(message, owner), *(word.start for word in foreign)]
            yield SpanText(message.text, spans, breaks=breaks)


def _counts(message: Message, slot: Slot, owner: ToolSlots) -> list[Word]:
    """Bare numbers that are no optional text of a tool that takes numbers, unless they stand beside the name of the slot."""
    if not any(other.kind == "number" for other in owner.slots):
        return []
    numbers = [mention for mention in message.numbers if not _is_named(mention, slot)]
    return [word for word in message.words if _is_bare(word) and any(one.start == word.start for one in numbers)]


def _numbered_names(message: Message, owner: ToolSlots) -> list[Word]:
    """The last words of names that a number belongs to, as in "Engine 3", where no argument takes the number."""
    if any(slot.kind == "number" for slot in owner.slots):
        return []
    return [
        name
        for name, number in pairwise(message.words)
        if name.text[0].isupper() and re.fullmatch(r"\d{1,3}", number.text) and number.start - name.end == 1
    ]


def _parts_of_places(message: Message, slot: Slot) -> list[Word]:
    """The cities of "Chennai, Tamil Nadu" for a slot that asks for both; but not those of "Rome, Oslo and Bern"."""
    if not _PLACE.search(slot.description):
        return []
    return [
        word
        for word in message.words
        if _REGION.match(message.text, word.end) and not message.text[: word.start].endswith(", ")
    ]


_PLACE = re.compile(r"\bcity(?:,| and| or)(?: the)? (?:state|country)", re.IGNORECASE)
_REGION = re.compile(r", (?=[A-Z])(?![^,.!?;]* and )")


def _is_bare(word: Word) -> bool:
    return word.text.replace(".", "", 1).isdecimal()


def _inside_names(message: Message) -> list[Word]:
    """Words that stand after "of" and a capital, such as the second one of "of Harris tweed": a name begins before them."""
    words = message.words
    return [
        word
        for before, name, word in zip(words, words[1:], words[2:], strict=False)
        if before.text == "of" and name.text[0].isupper() and word.text[0].islower() and word.start - name.end == 1
    ]


def _begins(word: Word) -> bool:
    low = word.text.casefold()
    if word.text[0].isupper() and not word.is_first:
        return True
    return low not in _NO_START and low not in STOP_WORDS


def _codes_of_others(message: Message, slot: Slot, owner: ToolSlots) -> list[Word]:
    """Codes that stand after the name of another slot, and so belong to it."""
    names = {word for other in owner.slots if other.name != slot.name for word in other.words} - slot.words
    return [word for before, word in pairwise(message.words) if word.is_code and stem(before.text) in names]


def _says_something(word: Word, no_value: Collection[str], taken: Collection[str]) -> bool:
    low = word.text.casefold()
    if stem(low) in taken or low == "i":
        return False
    if word.text[0].isupper() and not word.is_first:
        return True
    if low in STOP_WORDS:
        return False
    return stem(low) not in no_value or word.is_code


def _breaks(message: Message, owner: ToolSlots) -> Iterable[int]:
    """Find the ends of sentences, parentheses, commas before a small letter, moments, and amounts."""
    ends = [
        hit.start()
        for hit in re.finditer(
            r"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bProf)(?<!\bDr)(?<!\bSt)(?<!\bInc)(?<!\bLtd)(?<!\bCo)(?<!\bCorp)(?<!\bJr)"
            r"(?<!\b[A-Z])[.!?;](?:\s|$)",
            message.text,
        )
    ]
    numbers = [mention for mention in message.numbers if not mention.is_indefinite]
    is_wanted = len(numbers) == 1 and any(slot.kind == "number" and slot.is_required for slot in owner.slots)
    asides = [
        hit.start()
        for hit in re.finditer(
            r"(?<=\s)\(|,(?=\s+[a-z])|\s(?=(?:next|last|this)\s(?:week|month|year)\b)|\s(?=(?:with|for|at|by)\s\d)",
            message.text,
        )
    ]
    moments = [mention.start for mention in (*message.dates, *message.times)]
    claimed = [mention for slot in owner.slots if slot.kind == "number" for mention in _named(numbers, slot)]
    amounts = [mention.start for mention in numbers if mention.unit or is_wanted or mention in claimed]
    return [*ends, *asides, *moments, *amounts]


# Internals ---------------------------------------------------------------------------------------------------------------


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fits(value: Any, slot: Slot) -> bool:
    """True if a value keeps the simple bounds of the schema."""
    schema = slot.schema
    if isinstance(value, str):
        return _within(len(value), schema.get("minLength"), schema.get("maxLength")) and _matches(
            value, schema.get("pattern")
        )
    if isinstance(value, bool) or slot.kind != "number":
        return True
    if "integer" in str(schema.get("type")) and not float(value).is_integer():
        return False
    return _within(value, schema.get("minimum"), schema.get("maximum"))


def _matches(value: str, pattern: object) -> bool:
    if not isinstance(pattern, str):
        return True
    import jsonschema_rs  # Its regular expressions take bounded time.

    try:
        return jsonschema_rs.is_valid({"pattern": pattern}, value)
    except ValueError:
        return True


def _within(value: float, lowest: object, highest: object) -> bool:
    return not (isinstance(lowest, (int, float)) and value < lowest) and not (
        isinstance(highest, (int, float)) and value > highest
    )
