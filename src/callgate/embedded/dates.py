"""Dates and times in running text: calendar dates, weekdays, "tomorrow", clock times.

A text and today's date come in; `DateMention`s and `TimeMention`s go out, each with its place and its value. A date without
a year is the coming one. English throughout; month names, weekdays and the common words also in German, French, Spanish and
Italian. Pure text work.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from itertools import pairwise

__all__ = ["DateMention", "TimeMention", "dates_in", "times_in"]

_MONTH_NAMES = (
    "january january jan januar janvier enero gennaio", "february feb februar février febrero febbraio",
    "march mar märz mars marzo", "april apr avril abril aprile", "may mai mayo maggio", "june jun juni juin junio giugno",
    "july jul juli juillet julio luglio", "august aug août agosto", "september sep sept septembre septiembre settembre",
    "october oct oktober octobre octubre ottobre", "november nov novembre noviembre",
    "december dec dezember décembre diciembre dicembre",
)  # fmt: skip
_MONTHS = {word: number for number, words in enumerate(_MONTH_NAMES, 1) for word in words.split()}
_DAY_NAMES = (
    "monday mon montag lundi lunes lunedì", "tuesday tue tues dienstag mardi martes martedì",
    "wednesday wed mittwoch mercredi miércoles mercoledì", "thursday thu thurs donnerstag jeudi jueves giovedì",
    "friday fri freitag vendredi viernes venerdì", "saturday samstag samedi sábado sabato",
    "sunday sonntag dimanche domingo domenica",
)  # fmt: skip
_WEEKDAYS = {word: number for number, words in enumerate(_DAY_NAMES) for word in words.split()}
_RELATIVE = {
    "the day before yesterday": -2, "yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1, "the day after tomorrow": 2,
    "heute": 0, "morgen": 1, "übermorgen": 2, "gestern": -1, "aujourd'hui": 0, "demain": 1, "hier": -1, "hoy": 0,
    "mañana": 1, "oggi": 0, "domani": 1,
}  # fmt: skip


def _any_of(words: dict[str, int]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_MONTH = f"(?:{_any_of(_MONTHS)})\\.?"
_YEAR = r"(?:(?:,\s*|\s+)(?P<year>(?:1[5-9]|2[01])\d\d))?"


@dataclass(frozen=True, slots=True, kw_only=True)
class DateMention:
    """A date that was mentioned."""

    start: int
    end: int
    text: str
    value: date
    has_year: bool = True
    """False where the year, or all of it, follows from today's date."""
    lacks_year: bool = False
    """True where day and month were said and the year was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMention:
    """A time of the day that was mentioned."""

    start: int
    end: int
    text: str
    value: time


def dates_in(text: str, today: date) -> list[DateMention]:
    """The dates of a text in their order; where two readings overlap, the longer one."""
    found: list[DateMention] = []
    for pattern, read in _DATES:
        for hit in pattern.finditer(text):
            taken = any(one.start < hit.end() and hit.start() < one.end for one in found)
            mention = None if taken else read(hit, today)
            if mention is not None:
                found.append(mention)
    found.sort(key=lambda one: one.start)
    for place, (first, second) in enumerate(pairwise(found)):
        if _RANGE.fullmatch(text[first.end : second.start]):
            found[place : place + 2] = _with_year_of(first, second), _with_year_of(second, first)
    return found


_RANGE = re.compile(r",?\s*(?:to|until|till|through|and|or|bis|und|au|et|al|y|–|-)\s*(?:the\s+)?", re.IGNORECASE)


def _with_year_of(mention: DateMention, other: DateMention) -> DateMention:
    """A date without a year that stands with one that has it, as in "April 4 to April 8, 2023"."""
    if not mention.lacks_year or not other.has_year:
        return mention
    try:
        return replace(mention, value=mention.value.replace(year=other.value.year), has_year=True)
    except ValueError:
        return mention


def times_in(text: str) -> list[TimeMention]:
    """The times of a text in their order."""
    found: list[TimeMention] = []
    for pattern, read in _TIMES:
        for hit in pattern.finditer(text):
            value = None if any(one.start < hit.end() and hit.start() < one.end for one in found) else read(hit)
            if value is not None:
                found.append(TimeMention(start=hit.start(), end=hit.end(), text=hit[0], value=value))
    return sorted(found, key=lambda one: one.start)


# Dates -------------------------------------------------------------------------------------------------------------------


def _made(hit: re.Match[str], year: int | None, month: int, day: int, today: date) -> DateMention | None:
    try:
        value = date(year or today.year, month, day)
        if year is None and value < today:
            value = date(today.year + 1, month, day)
    except ValueError:
        return None
    return DateMention(
        start=hit.start(), end=hit.end(), text=hit[0], value=value, has_year=year is not None, lacks_year=year is None
    )


def _numeric(hit: re.Match[str], today: date) -> DateMention | None:
    return _made(hit, int(hit["year"]), int(hit["month"]), int(hit["day"]), today)


def _slashed(hit: re.Match[str], today: date) -> DateMention | None:
    """Month and day as the Americans write them, unless only the other order is a date."""
    first, second, year = int(hit["first"]), int(hit["second"]), int(hit["year"])
    year += 2000 if year < 100 else 0
    return _made(hit, year, first, second, today) or _made(hit, year, second, first, today)


def _worded(hit: re.Match[str], today: date) -> DateMention | None:
    year = int(hit["year"]) if hit["year"] else None
    return _made(hit, year, _MONTHS[hit["month"].casefold().rstrip(".")], int(hit["day"]), today)


def _relative(hit: re.Match[str], today: date) -> DateMention:
    words = " ".join(hit[0].casefold().split()).replace("’", "'")
    value = today + timedelta(days=_RELATIVE[words])
    return DateMention(start=hit.start(), end=hit.end(), text=hit[0], value=value, has_year=False)


def _weekday(hit: re.Match[str], today: date) -> DateMention:
    ahead = (_WEEKDAYS[hit["name"].casefold()] - today.weekday()) % 7 or 7
    if (hit["which"] or "").casefold() == "last":
        ahead -= 7
    return DateMention(start=hit.start(), end=hit.end(), text=hit[0], value=today + timedelta(days=ahead), has_year=False)


def _in_days(hit: re.Match[str], today: date) -> DateMention:
    days = {"a": 1, "one": 1, "two": 2, "three": 3}.get(hit["count"].casefold()) or int(hit["count"])
    days *= 7 if hit["unit"].casefold().startswith("week") else 1
    return DateMention(start=hit.start(), end=hit.end(), text=hit[0], value=today + timedelta(days=days), has_year=False)


_I = re.IGNORECASE
_DATES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date], DateMention | None]], ...] = (
    (re.compile(r"(?<![\w.-])(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})(?![\w-])"), _numeric),
    (re.compile(r"(?<![\w.])(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.\s?(?P<year>\d{4})(?!\w)"), _numeric),
    (re.compile(r"(?<![\w/])(?P<first>\d{1,2})/(?P<second>\d{1,2})/(?P<year>\d{4}|\d\d)(?![\w/])"), _slashed),
    (
        re.compile(
            rf"(?<!\w)(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.)?\s+(?:of\s+|de\s+)?(?P<month>{_MONTH})(?:\s+de)?{_YEAR}(?!\w)",
            _I,
        ),
        _worded,
    ),
    (
        re.compile(rf"(?<!\w)(?P<year>\d{{4}}),?\s+(?P<month>{_MONTH})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?![\w:])", _I),
        _worded,
    ),
    (
        re.compile(
            rf"(?<!\w)(?P<month>{_MONTH})(?:\s+|(?<=\.))(?:the\s+)?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?{_YEAR}(?![\w:])", _I
        ),
        _worded,
    ),
    (re.compile(rf"(?<!\w)(?:{_any_of(_RELATIVE)})(?!\w)", _I), _relative),
    (re.compile(r"(?<!\w)in\s+(?P<count>a|one|two|three|\d{1,3})\s+(?P<unit>days?|weeks?)(?!\w)", _I), _in_days),
    (re.compile(rf"(?<!\w)(?:(?P<which>next|this|last|coming)\s+)?(?P<name>{_any_of(_WEEKDAYS)})(?!\w)", _I), _weekday),
)

# Times -------------------------------------------------------------------------------------------------------------------

_HOUR_WORDS = """
one two three four five six seven eight nine ten eleven twelve
"""
_HOURS = {word: number for number, word in enumerate(_HOUR_WORDS.split(), 1)}
_HOUR = rf"(?P<hour>\d{{1,2}}|{_any_of(_HOURS)})"
_HALF = r"(?:\s?(?P<half>[ap])\.?m\.?(?!\w))"
_OF_THE_DAY = r"(?:\s+in\s+the\s+(?P<half>morning|afternoon|evening)(?!\w))"


_HALVES = {"a": "a", "p": "p", "morning": "a", "afternoon": "p", "evening": "p"}


def _clock(hit: re.Match[str]) -> time | None:
    parts = hit.groupdict()
    raw = str(parts["hour"]).casefold()
    hour, minute = _HOURS.get(raw) or int(raw), int(parts.get("minute") or 0)
    half = _HALVES.get((parts.get("half") or "").casefold(), "")
    if half and hour <= 12:
        hour = hour % 12 + (12 if half == "p" else 0)
    return time(hour, minute, int(parts.get("second") or 0)) if hour < 24 and minute < 60 else None


def _worded_clock(hit: re.Match[str]) -> time | None:
    hour = _HOURS.get(hit["hour"].casefold()) or int(hit["hour"])
    minutes = {"half": 30, "quarter": 15}.get(hit["part"].casefold(), 0)
    total = hour * 60 + (minutes if hit["side"].casefold() == "past" else -minutes)
    if _HALVES.get((hit["half"] or "").casefold()) == "p" and hour < 12:
        total += 720
    return time(total // 60, total % 60) if 0 <= total < 1440 else None


_TIMES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], time | None]], ...] = (
    (re.compile(rf"(?<![\w:.-])(?P<part>half|quarter)\s+(?P<side>past|to)\s+{_HOUR}{_OF_THE_DAY}", _I), _worded_clock),
    (re.compile(rf"(?<![\w:.-])(?P<part>half|quarter)\s+(?P<side>past|to)\s+{_HOUR}{_HALF}?", _I), _worded_clock),
    (re.compile(rf"(?<![\w:.-]){_HOUR}(?:[:.](?P<minute>[0-5]\d))?(?:\s+o['’]clock)?{_OF_THE_DAY}", _I), _clock),
    (re.compile(rf"(?<![\w:.-])(?P<hour>\d{{1,2}})[:.](?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?{_HALF}", _I), _clock),
    (re.compile(r"(?<![\w:.-])(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\w:])", _I), _clock),
    (re.compile(rf"(?<![\w:.-]){_HOUR}{_HALF}", _I), _clock),
    (re.compile(rf"(?<![\w:.-]){_HOUR}\s+(?:o['’]clock|uhr)(?:\s+(?P<minute>[0-5]\d)(?!\w))?", _I), _clock),
    (re.compile(r"(?<![\w:.-])(?P<hour>\d{1,2})h(?P<minute>[0-5]\d)(?!\w)", _I), _clock),
    (re.compile(r"(?<!\w)(?:noon|midday|mittags)(?!\w)", _I), lambda hit: time(12)),
    (re.compile(r"(?<!\w)(?:midnight|mitternacht)(?!\w)", _I), lambda hit: time(0)),
)
