"""Numbers in running text: digits, words, fractions, percentages and simple units.

A text comes in; `NumberMention`s go out, each with its place, its value, its unit and the words beside it, by which an
argument recognises its own number. English number words are parsed whole ("two hundred and five"); German, French, Spanish
and Italian ones as far as the table goes. Pure text work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

__all__ = ["UNITS", "NumberMention", "arithmetic_in", "converted", "numbers_in", "runs_of", "stem", "unit_for", "unit_word"]

_UNITS_IN_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen
"""
_ONES = _UNITS_IN_WORDS.split()
_TENS_IN_WORDS = """
twenty thirty forty fifty sixty seventy eighty ninety
"""
_TENS = _TENS_IN_WORDS.split()
_SMALL: Mapping[str, float] = {word: value for value, word in enumerate(_ONES)} | {
    word: 10 * (index + 2) for index, word in enumerate(_TENS)
}
_SCALES = {"dozen": 12.0, "hundred": 100.0, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_ALONE: dict[str, float] = {
    "half": 0.5, "quarter": 0.25, "couple": 2, "pair": 2, "twice": 2, "once": 1, "single": 1, "double": 2,
    "triple": 3, "both": 2, "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12, "nil": 0,
}  # fmt: skip
_FOREIGN: dict[str, float] = {
    word: value
    for words in (
        "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn",
        "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
        "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis",
        "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici",
    )
    for value, word in enumerate(words.split())
    if word not in {"once", "elf", "un", "six", "sei"}  # English words, or too common in other senses.
} | {
    "ein": 1, "eine": 1, "einen": 1, "zwanzig": 20, "dreißig": 30, "vierzig": 40, "fünfzig": 50, "hundert": 100,
    "halbe": 0.5,
    "vingt": 20, "trente": 30, "quarante": 40, "cinquante": 50, "cent": 100, "veinte": 20, "treinta": 30, "cuarenta": 40,
    "cincuenta": 50, "cien": 100, "venti": 20, "trenta": 30, "quaranta": 40, "cinquanta": 50, "cento": 100,
}  # fmt: skip

_UNIT_WORDS = {
    ("time", 1.0): "s sec secs second seconds sekunde sekunden seconde secondes segundo segundos",
    ("time", 60.0): "min mins minute minutes minuten minuto minutos minuti",
    ("time", 3_600.0): "h hr hrs hour hours stunde stunden heure heures hora horas ora ore",
    ("time", 86_400.0): "d day days tag tage tagen jour jours día días giorno giorni",
    ("time", 604_800.0): "week weeks woche wochen semaine semaines semana semanas",
    ("time", 2_592_000.0): "month months monat monate monaten mois mes meses",
    ("time", 31_536_000.0): "year years yr yrs jahr jahre jahren ans año años",
    ("mass", 0.001): "mg milligram milligrams",
    ("mass", 1.0): "g gr gram grams gramm gramme grammes",
    ("mass", 1_000.0): "kg kilo kilos kilogram kilograms kilogramm",
    ("mass", 1e6): "t ton tons tonne tonnes tonnen",
    ("mass", 453.59237): "lb lbs",
    ("mass", 28.349523): "oz ounce ounces",
    ("length", 0.001): "mm millimeter millimetre millimeters millimetres",
    ("length", 0.01): "cm centimeter centimetre centimeters centimetres zentimeter",
    ("length", 1.0): "m meter metre meters metres",
    ("length", 1_000.0): "km kilometer kilometre kilometers kilometres",
    ("length", 1_609.344): "mi mile miles",
    ("length", 0.3048): "ft foot feet",
    ("length", 0.0254): "inch inches",
    ("volume", 0.001): "ml milliliter millilitre milliliters millilitres",
    ("volume", 0.01): "cl",
    ("volume", 1.0): "l liter litre liters litres",
    ("area", 1.0): "m² sqm",
    ("area", 1e6): "km² sqkm",
    ("area", 1e4): "ha hectare hectares hektar",
    ("area", 4_046.8564): "acre acres",
    ("area", 0.09290304): "ft² sqft",
    ("area", 2_589_988.110336): "mi²",
    ("data", 1.0): "kb kilobytes",
    ("data", 1e3): "mb megabytes",
    ("data", 1e6): "gb gigabytes",
    ("money", 0.0): "€ $ £ ¥ eur usd gbp euro euros dollar dollars pound pounds yen chf franc francs cent cents kr kroner",
    ("percent", 0.0): "% percent prozent",
    ("temperature", 0.0): "° °c °f degree degrees celsius fahrenheit grad kelvin",
}
UNITS: Mapping[str, tuple[str, float]] = MappingProxyType({
    word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()
})  # fmt: skip
"""The word of a unit -> its dimension and its size in the dimension's base unit; 0 where nothing is converted."""

_WORDS = _SMALL | _SCALES | _ALONE | _FOREIGN


def _any_of(words: Mapping[str, float]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_SCALED = f"(?:{_any_of(_SMALL | _SCALES)})"
_NUMBER = re.compile(
    rf"""(?<![\w.,:/@#-])(?P<sign>[-−–]\s?)?(?P<money>[€$£¥]\s?)?
    (?P<digits>\d{{1,3}}(?:[,'  ]\d{{3}})+(?:\.\d+)?(?!\d)|\d+(?:[.,]\d+)?)(?P<power>[eE][-+]?\d+)?(?![.,:/-]?\d)
    (?P<scale>\s(?:hundred|thousand|million|billion)\b)?
    (?P<ordinal>(?:st|nd|rd|th)\b)?(?P<times>x\b|×)?(?P<kilo>\s?k\b)?
    (?P<unit>\s?(?:%|°\s?[CF]?\b|€|\$|£)|\s(?:square|sq\.?)\s[^\W\d_]+|\s?-?\s?[^\W\d_]+²?)?
    |(?<![\w'’-])(?P<words>{_SCALED}(?:(?:\s+and\s+|[\s-]+){_SCALED})*|{_any_of(_ALONE | _FOREIGN)})(?![\w'’])""",
    re.VERBOSE | re.IGNORECASE,
)
_LISTED = re.compile(
    r"\[[-−\d.,\s]*\d[-−\d.,\s]*\]|(?<=\()(?!\d{1,3}(?:,\d{3})+\))-?\d[-\d.,]*(?=\))"
    r"|(?<![\d.,])\d+(?:\.\d+)?(?:,\d{1,2}(?:\.\d+)?){2,}(?![\d,])|(?<![\d.,])\d{4,}(?:,\d{3,})+(?![\d,])"
    r"|(?<![\d.,])\d+(?:,\d{1,2})+(?=\s+(?:and|or|und|et|y)\s+\d)"
    r"|(?<![\w/.-])\d{2,4}/\d{2,4}(?![\w/-])"
)
"""Numbers with commas between them and no spaces, which are no decimals."""
_BESIDE = re.compile(r"[^\W\d_]+", re.UNICODE)
_PRONOUN = re.compile(
    r"\b(?:this|that|the|which|another|no|any|each|every|first|second|third|last|next|other)\s+$", re.IGNORECASE
)
_HALF_MORE = re.compile(r"\s+and\s+(?:a\s+)?(half|quarter)\b|\s+(?:[^\W\d_]+)\s+and\s+a\s+(half|quarter)\b", re.IGNORECASE)
_ONE_UNIT = re.compile(
    r"(?<![\w'’])(half\s+an?|a\s+quarter\s+of\s+an?|three\s+quarters\s+of\s+an?|an?|eine[rmn]?|une|un)\s+([^\W\d_]+)",
    re.IGNORECASE,
)
_BOUNDARY = re.compile(
    r"[.,;!?]\s|\d|\b(?:for|in|and|or|with|from|until|after|within|during|für|und|mit|pour|et|para|y)\b", re.IGNORECASE
)
_BOUNDARY_AFTER = re.compile(r"[.,;!?]\s|\b(?:to|at|in|for|on|by|with|from|per|and|or|that|which|each)\b", re.IGNORECASE)
_SKIPPED = """
of is as to at by equals be the a an with about above below over under than least most exactly around up von auf um de
à
"""
_PREPOSITIONS = frozenset(_SKIPPED.split())
_PARTS = {"half": 0.5, "a quarter": 0.25, "three quarters": 0.75}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberMention:
    """A number that was mentioned."""

    start: int
    end: int
    value: float
    text: str
    unit: str = ""
    """The word of `UNITS` after it, if one is there."""
    before: tuple[str, ...] = ()
    """Stems of the two words before it, prepositions left out."""
    after: tuple[str, ...] = ()
    """Stems of the words after it."""
    is_indefinite: bool = False
    """True for the 1 of "an hour" and "a ticket", which only counts where the noun is asked for."""


_PLURALS = {"children": "child", "people": "person", "men": "man", "women": "woman", "teeth": "tooth", "mice": "mouse"}


def stem(word: str) -> str:
    """A word without case and its commonest endings, so that "nights" meets "night"."""
    low = _PLURALS.get(word.casefold(), word.casefold())
    for ending, least in (("ies", 5), ("ing", 6), ("ed", 5), ("es", 5), ("s", 4), ("e", 4), ("y", 5)):
        if low.endswith(ending) and len(low) >= least and not low.endswith("ss"):
            return low[: -len(ending)]
    return low


def numbers_in(text: str) -> list[NumberMention]:
    """The numbers of a text in their order."""
    text = _LISTED.sub(lambda hit: hit[0].replace(",", ";").replace("/", ";"), text)
    found = [mention for hit in _ONE_UNIT.finditer(text) if (mention := _indefinite(hit, text)) is not None]
    taken = [(mention.start, mention.end) for mention in found]
    for hit in _NUMBER.finditer(text):
        if any(first < hit.end() and hit.start() < last for first, last in taken):
            continue
        mention = None if _ANNOUNCES.match(text, hit.end()) else _mention(hit, text)
        if mention is not None:
            found.append(mention)
            if hit["kilo"]:  # "5k" is a distance as often as a thousand, and "300K" a temperature.
                found += [replace(mention, value=mention.value / 1_000, unit=unit) for unit in ("km", "kelvin")]
            taken.append((mention.start, mention.end))
    found.sort(key=lambda mention: mention.start)
    for place in range(1, len(found)):
        if found[place].start == found[place - 1].start:  # Another reading of the same number.
            found[place] = replace(found[place], before=found[place - 1].before)
            continue
        # "Rooms 12 and 14": the second number has the name of the first.
        between = text[found[place - 1].end : found[place].start]
        is_count = _OF.fullmatch(between) and not found[place - 1].is_indefinite and _is_measure(found[place])
        kept = set[str]() if is_count else {stem(word) for word in _BESIDE.findall(between)}
        found[place] = replace(found[place], before=tuple(word for word in found[place].before if word in kept))
        if not found[place].before and re.fullmatch(r"\s*(?:,|;|&|and|or|und|et|y|e|,\s*and)\s*", between, re.IGNORECASE):
            found[place] = replace(found[place], before=found[place - 1].before)
    return found + _sums(found, text)


_ANNOUNCES = re.compile(r"(?:\s+[^\W\d_]+){1,2}:(?=\s.*(?:,|\sand\s))", re.UNICODE)
"""The words after a number that counts what is listed then, as in "two stars: Mira and Algol"."""
_OF = re.compile(r"\s+[^\W\d_]+\s+of\s+", re.UNICODE)
"""The words between two numbers that name the first: "12 bottles of 330 ml"."""


def _is_measure(mention: NumberMention) -> bool:
    return bool(mention.unit) and UNITS[mention.unit][0] in ("mass", "volume", "length", "area", "data")


def unit_word(text: str) -> str:
    """The word of `UNITS` for a unit as it is written: `km²` for "square kilometers"; other text unchanged."""
    squared = re.fullmatch(r"(?:square|sq\.?)\s+([^\W\d_]+)", text, re.IGNORECASE)
    if squared is None:
        return text
    size = UNITS.get(squared[1].casefold(), ("", 0.0))
    return _SQUARES.get(size[1], text) if size[0] == "length" else text


_SQUARES = {1.0: "m²", 1_000.0: "km²", 0.3048: "ft²", 1_609.344: "mi²"}
"""The size of a length in metres -> the unit of the area."""


def runs_of(numbers: Sequence[NumberMention], text: str) -> list[list[NumberMention]]:
    """The numbers of a text that are listed: two or more with nothing but commas, semicolons or "and" between them."""
    runs: list[list[NumberMention]] = [[]]
    for mention in sorted(numbers, key=lambda one: (one.start, -one.end)):
        if mention.is_indefinite or (runs[-1] and mention.start < runs[-1][-1].end):
            continue
        if runs[-1] and not _BETWEEN.fullmatch(text[runs[-1][-1].end : mention.start]):
            runs.append([])
        runs[-1].append(mention)
    return [run for run in runs if len(run) > 1]


_BETWEEN = re.compile(r"\s*(?:[,;&]|[,;]?\s(?:and|or|und|et|y|e)\s|\s)\s*", re.IGNORECASE)


def converted(mention: NumberMention, unit: str) -> float | None:
    """The value in another unit of the same dimension; None where the two have nothing in common."""
    if not mention.unit or not unit:
        return mention.value
    (theirs, size), (ours, wanted) = UNITS[unit_for(mention.unit, UNITS[unit][0])], UNITS[unit]
    if theirs != ours:
        return None
    if not size or not wanted or size == wanted:
        return mention.value
    return round(mention.value * size / wanted, 6)


def unit_for(unit: str, dimension: str) -> str:
    """A unit as it is meant where a dimension is asked for: pounds are money, or a weight."""
    return "lb" if dimension == "mass" and unit in ("pound", "pounds") else unit


def _mention(hit: re.Match[str], text: str) -> NumberMention | None:
    end, unit = hit.end(), ""
    if hit["words"]:
        words = hit["words"].casefold()
        if words == "one" and _PRONOUN.search(text[: hit.start()]):
            return None
        if words in ("second", "half", "quarter", "single", "double", "both", "first") and text[end : end + 1] == "-":
            return None
        value = _worth(words)
        following = re.match(r"[\s-]+([^\W\d_]+)", text[end:])
        if following and following[1].casefold() in UNITS:
            unit, end = following[1].casefold(), end + following.end()
    else:
        value = _digits(hit["digits"])
        raw = (hit["unit"] or "").strip(" -").casefold().replace("° ", "°")
        raw = "inch" if hit["unit"] == "in" else unit_word(raw)
        if raw and hit["unit"][0].isalpha() and raw not in UNITS and len(raw) > 3:
            return None  # A code; `5C` and `300K` are numbers all the same.
        value *= 10 ** int(hit["power"][1:]) if hit["power"] else 1
        value *= _SCALES[hit["scale"].strip().casefold()] if hit["scale"] else 1
        unit = raw if raw in UNITS else (hit["money"] or "").strip()
        is_attached = bool(raw) and hit["unit"][0].isalpha()
        ends = [hit.end(part) for part in ("ordinal", "scale", "power", "digits")]
        end = hit.end("unit") if raw and (raw in UNITS or is_attached) else max(ends)
        if hit["kilo"]:
            value, end = value * 1_000, hit.end("kilo")
        if hit["sign"]:
            value = -value
    tail = hit.end("digits") if hit["digits"] else hit.end()
    more = _HALF_MORE.match(text[tail:])
    if more is not None:
        value += _ALONE[(more[1] or more[2]).casefold()]
        end = tail + more.end()
        following = re.match(r"\s+([^\W\d_]+)", text[end:])
        unit = unit or (following[1].casefold() if following and following[1].casefold() in UNITS else "")
    if re.search(r"\bminus\s+$", text[: hit.start()], re.IGNORECASE):
        value = -value
    return NumberMention(
        start=hit.start(), end=end, value=value, text=text[hit.start() : end], unit=unit, **_beside(text, hit.start(), end)
    )


def _indefinite(hit: re.Match[str], text: str) -> NumberMention | None:
    before, noun = " ".join(hit[1].casefold().split()), hit[2].casefold()
    part = next((size for words, size in _PARTS.items() if before.startswith(words)), None)
    unit = noun if noun in UNITS and noun != "second" else ""
    if (part is not None and not unit) or (part is None and noun in _WORDS):
        return None
    more = re.match(r"\s+and\s+a\s+(half|quarter)\b", text[hit.end() :], re.IGNORECASE)
    value = (part or 1.0) + (_ALONE[more[1].casefold()] if more and part is None else 0)
    return NumberMention(
        start=hit.start(), end=hit.end() + (more.end() if more and part is None else 0) if unit else hit.end(1), value=value,
        text=hit[0], unit=unit, **_beside(text, hit.start(), hit.end(1)), is_indefinite=part is None and more is None,
    )  # fmt: skip


def _sums(found: list[NumberMention], text: str) -> list[NumberMention]:
    """Two hours and 15 minutes, as one mention."""
    made: list[NumberMention] = []
    for first, second in pairwise(found):
        between = text[first.end : second.start]
        if not first.unit or not second.unit or not re.fullmatch(r"[\s,]*(?:and|und|et|y|e)?\s*", between, re.IGNORECASE):
            continue
        (one, size), (other, smaller) = UNITS[first.unit], UNITS[second.unit]
        if one == other and size > smaller > 0:
            value = first.value + second.value * smaller / size
            made.append(replace(first, end=second.end, value=value, is_indefinite=False))
    return made


def _digits(text: str) -> float:
    plain = re.sub(r"['  ]", "", text)
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", plain):
        plain = plain.replace(",", "")
    return float(plain.replace(",", "."))


def _worth(words: str) -> float:
    parts = [part for part in re.split(r"[\s-]+", words) if part != "and"]
    if len(parts) == 1:
        return _WORDS[parts[0]]
    total = group = 0.0
    for part in parts:
        if part in _SCALES and part not in ("hundred", "dozen"):
            total, group = total + (group or 1) * _SCALES[part], 0.0
        elif part in ("hundred", "dozen"):
            group = (group or 1) * _SCALES[part]
        else:
            group += _WORDS[part]
    return total + group


def _beside(text: str, start: int, end: int) -> dict[str, Any]:
    before = _BESIDE.findall(_BOUNDARY.split(text[max(start - 50, 0) : start])[-1])
    after = _BESIDE.findall(_BOUNDARY_AFTER.split(text[end : end + 40])[0])[:2]
    kept = [stem(word) for word in before if word.casefold() not in _PREPOSITIONS]
    return {"before": tuple(kept[-2:]), "after": tuple(map(stem, after))}


# Arithmetic --------------------------------------------------------------------------------------------------------------

_OPERATORS = (
    (r"\s*(?:\btimes\b|\bmultiplied by\b|\bmal\b|\bfois\b|×)\s*", " * "),
    (r"\s*(?:\bplus\b|\band\b(?=\s*\d)|\bplus\b|\bmás\b|\bpiù\b)\s*", " + "),
    (r"\s*(?:\bminus\b|\bless\b|\bmoins\b|\bmenos\b|−|–)\s*", " - "),
    (r"\s*(?:\bdivided by\b|\bover\b|\bgeteilt durch\b|\bdurch\b|\bdivisé par\b|÷)\s*", " / "),
    (r"\s*(?:\bto the power of\b|\bhoch\b|\^)\s*", " ** "),
    (r"\s*\bsquared\b", " ** 2"),
)
_PERCENT_OF = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|percent|prozent)\s*(?:of|von|de)\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
_SUM = re.compile(r"[-(\s]*\d+(?:\.\d+)?(?:[\s)]*(?:\*\*|[-+*/])[\s(]*-?\d+(?:\.\d+)?[\s)]*)+")


def arithmetic_in(text: str) -> list[str]:
    """The sums of a text in digits and signs: "15% of 240" is `240 * 15 / 100`, "3 mal 4" is `3 * 4`."""
    found = [f"{hit[2]} * {hit[1]} / 100" for hit in _PERCENT_OF.finditer(text)]
    if found:
        return found
    signs = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    for mention in sorted(numbers_in(signs), key=lambda one: -one.start):
        if mention.text.replace(" ", "").isalpha() and float(mention.value).is_integer():
            signs = f"{signs[: mention.start]}{int(mention.value)}{signs[mention.end :]}"
    for words, sign in _OPERATORS:
        signs = re.sub(words, sign, signs, flags=re.IGNORECASE)
    return [hit[0].strip() for hit in _SUM.finditer(signs) if hit[0].count("(") == hit[0].count(")")]
