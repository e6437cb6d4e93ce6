"""The start of a run: a request in, the first facts out.

Everything that may be refused is refused here, before any of it is a fact.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from callgate.content.prompt import Prompt, user_content
from callgate.errors import UsageError
from callgate.events import Notice
from callgate.history.repair import repaired
from callgate.host import Person
from callgate.machine import facts
from callgate.permission.approval import Approval
from callgate.run.context import BeforeModel, RunContext
from callgate.run.idempotency import IdempotencyKey
from callgate.run.inputs import usable_history
from callgate.run.output import Output, output_of
from callgate.types import CallRecord, Content, ToolChoice

__all__ = ["NOTHING_TO_DO", "RunRequest", "new_request", "open_run"]

NOTES_MAX = 20
"""Maximum number of repairs of a history that are reported one by one."""
LONG_HISTORY = 200
"""Contents of a history that are repaired in a thread."""
_CAUSE = "its process stopped, or could not write to the store"
NOT_RECORDED = (
    f"The end of this call was not recorded ({_CAUSE}); whether it had its effect is not known. Check before repeating it."
)
NOTHING_TO_DO = "there is nothing to continue: the conversation waits for the user, so pass a prompt"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request to a gate."""

    prompt: Prompt | None
    session: str | None
    history: Iterable[Mapping[str, Any]] | None
    tool_choice: ToolChoice
    answers: Mapping[str, Approval]
    output: Output | None = None
    """The required output."""
    idempotency: IdempotencyKey | None = None
    uploads: tuple[facts.UploadedFile, ...] = ()
    """The files that the prompt refers to."""
    deps: Any = None
    """The object for tools that declare it; it is never journalled."""
    person: Person | None = None
    """Callback for questions of MCP servers in this run; None for the gate's `elicit`."""
    before_model: BeforeModel | None = None
    """Awaited before every request to a model, whatever it is for."""


