"""`POST /api/v1/ui/chat`: the service for front ends of the AI SDK (`useChat`), as its UI message stream.

UI messages come in, the parts that such a front end shows go out: text, reasoning, tools with their inputs and outputs, and
questions for approval, which the front end answers with its next request. The id of the chat names the session.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate import strict_json
from callgate.content.metadata import candidate_fields, fields_about
from callgate.errors import JsonError
from callgate.events import (
    ApprovalNeeded,
    CallArgsDelta,
    CallFinished,
    CallProposed,
    CallStarted,
    MediaReceived,
    MetadataReported,
    Notice,
    RunEnded,
    ServerStepReported,
    TextDelta,
    ThoughtDelta,
    TurnEnded,
    plain,
)
from callgate.permission import Approval
from callgate.server.body import MESSAGES_MAX, off_loop, read_json
from callgate.server.compat.chat_answer import finish_reason
from callgate.server.compat.prompts import SESSION, own_name
from callgate.server.compat.streaming import StreamingReply
from callgate.server.compat.ui_messages import answers_in, contents_of, is_users
from callgate.server.elsewhere import elsewhere
from callgate.server.errors import HttpError
from callgate.server.keyed_start import start_once
from callgate.server.openapi import Operation, table
from callgate.server.runs import Run, RunBegan, RunEvent, RunFailed
from callgate.server.service import Ask
from callgate.sessions import exchanges_of, state_from_facts
from callgate.store.listing import session_info
from callgate.types import FunctionCall, JsonObject, ToolResult

if TYPE_CHECKING:
    from callgate.server.idempotency import ClaimedKey
    from callgate.server.service import Service

__all__ = ["routes"]

HEADER = {"x-vercel-ai-ui-message-stream": "v1"}
_NAME = re.compile(r"[!-.0-~]{1,150}")
"""Characters that need no escape in a path or in a header."""
REQUEST: JsonObject = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "id": {"type": "string", "minLength": 1, "description": "The chat; its session is named after it."},
        "messages": {
            "type": "array",
            "description": "The messages of the chat, in the form of `useChat`.",
            "minItems": 1,
            "maxItems": MESSAGES_MAX,
            "items": {
                "type": "object",
                "required": ["role", "parts"],
                "properties": {
                    "id": {"type": "string", "description": "Id of the message."},
                    "role": {"enum": ["system", "user", "assistant"], "description": "The author."},
                    "parts": {
                        "type": "array",
                        "items": {"type": "object", "required": ["type"]},
                        "description": "Text, files, tool calls and answers to approvals.",
                    },
                },
            },
        },
        "trigger": {"type": "string", "description": "The action of the user, such as `submit-message`."},
        "model": {"type": "string", "minLength": 1, "maxLength": 200, "description": "Model of this run."},
    },
}


async def chat(service: Service, request: Request) -> Response:
    """Answer the messages of a `useChat` front end as a UI message stream.

    Tools are the service's own, and shown. A call that needs approval ends the stream with a `tool-approval-request`; the
    next request, with the front end's answer in its messages, goes on. With `Idempotency-Key` the request can be repeated:
    the same key with the same messages is the same run.
    """
    body = await read_json(request, REQUEST)
    session = session_of(body.get("id"))
    newest: JsonObject = body["messages"][-1]
    is_new = is_users(newest)
    given: dict[str, Approval] = {} if is_new else answers_in(newest)

    async def start(keyed: ClaimedKey | None) -> Run:
        is_first = keyed is None or keyed.is_first
        return await service.start(await _ask_of(service, request, body, session, given, is_first=is_first), keyed)

    compared: JsonObject = {"sent": body, "prompt": newest["parts"]} if is_new else {"sent": body}
    run, about = await start_once(service, request, compared, start, session=session)
    encoder = UiStream(message=None if is_new else newest.get("id"), shown=frozenset(given))
    return StreamingReply(_events(run), encoder, service.options, {**HEADER, SESSION: run.session, **about})


async def resume(service: Service, request: Request) -> Response:
    """Replay the run of a chat from its beginning, for a front end that was reloaded.

    204 if none does, 409 if one does in another process.
    """
    session = session_of(request.path_params["chat"])
    run = service.run_of(str(session))
    if run is None and session is not None:
        info = await session_info(service.store, session)
        if info is not None and info.owner is not None:
            await service.check_session(session)
            return await elsewhere(service, request, session)
    if run is None or run.is_over:
        return Response(status_code=204)
    await service.check_session(run.session)
    headers = {**HEADER, SESSION: run.session, "Callgate-Run": run.id}
    return StreamingReply(_events(run), UiStream(message=None, shown=frozenset()), service.options, headers)


def session_of(chat_id: str | None) -> str | None:
    """The name of a chat's session."""
    if chat_id is None:
        return None
    return (
        f"ui-{chat_id if _NAME.fullmatch(chat_id) else hashlib.sha256(chat_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
    )


