"""Requests of a server to its client, answered as the host allows.

Requests of the SDK come in, its results go out; the words in between are those of `host.py`. A server may ask only while a
call of ours is under way, and the deadline of that call stands still until the person has answered.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from callgate.errors import ToolNotDeclarableError
from callgate.host import LendModel, model_of_this_run, person_of_this_run
from callgate.mcp.clock import PersonClock
from callgate.mcp.errors import is_safe_page
from callgate.mcp.host import Answer, Elicit, Host, Question, Sampling
from callgate.mcp.model_loans import Loans, RefusedError
from callgate.mcp.server_logs import ServerLog
from callgate.schema import check_arguments
from callgate.types import JsonObject, ToolContext, ToolDefinition

__all__ = ["Requests"]

logger = logging.getLogger("callgate.mcp")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A call in flight."""

    context: ToolContext
    person: Elicit | None
    """The person to ask."""
    lend: LendModel | None
    """The model of its run."""


class Requests:
    """A responder to one server's requests. `has_person` tells whether a gate that uses the server can ask a person."""

    def __init__(self, server: str, host: Host, clock: PersonClock, has_person: Callable[[], bool] = lambda: False) -> None:
        self._server = server
        self._host = host
        self._clock = clock
        self._has_person = has_person
        self.log = ServerLog(server)
        self.updated: Callable[[str], None] = lambda uri: None
        """Called with the address of a resource that the server says has changed."""
        self._calls: list[_Call] = []
        """The calls in flight."""
        self._loans = Loans(server, host.sample) if isinstance(host.sample, Sampling) else None

    @contextlib.contextmanager
    def during(self, context: ToolContext) -> Generator[None]:
        """Allow questions of the server while this call is in flight."""
        call = _Call(context, self._host.elicit or person_of_this_run(), model_of_this_run())
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    def callbacks(self) -> dict[str, Any]:
        """The callbacks for the SDK's client. Those that are not allowed are left out, and so count as unsupported."""
        offered = {
            "elicitation_callback": self._elicit if self._host.elicit or self._has_person() else None,
            "sampling_callback": self._sample if self._host.sample else None,
            "list_roots_callback": self._roots if self._host.roots else None,
        }
        if self._loans is not None:
            offered["sampling_capabilities"] = self._loans.capabilities()
        return {name: callback for name, callback in offered.items() if callback is not None}

    # Elicitation ----------------------------------------------------------------------------------------------------------

    async def ask(self, question: Question) -> Answer:
        """Ask the person, if that can be: a question that comes out of nowhere, or leads to an odd place, is declined."""
        elicit = self._person()
        if elicit is None or (question.url is not None and not is_safe_page(question.url)):
            logger.warning("mcp server %r: a question was declined unasked", self._server)
            return Answer("decline")
        with contextlib.ExitStack() as paused:
            self._pause_calls(paused)
            paused.enter_context(self._clock.stopped())
            answer = await elicit(question)
        if answer.action == "accept" and question.schema is not None and (problems := _problems(question.schema, answer)):
            logger.warning("mcp server %r: an answer does not fit and is not sent: %s", self._server, "; ".join(problems))
            return Answer("cancel")
        return answer

    def _person(self) -> Elicit | None:
        """The person to ask. A server does not name the call of a question, so nobody is asked about others' calls."""
        return _only([call.person for call in self._calls])

    def _pause_calls(self, paused: contextlib.ExitStack) -> None:
        for call in self._calls:
            paused.enter_context(call.context.paused())

    async def ask_to_visit(self, data: Any) -> bool:
        """Ask the person to visit the pages that an error names; whether all were visited."""
        listed: Any = cast("JsonObject", data).get("elicitations") if isinstance(data, dict) else None
        pages = [cast("JsonObject", page) for page in cast("list[Any]", listed or []) if isinstance(page, dict)]
        for page in pages:
            question = Question(server=self._server, message=str(page.get("message", "")), url=str(page.get("url", "")))
            if (await self.ask(question)).action != "accept":
                return False
        return bool(pages)

    async def _elicit(self, context: Any, params: Any) -> Any:
        from mcp_types import ElicitRequestURLParams, ElicitResult

        if isinstance(params, ElicitRequestURLParams):
            answer = await self.ask(Question(server=self._server, message=params.message, url=params.url))
            return ElicitResult(action=answer.action)
        schema = dict(params.requested_schema)
        answer = await self.ask(Question(server=self._server, message=params.message, schema=schema))
        content: Any = dict(answer.content or {}) if answer.action == "accept" else None
        return ElicitResult(action=answer.action, content=content)

    # Sampling and roots ---------------------------------------------------------------------------------------------------

    async def _sample(self, context: Any, params: Any) -> Any:
        from mcp_types import INVALID_REQUEST, CreateMessageResult, ErrorData, TextContent

        sample = self._host.sample
        if not self._calls:
            return ErrorData(code=INVALID_REQUEST, message="A model can be asked only while a call is under way")
        with contextlib.ExitStack() as paused:
            self._pause_calls(paused)
            wanted = params.model_dump(mode="json", by_alias=True, exclude_none=True)
            if self._loans is not None:
                try:
                    return await self._loans.answer(wanted, _only([call.lend for call in self._calls]), self.ask)
                except RefusedError as refused:
                    return ErrorData(code=refused.code, message=str(refused))
            assert callable(sample)
            words = await sample(self._server, wanted)
        return CreateMessageResult(role="assistant", model="callgate", content=TextContent(type="text", text=words))

    async def _roots(self, context: Any) -> Any:
        from mcp_types import ListRootsResult, Root
        from pydantic import FileUrl

        given = self._host.roots
        folders = _folders(given() if callable(given) else given)
        return ListRootsResult(roots=[Root(uri=FileUrl(folder.as_uri()), name=folder.name) for folder in folders])


def _only(found: Sequence[T | None]) -> T | None:
    """Return the item that all calls in flight have in common; None if they differ."""
    return found[0] if found and all(one == found[0] for one in found) else None


def _folders(roots: Sequence[str | Path]) -> list[Path]:
    return [Path(root).absolute() for root in roots]


def _problems(schema: JsonObject, answer: Answer) -> Sequence[str]:
    wanted = ToolDefinition(name="answer", input_schema={"type": "object", **schema})
    try:
        return check_arguments(wanted, answer.content or {}).problems
    except ToolNotDeclarableError as error:
        return [str(error)]
