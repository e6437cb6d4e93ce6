"""Adapt a LangChain tool to a tool of a gate.

Returns the tool's value unchanged. A tool without an async version runs in a thread that is abandoned at the deadline, as
any other sync function. Knows nothing of agents, graphs and their state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables import ensure_config
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
from pydantic import BaseModel, ValidationError

from callgate.definitions.frameworks import definition_of
from callgate.errors import ToolError, ToolNotDeclarableError
from callgate.foreign.media import media_from, media_from_url
from callgate.threads import THREADS
from callgate.types import Limits, Media, ToolContext

__all__ = ["LangChainTool"]


_BLOCK_MARKS = frozenset({"id", "index", "annotations", "extras"})
"""Keys of a message block besides its content. A table row that happens to have a type has other keys."""


_ANTHROPIC_MARKS = _BLOCK_MARKS | {"cache_control", "title", "context", "citations"}
"""The same for a block in Anthropic's spelling, which LangChain passes on."""


class LangChainTool:
    """Executor of one LangChain tool.

    Args:
        tool: The tool.
        limits: The limits of the gate.
        injected: Values of the arguments that its schema hides from the model, by name.
    """

    def __init__(self, tool: BaseTool, limits: Limits | None = None, *, injected: Mapping[str, Any] | None = None) -> None:
        self._abandoned_max = (limits or Limits()).abandoned_threads
        definition = definition_of(tool)
        assert definition is not None, "only tools of LangChain are given to this class"
        self.definition = definition
        self._handler: Any = tool.handle_tool_error
        # LangChain returns errors as content, which looks like a value; here they stay errors.
        self._tool = tool.model_copy(update={"handle_tool_error": False, "handle_validation_error": False})
        model: Any = tool.args_schema or tool.get_input_schema()
        self._model = model if isinstance(model, type) and issubclass(model, BaseModel) else None
        declared: Any = definition.input_schema.get("properties", {})
        self._injected = frozenset(self._model.model_fields if self._model is not None else ()) - frozenset(declared)
        if self._model is not None and not set(declared) <= {*_names_of(self._model)}:
            self._model, self._injected = None, frozenset[str]()  # The tool names its one argument itself: `Tool(func=...)`.
        self._values = {name: value for name, value in (injected or {}).items() if name in self._injected}
        self._refuse_what_nobody_gives()
        kind: Any = type(tool)
        self._is_sync = kind._arun is cast("Any", BaseTool)._arun or getattr(tool, "coroutine", tool) is None

    @property
    def injected_names(self) -> frozenset[str]:
        """The arguments that the tool's schema hides from the model."""
        return self._injected

    def _refuse_what_nobody_gives(self) -> None:
        fields = {} if self._model is None else {name: self._model.model_fields[name] for name in sorted(self._injected)}
        for name, field in fields.items():
            marks = [mark if isinstance(mark, type) else type(mark) for mark in field.metadata]
            if (
                field.is_required()
                and name not in self._values
                and not any(issubclass(m, InjectedToolCallId) for m in marks)
            ):
                raise ToolNotDeclarableError(
                    f"tool {self.definition.name!r}: its argument {name!r} is injected by LangChain, which does not run it "
                    f"here: give it a default, or its value in from_langchain(tool, injected={{{name!r}: ...}})"
                )

    def running_values(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """The Python values that the tool gets."""
        if self._model is None or self._injected:
            return args
        values = self._model.model_validate(dict(args)).__dict__
        names = {name: field.alias or name for name, field in self._model.model_fields.items()}
        return {names.get(name, name): value for name, value in values.items() if names.get(name, name) in args}

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Return the errors of the tool's own validators, beyond its schema."""
        if given := sorted(self._injected.intersection(args)):
            return tuple(f"{name}: is not for a model to say" for name in given)
        if self._model is None or self._injected:
            return ()
        try:
            self._model.model_validate(dict(args))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return tuple(f"{'.'.join(map(str, item['loc'])) or 'the arguments'}: {item['msg']}" for item in found[:10])
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Call the tool. Where LangChain injects arguments, it needs the id of the call, and its answer is then text."""
        # Not by `invoke`, which takes arguments of certain names for a whole call, with the arguments inside.
        config = ensure_config()
        observers = {name: config.get(name) for name in ("callbacks", "tags", "metadata", "run_name")}
        ask = partial(
            self._tool.run if self._is_sync else self._tool.arun,
            {**args, **self._values},
            config=config,
            tool_call_id=context.call_id if self._injected else None,
            **cast("Any", observers),
        )
        try:
            value = await (THREADS.run(ask, abandoned_max=self._abandoned_max) if self._is_sync else ask())
        except ToolException as error:
            raise ToolError(self._sentence(error)) from error
        if isinstance(value, ToolMessage):
            content = cast("object", value.content)  # pyright: ignore[reportUnknownMemberType]
            if value.status == "error":
                raise ToolError(str(content))
            return _opened(content)
        return _opened(value)

    def _sentence(self, error: ToolException) -> str:
        if isinstance(self._handler, str):
            return self._handler
        said = self._handler(error) if callable(self._handler) else error
        return str(said) or "The tool failed without saying why."


def _names_of(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield from (name, *(alias for alias in (field.alias, field.validation_alias) if isinstance(alias, str)))


def _opened(value: Any) -> object:
    """Convert message blocks to text and media. Anything else is returned unchanged."""
    blocks = cast("list[Any]", value) if isinstance(value, list) else []
    opened = [_block(block) for block in blocks]
    return opened if opened and None not in opened else cast("object", value)


def _data_in(rest: Mapping[str, Any]) -> str | None:
    """The base64 text of a block, in LangChain's present or former spelling."""
    own = {key: value for key, value in rest.items() if key not in _BLOCK_MARKS}
    match own:
        case {"base64": str(data)} if len(own) == 1:
            return data
        case {"source_type": "base64", "data": str(data)} if own.keys() <= {"source_type", "data", "metadata"}:
            return data
        case _:
            return None


def _block(block: Any) -> str | Media | None:
    match block:
        case {"type": "text", "text": str(text), **rest} if rest.keys() <= _BLOCK_MARKS:
            return text
        case {"type": "image" | "audio" | "video" | "file", "mime_type": str(kind), **rest} if (
            data := _data_in(rest)
        ) is not None:
            return media_from(data, kind)
        case {
            "type": "image" | "document",
            "source": {"type": "base64", "media_type": str(kind), "data": str(data)},
            **rest,
        } if rest.keys() <= _ANTHROPIC_MARKS:
            return media_from(data, kind)
        case {"type": "image_url", "image_url": {"url": str(url)}, **rest} if rest.keys() <= _BLOCK_MARKS:
            return media_from_url(url)
        case _:
            return None