async def _ask_of(
    service: Service,
    request: Request,
    body: JsonObject,
    session: str | None,
    given: dict[str, Approval],
    *,
    is_first: bool,
) -> Ask:
    """The run that messages ask for. Of a request that was sent before, the answers may have been taken already."""
    messages: list[JsonObject] = body["messages"]
    model = own_name(service, body["model"]) if "model" in body else None
    known = await service.store.load(session) if session is not None else []
    if is_users(messages[-1]):
        said = await off_loop(request, partial(contents_of, messages[-1:]))
        if not said:
            raise HttpError(422, "invalid_request", "messages: the newest one says nothing")
        exchanges = await asyncio.to_thread(exchanges_of, known) if known else []
        answered = sum(exchange.is_answered for exchange in exchanges)
        # A session with as many exchanges knows more of them than the messages do; another number says that some were
        # edited, taken back or asked again.
        goes_on = not messages[:-1] if not known else answered == sum(map(is_users, messages[:-1]))
        history = None if goes_on else await off_loop(request, partial(contents_of, messages[:-1]))
        return Ask(prompt=said[0]["parts"], session=session, history=history, model=model)
    approvals = (await asyncio.to_thread(state_from_facts, str(session), known)).reply.approvals if known else ()
    waits = {record.call.id for record in approvals}
    answers: dict[str, Approval] = {call_id: answer for call_id, answer in given.items() if call_id in waits}
    if not answers and not is_first:
        answers = given
    if not answers:
        raise HttpError(
            422, "invalid_request", "messages: the newest one is the assistant's, and answers nothing that waits"
        )
    return Ask(session=session, answers=answers, model=model)


async def _events(run: Run) -> AsyncGenerator[RunEvent]:
    async for item in run.follow(answers=False):
        if isinstance(item.event, RunFailed) and run.never_began and run.error is not None:
            raise run.error  # Nothing was said yet, so that it can have a status of its own.
        yield item.event


