"""Requests of clients of other APIs -> chunks of a response in Gemini's form.

A request in callgate's words comes in. If it declares no tools, the service runs it with its own ones, and only what was
said goes out: text, thoughts, tokens and how it ended. If it declares some, it is passed on with these alone, and the
model's calls go out for the client to run; nothing is run here. How any of it is spelled is the business of the modules with
routes.
"""

from __future__ import annotations

import asyncio
import re
import uuid
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from callgate import strict_json
from callgate.content.build import (
    say,
    text_part,
    thought_part,
    with_fields,
    with_names,
    with_parts,
    with_usage_details,
)
from callgate.content.collect import Collector
from callgate.content.metadata import candidate_fields, fields_about, made_part, moved_citations, step_part
from callgate.content.normalize import sendable_part
from callgate.content.prompt import user_content
from callgate.content.read import (
    INTERACTION,
    block_of,
    call_parts,
    candidate_of,
    content_of,
    interaction_of,
    parts_of,
    role_of,
)
from callgate.content.signature import signed_parts
from callgate.content.tool_names import resolve_name
from callgate.content.usage_details import details_of_answers, usage_details
from callgate.declaration import Declaration, declare
from callgate.errors import InvalidRequestError, ModelError, UsageError
from callgate.events import (
    MediaReceived,
    MetadataReported,
    RunEnded,
    ServerStepReported,
    TextDelta,
    ThoughtDelta,
    TurnEnded,
    UsageReported,
)
from callgate.history.conversation import Conversation
from callgate.history.repair import repaired, starts_exchange
from callgate.machine.machine import TOKENS_PER_BYTE
from callgate.models import AnsweredBy, ModelRequest, answering, describe, known_settings, takes_functions, thinking_words
from callgate.permission import Approval
from callgate.run.declared_tools import refuse_remote_servers
from callgate.run.gate import Gate, cost_of, guard_of
from callgate.server.body import SIZE, off_loop
from callgate.server.compat.accepted_parts import checked_setting
from callgate.server.errors import HttpError
from callgate.server.identity import CURRENT_PRINCIPAL
from callgate.server.keyed_start import key_of, start_once
from callgate.server.quotas import used_by
from callgate.server.run_meter import estimate, written_bytes
from callgate.server.runs import Run, RunFailed
from callgate.server.service import Ask
from callgate.types import CallRecord, Content, JsonObject, Part, Reply, ToolChoice, ToolDefinition, Usage

if TYPE_CHECKING:
    from starlette.requests import Request

    from callgate.server.places import Place
    from callgate.server.service import Service

__all__ = [
    "APPROVALS",
    "SESSION",
    "USUAL",
    "CompatRequest",
    "StartedReply",
    "begin",
    "description_of",
    "gate_named",
    "model_names",
    "named_session",
    "own_name",
    "said_in",
    "waits_sentence",
    "whole",
    "with_prompt",
]  # fmt: skip


