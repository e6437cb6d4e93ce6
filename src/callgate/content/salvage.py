"""Calls that a model wrote as Python text instead of making them: text in, `FunctionCall`s out, nothing evaluated."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from typing import Any, cast

from callgate import strict_json
from callgate.content.read_call import new_call_id
from callgate.types import FunctionCall

__all__ = ["salvaged_calls"]


def salvaged_calls(text: str, new_id: Callable[[], str] = new_call_id) -> list[FunctionCall]:
    """Parse calls that a model wrote as Python text, such as `print(default_api.f(x=1))`; nothing is evaluated.

    Returns nothing unless every statement is such a call with keyword arguments that are plain literals.
    """
    if len(text) > _CHARS_MAX:
        return []
    code = _CODE_FENCE.sub("", _MALFORMED_PREFIX.sub("", text)).strip()
    if not code:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Escapes such as "\d" are the model's, not a programmer's.
            statements = ast.parse(code).body
        calls = [_literal_call(statement, new_id) for statement in statements]
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError):
        return []
    return [call for call in calls if call] if all(calls) else []


_CHARS_MAX = 20_000
_MALFORMED_PREFIX = re.compile(r"\A\s*+malformed function call:?", re.IGNORECASE)
_CODE_FENCE = re.compile(r"^[ \t]*+```\w*+[ \t\r]*+$", re.MULTILINE)


def _literal_call(statement: ast.stmt, new_id: Callable[[], str]) -> FunctionCall | None:
    node = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and len(node.args) == 1:
        node = node.args[0]
    if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
        return None
    written = ast.unparse(node.func)
    if not re.fullmatch(r"[A-Za-z_][\w.]*", written):
        return None
    args = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    if not _is_json(args):
        return None
    args = strict_json.parse(strict_json.dump(args))
    return FunctionCall(name=written, args=args, id=new_id(), notes=("The call was read from Python text.",))


def _is_json(value: Any) -> bool:
    """True if a Python literal has a JSON form; bytes, sets and complex numbers do not."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return all(isinstance(key, str) and _is_json(item) for key, item in items)
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, cast("list[Any]", value)))
    return value is None or isinstance(value, (bool, int, float, str))
