"""The values that a conversation mentions: the only ones that may be written into the arguments of a call.

Messages come in; `Mentions` go out: numbers, dates, times, quoted strings, addresses, paths, codes, and the words themselves
with their places. Strings and numbers inside results and earlier calls count as mentioned too, whole. Pure text work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, cast

from callgate.content.read import call_parts, is_response, parts_of, response_of, text_of
from callgate.embedded.dates import DateMention, TimeMention, dates_in, times_in
from callgate.embedded.numbers import NumberMention, numbers_in
from callgate.history.repair import starts_exchange
from callgate.types import Content

__all__ = ["Mentions", "Message", "Quote", "Word", "leaves_of", "mentions_in", "mentions_of"]

CHARS_MAX = 6_000
"""Characters of the newest messages that are searched."""
LEAVES_MAX = 200
"""Values of results and earlier calls that are offered, the newest ones."""

_TOKEN = re.compile(r"\S+")
_OUTER = ".,;:!?…()[]{}<>\"'“”„‘’«»"
_CJK = re.compile(r"[぀-ヿ㐀-鿿가-힯]")
_QUOTED = re.compile(
    r"\"([^\"\n]{1,400})\"|“([^”\n]{1,400})”|„([^“”\n]{1,400})[“”]|«\s?([^»\n]{1,400}?)\s?»|`([^`\n]{1,400})`"
    r"|(?<!\w)'((?:[^'\n]|(?<=\w)'(?=\w)){1,400})'(?!\w)|(?<!\w)‘((?:[^’\n]|(?<=\w)’(?=\w)){1,400})’(?!\w)"
)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_URL = re.compile(r"(?:https?|ftp|file|ssh|git)://[^\s<>\"'`]+|(?<![\w@.])www\.[^\s<>\"'`]+", re.IGNORECASE)
_PATH = re.compile(
    r"(?<![\w@:/])(?:~?\.{0,2}/)?[\w.*-]+(?:/[\w.*-]+)+/?|(?<!\w)(?:~|\.{1,2})?/[\w./*-]+|(?<![\w@/])[\w*-]+(?:\.\w{1,8})+(?!\w)"
)
_PHONE = re.compile(r"(?<![\w.-])\+?\(?\d[\d ()/.-]{4,}\d(?!\w)")
_CODE = re.compile(r"\d|[-_#/@]|[a-z][A-Z]")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a message, without the punctuation around it."""

    start: int
    end: int
    text: str
    is_first: bool = False
    """True at the beginning of a sentence, where a capital letter says nothing."""
    full_end: int = 0
    """The end with what may belong to it: the `'s` of a name, the point of an abbreviation; 0 for nothing more."""

    @property
    def is_code(self) -> bool:
        """True for an identifier: a digit, a hyphen, a capital inside, or nothing but capitals."""
        return bool(_CODE.search(self.text)) or (len(self.text) > 1 and self.text.isupper())


@dataclass(frozen=True, slots=True)
class Quote:
    """A quoted string, without its quotes."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message with what it mentions."""

    text: str
    words: tuple[Word, ...]
    numbers: tuple[NumberMention, ...]
    dates: tuple[DateMention, ...]
    times: tuple[TimeMention, ...]
    quotes: tuple[Quote, ...]
    emails: tuple[str, ...]
    urls: tuple[str, ...]
    paths: tuple[str, ...]
    phones: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mentions:
    """All mentions of a conversation, those of the newest message first."""

    messages: tuple[Message, ...] = ()
    leaves: tuple[Any, ...] = field(default=())
    """Strings and numbers of results and earlier calls."""


def mentions_in(messages: Iterable[str], *, leaves: Iterable[Any] = (), today: date) -> Mentions:
    """The mentions of messages, which come newest first."""
    read: list[Message] = []
    left = CHARS_MAX
    for text in messages:
        if left <= 0:
            break
        read.append(_read(text[-left:], today))
        left -= len(text)
    kept: dict[tuple[bool, Any], Any] = {(isinstance(leaf, str), leaf): leaf for leaf in leaves}
    return Mentions(tuple(read), tuple(kept.values())[:LEAVES_MAX])