USUAL = "callgate"
"""The name by which the service's own model can always be asked for."""
SESSION = "Callgate-Session"
SHOULD_RETRY = "X-Should-Retry"
"""By this header the clients of OpenAI and Anthropic decide whether they send a request again by themselves."""
LEFT_OUT = "Callgate-Left-Out"
CHANGED = "Callgate-Changed"
APPROVALS = "approvals"
"""The field of a chunk with the calls that wait for an approval."""
SILENCE = "(The user's message is empty.)"
"""Placeholder for an empty message: no model accepts one."""
GOES_ON = f"in the session {{session}} by sending its name in the header {SESSION}"
ARGS_CHARS = 300
LEFT_OUT_MAX = 20
CALLS_SHOWN = 10
_SESSION = re.compile(r"[ -.0-~]{1,200}")
_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_THINKING = ("none", "minimal", "low", "medium", "high", "xhigh")
"""Words of the setting `thinking` in all APIs, from the least on."""
_USUAL_THINKING = _THINKING[1:-1]
"""Default for a model that does not declare its own."""
# Where a limit of ours ended the run: what the model's own clients would take for it.
_ENDS = {"approval_needed": "STOP", "token_limit": "MAX_TOKENS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatRequest:
    """A request of a client of another API."""

    model: str
    contents: Sequence[Content]
    """The conversation; the newest content is the user's."""
    definitions: tuple[ToolDefinition, ...] = ()
    built_in: tuple[JsonObject, ...] = ()
    tool_choice: ToolChoice = "auto"
    system: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    native: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields without a word of ours, for models of the client's own API."""
    native_mark: str = ""
    """A setting by which models of the client's own API are known."""
    stream: bool = False
    session: str | None = None
    exchange: int | None = None
    """The number in its session of the exchange that it begins or goes on with, where that is known."""
    detached: bool = False
    """True if its run goes on without anybody who follows it."""
    answers: Mapping[str, Approval] = field(default_factory=dict[str, Approval])
    """Answers to calls of the session that wait for an approval; then there is no other input."""
    asks: bool = False
    """True if the client's API has a way to ask for an approval; else a sentence says that one is needed."""
    goes_on: str = GOES_ON
    """Next step of the client after an approval, for that sentence; `{session}` is the session."""
    has_cancelled: bool = False
    """True if the client's API has a word for an answer that was cancelled; else it ended early."""
    sent: JsonObject | None = None
    """The body as the client sent it, where requests with the same key are compared by it."""
    in_new_session: bool = False
    """True if the name of the session was made up for this request, so that another request with its key has another."""
    is_silent: bool = False
    """True if the newest message is the user's, or an instruction, and says nothing."""

    @property
    def is_passed_on(self) -> bool:
        """True if it brings tools of its own."""
        return bool(self.definitions or self.built_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedReply:
    """An answer that is on its way."""

    chunks: AsyncGenerator[JsonObject]
    headers: Mapping[str, str]
    id: str
    session: str | None = None
    """The session of its run; that of the first request, if this one repeats it."""
    is_repeated: bool = False
    """True if the run was begun by another request with the same key."""
    run: Run | None = None
    """Run of the request; None if it is passed on."""

    def failure_headers(self) -> dict[str, str]:
        """Headers of an error instead of the answer: a client that sent its request again would run the calls twice."""
        if self.run is None or not self.run.has_effects:
            return {}
        return {SESSION: self.run.session, SHOULD_RETRY: "false"}


async def begin(service: Service, wanted: CompatRequest, incoming: Request) -> StartedReply:
    """Start to answer.

    Raises:
        HttpError: there is no such model, or too much to do.
        UsageError: the request cannot be used.
    """
    for name, value in wanted.settings.items():  # Those that a reader of its own has not looked at.
        checked_setting(name, name, value)
    gate = await gate_named(service, wanted.model)
    if wanted.is_silent:
        wanted = replace(wanted, contents=with_prompt(wanted.contents))
    settings, left_out = _fitted(wanted, gate)
    if wanted.definitions and not takes_functions(gate.model):
        left_out.append("tools")
    headers = {LEFT_OUT: _named(left_out)} if left_out else {}
    if (level := settings.get("thinking")) not in (None, wanted.settings.get("thinking")):
        headers[CHANGED] = f"thinking={level}"
    if wanted.is_passed_on:
        sent_bytes = incoming.scope.get(SIZE, 0)
        place = await service.admit_passing(gate, sent_bytes, {**gate.settings, **settings})
        try:
            request, declaration = await off_loop(incoming, partial(_request, wanted, gate, settings))
        except BaseException:
            place.release()
            raise
        chunks = _passed(service, gate, request, declaration, place)
        weakref.finalize(chunks, place.release)  # Its client may leave before it begins, and then it never ends.
        return StartedReply(chunks=chunks, headers=headers, id=uuid.uuid4().hex[:16])
    run, about = await _started(service, wanted, settings, incoming)
    headers |= {SESSION: run.session, **about}
    return StartedReply(
        chunks=said_in(run, asks=wanted.asks, goes_on=wanted.goes_on, has_cancelled=wanted.has_cancelled),
        headers=headers,
        id=run.id,
        session=run.session,
        is_repeated="Idempotent-Replayed" in about,
        run=run,
    )


def with_prompt(contents: Sequence[Content]) -> list[Content]:
    """The contents with a newest one that can be answered: instructions alone ask for something, too."""
    said = [*contents]
    if said and starts_exchange(said[-1]):
        if any(str(part.get("text", "media")).strip() for part in parts_of(said[-1])):
            return said
        said.pop()
    return [*said, user_content(SILENCE)]


def named_session(request: Request) -> str | None:
    """The session that a request names in its head, if it names one."""
    session = request.headers.get(SESSION)
    if session is not None and not (_SESSION.fullmatch(session) and session.strip(". ")):
        told = "a name has 1 to 200 characters of ASCII, none of them '/', and more than blanks and dots"
        raise HttpError(400, "invalid_request", f"{SESSION}: {told}")
    return session


# Models ------------------------------------------------------------------------------------------------------------------


def model_names(service: Service) -> list[str]:
    """The models that can be asked for: the service's own under both of its names, then those of the providers."""
    names = [service.gate.model.name, USUAL]
    for provider in service.providers.known.values():
        if provider.why_not() is None:
            listed = provider.models or ((provider.default,) if provider.default else ())
            names += [f"{provider.name}:{name}" for name in listed if service.allows_model(provider.name, name)]
    return list(dict.fromkeys(names))


async def gate_named(service: Service, model: str) -> Gate:
    """The gate with the model of that name.

    Raises:
        HttpError: there is none.
    """
    try:
        return await service.gate_for(None, own_name(service, model), None)
    except UsageError as error:
        raise HttpError(404, "model_not_found", str(error)) from error


async def description_of(service: Service, model: str) -> JsonObject:
    """The description of a model by its server, as far as there is one.

    Raises:
        HttpError: there is no such model.
    """
    gate = await gate_named(service, model)
    try:
        return await describe(gate.model) or {}
    except InvalidRequestError as error:
        raise HttpError(404, "model_not_found", str(error)) from error


def own_name(service: Service, model: str) -> str | None:
    """The name that the service must look for; None for its own model."""
    return None if model in (USUAL, service.gate.model.name) else model


def _fitted(wanted: CompatRequest, gate: Gate) -> tuple[JsonObject, list[str]]:
    """The settings that the model understands, and the names of those that it does not."""
    known = known_settings(gate.model)
    settings = {name: value for name, value in wanted.settings.items() if known is None or name in known}
    left_out = [name for name in wanted.settings if name not in settings]
    is_native = known is None or wanted.native_mark in known
    thinking = settings.get("thinking")
    if not is_native and isinstance(thinking, int):
        # How many tokens of thought there may be is something that only Gemini can be told.
        left_out.append("thinking")
        del settings["thinking"]
    elif not is_native and isinstance(thinking, str) and thinking.lower() in _THINKING:
        _fit_thinking(settings, gate, left_out)
    if wanted.native and is_native:
        settings["extra_body"] = dict(wanted.native)
    else:
        native = dict(wanted.native)
        if known is not None and "response_logprobs" in known and native.get("logprobs") is True:
            settings["response_logprobs"] = native.pop("logprobs")
            settings |= {"logprobs": native.pop("top_logprobs")} if isinstance(native.get("top_logprobs"), int) else {}
        left_out += native
    if not wanted.is_passed_on and settings.pop("candidate_count", 1) != 1:
        left_out.append("candidate_count")
    return settings, left_out


def _fit_thinking(settings: JsonObject, gate: Gate, left_out: list[str]) -> None:
    """Replace the level of thinking by the next one that the model has; leave it out for one that does not think."""
    words = thinking_words(gate.model)
    if words is not None and not words:
        del settings["thinking"]
        left_out.append("thinking")
        return
    usable = _USUAL_THINKING if words is None else words
    least = _THINKING.index(settings["thinking"].lower())
    settings["thinking"] = next((word for word in _THINKING[least:] if word in usable), usable[-1])


def _named(left_out: Sequence[str]) -> str:
    """Names for a header. The client may have made them up, so that they could hold anything."""
    names = [name if _FIELD.fullmatch(name) else "(a field)" for name in left_out]
    return ", ".join(dict.fromkeys(names[:LEFT_OUT_MAX]))


# With the server's tools -------------------------------------------------------------------------------------------------


async def _started(
    service: Service, wanted: CompatRequest, settings: JsonObject, incoming: Request
) -> tuple[Run, JsonObject]:
    """The run of a request, and the headers of its answer."""
    contents, _ = await off_loop(incoming, partial(repaired, wanted.contents))
    if not wanted.answers and (not contents or contents[-1]["role"] == "model"):
        raise _unanswerable(wanted.contents)
    said = contents.pop()["parts"] if contents and starts_exchange(contents[-1]) else None
    history: list[Content] | None = contents
    if wanted.session is not None and said is not None and await service.store.load(wanted.session):
        history = None  # The session knows more of it than the client: its calls and their results.
    ask = Ask(
        prompt=said,
        session=wanted.session,
        history=history or None,
        tool_choice=wanted.tool_choice,
        system=wanted.system,
        settings=settings,
        answers=wanted.answers,
        model=own_name(service, wanted.model),
        detached=wanted.detached,
        exchange=wanted.exchange,
    )
    if wanted.in_new_session and key_of(incoming) is not None:
        ask = replace(ask, session=None)
    body = _keyed_body(wanted, said)
    return await start_once(service, incoming, body, partial(service.start, ask), session=ask.session)


def _unanswerable(sent: Sequence[Content]) -> HttpError:
    """The refusal of a conversation that a model cannot go on with, by what it ends with."""
    newest = next(iter(sent[-1:]), None)
    if newest is None:
        why = "There is no message to answer: send one of the user's."
    elif role_of(newest) != "model":
        why = "The newest message says nothing: each of its parts is empty."
    elif calls := call_parts(newest):
        names = ", ".join(str(call.get("name")) for call in calls[:CALLS_SHOWN])
        why = f"The newest message is the model's, and its calls have no results ({names}): send a result for each of them."
    else:
        why = "The newest message is the model's: a message of the user's must follow it."
    return HttpError(400, "invalid_request", why)


def _keyed_body(wanted: CompatRequest, said: Sequence[Part] | None) -> JsonObject:
    """The request as it is compared with another one that has the same key."""
    body: JsonObject = {"sent": wanted.sent} if wanted.sent is not None else {
        "model": wanted.model, "contents": [*wanted.contents], "system": wanted.system, "tool_choice": wanted.tool_choice,
        "settings": dict(wanted.settings), "native": dict(wanted.native), "session": wanted.session,
    }  # fmt: skip
    body |= {"answers": {call: str(answer) for call, answer in wanted.answers.items()}} if wanted.answers else {}
    return body if said is None else body | {"prompt": [*said]}


async def said_in(
    run: Run, *, asks: bool = False, goes_on: str = GOES_ON, has_cancelled: bool = False
) -> AsyncGenerator[JsonObject]:
    """The text of a run, without its calls, which the client did not declare.

    With `asks`, the last chunk has the calls that wait for an approval in the field `approvals`; without it, a sentence says
    that they wait, and how the client goes on. With `has_cancelled`, an answer that was cancelled has that finish reason.
    """
    has_text = is_next = False
    said = before = 0  # Bytes of text: all, and those before the answer that is being said.
    reported = _AnswerReports()
    async for item in run.follow(answers=False):
        event = item.event
        if isinstance(event, TextDelta):
            gap = "\n\n" if has_text and is_next else ""
            before = said + len(gap) if is_next else before
            has_text, is_next = True, False
            said += len((gap + event.text).encode("utf-8", "replace"))
            yield say([text_part(gap + event.text)])
        elif isinstance(event, ThoughtDelta):
            yield say([thought_part(event.text)])
        elif isinstance(event, MediaReceived):
            yield say([made_part(event.media)])
        elif isinstance(event, ServerStepReported):
            yield say([step_part(event.step)])
        elif isinstance(event, (UsageReported, MetadataReported)):
            reported.take(event, before)
        elif isinstance(event, TurnEnded):
            is_next = True
        elif isinstance(event, RunEnded):
            told = waits_sentence(event.reply.session, event.reply.approvals, goes_on) if not asks else ""
            last = reported.added_to(_end(run, event.reply, has_text, told, has_cancelled=has_cancelled))
            yield {**last, APPROVALS: event.reply.approvals} if asks else last
        elif isinstance(event, RunFailed):
            raise run.error or AssertionError("a run that failed has an error")


class _AnswerReports:
    """The reports about the answers of a run: their metadata and their usage."""

    def __init__(self) -> None:
        self._raw: list[Mapping[str, Any]] = []
        self._used: list[tuple[Usage, Mapping[str, Any]]] = []
        """The usage of each answer, and the details of it."""

    def take(self, event: UsageReported | MetadataReported, before: int) -> None:
        """Note what is reported about an answer that is shown after so many bytes of text; its usage comes first."""
        if isinstance(event, UsageReported):
            self._used.append((event.usage, {}))
            return
        self._raw += moved_citations(event.metadata.raw, before)
        self._used[-1:] = [(usage, usage_details(event.metadata.raw)) for usage, _ in self._used[-1:]]

    def added_to(self, last: JsonObject) -> JsonObject:
        """Return the last chunk with all of it."""
        about = fields_about(self._raw, usage=False)
        return with_usage_details(
            {**with_fields(last, candidate_fields(self._raw)), **about}, details_of_answers(self._used)
        )


def _end(run: Run, reply: Reply, has_text: bool, waits: str, *, has_cancelled: bool) -> JsonObject:
    reason, early = reply.finish_reason, ""
    if reason == "cancelled" and has_cancelled:
        reason = "CANCELLED"
    elif reason.islower():
        early = f"The run ended early: {reason.replace('_', ' ')}."
        reason = _ENDS.get(reason, "OTHER")
    said = f"{chr(10) * 2 if has_text else ''}{waits}" if waits else ""
    return say(
        [text_part(said)] if said else [],
        finish_reason=reason,
        finish_message="" if said else early,
        usage=reply.usage,
        model=reply.model or run.model,
    )


def waits_sentence(session: str, approvals: Sequence[CallRecord], goes_on: str = GOES_ON) -> str:
    """The text for a client whose run waits for an approval; empty if it does not."""
    if not approvals:
        return ""
    calls = "; ".join(f"{record.call.name} {_short(dict(record.call.args))}" for record in approvals)
    return (
        f"(This needs approval before it can continue: {calls}. Answer it on the service's page or by its API; continue "
        f"{goes_on.format(session=session)}.)"
    )


def _short(args: JsonObject) -> str:
    text = strict_json.dump(args).decode()
    return text if len(text) <= ARGS_CHARS else f"{text[:ARGS_CHARS]}..."


# Passed on ---------------------------------------------------------------------------------------------------------------


def _request(wanted: CompatRequest, gate: Gate, settings: JsonObject) -> tuple[ModelRequest, Declaration]:
    declaration = declare(wanted.definitions, built_in=wanted.built_in, tool_choice=wanted.tool_choice)
    if declaration.quarantined:
        raise HttpError(400, "invalid_request", next(iter(declaration.quarantined.values())))
    refuse_remote_servers(declaration, guard_of(gate).policy)
    aliases = {own: declared for declared, own in declaration.names.items() if own != declared}
    contents = [with_names(content, aliases) for content in wanted.contents] if aliases else wanted.contents
    conversation = Conversation(contents)
    if conversation.last is None or conversation.last["role"] == "model":
        raise _unanswerable(wanted.contents)
    # How many candidates there are is the client's to say: only it knows what to do with them.
    own = {name: value for name, value in gate.settings.items() if name != "candidate_count"}
    request = ModelRequest(
        conversation=conversation,
        definitions=wanted.definitions,
        declaration=declaration,
        tool_choice=wanted.tool_choice,
        system="\n\n".join(filter(None, [gate.system, wanted.system])) or None,
        settings={**own, **settings},
        stream=wanted.stream,
    )
    return request, declaration


async def _passed(
    service: Service, gate: Gate, request: ModelRequest, declaration: Declaration, place: Place
) -> AsyncGenerator[JsonObject]:
    """The model's answer as it comes, under the client's own names for its tools."""
    collector, who, received = Collector(), None, 0
    budget = guard_of(gate).model
    principal = CURRENT_PRINCIPAL.get()
    usage, is_sent = Usage(), False
    try:
        await asyncio.sleep(budget.book())
        is_sent = True
        async with answering(gate.model, request) as items:
            async for item in items:
                if isinstance(item, AnsweredBy):
                    who = item
                if not isinstance(item, dict):
                    continue
                received += sum(map(written_bytes, collector.feed(item)))
                usage = collector.usage
                if block_of(item) is None:  # What was refused is told at the end.
                    yield _outgoing(item, declaration.names)
        usage = collector.close().usage
        budget.used(usage.total_tokens)
        service.metrics.passed_on(usage)
        service.model_trouble = None
    except BaseException as error:
        budget.failed(error)
        # One that is refused says nothing about the model.
        if isinstance(error, ModelError) and not isinstance(error, InvalidRequestError):
            service.model_trouble = str(error)
        has_left = is_sent and isinstance(error, GeneratorExit | asyncio.CancelledError)
        if not usage.total_tokens and (received or has_left):
            usage = estimate(round(request.conversation.size_bytes * TOKENS_PER_BYTE), received)
        raise
    finally:
        is_metered = principal is not None and principal.quota.is_metered
        place.release(used_by(usage, cost_of(gate, usage, who, collector.model)) if is_metered else None)


def _outgoing(chunk: JsonObject, names: Mapping[str, str]) -> JsonObject:
    chunk = strict_json.without_bad(chunk)
    content = content_of(chunk)
    calls = call_parts(content)
    if calls:
        own = {name: resolve_name(name, names) or name for name in (str(call.get("name")) for call in calls)}
        content = with_names(content, own)
    elif interaction_of(content) is None:
        return chunk
    # The record of the Interactions API is no field of a response.
    said = {name: value for name, value in content.items() if name != INTERACTION}
    candidate = {**candidate_of(chunk), "content": {**said, "parts": [*map(sendable_part, signed_parts(content))]}}
    return {**chunk, "candidates": [candidate]}


def whole(chunks: Sequence[JsonObject]) -> JsonObject:
    """The chunks of an answer as one.

    Raises:
        ProtocolError: it broke off.
    """
    if len(chunks) == 1:
        return chunks[0]
    collector = Collector()
    merged: JsonObject = {}
    candidate: JsonObject = {}
    for chunk in chunks:
        collector.feed(chunk)
        merged |= chunk
        candidate |= candidate_of(chunk)
    answer = collector.close()
    said = parts_of(answer.content)
    candidate |= candidate_fields(answer.raw_metadata)
    candidate.pop("content", None)
    merged["candidates"] = [candidate]
    return with_parts(merged, said) if said else merged
