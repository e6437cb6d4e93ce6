"""State of the service: the gate and its other models, the live runs, and the runs that ended last.

Requests to run come in, `Run`s go out. What a run does is the gate's business; how it is told is that of the modules with
routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, cast

from starlette.types import ASGIApp

from callgate.content.prompt import Prompt
from callgate.errors import ModelError, NewerSessionError, SessionBusyError, StoreError, UsageError
from callgate.events import Event
from callgate.machine.facts import Fact
from callgate.models import Mode
from callgate.permission import Answered, Approval
from callgate.permission import Mode as ApprovalMode
from callgate.run.gate import Gate, context_tokens, cost_of, unpriced_models
from callgate.run.idempotency import IdempotencyKey
from callgate.run.lease import CURRENT_LEASES
from callgate.run.run_request import new_request
from callgate.server.admissions import ANSWER_TOKENS, ANSWER_TOKENS_MAX, Admissions
from callgate.server.audit_probe import AuditProbe
from callgate.server.certificate import Certificate
from callgate.server.counters import Metrics
from callgate.server.errors import HttpError
from callgate.server.idempotency import ClaimedKey, PendingRequest, RequestKeys
from callgate.server.identity import CURRENT_PRINCIPAL, EVERYTHING, Principal, allows_model, check_right
from callgate.server.memory_trim import MemoryTrim
from callgate.server.options import ServiceOptions
from callgate.server.places import Place, Places
from callgate.server.providers import Providers, providers_of
from callgate.server.quotas import used_by
from callgate.server.remote_answers import RemoteAnswers
from callgate.server.retention import Sweeper
from callgate.server.run_meter import RunMeter
from callgate.server.run_person import RunPerson, decline
from callgate.server.runs import CURRENT, PendingApproval, Run
from callgate.server.search import SessionSearch
from callgate.server.shared_metrics import SharedMetrics
from callgate.server.waiting_sessions import WaitingSessions
from callgate.sessions import SessionState, State, Undo, state_from_facts
from callgate.store import SessionInfo, Store
from callgate.store.anonymous import new_session_id
from callgate.store.listing import read_facts
from callgate.store.principals import Principals, Used, keeps_principals
from callgate.store.protocol import check_id
from callgate.store.sql import SqlStore
from callgate.types import CallRecord, FunctionCall, JsonObject, ModelSettings, Reply, ToolChoice, ToolDefinition

__all__ = ["Ask", "Service"]

logger = logging.getLogger("callgate.server")

GATES_MAX = 32
"""Models other than the usual one that are kept ready."""
ENDED_MAX = 128
"""Runs whose events can still be read after their end."""
ENDED_BYTES = 64 * 1024 * 1024
"""About how many bytes they may have altogether."""
LIVE_BYTES = 256 * 1024 * 1024
"""About how many bytes of events all live runs may have together; each has an equal share, 8 MiB at most."""
FOLLOWED_BYTES = 128 * 1024 * 1024
"""About how many bytes ended runs may have that are not kept any more, for clients that still read their events."""
SUMMARIES_MAX = 2000
STORE_S = 1.5
"""Seconds that a new run waits for the store before its client gets 503."""
CANCEL_S = 5.0
"""Seconds that a cancelled run may take to clean up its session."""
STOPPING = "The service is stopping."
GOES_ON = (
    "The service stopped before the run was over. It can be resumed: repeat the request with its Idempotency-Key, or "
    "continue the session."
)


_STRICTEST_FIRST: tuple[ApprovalMode, ...] = ("plan", "default", "auto_edit", "yolo")
_GateKey: TypeAlias = "tuple[str | None, str | None, Mode | None, ApprovalMode | None]"
"""Provider, model, mode and approval mode."""


@dataclass(slots=True, kw_only=True)
class Ask:
    """A run that a client asks for; read-only."""

    prompt: Prompt | None = None
    """The user message; None to continue an interrupted or paused session."""
    session: str | None = None
    """The conversation to continue or to start; None: a new one."""
    history: Iterable[Mapping[str, Any]] | None = None
    """Contents to start from, where the client keeps the conversation."""
    tool_choice: ToolChoice = "auto"
    """The rule for calls: the model may, must or must not make one."""
    system: str | None = None
    """System instruction of this run, added to that of the gate."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Model settings of this run; they override those of the gate."""
    answers: Mapping[str, Approval] = field(default_factory=dict[str, Approval])
    """Call id -> answer, for calls that wait for approval."""
    provider: str | None = None
    """Provider of this run; None: the gate's model."""
    model: str | None = None
    """Model of this run; None: the gate's."""
    mode: Mode | None = None
    """Native or prompted calling in this run; None: the gate's."""
    approval_mode: ApprovalMode | None = None
    """The mode of the policy in this run; None for that of the gate."""
    waits: bool = False
    """True if a call that needs approval is waited for, as in a stream; otherwise the run pauses."""
    detached: bool = False
    """True if the run continues without a client."""
    exchange: int | None = None
    """The number in its session of the exchange that the run is at work on, where that is known."""


