"""Parse the arguments of a call: strict JSON, with repairs where the intent is unambiguous.

Takes text, returns an object and the repairs. Nothing is evaluated, escapes are not guessed, numbers are not changed.
Text that fits no rule is an error, never an empty object. Knows nothing of tools.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any, cast

from callgate import strict_json
from callgate.errors import JsonError

__all__ = ["ArgumentsError", "read_arguments", "read_object"]

_FENCE_TAG = re.compile(r"[\w-]++(?=\s)")
_KEYWORD = re.compile(r"([^\W\d]\w*)\s*=(?!=)")
_INT_DIGITS_MAX = 4_300
_INT_BITS_MAX = 14_000
_BLANKS = " \t\r\n\ufeff"


class ArgumentsError(ValueError):
    """The arguments cannot be used; the message is a clause that says why."""


def read_arguments(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the object of arguments, and a sentence for each repair. Empty text, or null, is an empty object.

    Raises:
        ArgumentsError: the text is not one object, or not a valid one.
    """
    value, notes = _value(text)
    if isinstance(value, str):
        value, more = _value(value)
        if not isinstance(value, dict):
            raise ArgumentsError("the arguments are a string, not an object")
        notes = [*notes, "The arguments were an object encoded as a string.", *more]
    if value is None:
        value = {}
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "true or false" if isinstance(value, bool) else "a number"
        raise ArgumentsError(f"the arguments are {kind}, not an object")
    return cast("dict[str, Any]", value), tuple(dict.fromkeys(notes))


def read_object(text: str) -> dict[str, Any] | None:
    """Like `read_arguments`, but only for a complete object: None for everything else."""
    try:
        value, _ = _value(text)
    except ArgumentsError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _value(text: str) -> tuple[Any, list[str]]:
    """Return the value as JSON, taken out of a code fence where there is one, or repaired."""
    try:
        return _json(text)
    except JsonError as error:
        why_not_json = error
    unfenced = _without_fence(text)
    if unfenced is None:
        return _repaired(text, why_not_json)
    try:
        value, notes = _json(unfenced)
    except JsonError as error:
        value, notes = _repaired(unfenced, error)
    return value, ["A code fence around the arguments was removed.", *notes]


def _json(text: str) -> tuple[Any, list[str]]:
    stripped = text.strip(_BLANKS)
    if not stripped:
        return None, []
    value = strict_json.parse_isolating(stripped)
    if bad := strict_json.first_bad(value):
        raise ArgumentsError(f"the arguments cannot be used: {bad}")
    lost = strict_json.lost_by_reading(stripped)
    notes = [sentence for what, sentence in _LOST.items() if what in lost]
    if strict_json.was_replaced(value):
        return strict_json.without_bad(value), [*notes, "Characters that are not valid Unicode were replaced by U+FFFD."]
    return value, notes


def _without_fence(text: str) -> str | None:
    """The text inside a code fence around all of it, or None. A fence inside a fence is left to be refused."""
    stripped = text.strip(_BLANKS)
    run = len(stripped) - len(stripped.lstrip("`"))
    if run < 3 or len(stripped) < 2 * run or not stripped.endswith("`" * run):
        return None
    inside = stripped[run:-run]
    tag = _FENCE_TAG.match(inside)
    return inside[tag.end() :] if tag else inside


def _repaired(text: str, why_not_json: JsonError) -> tuple[Any, list[str]]:
    # The line ends after it stay: a comment needs one.
    reader = _Loose(strict_json.without_surrogates(text.lstrip(_BLANKS)))
    try:
        value = reader.whole()
    except ArgumentsError as error:
        if reader.hopeless:
            raise
        because = str(why_not_json).removeprefix("not valid JSON: ")
        raise ArgumentsError(f"the arguments are not valid JSON ({error}; {because})") from None
    return value, list(reader.notes)


