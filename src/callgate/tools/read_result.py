"""`read_result`: the tool by which a model reads the omitted parts of long results.

Takes the id of a call and an offset, returns a piece of its result. The run stores results.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from callgate.content.tool_names import READ_RESULT
from callgate.errors import ToolError
from callgate.types import ToolContext, ToolDefinition

__all__ = ["ReadResult"]

PIECE_CHARS = 20_000


class ReadResult:
    """The tool `read_result`. `find` returns the whole text of a call's result, or None."""

    definition = ToolDefinition(
        name=READ_RESULT,
        description="Reads a piece of a long result of an earlier call, of which only the beginning and the end were shown.",
        input_schema={
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "The id of the call, as the note with its result says."},
                "start": {"type": "integer", "minimum": 0, "default": 0, "description": "The first character to read."},
                "chars": {"type": "integer", "minimum": 1, "maximum": PIECE_CHARS, "default": PIECE_CHARS},
            },
            "required": ["id"],
            "additionalProperties": False,
        },
        read_only=True,
    )

    def __init__(self, find: Callable[[str, str], Awaitable[str | None]]) -> None:
        self._find = find

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Return nothing: there are no checks beyond the schema."""
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Return the piece, its end, and the total length."""
        text = await self._find(context.session or "", args["id"])
        if text is None:
            raise ToolError(f"There is no result of a call with the id {args['id']!r} in this conversation.")
        start = args.get("start", 0)
        piece = text[start : start + args.get("chars", PIECE_CHARS)]
        return {"text": piece, "start": start, "end": start + len(piece), "total": len(text)}
