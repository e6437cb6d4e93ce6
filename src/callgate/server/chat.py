"""`POST /api/v1/chat`: a prompt in; an answer, a pause for approval, or a stream of events out."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate import strict_json
from callgate.content.prompt import PROMPT_ITEMS
from callgate.content.response import whole_text
from callgate.content.title import DATA_LABEL
from callgate.events import plain
from callgate.permission import MODES, Answered, Approval
from callgate.server.body import MESSAGES_MAX, header_of, off_loop, read_json
from callgate.server.edited_args import check_answers
from callgate.server.errors import HttpError, json_response
from callgate.server.identity import CURRENT_PRINCIPAL, check_right
from callgate.server.keyed_start import start_once
from callgate.server.openapi import Operation, table
from callgate.server.runs import Run
from callgate.server.service import Ask
from callgate.server.sse import EventStream, left_before_end
from callgate.server.views import APPROVAL, approval_json, usage_json
from callgate.types import CallRecord, JsonObject, Reply, ToolResult

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["answer_from", "ask_from", "routes"]

SETTLE_S = 1.0
"""Seconds that a stream waits for its first event before it starts: an immediate failure gets a status of its own."""
ANSWERS_MAX = 1_000
CONTEXT = f"\n\nThe request came with this context. {DATA_LABEL}: "

ANSWER: JsonObject = {
    "x-otherwise": "answer 'yes', 'no' or 'always', or an object with 'answer'",
    "anyOf": [
        {"enum": ["yes", "no", "always"]},
        {
            "type": "object",
            "required": ["answer"],
            "properties": {
                "answer": {
                    "enum": ["yes", "no", "always"],
                    "description": "`yes` runs the call, `no` denies it, `always` also allows later ones like it.",
                },
                "arguments": {"type": "object", "description": "Edited arguments of the call; only with yes."},
                "confirm": {"type": "string", "maxLength": 1_000, "description": "The text that confirms the call."},
                "message": {"type": "string", "maxLength": 10_000, "description": "Reason; the model sees that of a no."},
            },
            "additionalProperties": False,
        },
    ],
}
CHAT: JsonObject = {
    "type": "object",
    "properties": {
        "prompt": {
            "anyOf": [{"type": "string", "minLength": 1, "pattern": "\\S"}, {**PROMPT_ITEMS, "maxItems": MESSAGES_MAX}],
            "x-otherwise": "say something: a text, or a list of texts and parts (images for example)",
            "description": "The prompt: text, or a list of texts and of parts as Gemini has them, such as images.",
        },
        "provider": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "description": "Provider of this run, such as `gemini`.",
        },
        "model": {"type": "string", "minLength": 1, "maxLength": 200, "description": "Model of this run."},
        "mode": {"enum": ["auto", "native", "prompted"], "description": "Native or prompted calling in this run."},
        "system": {
            "type": "string",
            "maxLength": 100_000,
            "description": "System text of this run, after the service's own.",
        },
        "settings": {
            "type": "object",
            "properties": {
                "temperature": {"type": "number", "minimum": 0, "maximum": 2, "description": "Randomness of sampling."},
                "thinking": {
                    "enum": ["none", "minimal", "low", "medium", "high", "xhigh"],
                    "description": "Amount of thinking.",
                },
                "max_output_tokens": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 2**31 - 1,
                    "description": "The most tokens of one answer.",
                },
            },
            "additionalProperties": False,
            "description": "Model settings of this run, over those of the service.",
        },
        "approval_mode": {
            "enum": [*MODES],
            "description": "Calls that need approval in this run. Less than the service asks needs the right `approve`.",
        },
        "session": {
            "type": "string",
            "maxLength": 200,
            "pattern": r"^[^/]*[^/.\s][^/]*$",
            "description": "The conversation to continue, or the name of a new one; without '/', since it is in paths.",
        },
        "context": {"type": "object", "description": "Given to the model as data."},
        "answers": {
            "type": "object",
            "additionalProperties": ANSWER,
            "maxProperties": ANSWERS_MAX,
            "description": "Call id -> answer.",
        },
        "stream": {"type": "boolean", "description": "Same as `Accept: text/event-stream`."},
    },
    "anyOf": [{"required": ["prompt"]}, {"required": ["session"]}],
    "x-otherwise": "say something in 'prompt', or name a 'session' to continue",
    "dependentRequired": {"context": ["prompt"]},
    "additionalProperties": False,
}
EXTRAS = {
    "thoughts": "The thoughts that the model showed.",
    "sources": "The sources of the answers.",
    "citations": "The passages of `response` that have sources.",
    "search_suggestions": "HTML that Google's terms require to be shown with the answer.",
    "search_links": "The same suggestions as links.",
    "media": "Images, sounds and files that the model made.",
    "server_steps": "Steps that ran at the provider, such as executed code.",
}
"""Fields of a reply that a response has if they are not empty."""
_TYPES = {"thoughts": "string"}
REPLY: JsonObject = {
    "type": "object",
    "required": ["response", "tool_calls", "tool_results", "session", "metadata"],
    "properties": {
        "response": {"type": "string", "description": "The text of the answer."},
        "tool_calls": {
            "type": "array",
            "description": "The calls of the run, in order.",
            "items": {
                "type": "object",
                "required": ["id", "name", "arguments"],
                "properties": {
                    "id": {"type": "string", "description": "Id of the call."},
                    "name": {"type": "string", "description": "Name of the tool."},
                    "arguments": {"type": "object", "description": "Arguments of the call."},
                },
            },
        },
        "tool_results": {
            "type": "array",
            "description": "The results of the calls that are over, in order.",
            "items": {
                "type": "object",
                "required": ["tool_call_id", "name", "content", "is_error"],
                "properties": {
                    "tool_call_id": {"type": "string", "description": "Id of the call."},
                    "name": {"type": "string", "description": "Name of the tool."},
                    "content": {"type": "string", "description": "The result as text."},
                    "is_error": {"type": "boolean", "description": "True if `content` is an error."},
                },
            },
        },
        "session": {"type": "string", "description": "Id of the conversation."},
        "approvals": {
            "type": "array",
            "items": APPROVAL,
            "description": "The calls that wait for approval; with status 202.",
        },
        **{name: {"type": _TYPES.get(name, "array"), "description": said} for name, said in EXTRAS.items()},
        "answer_metadata": {"type": "array", "description": "The metadata reported about each answer."},
        "metadata": {
            "type": "object",
            "description": "The run in figures: `iterations` (its turns), `finish_reason`, `model`, `usage`, ...",
        },
    },
}


def answer_from(value: Any) -> Approval:
    """An answer of a client, in callgate's words."""
    if isinstance(value, str):
        return cast("Approval", value)
    fields = cast("JsonObject", value)
    if fields.get("arguments") is not None and fields["answer"] != "yes":
        raise HttpError(422, "invalid_request", "arguments: other arguments go with the answer 'yes' alone")
    return Answered(
        answer=fields["answer"],
        args=fields.get("arguments"),
        message=fields.get("message", ""),
        confirm=fields.get("confirm", ""),
    )