class _Loose:
    """Parser of one value of JSON, or of the Python-like text that models write instead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place: int = 0
        self.notes: dict[str, None] = {}
        self.is_python = False
        self.smart = '"' not in text
        self.hopeless = False
        """True if the text is certainly unusable, and not just badly written."""

    def whole(self) -> Any:
        self.space()
        self.is_python = _KEYWORD.match(self.text, self.place) is not None
        value = self.keywords() if self.is_python else self.value(0)
        self.space()
        if self.taken(","):
            self.note("A trailing comma was removed.")
            self.space()
        if self.place < len(self.text):
            raise self.error("expected the end of the arguments")
        return value

    def keywords(self) -> dict[str, Any]:
        self.note("Python keyword arguments were read as an object.")
        found: dict[str, Any] = {}
        while True:
            keyword = _KEYWORD.match(self.text, self.place)
            if keyword is None:
                raise self.error("expected a keyword argument")
            self.place = keyword.end()
            self.put(found, keyword[1], self.value(1))
            self.space()
            if not self.taken(","):
                return found
            self.space()
            if self.place == len(self.text):
                self.note("A trailing comma was removed.")
                return found

    def value(self, depth: int) -> Any:
        self.space()
        char = self.text[self.place : self.place + 1]
        if char in ("{", "[", "("):
            if depth >= strict_json.DEPTH_MAX:
                self.hopeless = True
                raise ArgumentsError(f"the arguments are nested deeper than {strict_json.DEPTH_MAX} levels")
            self.place += 1
            return self.object(depth + 1) if char == "{" else self.items(depth + 1, "])"[char == "("])
        if self.at_string():
            return self.strings()
        return self.word()

    def object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        comma = False
        while not self.closed("}", comma):
            key = self.key()
            self.space()
            if not self.taken(":"):
                raise self.error("expected ':' after a key")
            self.put(found, key, self.value(depth))
            comma = self.separator("}")
        return found

    def put(self, found: dict[str, Any], key: str, value: Any) -> None:
        if key in found:
            self.note(_LOST["keys"])
        found[key] = value

    def key(self) -> str:
        if self.at_string():
            return self.strings()
        name = _IDENTIFIER.match(self.text, self.place)
        if name is None or name[0] in _WORDS:
            raise self.error("expected a key in quotes")
        self.place = name.end()
        self.note("Keys without quotes were read as texts.")
        return name[0]

    def items(self, depth: int, close: str) -> Any:
        found: list[Any] = []
        comma = False
        is_tuple = close == ")"
        while not self.closed(close, comma and not is_tuple):
            found.append(self.value(depth))
            comma = self.separator(close)
        if not is_tuple:
            return found
        if len(found) == 1 and not comma:
            return found[0]
        self.note("A tuple was read as a list.")
        return found

    def closed(self, close: str, comma: bool) -> bool:
        self.space()
        if not self.taken(close):
            return False
        if comma:
            self.note("A trailing comma was removed.")
        return True

    def separator(self, close: str) -> bool:
        """A comma, or what closes the list, which is left to be read."""
        self.space()
        if self.taken(","):
            return True
        if self.text[self.place : self.place + 1] != close:
            raise self.error(f"expected ',' or {close!r}")
        return False

    def at_string(self) -> bool:
        char = self.text[self.place : self.place + 1]
        if char in ('"', "'") and char:
            return True
        if self.is_python and _PREFIXED.match(self.text, self.place):
            return True
        return self.smart and char in _SMART and bool(char)

    def strings(self) -> str:
        texts = [self.string()]
        while self.is_python:  # Python joins adjacent strings.
            mark = self.place
            self.space()
            if not self.at_string():
                self.place = mark
                break
            texts.append(self.string())
        return "".join(texts)

    def string(self) -> str:
        prefix = self.text[self.place] if self.text[self.place].isalpha() else ""
        begin = self.place + len(prefix)
        quote = self.text[begin]
        is_triple = quote in "\"'" and self.text.startswith(quote * 3, begin)
        close = quote * 3 if is_triple else _SMART.get(quote, quote)
        match = _STRINGS[close].match(self.text, begin + len(close))
        if match is None:
            raise self.error("a string is not closed")
        self.place = match.end()
        content = match[1]
        if quote in _SMART:
            self.note("Typographic quotes were read as plain ones.")
        elif quote == "'":
            self.note("Single quotes were read as double ones.")
        if is_triple:
            self.note("A string in triple quotes was read.")
        if _CONTROL.search(content):
            self.note("Control characters in a string were escaped.")
        if "\\" not in content or prefix in ("r", "R"):
            return content
        return self.unescaped(content, quote)

    def unescaped(self, content: str, quote: str) -> str:
        table = _ESCAPES | (_PYTHON_ESCAPES if self.is_python else _QUOTED_ESCAPES if quote == "'" else {})

        def decoded(match: re.Match[str]) -> str:
            written = match[1]
            if written in table:
                return table[written]
            if len(written) == 5:  # uXXXX
                return chr(int(written[1:], 16))
            if len(written) == 3 and written[0] == "x" and (self.is_python or quote == "'"):
                return chr(int(written[1:], 16))
            if self.is_python and written[0] not in "01234567NUux":
                return match[0]  # Like Python: the backslash stays.
            raise self.error(f"the escape {match[0]!r} is not one of JSON")

        text = _ESCAPE.sub(decoded, content)
        if _SURROGATE.search(text):
            joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            if "\ufffd" in joined:
                self.note("Characters that are not valid Unicode were replaced by U+FFFD.")
            return joined
        return text

    def word(self) -> Any:
        number = _NUMBER.match(self.text, self.place)
        if number is not None:
            self.place = number.end()
            return self.number(number[0])
        word = _WORD.match(self.text, self.place)
        if word is None:
            raise self.error("expected a value")
        if word[0] in _CONSTANTS:
            self.place = word.end()
            value, is_python = _CONSTANTS[word[0]]
            if is_python:
                self.note("True, False and None were read as true, false and null.")
            return value
        if word[0].lstrip("+-").lower() in ("nan", "infinity", "inf"):
            self.hopeless = True
            raise ArgumentsError(f"the arguments cannot be used: the number {word[0]} is not finite")
        if self.is_python and (value := _python_number(word[0])) is not None:
            self.place = word.end()
            return value
        raise self.error(f"{word[0][:40]!r} is not a value")

    def number(self, written: str) -> int | float:
        if written.lstrip("-").isdigit():
            if len(written) > _INT_DIGITS_MAX:
                raise self.error("an integer is too long")
            return int(written)
        value = float(written)
        if not math.isfinite(value):
            self.hopeless = True
            raise ArgumentsError(f"the arguments cannot be used: the number {written[:40]} is beyond the range of a double")
        if not strict_json.is_exact(written):
            self.note(_LOST["digits"])
        return value

    def space(self) -> None:
        """Skip blanks and comments."""
        while True:
            match = _SPACE.match(self.text, self.place)
            assert match is not None
            if "/" in match[0]:
                self.note("Comments were left out.")
            self.place = match.end()
            if not (self.is_python and self.text.startswith("#", self.place)):
                return
            self.place = self.text.find("\n", self.place)
            if (
                self.place < 0
            ):  # The bracket that seemed to end the call is inside the comment, and more arguments may follow.
                self.place = len(self.text)
                raise self.error("a comment hides the end of the call")

    def taken(self, char: str) -> bool:
        if not self.text.startswith(char, self.place):
            return False
        self.place += 1
        return True

    def note(self, sentence: str) -> None:
        self.notes.setdefault(sentence)

    def error(self, what: str) -> ArgumentsError:
        rest = self.text[self.place : self.place + 20]
        where = f"before {rest!r}" if rest else "at the end"
        return ArgumentsError(f"{what}, at character {self.place + 1}, {where}")


def _python_number(written: str) -> int | float | None:
    # Other words are not literals, and Python's parser cannot take a long chain of attributes.
    if not _PYTHON_NUMBER.fullmatch(written) or len(written) > _INT_DIGITS_MAX:
        return None
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value.bit_length() <= _INT_BITS_MAX else None


_LOST = {
    "keys": "A key stood there twice; the last value counts.",
    "digits": "A number with more digits than a double holds was rounded.",
}
_SMART = {"“": "”", "‘": "’"}
_STRINGS: dict[str, re.Pattern[str]] = {
    close: re.compile(rf"((?:[^{close}\\]++|\\.)*+){close}", re.DOTALL) for close in "\"'”’"
} | {
    close: re.compile(rf"((?:[^{close[0]}\\]++|\\.|{close[0]}(?!{close[:2]}))*+){close}", re.DOTALL)
    for close in ('"""', "'''")
}  # fmt: skip
_PREFIXED = re.compile(r"[rRuU][\"']")
_SPACE = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*+|\$[\w$]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.])")
_PYTHON_NUMBER = re.compile(r"[+-]?(?:0[xXoObB]\w++|[0-9][0-9_]*+(?:\.[0-9_]*+)?|\.[0-9][0-9_]*+)(?:[eE][0-9_]++)?")
_WORD = re.compile(r"[+-]?[\w.]++")
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
# An escaped apostrophe is not JSON, but unambiguous.
_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_QUOTED_ESCAPES = {"v": "\v", "\n": ""}
_PYTHON_ESCAPES = {"a": "\a", "v": "\v", "\n": "", "/": "\\/"}
_CONSTANTS: dict[str, tuple[Any, bool]] = {
    "true": (True, False), "false": (False, False), "null": (None, False),
    "True": (True, True), "False": (False, True), "None": (None, True),
}  # fmt: skip
_WORDS = frozenset(_CONSTANTS)
