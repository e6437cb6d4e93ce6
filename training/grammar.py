"""A GBNF grammar for replies: calls of the declared tools with arguments of the declared types, or prose.

Tool schemas come in, text for llama.cpp goes out. Arguments stand in the order of the schema, because training wrote them
so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from training.format import CALL_MARK, Tool

CALLS_MAX = 6
_RULES = [
    r'str ::= "\"" ([^"\\\n] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""',
    r'int ::= "-"? [0-9]{1,12}',
    r'num ::= "-"? [0-9]{1,12} ("." [0-9]{1,8})? ([eE] [-+]? [0-9]{1,2})?',
    r'bool ::= "true" | "false"',
    r'val ::= str | num | bool | "null" | arr | obj',
    r'arr ::= "[" (val (", " val)*)? "]"',
    r'obj ::= "{" (str ": " val (", " str ": " val)*)? "}"',
]
_TYPES = {"string": "str", "integer": "int", "number": "num", "boolean": "bool", "object": "obj"}
_PROSE = r'[^T] [^\x00]* | "T" [^O] [^\x00]*'


def grammar(tools: Sequence[Tool], *, prose: bool = True, calls: bool = True) -> str:
    """The grammar of a reply that may be prose, calls, or either."""
    rules = list(_RULES)
    for number, tool in enumerate(tools):
        rules += _tool_rules(f"t{number}", tool)
    names = " | ".join(f"t{number}" for number in range(len(tools)))
    roots = []
    if calls and tools:
        rules.append(f'call ::= "{CALL_MARK} " ({names})')
        roots.append(f'call ("\\n" call){{0,{CALLS_MAX - 1}}}')
    if prose:
        roots.append(_PROSE)
    return "\n".join([f"root ::= {' | '.join(roots)}", *rules])


def _tool_rules(rule: str, tool: Tool) -> list[str]:
    """Rules for one tool. `s` rules stand where no argument was written yet, `c` rules where one was and a comma is due."""
    properties: Mapping[str, Any] = tool["parameters"].get("properties") or {}
    required = tool["parameters"].get("required") or []
    rules = [f'{rule} ::= {_literal(tool["name"] + "({")} {rule}s0 "}})"']
    for position, (name, schema) in enumerate(properties.items()):
        skip_first = "" if name in required else f" | {rule}s{position + 1}"
        skip_later = "" if name in required else f" | {rule}c{position + 1}"
        rules += [
            f"{rule}p{position} ::= {_literal(json.dumps(name) + ': ')} {_value(schema)}",
            f"{rule}s{position} ::= {rule}p{position} {rule}c{position + 1}{skip_first}",
            f'{rule}c{position} ::= ", " {rule}p{position} {rule}c{position + 1}{skip_later}',
        ]
    return [*rules, f'{rule}s{len(properties)} ::= ""', f'{rule}c{len(properties)} ::= ""']


def _value(schema: Mapping[str, Any]) -> str:
    if options := schema.get("enum"):
        return "(" + " | ".join(_literal(json.dumps(option, ensure_ascii=False)) for option in options) + ")"
    kind = schema.get("type")
    if kind == "array":
        item = _TYPES.get((schema.get("items") or {}).get("type"), "val")
        return f'"[" ({item} (", " {item})*)? "]"'
    return _TYPES.get(kind, "val")


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
