"""The words of callgate: frozen data that every other file speaks in.

Nothing comes in and nothing goes out; this file knows no wire format, no model and no tool, and imports nothing of ours.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

# The types of pydantic would cost their import; these aliases say the same to a reader and to a type checker.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object that came from, or goes to, the outside."""

Part: TypeAlias = dict[str, Any]
"""One part of a content, as the JSON that came (see `callgate.content.read`)."""

Content: TypeAlias = dict[str, Any]
"""One turn of a conversation in Gemini's form: `{"role": ..., "parts": [...]}`."""

CallState: TypeAlias = Literal[
    "proposed", "checked", "allowed", "denied", "awaiting", "started",
    "finished", "failed", "timed_out", "cancelled", "unknown",
]  # fmt: skip
"""Where a call is in its life. The last five, and `denied`, are final."""

ResultStatus: TypeAlias = Literal["finished", "failed", "denied", "timed_out", "cancelled", "unknown"]
"""How a call ended. Only `finished` carries a value; all others carry an error sentence."""

FINAL_STATES: frozenset[str] = frozenset({"finished", "failed", "denied", "timed_out", "cancelled", "unknown"})

ToolKind: TypeAlias = Literal["function", "file", "command", "mcp", "worker"]
"""Where a tool comes from; decides the default permission and whether its writes keep their order."""

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
"""What the policy says of a call before anybody is asked."""

ToolChoice: TypeAlias = str
"""`auto`, `required`, `none`, `validated`, or the name of the one tool that must be called."""

