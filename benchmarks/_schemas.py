"""The schemas that benchmarks declare: a number in, a schema out, with nothing but Python."""

from __future__ import annotations

from typing import Any


def schema(number: int) -> dict[str, Any]:
    """A schema as a server of tools would have it: strings, numbers, lists, nested and optional things, a definition."""
    text = {"type": "string", "description": "What to look for, in the words of the person who asks."}
    properties: dict[str, Any] = {
        f"query_{number}": text,
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10, "description": "How many at most."},
        "state": {"type": "string", "enum": ["open", "closed", "all"], "description": "Which ones."},
        "labels": {"type": "array", "items": {"type": "string"}, "description": "Labels that must all be there."},
        "since": {"type": "string", "format": "date-time", "description": "Only what changed after this moment."},
        "owner": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "Whose."},
    }
    if number % 3 == 0:
        properties["range"] = {"$ref": "#/$defs/Range", "description": "Lines to read."}
    if number % 5 == 0:
        properties["options"] = {
            "type": "object",
            "properties": {"depth": {"type": "integer", "exclusiveMinimum": 0}, "mode": {"const": "fast"}},
            "required": ["depth"],
            "additionalProperties": False,
        }
    found: dict[str, Any] = {"type": "object", "properties": properties, "required": [f"query_{number}"]}
    if number % 3 == 0:
        line = {"type": "integer", "minimum": 1}
        found["$defs"] = {"Range": {"type": "object", "properties": {"first": line, "last": line}, "required": ["first"]}}
    return found