def mentions_of(contents: Sequence[Content], system: str, *, today: date) -> Mentions:
    """The values that the user, the results, earlier calls and the system prompt mention, the newest first."""
    newest = list(reversed(contents))
    leaves: list[Any] = []
    for content in newest:
        values: list[object] = [response_of(part).get("response") for part in parts_of(content) if is_response(part)]
        values += [call.get("args") for call in call_parts(content)]
        leaves += [leaf for value in values for leaf in leaves_of(value)]
    return mentions_in([*map(text_of, filter(starts_exchange, newest)), system], leaves=leaves, today=today)


def leaves_of(value: object) -> Iterator[Any]:
    """The strings and numbers inside a JSON value; of a longer text, its lines."""
    if isinstance(value, Mapping):
        for inner in cast("Mapping[str, object]", value).values():
            yield from leaves_of(inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("list[object]", value):
            yield from leaves_of(inner)
    elif isinstance(value, str):
        yield from (line.strip() for line in value.splitlines() if 0 < len(line.strip()) <= 200)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def _read(text: str, today: date) -> Message:
    dates, times = tuple(dates_in(text, today)), tuple(times_in(text))
    emails, urls = tuple(_EMAIL.findall(text)), tuple(url.rstrip(".,;:!?)") for url in _URL.findall(text))
    blank = _blanked(text, [(hit.start(), hit.end()) for pattern in (_EMAIL, _URL) for hit in pattern.finditer(text)])
    spans = [(mention.start, mention.end) for mention in (*dates, *times)]
    return Message(
        text=text,
        words=tuple(_words(text)),
        numbers=tuple(numbers_in(_blanked(blank, spans))),
        dates=dates,
        times=times,
        quotes=tuple(_quotes(text)),
        emails=emails,
        urls=urls,
        paths=tuple(dict.fromkeys(path.rstrip(".") for path in _PATH.findall(_blanked(blank, spans)))),
        phones=tuple(dict.fromkeys(phone.strip() for phone in _PHONE.findall(_blanked(blank, spans)))),
    )


def _blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with these places blank, so that the digits of a date are no numbers."""
    for start, end in spans:
        text = f"{text[:start]}{'|' * (end - start)}{text[end:]}"
    return text


def _quotes(text: str) -> Iterator[Quote]:
    whole = text.strip()
    for hit in _QUOTED.finditer(text):
        if hit[0] == whole and " " in whole:
            continue  # The message itself is in quotes.
        group = next(number for number, inner in enumerate(hit.groups(), 1) if inner is not None)
        yield Quote(hit.start(group), hit.end(group), hit[group])


def _words(text: str) -> Iterator[Word]:
    first = True
    for hit in _TOKEN.finditer(text):
        raw = hit[0]
        start = hit.start() + len(raw) - len(raw.lstrip(_OUTER))
        end = hit.end() - (len(raw) - len(raw.rstrip(_OUTER)))
        if start < end:
            point = end + 1 if _ABBREVIATION.fullmatch(text, start, end + 1) else 0
            yield from _split(text, start, end, first, point)
        first = raw[-1] in ".!?:" and not re.fullmatch(r"(?:[A-Z]|Mr|Mrs|Ms|Dr|St|No)\.", raw)


_ABBREVIATION = re.compile(r"(?:[A-Z]\.){2,}|(?:Inc|Ltd|Co|Corp|Jr|Sr)\.")


def _split(text: str, start: int, end: int, first: bool, point: int) -> Iterator[Word]:
    """One word; where the script has no spaces, each character is one."""
    if _CJK.search(text[start:end]):
        yield from (Word(place, place + 1, text[place], first) for place in range(start, end))
        return
    owner = re.fullmatch(r"(.+)['’]s?", text[start:end])
    if owner:
        yield Word(start, start + len(owner[1]), owner[1], first, end)
    else:
        yield Word(start, end, text[start:end], first, point)
