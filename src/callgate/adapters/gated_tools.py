"""Our tools for programs with their own loop: a name and arguments in, a `ToolResult` out.

Every call is checked, decided, approved, limited, timed and logged as in a run of a gate. Knows no framework.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, cast
from uuid import uuid4

from callgate import strict_json
from callgate.base_errors import expect
from callgate.calls.dispatcher import CallDispatcher
from callgate.calls.environment import Question
from callgate.content.read import media_of, response_media, response_of
from callgate.content.response import to_function_response
from callgate.definitions.openai import NAMES
from callgate.errors import UsageError
from callgate.permission import Approval, Approve, AuditLog, Policy, RateLimits
from callgate.permission.approval import request_approval
from callgate.permission.guard import Guard
from callgate.sync import BlockingPortal
from callgate.tools.executor import Executor
from callgate.types import FunctionCall, JsonObject, Limits, ToolDefinition, ToolResult

__all__ = ["GatedTools", "Shown", "without_media"]

NOBODY = "There is no approval callback: pass approve= to GatedTools, or a rule that allows it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A result or an error as a model is to see it."""

    value: Any
    notes: tuple[str, ...]
    media: list[JsonObject]
    """Data in base64 and MIME types."""

    @property
    def text(self) -> str:
        """The value as text, followed by the notes."""
        value = self.value if isinstance(self.value, str) else strict_json.dump(self.value).decode()
        return "\n\n".join([value, *(f"Note: {note}" for note in self.notes)])

    @property
    def plain(self) -> Any:
        """The value; with notes, an object of both."""
        return {"result": self.value, "notes": list(self.notes)} if self.notes else self.value


def without_media(result: ToolResult, count: int) -> ToolResult:
    """The result without media, and with a note that so many items of it are not sent."""
    left_out = f"{count} media item(s) were left out: they cannot be sent from here."
    return replace(result, media=(), notes=(*result.notes, left_out))


class GatedTools:
    """Tools with the checks of a gate, without a model.

    ```python
    async with GatedTools([get_weather, FileTools("docs")], policy=Policy(rules=["ask write_file"]), approve=ask) as gated:
        result = await gated.call("get_weather", {"city": "Oslo"})
    ```

    Tools that must be started, such as MCP servers, are available inside `async with` or, for sync code, `with`.
    `call_sync` works in either case, on its own thread.

    Args:
        tools: Tools, as in `Gate(tools=...)`.
        policy: The permission policy.
        approve: The approval callback. An edited call is checked and decided again; a deferred answer is a no.
        limits: Deadlines and sizes.
        rates: Rate limits.
        audit: An audit log, or its path.
    """

    def __init__(
        self,
        tools: Iterable[object],
        *,
        policy: Policy | None = None,
        approve: Approve | None = None,
        limits: Limits | None = None,
        rates: RateLimits | None = None,
        audit: AuditLog | str | PathLike[str] | None = None,
    ) -> None:
        self._executor = Executor(tools, limits=limits)
        self._output_chars = (limits or Limits()).output_chars
        self._approve = approve
        self._guard = Guard(
            tools=self._executor,
            policy=policy or Policy(),
            approve=approve,
            rates=rates or RateLimits(),
            audit=AuditLog(audit) if isinstance(audit, (str, PathLike)) else audit,
        )
        self._session = f"tools-{uuid4().hex[:16]}"
        self._dispatchers: dict[asyncio.AbstractEventLoop, CallDispatcher] = {}
        self._portal = BlockingPortal()

    @classmethod
    def of(cls, tools: GatedTools | Iterable[object], **options: Any) -> GatedTools:
        """The tools themselves if they are gated already, else new ones.

        Raises:
            UsageError: options for tools that are gated already.
        """
        if not isinstance(tools, GatedTools):
            return cls(tools, **options)
        if options:
            raise UsageError(f"{min(options)!r} belongs to GatedTools(...), where these tools were gated; pass it there")
        return tools

    @property
    def definitions(self) -> list[ToolDefinition]:
        """The tools that may be declared: all that the policy does not deny unconditionally."""
        self._executor.refresh()
        return self._guard.policy.declarable(self._executor.definitions)

    @property
    def exported(self) -> dict[str, ToolDefinition]:
        """The same by names that every provider accepts: letters, digits, `_` and `-`, 64 of them at most."""
        own = {definition.name: definition for definition in self.definitions}
        return {name: own[original] for name, original in NAMES(list(own)).items()}

    async def call(self, name: str, args: Mapping[str, Any], *, call_id: str = "") -> ToolResult:
        """Make one call. There is always a result; cancelling the caller cancels the tool.

        Raises:
            UsageError: the name is no text, or the arguments are no mapping.
        """
        expect(name, str, "the tool {}", "its name")
        expect(args, Mapping, "the arguments {}", "a mapping of names to values")
        async with self._in_use():
            dispatcher = self._dispatcher()
            call = FunctionCall(name=name, args=dict(args), id=call_id or f"call-{uuid4().hex}")
            ask = self._ask if self._approve is not None else None
            in_flight = dispatcher.take(call, session=self._session, ask=ask, progress=lambda message, fraction=None: None)
            return await in_flight.wait()

    def call_sync(self, name: str, args: Mapping[str, Any], *, call_id: str = "") -> ToolResult:
        """The same for sync code, inside a running event loop too."""
        return self._portal.run(self.call(name, args, call_id=call_id))

    def shown(self, result: ToolResult) -> Shown:
        """Return the result as a model is to see it: cut to the limit, without hidden characters, with its notes."""
        part = to_function_response(FunctionCall(name=result.name, args={}), result, output_chars=self._output_chars)
        response = cast("JsonObject", response_of(part)["response"])
        value = response["error"] if result.is_error else response["result"]
        media = [found for item in response_media(part) if "data" in (found := media_of(item) or {})]
        return Shown(value=value, notes=tuple(response.get("notes", ())), media=media)

    def close(self) -> None:
        """Stop the thread of `call_sync`, if there is one. The next `call_sync` starts another one."""
        self._portal.close()

    async def __aenter__(self) -> GatedTools:
        await self._executor.start_tools(self)
        return self

    async def __aexit__(self, *args: object) -> None:
        await self._stop()
        self.close()

    def __enter__(self) -> GatedTools:
        return self._portal.run(self.__aenter__())

    def __exit__(self, *args: object) -> None:
        self._portal.run(self._stop())
        self.close()

    async def _stop(self) -> None:
        await self._dispatcher().aclose()
        await self._executor.stop_tools(self)
        if self._guard.audit is not None:
            self._guard.audit.close()

    def _dispatcher(self) -> CallDispatcher:
        """Return the dispatcher of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._dispatchers:
            for over in [known for known in self._dispatchers if known.is_closed()]:
                del self._dispatchers[over]
            self._dispatchers[loop] = CallDispatcher(self._executor, self._guard, nobody=NOBODY)
        return self._dispatchers[loop]

    @contextlib.asynccontextmanager
    async def _in_use(self) -> AsyncGenerator[None]:
        """Keep live tools running for at least as long as a call."""
        owner = object()
        try:
            await self._executor.start_tools(owner)
            yield
        finally:
            await self._executor.stop_tools(owner)

    async def _ask(self, question: Question) -> Approval:
        assert self._approve is not None, "there is somebody to be asked"
        return await request_approval(self._approve, question.call, question.definition, question.reason)
