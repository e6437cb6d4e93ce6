"""One request for an interaction, and everything that a server may do with it.

Same as `exchange` for generateContent, in the form of the other API: one JSON body, or server-sent events with names that
end with `[DONE]`.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.testing.answers import Answer, Ready, encode_json, to_answer
from callgate.testing.exchange import SSE_TYPE, Body, Exchange
from callgate.testing.google_fields import as_list, as_object
from callgate.testing.interaction_answers import events_of, example_interaction_call, status_of, steps_of, usage_of
from callgate.testing.interaction_fields import InteractionRefusal
from callgate.testing.interaction_rules import InteractionState, Stored, steps_of_input
from callgate.types import JsonObject

__all__ = ["InteractionExchange", "sse"]

_JSON = "application/json"
_CREATED = "2026-11-17T12:00:00Z"
_DONE = b"event: done\ndata: [DONE]\n\n"


def sse(event: JsonObject) -> bytes:
    """An event as it is sent."""
    return b"event: %b\ndata: %b\n\n" % (str(event.get("event_type", "message")).encode(), encode_json(event))


def _root_of(id: str) -> str:
    """The root of the chain that an interaction is part of; empty if its id does not say so."""
    with contextlib.suppress(ValueError):
        return base64.urlsafe_b64decode(id.removeprefix("v1_") + "==").decode().partition("/")[0]
    return ""


@dataclass(slots=True, kw_only=True)
class InteractionExchange(Exchange):
    """A request, its connection, and what a step may do with them."""

    state: InteractionState = field(default_factory=InteractionState)
    polls: int = 0
    """Polls of a background run that report it in progress."""
    resume: str = ""
    """Behaviour of a resumed stream: correct, `hang` or `zero`."""
    numbered: bool = True
    """True if events of stored interactions have ids."""
    change: Callable[[JsonObject], JsonObject] | None = None
    """Change the interaction before it is stored and sent."""

    @property
    def key(self) -> str:
        """The key of the request."""
        return self.request.headers.get("x-goog-api-key", "")

    @property
    def wire(self) -> JsonObject:
        """The body of the request."""
        return as_object(self.request.json)

    @property
    def is_stored(self) -> bool:
        """True if the interaction is to be kept."""
        return self.wire.get("store") is not False

    def interaction(self, item: Any) -> JsonObject:
        """The interaction that answers the request, which is kept if the request wants that."""
        given = to_answer(item)
        if isinstance(given, Ready):
            ready = as_object(given.chunks[0]) if given.chunks else {}
            steps = [as_object(step) for step in as_list(ready.get("steps"))]
            made: JsonObject = {"status": "completed", **ready}
        else:
            steps = steps_of(given, self.mint)
            made = {"status": status_of(given, steps, stored=self.is_stored)}
            if made["status"] == "failed":
                error = {"code": str(given.finish_reason).lower(), "message": given.finish_message or ""}
                made["errors"] = [error]
        said = Answer() if isinstance(given, Ready) else given
        who = {name: self.wire[name] for name in ("model", "agent") if name in self.wire}
        made = {
            "object": "interaction", "created": _CREATED, "updated": _CREATED, **who, "steps": steps,
            "usage": usage_of(steps, -(-len(self.request.body) // 4), said), **made,
        }  # fmt: skip
        if self.is_stored:
            made = {"id": self._new_id(), **made}
        made = self.change(made) if self.change is not None else made
        self.state.remember([as_object(step) for step in as_list(made.get("steps"))])
        if isinstance(token := made.get("continuation_token"), str):
            self.state.tokens[token] = str(made.get("id") or "")
        if self.is_stored and made.get("id"):
            self._keep(made)
        return made

    def _new_id(self) -> str:
        previous = str(self.wire.get("previous_interaction_id") or "")
        own = self.mint.new_id(16)
        root = _root_of(previous) or own
        return "v1_" + base64.urlsafe_b64encode(f"{root}/{own}".encode()).decode().rstrip("=")

    def _keep(self, made: JsonObject) -> None:
        previous = self.state.stored.get(str(self.wire.get("previous_interaction_id")))
        said = steps_of_input(self.wire["input"]) if self.wire.get("input") else []
        output = [as_object(step) for step in as_list(made.get("steps"))]
        is_background = self.wire.get("background") is True
        self.state.stored[made["id"]] = Stored(
            id=made["id"], key=self.key, steps=[*(previous.steps if previous else []), *said, *output], output=output,
            status="in_progress" if is_background else made["status"], at=self.clock.now(), request=made,
            events=events_of(made, numbered=self.numbered), is_background=is_background, polls_left=self.polls,
            resume=self.resume, said=said,
        )  # fmt: skip

    def messages(self, item: Any) -> list[bytes]:
        """The JSON text of every event of an answer, or of the whole of it."""
        given = to_answer(item)
        if isinstance(given, Ready) and not (len(given.chunks) == 1 and "steps" in as_object(given.chunks[0])):
            return [chunk if isinstance(chunk, bytes) else encode_json(chunk) for chunk in given.chunks]
        made = self.interaction(given)
        if self.wire.get("background") is True:
            made = {key: value for key, value in made.items() if key not in ("steps", "usage")} | {"status": "in_progress"}
        if not self.request.streaming:
            return [encode_json(made)]
        cut = None if isinstance(given, Ready) else given.chunks
        return [encode_json(event) for event in events_of(made, cut=cut, numbered=self.numbered and self.is_stored)]

    def body_of(self, item: Any) -> Body:
        """Return the body of an answer in the requested form."""
        return self.body_from(self.messages(item))

    def body_from(self, messages: Sequence[bytes], *, done: bool = True) -> Body:
        """The body that these messages make up."""
        if not self.request.streaming:
            return Body(_JSON, tuple(messages[:1]), streamed=False)
        return Body(
            SSE_TYPE, (*(b"data: %b\n\n" % message for message in messages), *((_DONE,) if done else ())), streamed=True
        )

    def events(self, item: Any = None) -> list[JsonObject]:
        """The events of an answer as objects, for a fault to spoil."""
        made = self.interaction(self.plan() if item is None else item)
        return events_of(made, numbered=self.numbered and self.is_stored)

    async def send_events(self, events: Sequence[JsonObject | bytes], *, done: bool = True) -> None:
        """Send these events, right or wrong; bytes as they are."""
        pieces = [event if isinstance(event, bytes) else sse(event) for event in events]
        await self.send_body(Body(SSE_TYPE, (*pieces, *((_DONE,) if done else ())), streamed=True))

    async def send_json(self, value: Any, status: int = 200) -> None:
        """Send a JSON body of any kind."""
        await self.send_body(Body(_JSON, (encode_json(value),), streamed=False), status)

    async def error(
        self, code: int, status: str, message: str, *, details: Sequence[JsonObject] = (), **headers: str
    ) -> None:
        """Send an error in the service's form; a status in capitals means the gateway before it."""
        google = status if status.isupper() else ""
        refusal = InteractionRefusal(rule="", message=message, status=code, code=status, google=google)
        await self.refuse(refusal, **headers)

    async def refuse(self, refusal: InteractionRefusal, **headers: str) -> None:
        """Send a refusal; `headers` are named with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if refusal.rule:
            named["X-Fake-Interactions-Rule"] = refusal.rule
        if refusal.late and self.request.streaming:
            event = sse({"event_type": "error", **refusal.body})
            await self.send_body(Body(SSE_TYPE, (event,), streamed=False), refusal.status, named)
            return
        await self.send_body(Body(_JSON, (encode_json(refusal.body),), streamed=False), refusal.status, named)

    def tool_call(self) -> tuple[str, JsonObject]:
        """The name and example arguments of the first function that the request declares."""
        return example_interaction_call(self.request.json)
