"""A server of the Interactions API for tests and demonstrations, on loopback: strict like Google, and faulty on demand.

Takes a script of the same items as the fake Gemini, has a base URL; requests are checked with `interaction_rules`, and
stored interactions are kept until they expire. What all APIs of Gemini share is here too: uploads of files, and the list of
models. Any client of the API works with it.

    async with FakeInteractions([call("add", a=1, b=2), "The sum is 3."]) as fake:
        client = google.genai.Client(api_key="k", http_options={"base_url": fake.base_url})
        client.interactions.create(model="gemini-3.8-flash", input="1 + 2?")

    with FakeInteractions.in_thread(["Hello."]) as fake: ...              # from code that is not async
    python -m callgate.testing.fake_interactions --port 8097              # from a shell; without a script it echoes
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from callgate import strict_json
from callgate.errors import JsonError
from callgate.testing.answers import Answer, answer, call, calls, raw, text, thought
from callgate.testing.exchange import SSE_TYPE, Body, Exchange, Request
from callgate.testing.fake_gemini import MODELS_PATH, FakeGemini
from callgate.testing.fake_resources import FakeResources
from callgate.testing.fake_server import FakeServer, run_command
from callgate.testing.google_fields import as_list, as_object
from callgate.testing.http_lines import HttpRequest, chunk
from callgate.testing.interaction_answers import interaction_demo
from callgate.testing.interaction_exchange import InteractionExchange, sse
from callgate.testing.interaction_faults import fault
from callgate.testing.interaction_fields import InteractionRefusal
from callgate.testing.interaction_rules import InteractionState, Stored, interaction_judge
from callgate.types import JsonObject

__all__ = [
    "Answer", "FakeInteractions", "InteractionRefusal", "answer", "call", "calls", "fault", "main", "raw", "text", "thought",
]  # fmt: skip

BODY_MAX = 100_000_000
"""The largest body that is read."""
_PLACE = re.compile(
    r"/(?:v1|v1beta|v1beta1)/(?:projects/[^/]+/locations/[^/]+/)?interactions(?:/(?P<id>[^/]+))?(?P<cancel>/cancel)?"
)


class _SharedResources(FakeGemini):
    """Files and the list of models, which the other API of Google has too."""

    def open(self, http: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        return self._exchange(http, reader, writer)

    async def reply(self, exchange: Exchange) -> None:
        await self._answer(exchange)


@dataclass(eq=False)
class FakeInteractions(FakeServer):
    """A fake server of the Interactions API; the paths of its base URL begin at `/v1beta`."""

    _: KW_ONLY
    polls: int = 1
    """Polls of a background run that report it in progress before it is done."""
    kept_s: float = 86_400.0
    """Seconds that interactions are stored, by the server's clock."""
    numbered: bool = True
    """True if the events of stored interactions have ids."""

    refusals: list[InteractionRefusal] = field(default_factory=list[InteractionRefusal], init=False)
    """The refused requests; empty for a correct client that relies on nothing that was forgotten."""
    breaches: list[str] = field(default_factory=list[str], init=False)
    """Breaches that the service would not notice, and that are wrong all the same."""
    repeats: int = field(default=0, init=False)
    """Accepted requests with the same body as an earlier one (IR73): each made an interaction of its own."""
    cancelled: list[str] = field(default_factory=list[str], init=False)
    """The ids of cancelled runs."""

    def __post_init__(self) -> None:
        FakeServer.__post_init__(self)
        self.state = InteractionState(self.kept_s)
        self._accepted: set[bytes] = set()
        self._google = _SharedResources(api_key=self.api_key, models=self.models)
        self._google.resources.base_url = lambda: self.base_url

    @property
    def resources(self) -> FakeResources:
        """The uploaded files."""
        return self._google.resources

    @property
    def creations(self) -> list[JsonObject]:
        """The bodies of all requests that were to create an interaction."""
        return [as_object(request.json) for request in self.requests if request.method == "POST" and request.json]

    async def __aexit__(self, *exception: Any) -> None:
        for _ in range(10):  # What clients have closed by now is noticed first.
            await asyncio.sleep(0)
        left = [one.id for one in self.state.stored.values() if one.is_background and one.status == "in_progress"]
        self.breaches += [f"IR77: the background run {id} was neither waited for nor cancelled" for id in left]
        self.breaches += ["IR77: a stream was left open after its end"] * self.state.open_streams
        await FakeServer.__aexit__(self, *exception)

    def forget(self) -> None:
        """Forget every stored interaction, as if its time were over."""
        self.state.stored.clear()

    def _demo(self, request: JsonObject) -> Answer:
        return interaction_demo(request)

    def _exchange(self, http: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        if self.resources.find(http.path) or (http.method == "GET" and MODELS_PATH.fullmatch(http.path)):
            return self._google.open(http, reader, writer)
        parsed = _parsed(http.body)
        is_stream = as_object(parsed).get("stream") is True or (http.method == "GET" and http.query.get("stream") == "true")
        request = Request(
            method=http.method, path=http.path, query=http.query | {"alt": "sse"}, headers=http.headers, body=http.body,
            http=http, json=parsed, model=str(as_object(parsed).get("model", "")), streaming=is_stream, at=self.clock.now(),
        )  # fmt: skip
        self.requests.append(request)
        return InteractionExchange(
            request=request, reader=reader, writer=writer, clock=self.clock, mint=self._mint, compress=self.compress,
            state=self.state, polls=self.polls, numbered=self.numbered,
        )  # fmt: skip

    async def _answer(self, exchange: Exchange) -> None:
        if not isinstance(exchange, InteractionExchange):
            await self._google.reply(exchange)
            return
        request, place = exchange.request, _PLACE.fullmatch(exchange.request.path)
        if "key" in request.query:
            self.breaches.append("IR04: the key is in the URL")
        if refusal := self._locked(request):
            await exchange.refuse(refusal)
        elif place is None:
            await exchange.refuse(_not_found(f"{request.method} {request.path}"))
        elif request.method == "POST" and place["id"] is None:
            await self._create(exchange)
        elif request.method == "POST" and place["cancel"]:
            await self._cancel(exchange, place["id"])
        elif request.method in ("GET", "DELETE") and place["id"] and not place["cancel"]:
            await (self._get if request.method == "GET" else self._delete)(exchange, place["id"])
        else:
            await exchange.refuse(_not_found(f"{request.method} {request.path}"))

    def _locked(self, request: Request) -> InteractionRefusal | None:
        given = request.headers.get("x-goog-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if not given:
            told = "Method doesn't allow unregistered callers (callers without established identity)."
            return InteractionRefusal(rule="IR02", message=told, status=403, google="PERMISSION_DENIED")
        if self.api_key is not None and given != self.api_key:
            told = "API key not valid. Please pass a valid API key."
            return InteractionRefusal(rule="IR02", message=told, status=400, google="INVALID_ARGUMENT")
        return None

    async def _create(self, exchange: InteractionExchange) -> None:
        request, body = exchange.request, as_object(exchange.request.json)
        refusal: InteractionRefusal | None = None
        if self.models is not None and "model" in body and body["model"] not in self.models:
            told = f"Model '{body['model']}' not found. Did you mean '{self.models[0]}'?"
            refusal = InteractionRefusal(rule="IR09", message=told, status=404, code="not_found")
        elif self.strict:
            refusal = interaction_judge(request.json, self.state, key=exchange.key, now=self.clock.now())
            refusal = refusal or self._files_refusal(body.get("input"))
        if refusal is not None:
            self.refusals.append(refusal)
            await exchange.refuse(refusal)
            return
        self.repeats += request.body in self._accepted
        self._accepted.add(request.body)
        self._notice(body)
        self.state.tokens.pop(str(body.get("continuation_token")), None)
        await self._take_step(exchange)

    def _files_refusal(self, item: Any) -> InteractionRefusal | None:
        """The refusal of input that refers to a file which does not exist, or is not ready."""
        inner = [*as_object(item).values(), *as_list(item)]
        uri = as_object(item).get("uri")
        found = self.resources.uri_refusal(uri) if isinstance(uri, str) else None
        if found is not None:
            code = "permission_denied" if found.code == 403 else "invalid_request"
            return InteractionRefusal(rule=found.rule, message=found.message, status=found.code, code=code)
        return next((refusal for one in inner if (refusal := self._files_refusal(one)) is not None), None)

    def _notice(self, body: JsonObject) -> None:
        previous = self.state.stored.get(str(body.get("previous_interaction_id")))
        if previous is None:
            return
        sent = [as_object(step) for step in as_list(body.get("input"))]
        if any(step in previous.steps for step in sent if step.get("type") != "user_input"):
            self.breaches.append("IR61: steps that the server has are sent again")
        had_calls = any(step.get("type") == "function_call" for step in previous.steps)
        if had_calls and not body.get("tools"):
            self.breaches.append("IR62: the tools are not sent again")

    async def _get(self, exchange: InteractionExchange, id: str) -> None:
        found = self._find(exchange, id)
        if found is None:
            await exchange.refuse(_not_found(id, rule="IR69"))
            return
        is_done = self._is_done(found)
        if not exchange.request.streaming:
            whole: JsonObject = found.request if is_done else {**found.request, "status": found.status, "steps": []}
            said = found.said if exchange.request.query.get("include_input") == "true" else []
            await exchange.send_json({**whole, "steps": [*said, *as_list(whole.get("steps"))]} if said else whole)
            return
        last = exchange.request.query.get("last_event_id")
        places = {event.get("event_id"): place for place, event in enumerate(found.events)}
        if last and last not in places:
            refusal = InteractionRefusal(rule="IR70", message=f"Unknown last_event_id '{last}'.")
            self.refusals.append(refusal)
            await exchange.refuse(refusal)
            return
        if found.resume:
            how, found.resume = found.resume, ""
            await _badly_resumed(exchange, found, how, places.get(last, -1) + 1)
            return
        # A run that goes on has not said its last words yet; its stream ends when the connection does.
        events = found.events[places[last] + 1 if last else 0 :] if is_done else found.events[:2]
        await exchange.send_events(events, done=is_done)

    def _is_done(self, found: Stored) -> bool:
        if found.status == "in_progress":
            if found.polls_left > 0:
                found.polls_left -= 1
                return False
            found.status = str(found.request.get("status"))
        return True

    async def _cancel(self, exchange: InteractionExchange, id: str) -> None:
        found = self._find(exchange, id)
        if found is None:
            await exchange.refuse(_not_found(id, rule="IR72"))
        elif not found.is_background or found.status != "in_progress":
            told = "Only a background interaction that is in progress can be cancelled."
            await exchange.refuse(InteractionRefusal(rule="IR71", message=told, code="failed_precondition"))
        else:
            self.cancelled.append(id)
            found.status = "cancelled"
            found.request = {**found.request, "status": "cancelled", "steps": []}
            await exchange.send_json(found.request)

    async def _delete(self, exchange: InteractionExchange, id: str) -> None:
        if self._find(exchange, id) is None:
            await exchange.refuse(_not_found(id, rule="IR72"))
            return
        del self.state.stored[id]
        await exchange.send_json({})

    def _find(self, exchange: InteractionExchange, id: str) -> Stored | None:
        return self.state.find(id, exchange.key, self.clock.now())


async def _badly_resumed(exchange: InteractionExchange, found: Stored, how: str, start: int) -> None:
    """Resume a stream as the service sometimes does: from its beginning, or with two events and then nothing."""
    if how == "zero":
        await exchange.send_events([{**event, "event_id": f"again_{event['event_id']}"} for event in found.events])
        return
    await exchange.begin(Body(SSE_TYPE, (), streamed=True))
    for event in found.events[start : start + 2]:
        await exchange.send(chunk(sse(event)))
    await exchange.until_closed()


def _not_found(what: str, *, rule: str = "IR01") -> InteractionRefusal:
    return InteractionRefusal(rule=rule, message=f"'{what}' not found.", status=404, code="not_found")


def _parsed(body: bytes) -> Any:
    """The body as JSON; None if it is not one sound value: bad UTF-8, NaN, the same key twice, too large."""
    if not body or len(body) > BODY_MAX:
        return None
    try:
        json.loads(body, object_pairs_hook=_unique, parse_constant=_no_number)
        return strict_json.parse(body, depth_max=1_000)
    except (JsonError, ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the same key twice")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server until it is interrupted: `python -m callgate.testing.fake_interactions [--port N] [--script FILE]`."""
    return run_command(FakeInteractions, "fake_interactions", argv)


if __name__ == "__main__":
    sys.exit(main())
