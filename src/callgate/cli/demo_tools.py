"""The tools of the demo: invented weather, arithmetic, and the time.

Arguments are checked against these signatures. Nothing here touches a file or a network.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal

from callgate.definitions.function import tool
from callgate.errors import ToolError

__all__ = ["DEMO_TOOLS", "HONEST_TOOLS", "calculate", "current_time", "get_current_weather"]

EXPRESSION_CHARS_MAX = 200
BITS_MAX = 4096
"""Longest integer, in bits, in any step of a calculation."""

_CONDITIONS = ("clear", "cloudy", "rainy", "windy", "foggy")


@tool(read_only=True)
def get_current_weather(location: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, Any]:
    """Gets the current weather for a location. The figures are made up, and the same every time.

    Args:
        location: A city, such as Oslo.
        unit: The unit of the temperature.
    """
    seed = zlib.crc32(location.strip().lower().encode("utf-8", "replace"))
    celsius = seed % 35 - 5
    return {
        "location": location,
        "temperature": celsius if unit == "celsius" else round(celsius * 9 / 5 + 32),
        "unit": unit,
        "condition": _CONDITIONS[seed // 35 % len(_CONDITIONS)],
        "note": "made up for the demo",
    }


@tool(read_only=True)
def calculate(expression: str) -> int | float:
    """Works out a sum of numbers with + - * / ** and parentheses.

    Args:
        expression: Such as `12 * (3 + 4)` or `15% of 240`.
    """
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise ToolError(f"The expression is longer than {EXPRESSION_CHARS_MAX} characters.")
    try:
        tree = ast.parse(_in_symbols(expression), mode="eval")
    except (SyntaxError, ValueError):
        raise ToolError(f"{expression!r} is not a sum that can be worked out.") from None
    try:
        return _evaluate(tree.body)
    except ZeroDivisionError:
        raise ToolError("Division by zero has no result.") from None
    except OverflowError:
        raise ToolError("The result is too large.") from None


@tool(read_only=True)
def current_time(place: str = "UTC") -> dict[str, str]:
    """Get the current time in a city or a time zone.

    Args:
        place: A city such as Oslo, a time zone such as Europe/Oslo, or UTC.
    """
    now = datetime.now(_zone(place))
    return {"place": place, "time": now.strftime("%H:%M"), "date": now.date().isoformat()}


HONEST_TOOLS: tuple[Callable[..., Any], ...] = (calculate, current_time)
"""Default tools of a real model, which would report invented weather as true."""

DEMO_TOOLS: tuple[Callable[..., Any], ...] = (get_current_weather, *HONEST_TOOLS)

_SIGNS: tuple[tuple[str, str], ...] = (
    (r"[×·✕]", "*"), (r"[÷∶]", "/"), (r"[−–]", "-"), (r"\^", "**"), (r"²", "**2"), (r"³", "**3"),
    (r"(?<=\d)[  '](?=\d{3}(?!\d))", ""), (r"(?<=\d),(?=\d{3}(?!\d))", ""),
    (r"(?i)\b(?:what is|what's|was ist|wie viel ist|wieviel ist|how much is|calculate|compute|berechne)\b", " "),
    (r"(?i)(?<=[\d)])\s*(?:%|percent\b|per cent\b|prozent\b)\s*(?:of|von)\b", "/100*"),
    (r"(?i)(?<=[\d)])\s*(?:%|percent\b|per cent\b|prozent\b)(?!\s*[\d(])", "/100"),
    (r"(?i)(?<=[\d)])\s*(?:times|multiplied by|mal|fois|\bx(?=\s))\s*(?=[\d(.-])", "*"),
    (r"(?i)(?<=[\d)])\s*(?:divided by|over|geteilt durch|durch)\s*(?=[\d(.-])", "/"),
    (r"(?i)(?<=[\d)])\s*(?:plus|und)\s*(?=[\d(.-])", "+"), (r"(?i)(?<=[\d)])\s*(?:minus|less|weniger)\s*(?=[\d(.-])", "-"),
    (r"(?i)(?<=[\d)])\s*(?:to the power of|hoch)\s*(?=[\d(.-])", "**"), (r"(?i)(?<=[\d)])\s*squared\b", "**2"),
)  # fmt: skip
"""A pattern of a sum as people write it -> the sign that it means."""


def _in_symbols(expression: str) -> str:
    """The sum in the signs of Python: people and small models write `15% of 240` and `3 mal 4`."""
    text = expression.strip().rstrip("?=").strip()
    for pattern, sign in _SIGNS:
        text = re.sub(pattern, sign, text)
    return text.strip()


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def _evaluate(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_evaluate(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            first, second = _evaluate(left), _evaluate(right)
            if isinstance(op, ast.Pow):
                _bound_power(first, second)
            return _bounded(_BINARY[type(op)](first, second))
        case _:
            raise ToolError("Only numbers, + - * / ** and parentheses can be worked out.")


def _bound_power(base: float, exponent: float) -> None:
    # Refused before the work is done: 9**9**9 would keep a processor busy for a very long time.
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > BITS_MAX:
        raise OverflowError


def _bounded(value: Any) -> int | float:
    if isinstance(value, complex):
        raise ToolError("The result is not a real number.")
    if value.bit_length() > BITS_MAX if isinstance(value, int) else not math.isfinite(value):
        raise OverflowError
    return value


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC  # Without the database of the zoneinfo module, too.
    from zoneinfo import ZoneInfo, available_timezones

    city = "_".join(name.split()).casefold()
    try:
        zones = {zone.rpartition("/")[2].casefold(): zone for zone in sorted(available_timezones(), reverse=True)}
        return ZoneInfo(name if "/" in name else zones.get(city, name))
    except (LookupError, ValueError, OSError):
        raise ToolError(
            f"There is no time zone {name!r}; use a city such as 'Oslo', a name such as 'Europe/Oslo', or 'UTC'."
        ) from None
