"""Values of settings: whether one fits its setting, how it is written in one line, and what is shown of a secret."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from callgate.config.table import Setting, nearest
from callgate.config.url_secrets import shown_url
from callgate.errors import UsageError
from callgate.types import JsonObject, Limits, Price

__all__ = ["MASK", "fitting", "masked", "parsed_text", "placed"]

MASK = "********"

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_PYTHON_FILE = re.compile(r"(?P<path>.+\.py)(?P<name>:\w+)?")
_KINDS: dict[str, tuple[type[Any] | tuple[type[Any], ...], str]] = {
    "text": (str, "a text in quotes"),
    "whole": (int, "a whole number"),
    "number": ((int, float), "a number"),
    "flag": (bool, "true or false"),
    "texts": ((list, tuple), "a list of texts, such as ['one', 'two']"),
    "list": ((list, tuple), "a list"),
    "table": (dict, "a table"),
}


def fitting(setting: Setting, value: Any) -> tuple[Any, str | None]:
    """The value in the form of its setting, and what is wrong with it if something is."""
    kind, expected = _KINDS[setting.kind]
    if not isinstance(value, kind) or (isinstance(value, bool) and setting.kind != "flag"):
        return None, f"= {_short(value)}: expected {expected}"
    if setting.kind == "texts" and not all(isinstance(item, str) for item in cast("list[Any]", value)):
        return None, f"= {_short(value)}: expected {expected}"
    if setting.choices and value not in setting.choices:
        near = nearest(str(value), setting.choices)
        hint = near if "did you mean" in near else ""
        return None, f"= {value!r}: expected one of {', '.join(map(repr, setting.choices))}{hint}"
    if setting.key.startswith("limits."):
        try:
            Limits(**{setting.key.removeprefix("limits."): value})
        except ValueError as error:
            return None, f"= {value!r}: {str(error).partition(': ')[2]}"
    if setting.key == "prices" and (problem := _price_problem(cast("JsonObject", value))):
        return None, problem
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value, None


def _price_problem(prices: Mapping[str, Any]) -> str | None:
    for model, row in prices.items():
        try:
            price = Price(**row) if "above" not in row else None
        except TypeError:
            price = None
        except UsageError:
            return f".{model} = {_short(row)}: expected numbers"
        if price is None:
            return f".{model} = {_short(row)}: expected a table with input, output and perhaps cached"
    return None


def parsed_text(setting: Setting, text: str) -> Any:
    """A value out of the text of a variable or a flag. What cannot be read stays text, and does not fit."""
    text = text.strip()
    if setting.kind == "flag":
        lowered = text.lower()
        return True if lowered in _TRUE else False if lowered in _FALSE else text
    if setting.kind in ("whole", "number"):
        try:
            return int(text) if setting.kind == "whole" else float(text)
        except ValueError:
            return text
    if setting.kind == "texts" and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    if setting.kind in ("texts", "list", "table"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def placed(setting: Setting, value: Any, folder: Path) -> Any:
    """The value with relative paths as they are meant in a file of this folder."""
    if setting.key == "tools":
        return tuple(_placed_tool(word, folder) for word in value)
    if setting.key == "mcp.files":
        return tuple(_placed_path(path, folder) for path in value)
    is_file = setting.is_path or (setting.key == "store" and "://" not in value) or _is_model_file(setting, value)
    return _placed_path(value, folder) if is_file else value


def _is_model_file(setting: Setting, value: Any) -> bool:
    return setting.key == "model" and value.endswith(".gguf") and ":" not in value


def _placed_tool(word: str, folder: Path) -> str:
    found = _PYTHON_FILE.fullmatch(word)
    return word if found is None else f"{_placed_path(found['path'], folder)}{found['name'] or ''}"


def _placed_path(path: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(path).expanduser())


def masked(setting: Setting, value: Any) -> Any:
    """The value as it may be shown."""
    if value is None:
        return None
    if setting.secret:
        return MASK
    if setting.key == "mcp.servers":
        return {name: _masked_server(row) for name, row in cast("JsonObject", value).items()}
    return shown_url(value, MASK) if isinstance(value, str) else value


def _masked_server(row: Any) -> Any:
    """A server without what it is given in its environment and headers, where keys are."""
    if not isinstance(row, dict):
        return row
    return {
        key: dict.fromkeys(cast("JsonObject", item), MASK) if key in ("env", "headers") and isinstance(item, dict) else item
        for key, item in cast("JsonObject", row).items()
    }


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