class UiStream:
    """Events of a run as the parts of a UI message."""

    media_type = "text/event-stream"
    streams = True
    ping = b": ping\n\n"

    def __init__(self, *, message: str | None, shown: frozenset[str]) -> None:
        self._message = message
        self._shown = set(shown)
        """Calls whose input is on the page already."""
        self._begun: str | None = None
        self._open: tuple[str, str] | None = None
        """The kind and the id of the text that is being written."""
        self._texts = 0
        self._in_step = False
        self._sources = 0

    def feed(self, item: RunEvent) -> bytes:
        """The parts that an event adds."""
        return b"".join(map(_part, self._parts(item)))

    def end(self) -> bytes:
        """The last line."""
        return b"data: [DONE]\n\n"

    def failed(self, problem: JsonObject) -> bytes:
        """An error as a part."""
        return b"".join(map(_part, [*self._closed(), _error(problem)]))

    def _parts(self, event: RunEvent) -> Iterator[JsonObject]:
        if isinstance(event, RunBegan):
            self._begun = self._message or f"msg-{event.run}"
            return
        if self._begun is not None and not (isinstance(event, RunFailed) and not self._in_step):
            yield {"type": "start", "messageId": self._begun}
            self._begun = None
        if isinstance(event, (TextDelta, ThoughtDelta)):
            yield from self._text("text" if isinstance(event, TextDelta) else "reasoning", event.text)
        elif isinstance(event, (CallProposed, CallArgsDelta, CallStarted, ApprovalNeeded, CallFinished)):
            yield from self._call(event)
        elif isinstance(event, (MediaReceived, ServerStepReported, MetadataReported)):
            yield from self._extras(event)
        elif isinstance(event, Notice) and event.level == "warning":
            yield {"type": "data-notice", "data": plain(event), "transient": True}
        elif isinstance(event, TurnEnded):
            yield from self._closed()
        elif isinstance(event, RunEnded):
            yield from self._closed()
            reply = event.reply
            native = reply.finish_reason
            reason = "tool-calls" if reply.approvals else finish_reason(native, has_calls=False).replace("_", "-")
            told = {"session": reply.session, "model": reply.model, "usage": plain(reply.usage), "finishReason": native}
            yield {"type": "finish", "finishReason": reason, "messageMetadata": told}
        elif isinstance(event, RunFailed):
            yield from self._closed()
            yield _error(dict(event.problem))

    def _step(self) -> Iterator[JsonObject]:
        if not self._in_step:
            self._in_step = True
            yield {"type": "start-step"}

    def _extras(self, event: MediaReceived | ServerStepReported | MetadataReported) -> Iterator[JsonObject]:
        yield from self._step()
        yield from self._text_ended()
        if isinstance(event, ServerStepReported):
            yield {"type": "data-server-step", "data": plain(event.step)}
        elif isinstance(event, MediaReceived):
            media = event.media
            url = media.uri or f"data:{media.mime_type};base64,{plain(media)['data']}"
            yield {"type": "file", "url": url, "mediaType": media.mime_type}
        else:
            for source in event.metadata.sources:
                self._sources += 1
                named: JsonObject = {"sourceId": f"source-{self._sources}", "title": source.title or source.uri}
                place: JsonObject = {"type": "source-url", "url": source.uri}
                kept: JsonObject = {"type": "source-document", "mediaType": "text/plain"}
                yield (place if source.is_link else kept) | named
            if event.metadata.search_links:
                links = {"html": list(event.metadata.search_suggestions), "links": plain(event.metadata.search_links)}
                yield {"type": "data-search-suggestions", "data": links}
            yield {"type": "data-metadata", "data": candidate_fields(event.metadata.raw) | fields_about(event.metadata.raw)}

    def _text(self, kind: str, text: str) -> Iterator[JsonObject]:
        yield from self._step()
        if self._open is None or self._open[0] != kind:
            yield from self._text_ended()
            self._texts += 1
            self._open = (kind, f"{kind}-{self._texts}")
            yield {"type": f"{kind}-start", "id": self._open[1]}
        yield {"type": f"{kind}-delta", "id": self._open[1], "delta": text}

    def _text_ended(self) -> Iterator[JsonObject]:
        if self._open is not None:
            yield {"type": f"{self._open[0]}-end", "id": self._open[1]}
            self._open = None

    def _closed(self) -> Iterator[JsonObject]:
        yield from self._text_ended()
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}

    def _call(
        self, event: CallProposed | CallArgsDelta | CallStarted | ApprovalNeeded | CallFinished
    ) -> Iterator[JsonObject]:
        yield from self._step()
        yield from self._text_ended()
        if isinstance(event, CallArgsDelta):
            yield {"type": "tool-input-delta", "toolCallId": event.call_id, "inputTextDelta": event.text}
            return
        call = event.call
        if isinstance(event, CallProposed):
            yield {"type": "tool-input-start", "toolCallId": call.id, "toolName": call.name, "dynamic": True}
            return
        if call.id not in self._shown:
            self._shown.add(call.id)
            yield _input(call)
        if isinstance(event, ApprovalNeeded):
            yield {"type": "tool-approval-request", "approvalId": call.id, "toolCallId": call.id}
        elif isinstance(event, CallFinished):
            yield _output(call, event.result)


def _input(call: FunctionCall) -> JsonObject:
    shown = {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name, "input": dict(call.args)}
    return shown | {"dynamic": True}


def _output(call: FunctionCall, result: ToolResult) -> JsonObject:
    if result.status == "denied":
        return {"type": "tool-output-denied", "toolCallId": call.id}
    if result.is_error:
        told = result.error or "The call failed."
        return {"type": "tool-output-error", "toolCallId": call.id, "errorText": told, "dynamic": True}
    return {"type": "tool-output-available", "toolCallId": call.id, "output": result.value, "dynamic": True}


def _error(problem: JsonObject) -> JsonObject:
    return {"type": "error", "errorText": str(problem.get("message", ""))}


def _part(part: JsonObject) -> bytes:
    try:
        data = strict_json.dump(part)
    except JsonError:
        readable: dict[str, Any] = {key: value for key, value in part.items() if isinstance(value, (str, bool))}
        data = strict_json.dump(readable | {"errorText": "It cannot be shown."})
    return b"data: %b\n\n" % data


OPERATIONS = (
    Operation(
        "POST", "/api/v1/ui/chat", chat, takes=REQUEST, gives={200: {"type": "string"}}, media_type="text/event-stream",
        runs=True, fails=(409, 410, 500, 502, 504),
    ),
    Operation(
        "GET", "/api/v1/ui/chat/{chat}/stream", resume, gives={200: {"type": "string"}, 204: {}},
        media_type="text/event-stream", fails=(409, 410, 500, 502, 504),
    ),
)  # fmt: skip


def routes(service: Service) -> list[Route]:
    """The route for front ends of the AI SDK."""
    return table(service, OPERATIONS)