def new_request(
    prompt: Prompt | None,
    session: str | None,
    history: Iterable[Mapping[str, Any]] | None,
    tool_choice: ToolChoice,
    answers: Mapping[str, Approval] | None,
    output: Any,
    idempotency: IdempotencyKey | None = None,
) -> RunRequest:
    """Build a request, if a run can start with it.

    Raises:
        UsageError: the prompt, the history or the output is unusable, or two of them exclude each other.
    """
    contents = None if history is None else usable_history(history)
    if answers is not None and not isinstance(answers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("answers= must be a dict: the id of a call that waits -> 'yes', 'no', 'always' or an edited call")
    if answers and prompt is not None:
        raise UsageError(
            "answers= resumes a paused run, and a prompt starts another one: pass the answers first, with prompt=None"
        )
    if answers and history is not None:
        raise UsageError("answers= resumes a paused run, and history= replaces it: pass one of them")
    must_fit = None if output is None else output_of(output)
    return RunRequest(prompt, session, contents, tool_choice, answers or {}, must_fit, idempotency)


async def open_run(run: RunContext, request: RunRequest) -> None:
    """Journal the start of the run, and report what the user should know first."""
    machine, known = run.machine, run.declared.known
    first: list[facts.Fact] = []
    started: Set[str] = frozenset()
    answers = _answers(run, request.answers)
    if machine.phase in ("asking", "calling", "checking"):
        # The previous owner is gone: this run holds the session's lock.
        first.append(facts.Recovered(unknown=NOT_RECORDED))
        started = {record.call.id for record in machine.open_calls if record.state == "started"}
    if (machine.tools, machine.names) != (known.tools, known.names):
        first.append(facts.ToolsKnown(tools=known.tools, names=known.names, at_s=time.time()))
    notices = run.config.declarer.complaints(run.declared)
    if run.config.is_cache_unused:
        notices.append(Notice("setting_changed", _NO_CACHE.format(run.config.model.name)))
    if not run.session.is_reported:
        run.session.is_reported = True
        notices += [Notice("journal_damaged", problem, "warning") for problem in machine.quarantined[:NOTES_MAX]]
    if request.history is not None:
        contents, notes = await _repaired(list(request.history))
        first.append(facts.HistoryGiven(contents=contents))
        notices += [Notice("history_repaired", note, "warning") for note in notes[:NOTES_MAX]]
    first += _beginning(run, request)
    settled = await run.journal(*first)
    run.has_begun = True
    for notice in notices:
        await run.emit(notice)
    await run.report(settled)
    for notice in _recovery_notices(started, [*settled, *machine.open_calls]):
        await run.emit(notice)
    await run.note(*answers)


_NO_CACHE = "{!r} has no context cache in this API: every request is sent whole, as without cache=."


async def _repaired(history: list[Mapping[str, Any]]) -> tuple[list[Content], list[str]]:
    """Repair a history: a long one in a thread, so that other runs of the loop do not wait."""
    return await asyncio.to_thread(repaired, history) if len(history) > LONG_HISTORY else repaired(history)


def _beginning(run: RunContext, request: RunRequest) -> list[facts.Fact]:
    """Return the fact that starts the run, unless one is resumed."""
    machine, session = run.machine, run.session.id
    key = None if request.idempotency is None else request.idempotency.check(machine, session)
    if request.prompt is None and (machine.phase not in ("idle", "done") or request.answers):
        if request.output is not None and machine.run.output is None:
            raise UsageError(f"the run of session {session!r} was started without output=: continue it without")
        return []
    if request.prompt is None and request.history is None and machine.awaits_user:
        if request.session is not None and run.session.is_new:
            raise UsageError(f"there is no session {session!r}: pass a prompt to start one")
        raise UsageError(NOTHING_TO_DO)  # Before it is journalled: the result of the last run can still be loaded.
    is_continued = request.prompt is None and request.history is None
    kept = machine.run.output if is_continued else None
    return [
        facts.RunStarted(
            content=None if request.prompt is None else user_content(request.prompt),
            tool_choice=request.tool_choice,
            limits=run.config.limits,
            output=kept if request.output is None else request.output.schema,
            uploads=request.uploads or None,
            request=key,
            at_s=time.time(),
        )
    ]


def _answers(run: RunContext, answers: Mapping[str, Approval]) -> list[facts.ApprovalAnswered]:
    """The facts of answers to what a paused session waits for."""
    if not answers:
        return []
    session = run.session.id
    awaiting = {record.call.id: record.call for record in run.machine.open_calls if record.state == "awaiting"}
    if unknown := [call_id for call_id in answers if call_id not in awaiting]:
        raise UsageError(
            f"session {session!r} waits for no answer to {', '.join(map(repr, unknown))}; "
            f"it waits for {', '.join(map(repr, awaiting)) or 'none'}"
        )
    run.deferred = {call_id for call_id, answer in answers.items() if answer == "later"}
    answered = [call_id for call_id in answers if call_id not in run.deferred]
    texts = {tracked.call.id: tracked.confirm for tracked in run.calls.calls}
    guard = run.config.guard
    return [guard.answer(awaiting[one], answers[one], confirm=texts.get(one, "")) for one in answered]


def _recovery_notices(started: Set[str], records: Iterable[CallRecord]) -> Iterator[Notice]:
    """Report the calls of the run before whose end was not written."""
    state_of = {record.call.id: (record.call.name, record.state) for record in records if record.call.id in started}
    unknown = [name for name, state in state_of.values() if state == "unknown"]
    again = [name for name, state in state_of.values() if state in ("proposed", "allowed")]
    if unknown:
        yield Notice(
            "outcome_unknown",
            f"The end of {_listed(unknown)} was not recorded ({_CAUSE}): whether that had its effect is not known, and it "
            "is not run again.",
            "warning",
        )
    if again:
        message = f"The end of {_listed(again)} was not recorded ({_CAUSE}); that is safe to repeat, and runs again."
        yield Notice("run_again", message)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
