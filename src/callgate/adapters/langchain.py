"""Export our tools as LangChain tools.

LangChain does not check their arguments: their schema is plain JSON Schema, and the gate checks against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeAlias

from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from callgate.adapters.gated_tools import GatedTools
from callgate.types import ToolResult

__all__ = ["langchain_tools"]

Content: TypeAlias = "str | list[Any]"
"""The content of a LangChain message: text, or blocks."""
# LangChain tells a tool the id of its call only among the arguments, where it would need a name of its own.
_CALL_ID: ContextVar[str] = ContextVar("callgate_langchain_call_id", default="")


class _GatedTool(BaseTool):
    """One tool. Its arguments may have any names: they do not collide with parameters of `_run`."""

    _gated: GatedTools = PrivateAttr()
    _own_name: str = PrivateAttr()

    def run(self, /, *given: Any, tool_call_id: str | None = None, **options: Any) -> Any:
        """Run the tool as LangChain does; the call is known here by LangChain's id."""
        token = _CALL_ID.set(tool_call_id or "")
        try:
            return super().run(*given, tool_call_id=tool_call_id, **options)
        finally:
            _CALL_ID.reset(token)

    async def arun(self, /, *given: Any, tool_call_id: str | None = None, **options: Any) -> Any:
        """Run the tool as LangChain does; the call is known here by LangChain's id."""
        token = _CALL_ID.set(tool_call_id or "")
        try:
            return await super().arun(*given, tool_call_id=tool_call_id, **options)
        finally:
            _CALL_ID.reset(token)

    def _run(self, /, **args: Any) -> tuple[Content, ToolResult]:
        return _outcome(self._gated, self._gated.call_sync(self._own_name, args, call_id=_CALL_ID.get()))

    async def _arun(self, /, **args: Any) -> tuple[Content, ToolResult]:
        return _outcome(self._gated, await self._gated.call(self._own_name, args, call_id=_CALL_ID.get()))


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
    for name, definition in gated.exported.items():
        tool = _GatedTool(
            name=name,
            description=definition.description,
            args_schema=dict(definition.input_schema),
            response_format="content_and_artifact",
            handle_tool_error=True,
        )
        # pydantic takes private attributes only like this.
        tool._gated, tool._own_name = gated, definition.name  # pyright: ignore[reportPrivateUsage]
        yield tool