def _new_meter(
    gate: Gate,
    sent_bytes: int,
    settings: Mapping[str, Any],
    context: Callable[[], int] = lambda: 0,
    *,
    goes_on: bool = False,
) -> RunMeter:
    given = settings.get("max_output_tokens")
    answer_tokens = min(given, ANSWER_TOKENS_MAX) if isinstance(given, int) and given > 0 else ANSWER_TOKENS
    return RunMeter(sent_bytes, context, partial(cost_of, gate), goes_on=goes_on, answer_tokens=answer_tokens)


def _not_yours(session: str) -> HttpError:
    return HttpError(404, "no_such_session", f"there is no session {session!r}")


def _stopping(message: str) -> HttpError:
    return HttpError(503, "stopping", message, headers={"Retry-After": "5", "Connection": "close"})


@dataclass(frozen=True, slots=True)
class Summary:
    """A session as lists show it."""

    facts: int
    state: State
    exchanges: int
    approvals: tuple[CallRecord, ...]


class Service:
    """A gate that several clients use at once.

    ```python
    app = create_app(Service(Gate(model, tools=[get_weather])))
    ```
    """

    def __init__(
        self,
        gate: Gate,
        *,
        options: ServiceOptions | None = None,
        providers: Providers | None = None,
        undo: Undo | None = None,
        forget: Callable[[str], object] | None = None,
        prune: Callable[[Store], Awaitable[object]] | None = None,
        offers: Iterable[object] = (),
    ) -> None:
        self.gate = gate
        self.store = gate.store
        self.options = options or ServiceOptions()
        self.providers = providers or providers_of(gate)
        self.undo = undo
        self.forget = forget
        """Delete what is kept of a session outside of the store, such as backups of files."""
        self.offers = tuple(offers)
        """Functions that `resource` or `prompt` has marked, for MCP clients."""
        if isinstance(self.store, SqlStore):
            self.store.patience_s = STORE_S  # A client waits better than a server.
        self.metrics = Metrics()
        self.began_s = time.time()
        self.stopping = False
        self.draining = False
        """True from the signal to end on: load balancers are to turn to other processes."""
        self.drained = asyncio.Event()
        """Set when no more requests are expected, so that nothing is waited for any more."""
        self.model_trouble: str | None = None
        """The error of the model's last request; None if that succeeded."""
        self.probe: tuple[float, asyncio.Future[JsonObject]] | None = None
        """Time of the last health check for clients without the token, and its result."""
        self.audit_probe = AuditProbe(gate.audit)
        self.places = Places(self.options.runs)
        """Places of runs, and of requests that are passed on to a model."""
        self.runs: dict[str, Run] = {}
        """Runs in progress, and those that ended last."""
        self._over: deque[Run] = deque()
        self._over_bytes = 0
        self._lagging: dict[Run, None] = {}
        """Ended runs that are not kept any more, but for clients that still read their events."""
        self._trim = MemoryTrim()
        self._live: dict[str, Run] = {}
        self._of_session: dict[str, Run] = {}
        self._gates: OrderedDict[_GateKey, Gate] = OrderedDict()
        self._summaries: OrderedDict[str, Summary] = OrderedDict()
        self.keys = RequestKeys(self.store, wait_s=self.options.repeat_s, on_refused=self.metrics.refused)
        self.remote_answers = RemoteAnswers(
            self.store, live=lambda: self.live, run_of=self.run_of, approvals=self._approvals
        )
        self.sweeper = Sweeper(
            self.store,
            self.options,
            delete=self._delete,
            is_live=lambda session: session in self._of_session,
            forget=self.forget,
            prune=prune,  # Deletes what is kept here of sessions that are gone, and what is too old.
        )
        self.waiting_sessions = WaitingSessions(self.store)
        self.search = SessionSearch(self.store)
        self.admissions = Admissions(self.store) if keeps_principals(self.store) else None
        """Admission of runs of clients with quotas."""
        self._warming: list[asyncio.Task[None]] = []
        self._opened = contextlib.AsyncExitStack()
        self.waiting_calls: tuple[float, int] = (-math.inf, 0)
        """Time of the last count of waiting calls, and its result."""
        self.shared_metrics: SharedMetrics | None = None
        """The metrics of all processes, where there are several."""
        self.certificate: Certificate | None = None
        """The certificate that it serves with, if it does."""
        self.peer_apps: dict[str, ASGIApp] = {}
        """Applications by path that answer requests which other processes of the service pass on."""
        self.beside: list[Callable[[], contextlib.AbstractAsyncContextManager[object]]] = []
        """Context managers that are entered when the service starts and left when it ends."""
        self.leaving = asyncio.Event()
        """Set when the service begins to stop."""
        if self.options.identities is not None and not keeps_principals(self.store):
            raise UsageError("this store does not know whose sessions are whose, which an access file needs")
        if gate.approve is None:
            gate.approve = self.ask_client
        self._asks_followers = gate.elicit is None
        """True if questions of MCP servers go to those who follow a run."""
        if self._asks_followers:
            gate.elicit = decline

    @functools.cached_property
    def _usual_provider(self) -> str:
        return self.providers.default_provider(self.gate)

    # Its life -------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Service:
        # MCP servers and connections live as long as the service, not as long as one run.
        await self._opened.enter_async_context(self.gate)
        await self._opened.enter_async_context(self.sweeper.running())
        if self.admissions is not None:
            await self._opened.enter_async_context(self.admissions.running())
        for other in self.beside:
            await self._opened.enter_async_context(other())
        # A slow tool server delays runs, and a large store the first list of approvals, not the start of the service.
        self._warming = [asyncio.create_task(work) for work in (self.gate.start_tools(), self.waiting_sessions.warm())]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        await self.remote_answers.stop()
        await self.audit_probe.aclose()
        self._trim.close()
        for task in self._warming:
            task.cancel()
        if self._warming:
            await asyncio.wait(self._warming)
        for other in self._gates.values():
            await other.__aexit__(None, None, None)
        self._gates.clear()
        await self._opened.aclose()

    async def drain(self) -> None:
        """Work on for `drain_s`, down for load balancers; every response closes its connection."""
        self.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.drain_s):
                await self.drained.wait()

    def begin_stop(self) -> None:
        """Stop accepting runs; those that wait for a person pause."""
        self.stopping = True
        self.leaving.set()
        for run in self._live.values():
            run.pause()

    async def stop(self, within_s: float | None = None) -> None:
        """Let the runs end by themselves for a while, then leave them as they stand, to be resumed elsewhere."""
        self.begin_stop()
        within_s = self.options.stop_s if within_s is None else within_s
        left = await self._ended_within(within_s)
        for run in left:
            run.interrupt(_stopping(GOES_ON))
        for run in await self._ended_within(CANCEL_S) if left else ():
            logger.error("run %s of session %r did not end; its journal says how far it came", run.id, run.session)

    async def _ended_within(self, wait_s: float) -> list[Run]:
        """Wait, at most this long, for the runs in progress; return those that still are."""
        if self._live:
            ends = [asyncio.create_task(run.done.wait()) for run in self._live.values()]
            _, pending = await asyncio.wait(ends, timeout=wait_s)
            for task in pending:
                task.cancel()
        return self.live

    # Running --------------------------------------------------------------------------------------------------------------

    async def check_session(self, session: str) -> None:
        """Refuse a session that is not the client's.

        Raises:
            HttpError: it is not, or there is none.
        """
        principal = CURRENT_PRINCIPAL.get()
        if principal is None or principal.sees_all:
            return
        check_id(session)
        if await self.principals.principal_of(session) != principal.owner:
            raise _not_yours(session)

    async def delete(self, session: str, report: Callable[[str], object] | None = None) -> bool:
        """Delete a session, its files at the provider, and what else is kept of it; return False if there is none.

        `report` is called with a sentence for everything that stays at the provider.

        Raises:
            SessionBusyError: a run of the session is not over.
        """
        if not await self._delete(session, report=report):
            return False
        if self.forget is not None:
            await asyncio.to_thread(self.forget, session)
        return True

    async def _delete(
        self, session: str, before_s: float | None = None, report: Callable[[str], object] | None = None
    ) -> bool:
        is_deleted = await self.gate.delete(session, before_s=before_s, report=report)
        if is_deleted:
            self.keys.forget(session)
            for run in [run for run in self._over if run.session == session]:
                self._over.remove(run)
                self._over_bytes -= run.size
                self._forget(run)
        return is_deleted

    async def same_principal(self, session: str, target: str) -> None:
        """Give a new session to the principal that another one belongs to."""
        if keeps_principals(self.store) and (owner := await self.principals.principal_of(session)) is not None:
            await self.principals.assign(target, owner)

    async def _admit_principal(self, session: str, answers: Mapping[str, Approval]) -> Principal | None:
        """See whether the client may begin a run in a session, which becomes its own if it is new.

        Raises:
            HttpError: it may not.
        """
        principal = CURRENT_PRINCIPAL.get()
        if principal is None or principal is EVERYTHING:
            return None
        check_right(principal, "approve" if answers else "chat")
        await self.claim_session(session)
        return principal

    async def claim_session(self, session: str) -> None:
        """Make a new session the client's own.

        Raises:
            HttpError: it belongs to another owner.
        """
        principal = CURRENT_PRINCIPAL.get()
        if principal is not None and principal.owner is not None:
            owner = await self.principals.assign(session, principal.owner)
            if owner != principal.owner and not principal.sees_all:
                raise _not_yours(session)

    async def admit_passing(self, gate: Gate, sent_bytes: int, settings: Mapping[str, Any]) -> Place:
        """Take a place for something of about so many bytes that is passed on to a model.

        Raises:
            HttpError: the service stops, there is none, or the client has used up its quota.
        """
        place = self._take_place()
        try:
            principal = CURRENT_PRINCIPAL.get()
            if principal is not None and principal is not EVERYTHING:
                await self._admit(principal, place, _new_meter(gate, sent_bytes, settings), gate)
        except BaseException:
            place.release()
            raise
        return place

    async def _admit(self, principal: Principal, place: Place, meter: RunMeter, gate: Gate) -> None:
        """Let a place count over all processes, if the client has quotas.

        Raises:
            HttpError: the client has too many, has used up its quota, or has one of cost where no price is known.
        """
        if principal.quota.runs is None and not principal.quota.is_metered:
            return
        if principal.quota.cost_per_day is not None and (names := unpriced_models(gate)):
            models = " and ".join(map(repr, names))
            said = (
                f"the cost of {principal.name!r} is limited, and no price of {models} is known: the operator sets 'prices'"
            )
            raise HttpError(503, "price_unknown", said)
        if self.admissions is None:
            raise HttpError(503, "store_unavailable", "this store does not know whose sessions are whose")
        place.admission = await self.admissions.admit(principal, meter.expected())

    @staticmethod
    def signed(approval: Approval) -> Approval:
        """The answer with the name of the client that gives it, for the audit log."""
        principal = CURRENT_PRINCIPAL.get()
        if principal is None or not (isinstance(approval, Answered) or approval in ("yes", "no", "always")):
            return approval
        answered = approval if isinstance(approval, Answered) else Answered(answer=cast("Any", approval))
        return replace(answered, by=principal.name)

    @property
    def principals(self) -> Principals:
        """The store as the keeper of the owners of sessions.

        Raises:
            HttpError: it is none.
        """
        if not keeps_principals(self.store):
            raise HttpError(503, "store_unavailable", "this store does not know whose sessions are whose")
        return self.store

    async def start(self, ask: Ask, keyed: ClaimedKey | None = None) -> Run:
        """Start a run; one with a key, if the request holds the claim on one.

        Raises:
            HttpError: the service stops, or has too much to do.
            SessionBusyError: the session has a run already.
            UsageError: the model or the session cannot be used.
        """
        place = self._take_place()
        try:
            return await self._start(ask, keyed, place)
        except BaseException as error:
            place.release()
            if isinstance(error, StoreError):
                self.metrics.refused(error)
            raise

    async def _start(self, ask: Ask, keyed: ClaimedKey | None, place: Place) -> Run:
        if ask.answers:
            ask = replace(ask, answers={call_id: self.signed(answer) for call_id, answer in ask.answers.items()})
        if ask.session:
            check_id(ask.session)
        session = ask.session or (keyed.claim.session if keyed else new_session_id())
        principal = await self._admit_principal(session, ask.answers)
        gate = await self.gate_for(ask.provider, ask.model, ask.mode, self._checked_mode(ask.approval_mode))
        if ask.system or ask.settings:
            system = "\n\n".join(filter(None, [gate.system, ask.system])) or None
            gate = gate.with_options(system=system, settings=cast("ModelSettings | None", ask.settings))
        meter = self._meter_of(principal, gate, ask, session)
        if principal is not None and meter is not None:
            await self._admit(principal, place, meter, gate)
        # A client that has read that a run is over may begin the next one, even if its session is being released still.
        while (held := self.run_of(session)) is not None and held.is_ending and not held.is_over:
            await held.done.wait()
        # From here to the entry of the run in the list nothing is waited for.
        if (held := self.run_of(session)) is not None and not held.is_over:
            raise SessionBusyError(f"session {session!r} has a run already ({held.id}); follow it, cancel it, or wait")
        run = Run(
            session,
            self._work(gate, ask, session, keyed, meter, place),
            named=ask.session is not None or keyed is not None,  # Who sends a key will come back.
            waits=ask.waits,
            linger_s=self.options.linger_s,
        )
        run.outcomes = dict.fromkeys(ask.answers, "answered")
        run.principal, run.place, run.meter = principal, place, meter
        run.detached, run.exchange = ask.detached, ask.exchange
        run.provider = ask.provider or self._usual_provider
        run.model = gate.model.name
        run.stop = lambda reason: gate.cancel(session, reason)
        run.halt = partial(gate.interrupt, session)
        run.is_repeatable = lambda name: gate.tools.definition(name).repeatable
        run.on_end, run.share = self._ended, self._share
        if keyed is not None:
            run.is_asked_for = partial(self.keys.is_asked_for, keyed.claim)
        self.runs[run.id] = self._live[run.id] = self._of_session[session] = run
        self.metrics.began += 1
        if self.options.peers is not None:
            self.options.peers.note_run(session)
        self.remote_answers.watch()
        run.start()
        return run

    def _checked_mode(self, mode: ApprovalMode | None) -> ApprovalMode | None:
        """The approval mode of a run; None for that of the gate.

        Raises:
            HttpError: the client may not ask for it.
        """
        own = self.gate.policy.mode
        if mode is None or mode == own:
            return None
        if own == "plan":
            raise HttpError(403, "forbidden", "this service only plans (approval mode 'plan'), and no request changes that")
        if _STRICTEST_FIRST.index(mode) > _STRICTEST_FIRST.index(own):
            check_right(CURRENT_PRINCIPAL.get(), "approve")
        return mode

    def _take_place(self) -> Place:
        """Take a place for something more, before anything is waited for.

        Raises:
            HttpError: the service stops, or there is none.
        """
        if self.stopping:
            raise _stopping(STOPPING)
        return self.places.take(CURRENT_PRINCIPAL.get())

    @staticmethod
    def _meter_of(principal: Principal | None, gate: Gate, ask: Ask, session: str) -> RunMeter | None:
        """Return the meter of a run, if its client has quotas of runs or of what they use."""
        if principal is None or (principal.quota.runs is None and not principal.quota.is_metered):
            return None
        asked = (ask.prompt, ask.history, ask.system) if principal.quota.is_metered else ()
        asked_bytes = sum(len(str(part).encode("utf-8", "replace")) for part in asked if part is not None)
        context = partial(context_tokens, gate, session)
        return _new_meter(gate, asked_bytes, gate.settings, context, goes_on=ask.prompt is None)

    def _work(
        self, gate: Gate, ask: Ask, session: str, keyed: ClaimedKey | None, meter: RunMeter | None, place: Place
    ) -> Callable[[Callable[[Event], Awaitable[None]]], Awaitable[Reply]]:
        async def work(
            watch: Callable[[Event], Awaitable[None]],
            left: frozenset[str] | None = None,
            key: IdempotencyKey | None = None,
        ) -> Reply:
            goes_on = left is not None
            request = new_request(
                None if goes_on else ask.prompt,
                session,
                None if goes_on else ask.history,
                ask.tool_choice,
                {call: ask.answers[call] for call in left} if goes_on else ask.answers,
                None,
                key,
            )
            if self._asks_followers:
                request = replace(request, person=RunPerson(CURRENT.get(), self.options.approval_s))
            if meter is None:
                return await gate.run_request(request, watch)
            request = replace(request, before_model=partial(meter.before_model, more=more))
            return await gate.run_request(request, meter.watching(watch))

        async def more(spent: Used, expected: Used) -> None:
            if place.admission is not None and (error := await place.admission.extend(spent, expected)) is not None:
                CURRENT.get().interrupt(error)
                await asyncio.sleep(0)  # It ends here, and not after the request.

        if keyed is None:
            return work
        return partial(
            self.keys.carry_out, PendingRequest(held=keyed, runner=work, answers=frozenset(ask.answers), waits=ask.waits)
        )

    def _ended(self, run: Run) -> None:
        self._live.pop(run.id, None)
        self.metrics.run_ended(run)
        if run.reply is not None or isinstance(run.error, ModelError):
            self.model_trouble = str(run.error) if run.error is not None else None
        if run.place is not None:
            is_metered = run.principal is not None and run.principal.quota.is_metered
            run.place.release(used_by(*run.meter.total(run.reply)) if run.meter is not None and is_metered else None)
        if run.problem is not None and run.problem.code == 500:
            logger.error("run %s of session %r failed", run.id, run.session, exc_info=run.error)
        if run.never_began:  # There is nothing to be read of it, and the session is not the one it wanted to have.
            self._forget(run)
            return
        self._over.append(run)
        self._over_bytes += run.size
        while len(self._over) > ENDED_MAX or (self._over_bytes > ENDED_BYTES and len(self._over) > 1):
            oldest = self._over.popleft()
            self._over_bytes -= oldest.size
            self._forget(oldest)
            self._let_go(oldest)

    def _let_go(self, run: Run) -> None:
        """Free the events of a run, or leave them to those who still read them, if there are not too many."""
        if not run.is_followed:
            self._trim.freed(run.size)
            return
        self._lagging[run] = None
        run.on_left = self._left
        size = sum(one.size for one in self._lagging)
        for slowest in list(self._lagging):
            if size <= FOLLOWED_BYTES:
                return
            size -= slowest.size
            self._left(slowest)
            slowest.drop()

    def _left(self, run: Run) -> None:
        if run in self._lagging:
            del self._lagging[run]
            self._trim.freed(run.size)

    def _share(self) -> int:
        return LIVE_BYTES // max(1, len(self._live))

    def _forget(self, run: Run) -> None:
        del self.runs[run.id]
        if self._of_session.get(run.session) is run:
            del self._of_session[run.session]
            if self.options.peers is not None:
                self.options.peers.forget_run(run.session)

    def run_of(self, session: str) -> Run | None:
        """The run of a session that is in progress in this process, or the last one that is still known."""
        return self._of_session.get(session)

    @property
    def kept_bytes(self) -> int:
        """About how many bytes the events of runs take that are kept for clients, live runs included."""
        return self._over_bytes + sum(run.size for run in (*self._live.values(), *self._lagging))

    @property
    def live(self) -> list[Run]:
        """The runs in progress."""
        return list(self._live.values())

    async def gate_for(
        self, provider: str | None, model: str | None, mode: Mode | None, approval_mode: ApprovalMode | None = None
    ) -> Gate:
        """The gate with that model and these modes; kept ready, since the next turn will want it too.

        Raises:
            UsageError: there is no such provider, model or mode, or it cannot be used.
        """
        is_usual = provider is None and model is None and (mode is None or mode == self.gate.mode)
        if is_usual and approval_mode is None:
            return self.gate
        if (provider, model) != (None, None):
            self.check_model(provider, model)
        key = (provider, model, mode, approval_mode)
        if key in self._gates:
            self._gates.move_to_end(key)
            return self._gates[key]
        named = None if provider is None and model is None else self.providers.open(provider, model)
        policy = None if approval_mode is None else replace(self.gate.policy, mode=approval_mode)
        gate = self.gate.with_options(named, mode=mode, policy=policy)
        await gate.__aenter__()
        self._gates[key] = gate
        # A gate without a model of its own shares that of the usual one, which is not to be closed.
        named_keys = [key for key in self._gates if key[:2] != (None, None)]
        if len(named_keys) > GATES_MAX:
            await self._gates.pop(named_keys[0]).__aexit__(None, None, None)
        return gate

    def check_model(self, provider: str | None, model: str | None) -> None:
        """Refuse a model that the service or the client's principal may not use.

        Raises:
            UsageError: there is no such provider, or the model is not allowed.
        """
        chosen, name = self.providers.resolve(provider, model)
        name = name or self.providers.known[chosen].default
        if not self.allows_model(chosen, name):
            raise UsageError(f"the model '{chosen}:{name or ''}' may not be used here")

    def allows_model(self, provider: str, model: str | None) -> bool:
        """Return whether the service and the client's principal may use a model."""
        principal = CURRENT_PRINCIPAL.get()
        lists = [self.options.models, principal.models if principal is not None else ()]
        return all(allows_model(patterns, provider, model) for patterns in lists if patterns)

    # Sessions -------------------------------------------------------------------------------------------------------------

    async def session_state(self, session: str) -> SessionState:
        """Return the state of a session.

        Raises:
            HttpError: there is none.
        """
        facts = await self.facts(session)
        return await asyncio.to_thread(state_from_facts, session, facts)

    async def facts(self, session: str) -> list[Fact]:
        """The journal of a session.

        Raises:
            HttpError: there is none.
        """
        found = await self.store.load(session)
        if not found:
            raise HttpError(404, "no_such_session", f"there is no session {session!r}")
        return found

    async def summary(self, info: SessionInfo) -> Summary:
        """A session as lists show it; computed once for each state of the session."""
        held = self._summaries.get(info.id)
        if held is None or held.facts != info.facts:
            try:
                facts = await read_facts(self.store, info.id)
                if len(facts) < info.facts:  # A replica lags.
                    facts = await self.store.load(info.id)
                found = await asyncio.to_thread(state_from_facts, info.id, facts)
            except NewerSessionError:  # It is listed all the same; a process of that version knows more.
                return Summary(info.facts, "interrupted", 0, ())
            held = Summary(info.facts, found.state, found.exchanges, tuple(found.reply.approvals))
            self._summaries[info.id] = held
            while len(self._summaries) > SUMMARIES_MAX:
                self._summaries.popitem(last=False)
        return held

    async def _approvals(self, info: SessionInfo) -> tuple[CallRecord, ...]:
        return (await self.summary(info)).approvals

    def awaiting(self, session: str) -> set[str]:
        """The calls of a run in progress here that wait for approval."""
        return {record.call.id for record in self.gate.open_calls(session) if record.state == "awaiting"}

    # Asking somebody ------------------------------------------------------------------------------------------------------

    async def ask_client(self, call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
        """Wait for an answer if a client follows the run; pause the run if none does."""
        run = CURRENT.get(None)
        if run is None:  # A run of the program's own, beside the service.
            return "later"
        if call.id in run.early:
            run.outcomes[call.id] = "answered"
            return run.early.pop(call.id)
        if self.stopping or not (run.waits or run.followers):
            run.outcomes[call.id] = "deferred"
            return "later"
        run.outcomes.pop(call.id, None)
        lease = next((lease for lease in CURRENT_LEASES.get() if lease.session == run.session), None)
        waiting = PendingApproval(call, reason, asyncio.get_running_loop().create_future(), lease)
        run.waiting[call.id] = waiting
        self.remote_answers.listen()
        try:
            await asyncio.wait({waiting.answer}, timeout=self.options.approval_s)
            if waiting.claim is not None:
                await asyncio.wait({waiting.claim})
            answer = waiting.answer.result() if waiting.answer.done() else "later"
            # The call still counts as waiting until this is in the journal, and no second answer must be taken for it.
            run.outcomes[call.id] = "deferred" if answer == "later" else "answered"
            return answer
        finally:
            run.waiting.pop(call.id, None)
