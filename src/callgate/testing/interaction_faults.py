"""Faults of the Interactions API, as a table of script steps.

Transport faults (`W07`, `W29`, ...) are those of the fake Gemini; the rows here are specific to this API: its errors, its
events, its state, and the known defects of the service.

    FakeInteractions([fault("IF01"), "At last."])         # or fault("rate_limited"); then the answer
    FakeInteractions([fault("error_after_call", answer=call("add", a=1, b=2))])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from callgate.testing import faults
from callgate.testing.answers import Answer, calls, encode_json, text
from callgate.testing.exchange import SSE_TYPE, Body
from callgate.testing.fault_row import Act, Fault, row
from callgate.testing.google_fields import as_object
from callgate.testing.http_lines import chunk
from callgate.testing.interaction_exchange import InteractionExchange, sse
from callgate.types import JsonObject

__all__ = ["INTERACTION_FAULTS", "fault"]

Events: TypeAlias = list[JsonObject]
Sent: TypeAlias = "Sequence[JsonObject | bytes]"
Spoil: TypeAlias = Callable[[Events], Sent]


# Actions -----------------------------------------------------------------------------------------------------------------


def _error(status: int, code: str, message: str, **headers: Any) -> Act:
    """An error of its own; a code in capitals comes from the gateway before the service."""

    async def act(exchange: InteractionExchange) -> None:
        await exchange.error(status, code, message, **headers)

    return act


def _event(code: str, message: str = "It failed.") -> JsonObject:
    return {"event_type": "error", "error": {"code": code, "message": message}}


def _one_call(exchange: InteractionExchange) -> Answer:
    return calls(exchange.tool_call())


def _spoiled(
    spoil: Spoil,
    *,
    default: Callable[[InteractionExchange], Any] | None = None,
    done: bool = True,
    reset: bool = False,
    resume: str = "",
) -> Act:
    """An answer whose events are changed on their way; a request that is not streamed is answered by a stream too."""

    async def act(exchange: InteractionExchange) -> None:
        exchange.resume = resume
        before = set(exchange.state.issued)
        events = spoil(exchange.events(exchange.plan(None if default is None else default(exchange))))
        exchange.state.spoiled |= set(exchange.state.issued) - before
        if not reset:
            await exchange.send_events(events, done=done)
            return
        pieces = [event if isinstance(event, bytes) else sse(event) for event in events]
        await exchange.begin(Body(SSE_TYPE, tuple(pieces), streamed=True))
        for piece in pieces:
            await exchange.send(chunk(piece))
        exchange.reset()

    return act


def _changed(change: Callable[[JsonObject], JsonObject], *, default: Any = None) -> Act:
    """An answer that is sent correctly, and says something strange."""

    async def act(exchange: InteractionExchange) -> None:
        exchange.change = change
        await exchange.answer(exchange.plan(_one_call(exchange) if default is None else default))

    return act


def _raw(make: Callable[[InteractionExchange], bytes], *, status: int = 200, kind: str = SSE_TYPE) -> Act:
    async def act(exchange: InteractionExchange) -> None:
        await exchange.send_body(Body(kind, (make(exchange),), streamed=False), status)

    return act


def _with_args(*pieces: str, **more: Any) -> Act:
    """A call whose arguments are these pieces of text."""

    def spoil(events: Events) -> Sent:
        kept = [event for event in events if _delta(event).get("type") != "arguments_delta"]
        place = next(i for i, event in enumerate(kept) if as_object(event.get("step")).get("type") == "function_call")
        index = kept[place]["index"]
        kept[place] = {**kept[place], "step": kept[place]["step"] | more}
        deltas = [
            {"event_type": "step.delta", "index": index, "delta": {"type": "arguments_delta", "arguments": piece}}
            for piece in pieces
        ]
        return [*kept[: place + 1], *deltas, *kept[place + 1 :]]

    return _spoiled(spoil, default=_one_call)


def _status(status: str, **more: Any) -> Callable[[JsonObject], JsonObject]:
    return lambda made: {**made, "status": status, **more}


async def _hang(exchange: InteractionExchange) -> None:
    events = exchange.events(exchange.plan())[:3]
    await exchange.begin(Body(SSE_TYPE, (), streamed=True))
    for event in events:
        await exchange.send(chunk(sse(event)))
    await exchange.until_closed()


async def _refused_token(exchange: InteractionExchange) -> None:
    """An answer with a token that the server does not take back."""
    exchange.change = _status("requires_continuation", continuation_token=f"token_{exchange.mint.new_id(8)}")
    await exchange.answer(exchange.plan(text("Part.")))
    exchange.state.tokens.clear()


def _unclosed(spoil: Spoil) -> Act:
    """A stream that has said its last word, and that the server does not close."""

    async def act(exchange: InteractionExchange) -> None:
        events = spoil(exchange.events(exchange.plan()))
        await exchange.begin(Body(SSE_TYPE, (), streamed=True))
        for event in events:
            await exchange.send(chunk(event if isinstance(event, bytes) else sse(event)))
        exchange.state.open_streams += 1
        await exchange.until_closed()
        exchange.state.open_streams -= 1

    return act


async def _never_ends(exchange: InteractionExchange) -> None:
    exchange.polls = 1_000_000
    await exchange.answer(exchange.plan())


async def _lose_answer(exchange: InteractionExchange) -> None:
    exchange.interaction(exchange.plan())  # It is made and kept, and nobody learns of it.
    exchange.reset()


async def _forget_run(exchange: InteractionExchange) -> None:
    """A background run that was accepted, and is unknown ever after."""
    await exchange.answer(exchange.plan())
    exchange.state.stored.clear()


async def _other_form(exchange: InteractionExchange) -> None:
    made = exchange.interaction(exchange.plan())
    if exchange.request.streaming:
        await exchange.send_json(made)
    else:
        from callgate.testing.interaction_answers import events_of

        await exchange.send_events(events_of(made))


# Events ------------------------------------------------------------------------------------------------------------------


def _delta(event: JsonObject) -> JsonObject:
    return as_object(event.get("delta"))


def _until_text(events: Events, pieces: int = 2) -> Events:
    """The events up to a few pieces of text."""
    texts = [place for place, event in enumerate(events) if _delta(event).get("type") == "text"]
    return events[: texts[min(pieces, len(texts)) - 1] + 1] if texts else events[:3]


def _before_end(events: Events) -> Events:
    return events[:-1]


def _interleaved(events: Events) -> Events:
    """Every step begins before any other one goes on."""
    starts = [event for event in events if event["event_type"] == "step.start"]
    others = [event for event in events[2:-1] if event["event_type"] != "step.start"]
    by_index: dict[int, Events] = {}
    for event in others:
        by_index.setdefault(event["index"], []).append(event)
    mixed: Events = []
    while any(by_index.values()):
        mixed += [queue.pop(0) for queue in by_index.values() if queue]
    return [*events[:2], *starts, *mixed, events[-1]]


def _without(kind: str) -> Spoil:
    return lambda events: [event for event in events if event["event_type"] != kind]


def _twice(events: Events) -> Sent:
    return [event for each in events for event in (each, each)]


def _framed(events: Events) -> Sent:
    """The same with comments, a byte order mark, other line ends and no space."""
    pieces = [b"\xef\xbb\xbf: hello\r\n\r\n"]
    for place, event in enumerate(events):
        end = (b"\r\n", b"\r", b"\n")[place % 3]
        pieces.append(b": ping" + end + b"data:" + encode_json(event) + end + end)
    return [b"".join(pieces)]


def _split(events: Events) -> Sent:
    """Every event in two pieces, cut inside of a character where there is one that has several bytes."""
    pieces: list[bytes] = []
    for encoded in map(sse, events):
        cut = next((place for place, byte in enumerate(encoded) if byte >= 0x80), 0) + 1
        pieces += [encoded[:cut], encoded[cut:]]
    return pieces


def _with_surrogate(events: Events) -> Sent:
    """Half of a surrogate pair, as no text can hold it, within the text."""
    begun = _until_text(events, 1)
    half = {**begun[-1], "delta": {"type": "text", "text": "\ud800"}, "event_id": "evt_half"}
    return [*begun, half, *events[len(begun) :]]


def _half(events: Events) -> Sent:
    """An answer that its limit of tokens ends in the middle of a call's arguments."""
    last = max(place for place, event in enumerate(events) if _delta(event).get("type") == "arguments_delta")
    end = {**events[-1], "interaction": {**events[-1]["interaction"], "status": "incomplete"}}
    return [*events[:last], end]


