"""JSON views of tools, calls and sessions for responses: callgate's types in, plain JSON out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from callgate.events import plain
from callgate.permission.session_rules import scope_of
from callgate.run.gate import guard_of
from callgate.types import CallRecord, FunctionCall, JsonObject, Loss, ToolDefinition, Usage

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["APPROVAL", "approval_json", "asked_json", "record_json", "tool_json", "usage_json"]

APPROVAL: JsonObject = {
    "type": "object",
    "required": ["session", "call_id", "call", "reason"],
    "properties": {
        "session": {"type": "string", "description": "Id of the conversation."},
        "call_id": {"type": "string", "description": "Id of the call."},
        "call": {"type": "object", "description": "The call, as in events: `name`, `args`, ..."},
        "reason": {"type": "string", "description": "A sentence on why it needs approval."},
        "preview": {"type": ["string", "null"], "description": "The effect of the call, such as a diff, if known."},
        "always": {"type": "string", "description": "The scope of an `always` answer, in words."},
        "confirm": {"type": "string", "description": "The text that an approval must repeat as `confirm`; mostly empty."},
        "tool": {"type": ["object", "null"], "description": "The tool as `GET /api/v1/tools` lists it, if it is known."},
    },
}
_USAGE = tuple(field.name for field in dataclasses.fields(Usage))


def tool_json(service: Service, definition: ToolDefinition, losses: list[Loss] | None = None) -> JsonObject:
    """A tool as clients see it."""
    explained = service.gate.policy.explain(definition)
    return {
        "name": definition.name,
        "title": definition.title,
        "description": definition.description,
        "schema": dict(definition.input_schema),
        "parameters": dict(definition.input_schema),  # The word of an older service, for clients that know it by that.
        "source": definition.server or definition.kind,
        "kind": definition.kind,
        "read_only": definition.read_only,
        "losses": plain(losses or []),
        "permission": explained.verdict,
        "permission_reason": explained.reason,
    }


def usage_json(usage: Usage) -> JsonObject:
    """Token usage of a run."""
    return {name: getattr(usage, name) for name in _USAGE}


def record_json(record: CallRecord) -> JsonObject:
    """A call and what became of it."""
    return plain(record) | {"duration_s": record.duration_s}


async def approval_json(service: Service, session: str, record: CallRecord) -> JsonObject:
    """A call that waits for an answer."""
    reason = record.decision.reason if record.decision else ""
    return await asked_json(service, session, record.call, reason, record.confirm)


async def asked_json(service: Service, session: str, call: FunctionCall, reason: str, confirm: str = "") -> JsonObject:
    """A call that somebody is asked about, with all that they should see first; `confirm` is the text of its question."""
    known = call.name in service.gate.tools
    definition = service.gate.tools.definition(call.name) if known else None
    return {
        "session": session,
        "call_id": call.id,
        "call": plain(call),
        "reason": reason,
        "preview": await service.gate.tools.preview(call) if known else None,
        "always": scope_of(definition, call) if definition else "",
        "confirm": confirm or (guard_of(service.gate).confirmation(call) if definition else ""),
        "tool": tool_json(service, definition) if definition else None,
    }
