"""How replies are judged: calls against what was expected, in the way of BFCL and in the way of our prompt sets.

Parsed calls and expectations come in, verdicts go out. BFCL's own comparison is followed (punctuation and case folded in
strings, several accepted values, `""` among them = may be left out); it is an implementation of ours, not its runner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from training.format import Call


def fold(value: Any) -> str:
    """Text as BFCL compares it."""
    return re.sub(r"[\s,./\-_*^'\"]", "", str(value)).lower()


def equal_value(given: Any, wanted: Any) -> bool:
    """Whether a value is what BFCL accepts for `wanted`."""
    if isinstance(wanted, bool) or isinstance(given, bool):
        return isinstance(given, bool) and isinstance(wanted, bool) and given == wanted
    if isinstance(wanted, int | float):
        try:
            return abs(float(given) - float(wanted)) < 1e-9
        except (TypeError, ValueError):
            return False
    if isinstance(wanted, str):
        return isinstance(given, str | int | float) and fold(given) == fold(wanted)
    if isinstance(wanted, list):
        return isinstance(given, list) and len(given) == len(wanted) and all(map(equal_value, given, wanted))
    if isinstance(wanted, dict):
        return isinstance(given, dict) and _equal_object(given, wanted)
    return given == wanted


def _equal_object(given: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for key, options in wanted.items():
        options = options if isinstance(options, list) else [options]
        if key not in given:
            if "" not in options:
                return False
        elif not any(equal_value(given[key], option) for option in options):
            return False
    return all(key in wanted for key in given)


def bfcl_call_right(call: Call, wanted: Mapping[str, Mapping[str, list[Any]]]) -> bool:
    """Whether one call is the wanted one: `{name: {argument: [accepted values]}}`."""
    name, args = call
    ((wanted_name, wanted_args),) = wanted.items()
    if name != wanted_name or any(key not in wanted_args for key in args):
        return False
    for key, options in wanted_args.items():
        if key not in args:
            if "" not in options:
                return False
        elif not any(equal_value(args[key], option) for option in options if option != "" or args[key] == ""):
            return False
    return True


def bfcl_right(calls: Sequence[Call], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the calls are the wanted ones, in any order."""
    left = list(wanted)
    for call in calls:
        match = next((item for item in left if bfcl_call_right(call, item)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def prompt_right(calls: Sequence[Call], case: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[bool, bool]:
    """Right tools and right calls for a case of our prompt sets.

    Strings are equal after strip; `accept` of the case and the defaults of a tool name other values that are right too.
    """
    expected = case.get("expected") or []
    if [name for name, _ in calls] != [item["name"] for item in expected]:
        wanted = sorted(item["name"] for item in expected)
        return sorted(name for name, _ in calls) == wanted and bool(wanted), False
    accept = case.get("accept") or {}
    return True, all(_args_right(call, item, accept, defaults) for call, item in zip(calls, expected, strict=True))


def _args_right(call: Call, expected: Mapping[str, Any], accept: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    name, args = call
    known = defaults.get(name) or {}
    for key, value in expected["args"].items():
        if key not in args:
            if value not in (known.get(key) or []):
                return False
        elif _strip(args[key]) not in [_strip(option) for option in [value, *(accept.get(key) or [])]]:
            return False
    for key in args.keys() - expected["args"].keys():
        allowed = [*(known.get(key) or []), *(accept.get(key) or [])]
        if _strip(args[key]) not in [_strip(option) for option in allowed]:
            return False
    return True


def mentions(text: str, must_mention: Sequence[str]) -> bool:
    """Whether a sentence holds every needed word; alternatives are split by `|`."""
    low = text.lower()
    return all(any(option.lower() in low for option in words.split("|")) for words in must_mention)