FinishReason: TypeAlias = str
"""Why a run ended. The model's own reasons are kept raw and in capitals (`STOP`, `MAX_TOKENS`, `SAFETY`, ...); ours are
lower-case words: `turn_limit`, `call_limit`, `token_limit`, `cost_limit`, `loop`, `cancelled`, `approval_needed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """What a tool is called, what it does and what it takes; never how it runs."""

    name: str
    """The tool's own name. What is sent to a model may be an alias of it (see `callgate.declare`)."""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """A JSON Schema for the object of arguments."""
    output_schema: Mapping[str, Any] | None = None
    title: str | None = None
    kind: ToolKind = "function"
    server: str | None = None
    """The MCP server or worker pool that the tool lives on, if it lives on one."""
    read_only: bool = False
    """The tool changes nothing, so it may be run again and needs no permission by default."""
    idempotent: bool = False
    """Running the tool twice with the same arguments is the same as running it once."""
    sequential: bool = False
    """Calls of one turn to this tool wait for earlier ordered calls of that turn."""
    timeout_s: float | None = None
    """The deadline of one call in seconds; None means `Limits.call_timeout_s`."""
    alias_of: str | None = None
    """The tool's own name on its server, where `name` is an alias that tells it from another server's tool."""

    @property
    def own_name(self) -> str:
        """The name that permissions, limits and the audit log go by, together with `server`."""
        return self.alias_of or self.name

    @property
    def ordered(self) -> bool:
        """Whether calls to this tool keep their order within a turn instead of running in parallel."""
        return self.sequential or (not self.read_only and self.kind in ("file", "command", "mcp"))

    @property
    def repeatable(self) -> bool:
        """Whether a call whose outcome is unknown may simply be run again."""
        return self.read_only or self.idempotent


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A call that a model asked for."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str = ""
    """Ours: always there once a collector has seen the call, and unique in the conversation."""
    wire_id: str | None = None
    """The model's own id, when it sent one; the only id that goes back on the wire."""
    wire_name: str | None = None
    """The name as the model wrote it, when that differs from `name`."""
    problem: str | None = None
    """Why this call cannot run as it was sent (arguments that do not parse, a stream cut in the middle)."""
    notes: tuple[str, ...] = ()
    """What was repaired while reading the call."""

    def detached(self) -> FunctionCall:
        """The same call with arguments of its own: whoever is shown it cannot change what will run."""
        return replace(self, args=copy.deepcopy(dict(self.args)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """Bytes with a MIME type. A tool returns it to show the model an image, a PDF or a sound."""

    data: bytes
    mime_type: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class PlainJson:
    """A value that was found to be plain JSON, and its text if that is long."""

    value: Any
    encoded: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """How one call ended."""

    call_id: str
    name: str
    status: ResultStatus
    value: Any = None
    """What the tool returned, as plain JSON data (see `callgate.content.json_safe`). None unless `status` is `finished`."""
    error: str | None = None
    """A sentence for the model, when `status` is anything but `finished`."""
    notes: tuple[str, ...] = ()
    """What was cut, repaired or should be known besides the value."""
    media: tuple[Part, ...] = ()
    """Images and other media of the result, as inline data parts."""
    duration_s: float = 0.0
    plain_json: PlainJson | None = field(default=None, compare=False, repr=False)
    """Set by callgate where it has made the value itself, so that it is not looked through again; not journalled."""

    @property
    def known_json(self) -> PlainJson | None:
        """`plain_json` if it is about the value of this result, which may have been replaced since."""
        known = self.plain_json
        return known if known is not None and known.value is self.value else None

    @property
    def is_error(self) -> bool:
        """Whether the model is told of an error instead of a value."""
        return self.status != "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided about a call, and by whom."""

    verdict: Verdict
    reason: str = ""
    by: str = "policy"
    """`policy`; `user` when a person or program answered; `mode`, `hook` or `limit` when one of these decided."""
    rule: str = ""
    """The rule that asks, if the verdict is `ask`: an "always" beats this one and no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRule:
    """A lasting yes: calls like one that was approved run without asking, until the session ends or it is revoked."""

    id: str
    tool: str
    server: str | None = None
    digest: str = ""
    """Hash of what was declared of the tool when it was approved; a changed tool is asked about again."""
    raised_by: str = ""
    """The rule that asked: the only one that this answer beats."""
    paths: tuple[str, ...] = ()
    """Patterns that the files of a call must match, if the tool is a file tool."""
    exact: Mapping[str, Any] | None = None
    """The arguments that a call must have, if it is covered with these alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call of a run with everything that became of it."""

    call: FunctionCall
    state: CallState
    decision: Decision | None = None
    result: ToolResult | None = None
    edited: bool = False
    """Whether the arguments were changed at approval."""

    @property
    def duration_s(self) -> float:
        """How long the call ran; 0.0 when it did not run."""
        return self.result.duration_s if self.result else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Arguments after the check: what would run, what was changed on the way, and what is wrong."""

    args: Mapping[str, Any]
    problems: list[str] = field(default_factory=list[str])
    """Sentences that let a model correct itself; empty means valid."""
    coercions: list[str] = field(default_factory=list[str])
    """Lossless conversions that were made, such as `"5"` to `5`."""

    def __post_init__(self) -> None:
        # Whoever compares with a list gets one, whatever the check collected its sentences in.
        object.__setattr__(self, "problems", list(self.problems))
        object.__setattr__(self, "coercions", list(self.coercions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Something that a conversion could not carry over."""

    pointer: str
    """JSON pointer to the place in the source."""
    keyword: str
    reason: str
    instead: str = ""
    """What is done in its place: a local check, words in the description, a wider form."""
    tool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the model counted them."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    thought_tokens: int = 0
    tool_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            thought_tokens=self.thought_tokens + other.thought_tokens,
            tool_tokens=self.tool_tokens + other.tool_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
        )


"""What has been used before anything was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every bound of a run in one place. A limit that is reached refuses; it never skips a check."""

    turns: int = 25
    """Requests to the model in one run. The last one is sent with tools switched off, so that an answer exists."""
    calls: int = 200
    """Calls in one run; further ones are answered with an error."""
    calls_per_turn: int = 128
    """Calls in one answer of the model; further ones are answered with an error."""
    parallel: int = 10
    """Calls running at the same time."""
    call_timeout_s: float = 30.0
    """The deadline of one call, unless its tool sets another."""
    repeats: int = 5
    """The same call in this many turns one after another is a loop; the last one is not run."""
    retries_malformed: int = 2
    """How often the model is asked again after a malformed or empty answer."""
    output_retries: int = 2
    """How often the model is asked again after an answer that does not fit the `output` of the run."""
    output_chars: int = 40_000
    """Characters of one tool result that the model sees; the middle of a longer one is left out."""
    abandoned_threads: int = 32
    """Threads of timed-out sync tools that may still be running before further sync calls are refused."""
    json_depth: int = 100
    """Levels of nesting in arguments and results."""
    session_wait_s: float = 10.0
    """How long a run waits for a session that another process is at work on."""
    connect_s: float = 10.0
    """How long a connection to a model may take to be made."""
    first_byte_s: float = 60.0
    """How long a model may take to begin a streamed answer."""
    idle_s: float = 60.0
    """How long an answer may pause."""
    total_s: float = 600.0
    """How long one answer may take in all."""
    attempts: int = 5
    """How often one request is sent before it is given up."""
    backoff_s: float = 1.0
    """The first wait between two attempts; doubles with each one."""
    backoff_max_s: float = 60.0
    """The longest wait; a server that asks for more gets none, and the caller an error."""
    event_bytes: int = 16 * 1024 * 1024
    """The size of one event of a streamed answer."""
    body_bytes: int = 64 * 1024 * 1024
    """The size of one whole answer."""
    context_tokens: int | None = None
    """How long the history may be, in tokens; a longer one is shortened before the next request. None: any length."""
    run_tokens: int | None = None
    """Tokens that one run may use; it ends with `token_limit` before the request after that. None: any number."""
    session_tokens: int | None = None
    """Tokens that all runs of a session together may use."""
    run_cost: float | None = None
    """What one run may cost by the gate's prices; it ends with `cost_limit`. None: anything."""
    session_cost: float | None = None
    """What all runs of a session together may cost."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            is_whole = not name.endswith(("_s", "_cost"))
            lowest = _LOWEST.get(name, 1 if is_whole else 0.001 if name.endswith("_s") else 0)
            kinds = (int,) if is_whole else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not lowest <= value < float("inf"):
                expected = "a whole number" if is_whole else "a number of seconds" if name.endswith("_s") else "a number"
                raise ValueError(f"Limits({name}={value!r}): expected {expected} of at least {lowest}")


_LOWEST: dict[str, float] = {
    "retries_malformed": 0,
    "output_retries": 0,
    "abandoned_threads": 0,
    "output_chars": 200,
    "context_tokens": 100,
}
_OPTIONAL = frozenset({"context_tokens", "run_tokens", "session_tokens", "run_cost", "session_cost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a million tokens of a model cost, in whatever currency you count."""

    input: float
    output: float
    cached: float | None = None
    """Of input that the server had in its cache; None: as much as other input."""

    def of(self, usage: Usage) -> float:
        """What this usage costs."""
        fresh = usage.input_tokens - usage.cached_tokens + usage.tool_tokens
        cached = usage.cached_tokens * (self.input if self.cached is None else self.cached)
        return (fresh * self.input + cached + (usage.output_tokens + usage.thought_tokens) * self.output) / 1_000_000


class History(Protocol):
    """A conversation at one moment, such as `Conversation(...).history`."""

    @property
    def contents(self) -> list[Content]:
        """The contents, the same list every time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a run came to."""

    text: str
    """The model's answer, thoughts left out."""
    calls: list[CallRecord]
    """Every call of this run in the order in which the model made them."""
    usage: Usage
    finish_reason: FinishReason
    history: History = field(repr=False)
    """The conversation at the end of the run as it is encoded; `contents` decodes it."""
    session: str
    turns: int = 0
    """Answers of the model that this run used."""
    limited: bool = False
    """Whether the last answer was given with tools switched off because `Limits.turns` was reached."""
    approvals: list[CallRecord] = field(default_factory=list[CallRecord])
    """Calls that wait for an answer, when `finish_reason` is `approval_needed`."""
    model: str = ""
    """The model that gave the last answer."""
    cost: float | None = None
    """What the run cost by the gate's prices; None when they do not say."""
    context_tokens: int = 0
    """About how many tokens the whole conversation has now: what the next request sends of it."""
    output: Any = None
    """The answer as a value of the type that `run(..., output=...)` named; None where none was named, or the run ended
    before there was one."""

    @property
    def contents(self) -> list[Content]:
        """The whole conversation so far in Gemini's form, valid to be sent again. Decoded once; treat it as read-only."""
        return self.history.contents

    @property
    def ok(self) -> bool:
        """Whether the model ended its answer by itself. A limit, a safety stop or an unknown reason is not ok."""
        return self.finish_reason == "STOP"


class Progress(Protocol):
    """Takes one progress report of a running call."""

    def __call__(self, message: str, fraction: float | None = None) -> None:
        """Say in a few words what is being done, and how much of it (0 to 1) if that is known."""


CallTool: TypeAlias = "Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]"
"""Calls a tool by its name; what became of it is in the result."""


async def no_tools(name: str, args: Mapping[str, Any]) -> ToolResult:
    sentence = f"Not run: {name!r} was called by a tool that no gate runs, so there are no tools to call."
    return ToolResult(call_id="", name=name, status="failed", error=sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know of its own call. A parameter annotated with this type is filled in, and hidden from the model."""

    call_id: str
    name: str
    session: str | None = None
    timeout_s: float | None = None
    """Seconds that the call was given when it started."""
    progress: Progress = field(default=lambda message, fraction=None: None, repr=False)
    """Reports progress to whoever watches the run: `context.progress("half way", 0.5)`. May be called from any thread."""
    is_cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)
    """Whether the call was cancelled or ran out of time. A long sync tool should look from time to time and return."""
    paused: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, repr=False)
    """`with context.paused():` stops the clock of the call while a person is asked. May be entered from any thread."""
    paused_s: Callable[[], float] = field(default=lambda: 0.0, repr=False)
    """For how many seconds the clock of the call has stood still so far."""
    hides: Callable[[str, str], bool] | None = field(default=None, repr=False)
    """(file, named path) -> true if the policy keeps the file out of a list or search that only named a path above it."""
    call_tool: CallTool = field(default=no_tools, repr=False)
    """Calls another tool of the gate, under the same permission (see `callgate.host`)."""


__all__ = [
    "FINAL_STATES", "CallRecord", "CallState", "CallTool", "Checked", "Content", "Decision", "FinishReason",
    "FunctionCall", "History", "Json", "JsonObject", "Limits", "Loss", "Media", "Part", "PlainJson", "Price", "Progress",
    "Reply", "ResultStatus", "SessionRule", "ToolChoice", "ToolContext", "ToolDefinition", "ToolKind", "ToolResult",
    "Usage", "Verdict",
]  # fmt: skip