def ask_from(body: JsonObject, *, waits: bool) -> Ask:
    """Read the body of a chat request."""
    prompt, context = body.get("prompt"), body.get("context")
    said = prompt
    if context is not None:
        items = [prompt] if isinstance(prompt, str) else cast("list[Any]", prompt)
        said = [*items, CONTEXT + strict_json.dump(context).decode()]
    return Ask(
        prompt=cast("Any", said),
        session=body.get("session"),
        answers={call_id: answer_from(value) for call_id, value in body.get("answers", {}).items()},
        provider=body.get("provider"),
        model=body.get("model"),
        mode=body.get("mode"),
        system=body.get("system", "").strip() or None,
        settings=body.get("settings", {}),
        approval_mode=body.get("approval_mode"),
        waits=waits,
    )


def wants_stream(request: Request, body: JsonObject) -> bool:
    """True if events were asked for."""
    stream = body.get("stream")
    return "text/event-stream" in (header_of(request, b"accept") or "") if stream is None else bool(stream)


async def chat(service: Service, request: Request) -> Response:
    """Answer a prompt with the help of tools.

    With `Accept: text/event-stream` the answer is a stream of events, and a call that needs approval is waited for.
    Without it such a call pauses the run: the answer is 202 with `approvals`, and `answers` or the approvals route goes on.

    With `Idempotency-Key` the request can be repeated for a day, at any process that shares the store: the same key with the
    same body is the same run. If that goes on elsewhere for longer than is waited for, the answer is 409
    `idempotency_in_progress` with `Retry-After`; with another body it is 409 `idempotency_mismatch`.
    """
    body = await read_json(request, CHAT)
    streams = wants_stream(request, body)
    ask = await off_loop(request, partial(ask_from, body, waits=streams))
    if ask.answers and ask.session is not None:
        check_right(CURRENT_PRINCIPAL.get(), "approve")
        await service.check_session(ask.session)
        await check_answers(service, ask.session, ask.answers)
    body.pop("stream", None)
    run, headers = await start_once(service, request, body, partial(service.start, ask))
    run.provider = ask.provider or run.provider
    if streams:
        await run.settled(SETTLE_S)
        if run.never_began and run.error is not None:
            raise run.error
        return EventStream(run, service.options, headers=headers)
    reply = await outcome(request, run)
    if reply is None:
        return Response(status_code=499)
    answer = await reply_json(service, run, reply)
    return json_response(answer, 202 if "approvals" in answer else 200, headers)


