"""Export our tools as LangChain tools.

LangChain does not check their arguments: their schema is plain JSON Schema, and the gate checks against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from callgate.adapters.gated_tools import GatedTools
from callgate.types import ToolResult

__all__ = ["langchain_tools"]

Content: TypeAlias = "str | list[Any]"
"""The content of a LangChain message: text, or blocks."""


class _GatedTool(BaseTool):
    """One tool. Its arguments may have any names: they do not collide with parameters of `_run`."""

    _gated: GatedTools = PrivateAttr()

    def _run(self, /, **args: Any) -> tuple[Content, ToolResult]:
        return _outcome(self._gated, self._gated.call_sync(self.name, args))

    async def _arun(self, /, **args: Any) -> tuple[Content, ToolResult]:
        return _outcome(self._gated, await self._gated.call(self.name, args))


def _outcome(gated: GatedTools, result: ToolResult) -> tuple[Content, ToolResult]:
    shown = gated.shown(result)
    if result.is_error:
        raise ToolException(shown.text)
    if not shown.media:
        return shown.text, result
    blocks: list[Any] = [{"type": "text", "text": shown.text}]
    for media in shown.media:
        kind = media["mime_type"].partition("/")[0]
        word = kind if kind in ("image", "audio", "video") else "file"
        blocks.append({"type": word, "base64": media["data"], "mime_type": media["mime_type"]})
    return blocks, result


def langchain_tools(gated: GatedTools) -> Iterator[BaseTool]:
    """A LangChain tool for each of the gated ones."""
    for definition in gated.definitions:
        tool = _GatedTool(
            name=definition.name,
            description=definition.description,
            args_schema=dict(definition.input_schema),
            response_format="content_and_artifact",
            handle_tool_error=True,
        )
        tool._gated = gated  # pyright: ignore[reportPrivateUsage] - pydantic takes private attributes only like this
        yield tool