def _contradicting(events: Events) -> Sent:
    names = (b"", b"event: error\n", b"event: nonsense\n")
    return [names[place % 3] + b"data: " + encode_json(event) + b"\n\n" for place, event in enumerate(events)]


def _unknown(events: Events) -> Sent:
    strange = [
        {"event_type": "interaction.weather", "weather": "fine"},
        {"event_type": "step.start", "index": 77, "step": {"type": "holodeck", "id": "h1"}},
        {"event_type": "step.delta", "index": 77, "delta": {"type": "hologram", "light": 1}},
        {"event_type": "step.stop", "index": 77},
    ]
    return [*events[:2], *strange, *events[2:]]


def _nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def _changed_steps(made: JsonObject, kind: str, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    return made | {"steps": [change(step) if step.get("type") == kind else step for step in made["steps"]]}


def _calls_changed(made: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    return _changed_steps(made, "function_call", change)


def _many(step: JsonObject) -> list[JsonObject]:
    return [step | {"id": f"many{number}"} for number in range(5_000)]


def _own_result(step: JsonObject) -> JsonObject:
    return {"type": "function_result", "call_id": step.get("id"), "name": step.get("name"), "result": "done"}


_SAID: JsonObject = {"type": "model_output", "content": [{"type": "text", "text": "Done already."}]}


def _forget_in_stream() -> Act:
    async def act(exchange: InteractionExchange) -> None:
        before = set(exchange.state.stored)
        exchange.change = None
        events = _until_text(exchange.events(exchange.plan()))
        for id in set(exchange.state.stored) - before:
            del exchange.state.stored[id]
        pieces = [sse(event) for event in events]
        await exchange.begin(Body(SSE_TYPE, tuple(pieces), streamed=True))
        for piece in pieces:
            await exchange.send(chunk(piece))
        exchange.reset()

    return act


INTERACTION_FAULTS: tuple[Fault, ...] = (
    row("IF01", "rate_limited", "429 without a hint", _error(429, "rate_limit_exceeded", "Rate limit exceeded.")),
    row("IF02", "retry_after", "429 with Retry-After", {
        "seconds": _error(429, "rate_limit_exceeded", "Slow down.", Retry_After="1"),
        "date": _error(429, "rate_limit_exceeded", "Slow down.", Retry_After="Wed, 01 Jan 2020 00:00:00 GMT"),
        "day": _error(429, "rate_limit_exceeded", "Slow down.", Retry_After="86400"),
    }),
    row("IF03", "quota_of_the_day", "429 for the whole day",
        _error(429, "quota_exceeded", "Quota exceeded for requests per day.")),
    row("IF04", "unavailable", "503 before the first event", _error(503, "service_unavailable", "Overloaded.")),
    row("IF05", "api_error", "500", _error(500, "api_error", "An internal error has occurred.")),
    row("IF06", "deadline", "504", _error(504, "deadline_exceeded", "Deadline expired before operation could complete.")),
    row("IF07", "not_implemented", "501 when chaining",
        _error(501, "not_implemented", "Operation is not implemented, or supported, or enabled.")),
    row("IF08", "previous_lost", "404 for the previous interaction", _error(404, "not_found", "Interaction not found.")),
    row("IF09", "previous_refused", "400 that names the previous interaction",
        _error(400, "invalid_request", "Invalid value for previous_interaction_id.")),
    row("IF10", "previous_in_progress", "400 because the previous one goes on",
        _error(400, "failed_precondition", "The previous interaction is still in_progress.")),
    row("IF11", "no_model", "404 for the model",
        _error(404, "model_not_found", "Model 'x' not found. Did you mean 'y'?"), times=None),
    row("IF12", "no_right", "401, 402, 403", {
        "401": _error(401, "authentication", "Invalid credentials."),
        "403": _error(403, "PERMISSION_DENIED", "The caller does not have permission."),
        "key": _error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
        "402": _error(402, "payment_required", "Your credit is used up."),
    }),
    row("IF13", "refused_as_event", "400 whose body is an event",
        _raw(lambda _: sse(_event("invalid_request", "Request contains an invalid argument.")), status=400)),
    row("IF14", "legacy", "400 for the old schema",
        _error(400, "invalid_request", "The legacy Interactions API schema is no longer supported.")),
    row("IF15", "page", "a web page of a proxy",
        _raw(lambda _: b"<html><body><h1>502 Bad Gateway</h1></body></html>", status=502, kind="text/html")),
    row("IF16", "aborted", "409", _error(409, "aborted", "The operation was aborted.")),
    row("IF17", "answer_lost", "the run is stored and its answer is lost", _lose_answer),
    row("IF18", "rerooted", "a chain that the server cut by itself", _error(
        400, "invalid_request", "Please ensure that function response turn comes immediately after a function call turn. "
        "Got function response with name 'add'.")),
    row("IF19", "error_first", "an error as the first event", {
        "503": _spoiled(lambda _: [_event("service_unavailable")], done=False),
        "429": _spoiled(lambda _: [_event("rate_limit_exceeded")], done=False),
        "400": _spoiled(lambda _: [_event("invalid_request")], done=False),
        "safety": _spoiled(lambda _: [_event("prohibited_content", "Blocked.")], done=False),
    }),
    row("IF20", "error_after_text", "an error after some text", {
        "usual": _spoiled(lambda events: [*_until_text(events), _event("api_error")], done=False),
        "held": _unclosed(lambda events: [*_until_text(events), _event("api_error")]),
    }),
    row("IF21", "error_after_call", "an error after a complete call",
        _spoiled(lambda events: [*_before_end(events), _event("api_error")], default=_one_call, done=False)),
    row("IF22", "error_without_payload", "an error event that says nothing",
        _spoiled(lambda events: [*events[:2], {"event_type": "error"}], done=False)),
    row("IF23", "bare_error", "an error as a bare line of JSON", _spoiled(
        lambda events: [*events[:2], encode_json({"error": {"code": "prohibited_content", "message": "Blocked."}}) + b"\n"],
        done=False)),
    row("IF24", "array_error", "an array with an error in the stream", _spoiled(
        lambda events: [*_until_text(events), encode_json([{"error": {
            "code": 504, "message": "Deadline expired.", "status": "DEADLINE_EXCEEDED"}}]) + b"\n"], done=False)),
    row("IF25", "reset", "the connection breaks in a delta", _spoiled(_until_text, done=False, reset=True)),
    row("IF26", "ended_early", "the stream just ends", {
        "call": _spoiled(_before_end, default=_one_call, done=False),
        "text": _spoiled(_until_text, done=False),
    }),
    row("IF27", "no_done", "completed and no [DONE]", _spoiled(list, done=False)),
    row("IF28", "only_done", "[DONE] and no completed", _spoiled(_before_end, default=_one_call)),
    row("IF29", "no_stop", "no step.stop", _spoiled(_without("step.stop"), default=_one_call)),
    row("IF30", "stray_stop", "step.stop of a step that never began",
        _spoiled(lambda events: [*events[:2], {"event_type": "step.stop", "index": 9}, *events[2:]])),
    row("IF31", "no_start", "deltas of a step that never began", {
        "text": _spoiled(_without("step.start")),
        "arguments": _spoiled(_without("step.start"), default=_one_call),
    }),
    row("IF32", "started_twice", "a step begins twice",
        _spoiled(lambda events: [*events[:3], {**events[2], "event_id": "again"}, *events[3:]])),
    row("IF33", "interleaved", "steps in pieces, mixed",
        _spoiled(_interleaved, default=lambda ex: calls(ex.tool_call(), ex.tool_call()))),
    row("IF34", "twice", "every event twice", _spoiled(_twice, default=_one_call)),
    row("IF35", "pressure_in_the_middle", "429 or 503 after some text", {
        "429": _spoiled(lambda events: [*_until_text(events), _event("rate_limit_exceeded")], done=False),
        "503": _spoiled(lambda events: [*_until_text(events), _event("service_unavailable")], done=False),
    }),
    row("IF36", "completed_twice", "completed twice, and deltas after it", {
        "usual": _spoiled(lambda events: [*events, *[e for e in events if _delta(e).get("type") == "text"], events[-1]]),
        "held": _unclosed(list),
    }),
    row("IF37", "other_form", "JSON where a stream was asked for, and the other way round", _other_form),
    row("IF38", "not_json", "data that is not JSON",
        _spoiled(lambda events: [*_until_text(events), b"data: {not json}\n\n", *events[-1:]])),
    row("IF39", "bad_utf8", "bytes that are not UTF-8, characters in two pieces, half of a surrogate pair", {
        "usual": _spoiled(lambda events: [*events[:2], b'data: {"event_type": "step.del\xff\xfe\n\n'], done=False),
        "split": _spoiled(_split, default=lambda _: text("Füchse springen über größere Hunde.")),
        "surrogate": _spoiled(_with_surrogate),
    }),
    row("IF40", "event_names", "event lines that are missing or wrong", _spoiled(_contradicting)),
    row("IF41", "framing", "other line ends, comments, a byte order mark", _spoiled(_framed)),
    row("IF42", "silence", "silence, or no end of text", {
        "silence": _hang,
        "endless": _spoiled(lambda events: [*events[:2], b"data: {" + b" " * 20_000_000], done=False),
        "drip": _spoiled(lambda events: [bytes([byte]) for event in events for byte in sse(event)]),
        "lines": _spoiled(lambda events: [b"data: " + encode_json(event) + b" " * 1_048_576 + b"\n\n" for event in events]),
    }),
    row("IF43", "unknown_types", "unknown events, steps and deltas", _spoiled(_unknown)),
    row("IF44", "other_id", "the id changes, or is empty", {
        "changes": _spoiled(lambda events: [*events[:-1], {
            **events[-1], "interaction": {**events[-1]["interaction"], "id": "v1_other"}}]),
        "empty": _changed(lambda made: {**made, "id": ""}, default=text("Fine.")),
    }),
    row("IF45", "arguments_cut", "arguments that end too early", _with_args('{"a": 1, "b"')),
    row("IF46", "arguments_bad", "arguments that are no object", {
        "list": _with_args("[1, 2]"), "trailing": _with_args('{"a": 1, "b": 2} {"a": 2}'),
        "nan": _with_args('{"a": NaN, "b": 2}'), "deep": _with_args(_nested(1_000)),
        "twice": _with_args('{"a": 9, "b": 2, "a": 1}'),
    }),
    row("IF47", "arguments_twice", "arguments at the start and in deltas",
        _with_args('{"a": 1, ', '"b": 2}', arguments={"a": 9, "b": 9})),
    row("IF48", "no_arguments", "a call without arguments", _with_args()),
    row("IF49", "no_identity", "calls without an id or a name", {
        "id": _changed(lambda made: _calls_changed(made, lambda step: {k: v for k, v in step.items() if k != "id"})),
        "name": _changed(lambda made: _calls_changed(made, lambda step: step | {"name": ""})),
        "huge": _changed(lambda made: _calls_changed(made, lambda step: step | {"id": "x" * 5_000})),
        "empty": _changed(lambda made: _calls_changed(made, lambda step: step | {"id": ""})),
        "unnamed": _changed(lambda made: _calls_changed(made, lambda step: {k: v for k, v in step.items() if k != "name"})),
    }),
    row("IF50", "same_id", "two calls with one id", _spoiled(
        lambda events: [
            {**event, "step": {**event["step"], "id": "same"}} if as_object(event.get("step")).get("id") else event
            for event in events
        ],
        default=lambda ex: calls(ex.tool_call(), ex.tool_call()))),
    row("IF51", "unknown_tool", "a call of a tool that does not exist",
        _changed(lambda made: _calls_changed(made, lambda step: step | {"name": "nobody"}))),
    row("IF52", "no_action", "requires_action without a call",
        _changed(lambda made: made | {"status": "requires_action", "steps": made["steps"][:1]})),
    row("IF53", "completed_with_call", "a call in a completed answer", _changed(_status("completed"))),
    row("IF54", "half_call", "an answer that was stopped in a call", {
        "incomplete": _changed(_status("incomplete")),
        "budget": _changed(_status("budget_exceeded")),
        "cancelled": _changed(_status("cancelled")),
        "cut": _spoiled(_half, default=_one_call),
    }),
    row("IF55", "malformed_call", "malformed_function_call", {
        "event": _spoiled(lambda events: [*events[:2], _event("malformed_function_call", "Bad call.")], done=False),
        "failed": _changed(_status(
            "failed", errors=[{"code": "malformed_function_call", "message": "Bad call."}], steps=[])),
    }),
    row("IF56", "many_calls", "5,000 calls",
        _changed(lambda made: made | {"steps": [made["steps"][0], *_many(made["steps"][1])]})),
    row("IF57", "unsigned", "a thought without a signature",
        _changed(lambda made: _changed_steps(made, "thought", lambda step: step | {"signature": ""}))),
    row("IF58", "signature_refused", "a signature that was right is refused",
        _error(400, "invalid_request", "Corrupted thought signature.")),
    row("IF59", "safety_after_call", "a stop for safety after a complete call",
        _spoiled(lambda events: [*_before_end(events), _event("safety", "Unsafe.")], default=_one_call, done=False)),
    row("IF60", "answered_call", "a call that the answer itself answers",
        _changed(lambda made: made | {"steps": [*made["steps"], _own_result(made["steps"][-1]), _SAID]})),
    row("IF61", "endless_continuation", "a continuation that never ends", {
        "same": _changed(_status("requires_continuation", continuation_token="again"), default=text("Part.")),
        "none": _changed(_status("requires_continuation"), default=text("Part.")),
        "refused": _refused_token,
    }, times=None),
    row("IF62", "resume_hangs", "a stream that breaks off, and hangs when it is resumed",
        _spoiled(_until_text, done=False, reset=True, resume="hang")),
    row("IF63", "resume_from_zero", "a stream that is resumed from its beginning",
        _spoiled(_until_text, done=False, reset=True, resume="zero")),
    row("IF64", "resume_lost", "a stream that breaks off and is forgotten", _forget_in_stream()),
    row("IF65", "never_ends", "a background run that never ends", _never_ends),
    row("IF66", "background_lost", "a background run that was accepted and is unknown", _forget_run),
    row("IF67", "cancelled_then_completed", "cancelled, and completed later",
        _changed(_status("cancelled"), default=text("No."))),
    row("IF68", "unknown_status", "a status that nobody knows", _changed(_status("pondering"), default=text("Hm."))),
    row("IF69", "usage", "usage that is absent or nonsense", {
        "absent": _changed(lambda made: {k: v for k, v in made.items() if k != "usage"}, default=text("Fine.")),
        "null": _changed(lambda made: made | {"usage": None}, default=text("Fine.")),
        "negative": _changed(lambda made: made | {"usage": {"total_tokens": -5}}, default=text("Fine.")),
    }),
    row("IF70", "strange_output", "a model_output without content, or with an error", {
        "null": _changed(lambda made: _changed_steps(made, "model_output", lambda step: step | {"content": None}),
                         default=text("Gone.")),
        "error": _changed(lambda made: _changed_steps(
            made, "model_output", lambda step: step | {"error": {"code": 13, "message": "Internal."}}),
            default=text("Half.")),
    }),
    row("IF71", "expired", "the id expires between two turns", _forget_run),
)  # fmt: skip
"""Every fault of the API."""

fault = faults.fault_of(INTERACTION_FAULTS)
"""Make a script step with a fault of this table, or of the transport (see `callgate.testing.faults`)."""