async def outcome(request: Request, run: Run) -> Reply | None:
    """The reply of a run; None if the client left before it was there.

    Raises:
        CallgateError: the run failed.
    """
    run.subscribe()
    try:
        has_left = await left_before_end(request, run)
    finally:
        run.unsubscribe()
    return None if has_left else run.result()


async def reply_json(service: Service, run: Run, reply: Reply) -> JsonObject:
    """The outcome of a run as the body of a response."""
    answer: JsonObject = {
        "response": reply.text,
        "tool_calls": [
            {"id": record.call.id, "name": record.call.name, "arguments": dict(record.call.args)} for record in reply.calls
        ],
        "tool_results": [_result_json(record) for record in reply.calls if record.result.status != "awaiting"],
        "session": reply.session,
        "metadata": {
            "iterations": reply.turns,
            "finish_reason": reply.finish_reason,
            "provider": run.provider,
            "model": reply.model or run.model,
            "usage": usage_json(reply.usage),
            "cost": reply.cost,
            "context_tokens": reply.context_tokens,
            "limited": reply.limited,
            "tools_available": len(service.gate.definitions),
            "duration_s": round((run.ended_s or time.time()) - run.began_s, 6),
            "run": run.id,
        },
    }
    answer |= {name: plain(found) for name in EXTRAS if (found := getattr(reply, name))}
    if reply.metadata:
        answer["answer_metadata"] = plain(reply.metadata)
    if reply.approvals:
        answer["approvals"] = [await approval_json(service, reply.session, record) for record in reply.approvals]
    return answer


def _result_json(record: CallRecord[ToolResult]) -> JsonObject:
    return {
        "tool_call_id": record.call.id,
        "name": record.call.name,
        "content": whole_text(record.result),
        "is_error": record.result.is_error,
    }


OPERATIONS = (
    Operation(
        "POST",
        "/api/v1/chat",
        chat,
        takes=CHAT,
        gives={200: REPLY, 202: REPLY},
        runs=True,
        streams=True,
        fails=(409, 410, 500, 502, 504),
    ),
)


def routes(service: Service) -> list[Route]:
    """The route of conversations."""
    return table(service, OPERATIONS)
