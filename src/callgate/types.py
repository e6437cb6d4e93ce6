"""The types of callgate: frozen data that every other file uses.

This file knows no wire format, no model and no tool, and imports nothing of ours but `callgate.metadata` and two errors.
"""

from __future__ import annotations

import copy
import gc
import json
import marshal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypedDict, cast

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", covariant=True, default=Any)
    ResultT = TypeVar("ResultT", bound="ToolResult | None", covariant=True, default="ToolResult | None")
    DepsT = TypeVar("DepsT", covariant=True, default=Any)
else:  # Defaults of type variables are for checkers; the package that has them would cost its import.
    from typing import TypeVar

    OutputT, ResultT, DepsT = TypeVar("OutputT"), TypeVar("ResultT"), TypeVar("DepsT")

from callgate.base_errors import UsageError
from callgate.metadata import AnswerMetadata, Citation, SearchLink, ServerStep, Source

# The types of pydantic would cost their import; these aliases say the same to a reader and to a type checker.
_NOTHING: Any = None
"""The default of a field whose type a type variable decides."""

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object of external origin or destination."""

Part: TypeAlias = dict[str, Any]
"""One part of a content, as received JSON (see `callgate.content.read`)."""

Content: TypeAlias = dict[str, Any]
"""One content of a conversation in Gemini's form: `{"role": ..., "parts": [...]}`."""

CallState: TypeAlias = Literal[
    "proposed", "checked", "allowed", "denied", "awaiting", "started",
    "finished", "failed", "timed_out", "cancelled", "unknown",
]  # fmt: skip
"""The state of a call. The last five, and `denied`, are final."""

ResultStatus: TypeAlias = Literal["finished", "failed", "denied", "timed_out", "cancelled", "unknown"]
"""The final status of a call. Only `finished` carries a value; all others carry an error sentence."""

FINAL_STATES: frozenset[str] = frozenset({"finished", "failed", "denied", "timed_out", "cancelled", "unknown"})
"""The states that a call does not leave any more."""

ToolKind: TypeAlias = Literal["function", "file", "command", "mcp", "worker"]
"""The origin of a tool; decides the default permission and whether its writes keep their order."""

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
"""The policy's decision about a call, before approval."""

ToolChoice: TypeAlias = Literal["auto", "required", "none", "validated"] | str
"""`auto`, `required`, `none`, `validated`, or the name of the one tool that must be called."""

FinishReason: TypeAlias = (
    Literal[
        "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII",
        "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_OTHER", "NO_IMAGE",
        "MODEL_ARMOR", "OTHER",
        "turn_limit", "call_limit", "token_limit", "cost_limit", "loop", "cancelled", "approval_needed",
        "output_error", "error",
    ]
    | str
)  # fmt: skip
"""Reason of a run's end. The model's own reasons are kept raw and in capitals (`STOP`, `MAX_TOKENS`, `SAFETY`, ...); ours
are lower-case words: `turn_limit`, `call_limit`, `token_limit`, `cost_limit`, `loop`, `cancelled`, `approval_needed`.
A run that raised ended with `output_error` if no answer fits `output=`, and with `error` if there was no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """The name, description and schema of a tool; never its implementation."""

    name: str
    """The tool's own name. What is sent to a model may be an alias of it (see `callgate.declare`)."""
    description: str = ""
    """Text for the model: what the tool does and when to use it."""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """A JSON Schema for the object of arguments."""
    output_schema: Mapping[str, Any] | None = None
    """A JSON Schema of the result, if the tool declares one."""
    title: str | None = None
    """A name for people, if the tool has one."""
    kind: ToolKind = "function"
    """The origin of the tool."""
    server: str | None = None
    """The MCP server or worker pool of the tool, if it has one."""
    read_only: bool = False
    """The tool changes nothing, so it may be run again and needs no permission by default."""
    idempotent: bool = False
    """Running the tool twice with the same arguments is the same as running it once."""
    sequential: bool = False
    """Calls of one turn to this tool wait for earlier ordered calls of that turn."""
    timeout_s: float | None = None
    """The deadline of one call in seconds; None means `Limits.call_timeout_s`."""
    touches: tuple[str, ...] = ()
    """Names of what the tool reads or changes, such as `orders`. Empty if unknown: then it may be anything."""
    alias_of: str | None = None
    """The tool's own name on its server, where `name` is an alias that tells it from another server's tool."""
    other_names: tuple[str, ...] = ()
    """Further names that rules, hooks and limits know the tool by: chosen by the program, never by a server."""
    roots: tuple[str, ...] = field(default=(), compare=False)
    """The folder that relative paths in its arguments start at, by each of its names; empty if that is not known."""

    @property
    def own_name(self) -> str:
        """The name that permissions, limits and the audit log go by, together with `server`."""
        return self.alias_of or self.name

    @property
    def ordered(self) -> bool:
        """True if calls to this tool keep their order within a turn instead of running in parallel."""
        return self.sequential or (not self.read_only and self.kind in ("file", "command", "mcp"))

    @property
    def repeatable(self) -> bool:
        """True if a call whose outcome is unknown may simply be run again."""
        return self.read_only or self.idempotent


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A call requested by a model."""

    name: str
    """The tool's own name."""
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The arguments as the model sent them, decoded from JSON."""
    id: str = ""
    """Ours: always there once a collector has seen the call, and unique in the conversation."""
    wire_id: str | None = None
    """The model's own id, if it sent one; the only id that is sent back."""
    wire_name: str | None = None
    """The name as the model wrote it, when that differs from `name`."""
    problem: str | None = None
    """The reason why this call cannot run (arguments that do not parse, a truncated stream)."""
    notes: tuple[str, ...] = ()
    """Repairs made while reading the call."""

    def detached(self) -> FunctionCall:
        """Return the same call with its own copy of the arguments: callbacks cannot change what will run."""
        return replace(self, args=copied_args(self.args))


def copied_args(args: Mapping[str, Any], *, is_plain: bool = False) -> dict[str, Any]:
    """Return a copy of arguments that shares nothing with them that could be changed. See `copied_json` for `is_plain`."""
    try:
        return {name: copied_json(value, is_plain=is_plain) for name, value in args.items()}
    except ValueError:  # Something in them is not plain JSON.
        return copy.deepcopy(dict(args))


class PathLike(Protocol):
    """A path that is not text, such as `pathlib.Path`."""

    def __fspath__(self) -> str:
        """The path as text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An image, a PDF, a sound or a video: its bytes, the path of a file, or an address.

    A tool returns it to show the model something; a prompt may hold it. `mime_type` can be left out for a path whose
    ending says it. A file is read, or uploaded in pieces, when the run starts.
    """

    data: bytes = b""
    """The bytes; empty if there is a `path` or a `uri`."""
    mime_type: str = ""
    """The type, such as `image/png`."""
    name: str | None = None
    """A name to show to the model and to people."""
    path: str | PathLike | None = None
    """A file on this machine, instead of `data`. It is kept as a string."""
    uri: str | None = None
    """An address that the provider reads, instead of `data`: an uploaded file, `gs://` on Vertex, a public page."""
    transcript: str = ""
    """The words that are spoken in a sound, if the model that made it reported them. Not sent to a model."""

    def __post_init__(self) -> None:
        if sum((bool(self.data), self.path is not None, self.uri is not None)) > 1:
            raise UsageError("Media has one of data=, path= and uri=")
        given: Any = self.data
        if not isinstance(given, bytes):
            if not isinstance(given, (bytearray, memoryview)):
                raise UsageError(f"Media(data=...) takes bytes, not {type(given).__name__!r}: decode base64 first")
            object.__setattr__(self, "data", bytes(cast("bytearray", given)))
        if self.path is not None and not isinstance(self.path, str):
            if not hasattr(self.path, "__fspath__"):
                raise UsageError(f"Media(path={self.path!r:.100}): use text or a pathlib.Path")
            object.__setattr__(self, "path", self.path.__fspath__())


@dataclass(frozen=True, slots=True)
class PlainJson:
    """A value that was found to be plain JSON: the value itself, or its text if that is long. Nobody else has either."""

    short: Any
    """The value, unless it is kept as text."""
    encoded: bytes | None = None
    """The JSON text of a long value."""
    handed_out: list[Any] = field(default_factory=list[Any])
    """First the value that is handed out, a change of which reaches neither history nor journal; empty before."""

    @classmethod
    def of(cls, value: Any, encoded: bytes | None = None) -> PlainJson:
        """Return the value with one to hand out."""
        return cls(value, None, [copied_json(value, is_plain=True)]) if encoded is None else cls(None, encoded, [value])

    @property
    def shown(self) -> Any:
        """The value that is handed out, which is always the same; a long one is read from its text once."""
        if not self.handed_out:  # Of several threads that ask for it, the first one decides.
            self.handed_out.append(copied_json(self.short, is_plain=True) if self.encoded is None else self.value)
        return self.handed_out[0]

    @property
    def value(self) -> Any:
        """The value; a long one is read from its text."""
        return self.short if self.encoded is None else json.loads(self.encoded)


def copied_json(value: Any, *, is_plain: bool = False) -> Any:
    """Copy plain JSON data. `is_plain` says that it is known to be.

    Raises:
        ValueError: something in it is not.
    """
    if not isinstance(value, (dict, list)):
        return value
    if type(cast("Any", value)) is list and value and type(cast("Any", value[0])) is dict:
        rows = cast("list[dict[str, Any]]", value)
        if _are_flat(rows, is_plain):
            # A fifth of the time of what is needed for lists and objects in them.
            with suppress(TypeError):  # One of them is no object.
                return [*map(_COPY, rows)]
    return marshal.loads(marshal.dumps(cast("Any", value)))  # A tenth of the time of `deepcopy`.


def _are_flat(rows: list[dict[str, Any]], is_plain: bool) -> bool:
    """True if there are neither lists nor objects in these objects."""
    # The garbage collector need not track such objects, and most versions of Python do not. Asking for that takes a
    # seventh of the time of looking, but says nothing of values that are no JSON.
    if is_plain and not any(map(gc.is_tracked, rows)):
        return True
    return {*map(type, rows)} == {dict} and {*map(type, chain.from_iterable(map(_VALUES, rows)))} <= _ATOMS


_VALUES, _COPY = dict[str, Any].values, dict[str, Any].copy
_ATOMS = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The outcome of one call."""

    call_id: str
    """The id of the call."""
    name: str
    """The tool's own name."""
    status: ResultStatus | Literal["awaiting"]
    """The final status; or `awaiting` in the reply of a run that waits for an approval of the call, and nowhere else."""
    value: Any = None
    """The tool's return value, as plain JSON data (see `callgate.content.json_safe`). None unless `status` is `finished`.

    A long value is kept as JSON text and read when it is first asked for."""
    error: str | None = None
    """A sentence for the model, when `status` is anything but `finished`."""
    notes: tuple[str, ...] = ()
    """Notes besides the value: truncations, repairs, warnings."""
    media: tuple[Part, ...] = ()
    """Images and other media of the result, as inline data parts."""
    duration_s: float = 0.0
    """Seconds that the tool ran."""
    plain_json: PlainJson | None = field(default=None, compare=False, repr=False)
    """Set by callgate for values of its own, so that they are not checked again; not journalled."""

    @property
    def known_json(self) -> PlainJson | None:
        """Return `plain_json` if it belongs to the value of this result, which may have been replaced since."""
        known = self.plain_json
        if known is None or self._is_unread:
            return known
        return known if known.handed_out and known.shown is self.value else None

    @classmethod
    def of_known(cls, known: PlainJson, **others: Any) -> ToolResult:
        """Return a result with a value that is plain JSON; a long one is read when it is first asked for."""
        is_unread = not known.handed_out and known.encoded is not None
        result = cls(value=None if is_unread else known.shown, plain_json=known, **others)
        if is_unread:
            object.__delattr__(result, "value")
        return result

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:  # For a value that was not read yet; nothing else is ever missing.
            if name != "value":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            object.__setattr__(self, "value", self.plain_json.shown)
            return self.value

    @property
    def _is_unread(self) -> bool:
        try:
            object.__getattribute__(self, "value")
        except AttributeError:
            return True
        return False

    def changed(self, **others: Any) -> ToolResult:
        """Return the result with other fields, but the same value, which is not read for it."""
        if not self._is_unread:
            return replace(self, **others)
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("value", "plain_json")}
        return ToolResult.of_known(cast("PlainJson", self.plain_json), **{**kept, **others})

    def detached(self) -> ToolResult:
        """Return the result with a value of its own, which is changed with no other."""
        known = self.known_json
        if known is None:
            return self
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("value", "plain_json")}
        own = PlainJson(known.short, known.encoded)
        return ToolResult.of_known(own, **kept)

    @property
    def is_error(self) -> bool:
        """True if the model gets an error instead of a value."""
        return self.status != "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision about a call, and its origin."""

    verdict: Verdict
    """The verdict: run the call, ask, or refuse it."""
    reason: str = ""
    """A sentence that says why, for people and for the audit log."""
    by: str = "policy"
    """`policy`; `user` when a person or program answered; `mode`, `hook` or `limit` when one of these decided."""
    rule: str = ""
    """The rule that asks, if the verdict is `ask`: an "always" overrides this one and no other."""
    approver: str = ""
    """Principal of the service that answered, if `by` is `user` and several could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRule:
    """A session rule: calls like an approved one run without asking, until the session ends or it is revoked."""

    id: str
    """The id by which the rule is revoked."""
    tool: str
    """Name of the tool."""
    server: str | None = None
    """The MCP server of the tool, if it has one."""
    digest: str = ""
    """Hash of the tool's declaration when it was approved; a changed tool needs a new approval."""
    raised_by: str = ""
    """The rule that asked: the only one that this answer overrides."""
    paths: tuple[str, ...] = ()
    """Patterns that the files of a call must match, if the tool is a file tool."""
    exact: Mapping[str, Any] | None = None
    """The arguments that a call must have, if it is covered with these alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord(Generic[ResultT]):
    """One call of a run with its decision and outcome."""

    call: FunctionCall
    """The call as it was made, with the arguments that ran if they were edited."""
    state: CallState
    """State of the call; in a reply one of the final ones, or `awaiting`."""
    decision: Decision | None = None
    """The decision about the call; None before there is one."""
    result: ResultT = _NOTHING
    """Never None in the `calls` of a reply."""
    edited: bool = False
    """True if the arguments were edited at approval."""
    preview: str | None = None
    """The change that the call was about to make when it started, such as a diff, if a person approved it."""
    confirm: str = ""
    """The text that a yes must repeat as `Answered(confirm=...)`, if a rule wants the call confirmed."""

    @property
    def duration_s(self) -> float:
        """Seconds that the call ran; 0.0 when it did not run."""
        result = cast("ToolResult | None", self.result)
        return result.duration_s if result else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Checked arguments: what would run, the coercions, and the problems."""

    args: Mapping[str, Any]
    """The arguments with defaults and coercions applied."""
    problems: list[str] = field(default_factory=list[str])
    """Sentences that let a model correct itself; empty means valid."""
    coercions: list[str] = field(default_factory=list[str])
    """Lossless conversions that were made, such as `"5"` to `5`."""

    def __post_init__(self) -> None:
        # Comparisons with a list must work, whatever the check collected its sentences in.
        object.__setattr__(self, "problems", list(self.problems))
        object.__setattr__(self, "coercions", list(self.coercions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Something that could not be converted."""

    pointer: str
    """JSON pointer to the place in the source."""
    keyword: str
    """The keyword or field that was lost."""
    reason: str
    """The reason, as a sentence."""
    instead: str = ""
    """The replacement: a local check, text in the description, a wider form."""
    tool: str | None = None
    """The tool that it belongs to, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the model counted them."""

    input_tokens: int = 0
    """Tokens of the request, cached ones included."""
    cached_tokens: int = 0
    """Tokens of the input that the server had in its cache."""
    output_tokens: int = 0
    """Tokens of the answer, without thoughts."""
    thought_tokens: int = 0
    """Tokens of thoughts."""
    tool_tokens: int = 0
    """Tokens of the results of the provider's own tools, which are input too."""
    total_tokens: int = 0
    """All tokens, as the model added them up."""
    audio_tokens: int = 0
    """Tokens of the input that are audio."""
    cached_audio_tokens: int = 0
    """Tokens of the cached input that are audio."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            thought_tokens=self.thought_tokens + other.thought_tokens,
            tool_tokens=self.tool_tokens + other.tool_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            audio_tokens=self.audio_tokens + other.audio_tokens,
            cached_audio_tokens=self.cached_audio_tokens + other.cached_audio_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits of a run. A limit that is reached refuses; it never skips a check."""

    turns: int = 25
    """Requests to the model in one run. The last one has tools disabled, so that there is an answer."""
    calls: int = 200
    """Calls in one run; further ones get an error."""
    calls_per_turn: int = 128
    """Calls in one answer of the model; further ones get an error."""
    parallel: int = 10
    """Calls running at the same time."""
    call_timeout_s: float = 30.0
    """The deadline of one call, unless its tool sets another."""
    repeats: int = 5
    """The same call in this many consecutive turns is a loop; the last one is not run."""
    retries_malformed: int = 2
    """Maximum retries after a malformed or empty answer."""
    output_retries: int = 2
    """Maximum retries after an answer that does not fit the `output` of the run."""
    output_chars: int = 40_000
    """Characters of one tool result that the model sees; the middle of a longer one is omitted."""
    abandoned_threads: int = 32
    """Threads of timed-out sync tools that may still be running before further sync calls are refused."""
    json_depth: int = 100
    """Levels of nesting in arguments and results."""
    session_wait_s: float = 10.0
    """Seconds that a run waits for a session that another process owns."""
    connect_s: float = 10.0
    """Connect time-out."""
    first_byte_s: float = 60.0
    """Time-out for the first byte of a streamed answer."""
    idle_s: float = 60.0
    """Idle time-out of an answer."""
    total_s: float = 600.0
    """Total time-out of one answer of a model over HTTP; a model of your own keeps its own time."""
    background_s: float = 3600.0
    """The deadline of an answer that the server works out in the background."""
    attempts: int = 5
    """Attempts per request."""
    backoff_s: float = 1.0
    """The first back-off between two attempts; doubles with each one."""
    backoff_max_s: float = 60.0
    """The longest wait; a server that asks for more gets none, and the caller an error."""
    event_bytes: int = 16 * 1024 * 1024
    """The size of one event of a streamed answer."""
    body_bytes: int = 64 * 1024 * 1024
    """The size of one whole answer."""
    context_tokens: int | None = None
    """Length of the history in tokens; a longer one is shortened before the next request. None: unlimited."""
    run_tokens: int | None = None
    """Tokens of one run; it ends with `token_limit` before the next request. None: unlimited."""
    session_tokens: int | None = None
    """Tokens that all runs of a session together may use."""
    run_cost: float | None = None
    """Cost of one run by the gate's prices; it ends with `cost_limit`. None: unlimited."""
    session_cost: float | None = None
    """Cost of all runs of a session together."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            is_whole = not name.endswith(("_s", "_cost"))
            lowest = _LOWEST.get(name, 1 if is_whole else 0.001 if name.endswith("_s") else 0)
            kinds = (int,) if is_whole else (int, float)
            most = 1e9 if name.endswith("_s") else float("inf")  # Timers take no more: about 30 years.
            if isinstance(value, bool) or not isinstance(value, kinds) or not lowest <= value < most:
                expected = "a whole number" if is_whole else "a number of seconds" if name.endswith("_s") else "a number"
                raise UsageError(f"Limits({name}={value!r}): expected {expected} of at least {lowest}")


_LOWEST: dict[str, float] = {
    "retries_malformed": 0,
    "output_retries": 0,
    "abandoned_threads": 0,
    "output_chars": 200,
    "context_tokens": 100,
}
_OPTIONAL = frozenset({"context_tokens", "run_tokens", "session_tokens", "run_cost", "session_cost"})


# The price of a service tier, as a part of the usual one; of what Google names for priority (1.75 to 2) the most.
_TIERS = {"flex": 0.5, "priority": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a million tokens of a model, in any currency."""

    input: float
    """Price of a million tokens of input."""
    output: float
    """Price of a million tokens of output, thoughts included."""
    cached: float | None = None
    """Of input that the server had in its cache; None: as much as other input."""
    above: tuple[int, Price] | None = None
    """A number of input tokens, and the price of a request with more of them."""
    audio: float | None = None
    """Of input that is sound; None: as much as other input."""
    cached_audio: float | None = None
    """Of sound that the server had in its cache; None: as much as other sound."""

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "audio", "cached_audio"):
            value = getattr(self, name)
            if name not in ("input", "output") and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise UsageError(f"Price({name}={value!r}): expected a number of at least 0")
        given: Any = self.above
        match given:
            case None | (int(), Price()):
                pass
            case above:
                raise UsageError(f"Price(above={above!r:.200}): expected a number of tokens and a Price")

    def of(self, usage: Usage, tier: str = "") -> float:
        """Return the cost of the usage of one request, in a service tier."""
        factor = _TIERS.get(tier.lower().removeprefix("service_tier_"), 1.0)
        if self.above is not None and usage.input_tokens > self.above[0]:
            return self.above[1].of(usage, tier)
        kept = min(usage.cached_tokens, usage.input_tokens)  # More than all of it would make money.
        fresh = usage.input_tokens - kept + usage.tool_tokens
        made = usage.output_tokens + usage.thought_tokens
        if not (usage.input_tokens or usage.tool_tokens or made):
            fresh = usage.total_tokens  # The server does not say of what: it is at least input.
        cached = kept * (self.input if self.cached is None else self.cached)
        return (fresh * self.input + cached + made * self.output + self._surcharge(usage)) * factor / 1_000_000

    def _surcharge(self, usage: Usage) -> float:
        """Return how much more the sound in the input costs than other input."""
        if self.audio is None or not usage.audio_tokens:
            return 0.0
        sound = min(usage.audio_tokens, usage.input_tokens)
        kept = min(usage.cached_audio_tokens, sound, usage.cached_tokens)
        as_usual = self.input if self.cached is None else self.cached
        as_sound = self.audio if self.cached_audio is None else self.cached_audio
        return (sound - kept) * (self.audio - self.input) + kept * (as_sound - as_usual)


class ModelSettings(TypedDict, total=False):
    """The settings of requests to a model; each model names those that it does not know."""

    temperature: float
    """Randomness of sampling; 0 is the least."""
    top_p: float
    """Sample from the most probable tokens that together have this probability."""
    top_k: int
    """Sample from this number of the most probable tokens."""
    max_output_tokens: int
    """The most tokens of one answer."""
    stop_sequences: Sequence[str]
    """Texts at which the answer ends."""
    seed: int
    """A seed for sampling, for repeatable answers as far as the model has them."""
    presence_penalty: float
    """Penalty on tokens that have occurred."""
    frequency_penalty: float
    """Penalty on tokens by how often they have occurred."""
    candidate_count: int
    """Number of candidates; callgate uses the first one."""
    thinking: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | int | bool
    """A level, a number of tokens, or True to see the thoughts."""
    include_thoughts: bool
    """True for summaries of the thoughts, as `ThoughtDelta` events."""
    safety: Mapping[str, str]
    """Category -> threshold: `{"HARASSMENT": "BLOCK_NONE"}`."""
    response_mime_type: str
    """The type of the answer, such as `application/json`; `output=` sets it by itself."""
    response_json_schema: Mapping[str, Any]
    """A JSON Schema of the answer; `output=` sets it by itself."""
    response_modalities: Sequence[str]
    """Kinds of output, such as `["TEXT", "IMAGE"]`."""
    response_logprobs: bool
    """True for log probabilities of the tokens, in `Reply.metadata`."""
    logprobs: int
    """Number of further candidates for each token among these."""
    media_resolution: str
    """Resolution at which media are read, such as `MEDIA_RESOLUTION_LOW`."""
    speech_config: Mapping[str, Any]
    """The voice of spoken output, in the provider's form."""
    cached_content: str
    """Name of a cached content, `cachedContents/...`, that the requests begin with."""
    service_tier: str
    """The tier of service, in the words of the provider."""
    labels: Mapping[str, str]
    """Labels for billing reports."""
    store: bool
    """True if the server keeps the conversation, so that only what is new is sent."""
    background: bool
    """True if the server works on an answer by itself, and is asked for it by its id."""
    agent_config: Mapping[str, Any]
    """The configuration of an agent of the Interactions API."""
    environment: str | Mapping[str, Any]
    """The environment of an agent of the Interactions API."""
    webhook_config: Mapping[str, Any]
    """The webhook for a background run of the Interactions API."""
    schema_field: Literal["parameters", "parametersJsonSchema"]
    """The field that carries the schemas of tools to Gemini."""
    stream_arguments: bool
    """True if arguments of calls arrive in pieces (Vertex), as `CallArgsDelta` events."""
    parallel_tool_calls: bool
    """False for at most one call in an answer."""
    logit_bias: Mapping[str, float]
    """Token id -> bias of its probability."""
    user: str
    """An id of the end user, for the provider."""
    min_p: float
    """Leave out tokens less probable than this share of the most probable one (local servers)."""
    repetition_penalty: float
    """Penalty on repeated tokens, as vLLM calls it."""
    repeat_penalty: float
    """Penalty on repeated tokens, as llama.cpp and Ollama call it."""
    headers: Mapping[str, str]
    """Sent with every request to the model."""
    extra_body: Mapping[str, Any]
    """Merged into the body of every request: for what has no setting."""


class History(Protocol):
    """A snapshot of a conversation, such as `Conversation(...).history`."""

    @property
    def contents(self) -> list[Content]:
        """The contents, the same list every time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Generic[OutputT]):
    """The result of a run; `Reply[Weather]` is that of a run with `output=Weather`."""

    text: str
    """The model's answer, thoughts left out."""
    calls: list[CallRecord[ToolResult]]
    """Every call of this run in the order in which the model made them, each with its result. The result of one that waits
    for an approval has the status `awaiting`."""
    usage: Usage
    """Tokens of all requests of this run."""
    finish_reason: FinishReason
    """Reason why the run ended; `STOP` if the model gave its final answer."""
    history: History = field(repr=False)
    """The conversation at the end of the run as it is encoded; `contents` decodes it."""
    session: str
    """The id of the conversation, by which a gate with a store continues it."""
    turns: int = 0
    """Answers of the model that this run used."""
    limited: bool = False
    """True if the last answer was given with tools disabled because `Limits.turns` was reached."""
    approvals: list[CallRecord] = field(default_factory=list[CallRecord])
    """Calls that wait for an answer, when `finish_reason` is `approval_needed`."""
    model: str = ""
    """The model that gave the last answer."""
    cost: float | None = None
    """The cost of the run by the gate's prices; None if they are unknown."""
    context_tokens: int = 0
    """About how many tokens the whole conversation has now: what the next request sends of it."""
    output: OutputT = _NOTHING
    """The answer as a value of the type that `run(..., output=...)` named. None where none was named, and where a run that
    is not `ok` (cancelled, paused for an approval) has none yet."""
    thoughts: str = field(default="", repr=False)
    """The thoughts of this run as far as the model showed them (`include_thoughts`), an empty line between two answers."""
    metadata: tuple[AnswerMetadata, ...] = ()
    """The metadata of the answers of this run (sources, ratings, ...), one item for each answer that has any."""
    citations: list[Citation] = field(default_factory=list[Citation])
    """The passages of `text` that have sources. Those of earlier answers of the run are in `metadata`."""
    media: list[Media] = field(default_factory=list[Media])
    """Images, sounds and files that the model made in this run."""
    server_steps: list[ServerStep] = field(default_factory=list[ServerStep])
    """Steps that ran at the provider, such as executed code and its output."""

    @property
    def contents(self) -> list[Content]:
        """The whole conversation so far in Gemini's form, valid to be sent again. Decoded once; treat it as read-only."""
        return self.history.contents

    @property
    def sources(self) -> list[Source]:
        """The sources of the answers, each once."""
        return list(dict.fromkeys(source for found in self.metadata for source in found.sources))

    @property
    def search_suggestions(self) -> list[str]:
        """Search suggestions as HTML, which Google's terms require to be shown with the answer."""
        return list(dict.fromkeys(html for found in self.metadata for html in found.search_suggestions))

    @property
    def search_links(self) -> list[SearchLink]:
        """The same suggestions as links, without HTML."""
        return list(dict.fromkeys(link for found in self.metadata for link in found.search_links))

    @property
    def ok(self) -> bool:
        """True if the model completed its answer. A limit, a safety stop or an unknown reason is not ok."""
        return self.finish_reason == "STOP"


class Progress(Protocol):
    """Receiver of progress reports of a running call."""

    def __call__(self, message: str, fraction: float | None = None) -> None:
        """Report progress: a short text, and the fraction done (0 to 1) if known."""


CallTool: TypeAlias = "Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]"
"""Call a tool by its name; the outcome is in the result."""


async def no_tools(name: str, args: Mapping[str, Any]) -> ToolResult:
    sentence = f"Not run: {name!r} was called by a tool that no gate runs, so there are no tools to call."
    return ToolResult(call_id="", name=name, status="failed", error=sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(Generic[DepsT]):
    """The context of a tool's own call. A parameter annotated with this type is filled in, and hidden from the model.

    `ToolContext[Database]` says that the tool needs `deps` of this type: `gate.run(..., deps=database)`.
    """

    call_id: str
    """The id of the call, as in events and in the reply."""
    name: str
    """The tool's own name."""
    session: str | None = None
    """The id of the conversation; None outside of one."""
    deps: DepsT = field(default=_NOTHING, repr=False)
    """The object that the program passed to this run; None where it passed none, and in worker processes."""
    timeout_s: float | None = None
    """Seconds that the call was given when it started."""
    progress: Progress = field(default=lambda message, fraction=None: None, repr=False)
    """Report progress to observers of the run: `context.progress("half way", 0.5)`. Thread-safe."""
    is_cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)
    """True if the call was cancelled or timed out. A long sync tool should check it periodically and return."""
    paused: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, repr=False)
    """`with context.paused():` pauses the deadline of the call while a user is asked. Thread-safe."""
    paused_s: Callable[[], float] = field(default=lambda: 0.0, repr=False)
    """For how many seconds the deadline has been paused so far."""
    hides: Callable[[str, str], bool] | None = field(default=None, repr=False)
    """(file, named path) -> true if the policy keeps the file out of a list or search that only named a path above it."""
    decided: Mapping[str, Any] | None = field(default=None, repr=False)
    """The arguments with the paths of the files that the decision was about: file tools open these and follow no link."""
    call_tool: CallTool = field(default=no_tools, repr=False)
    """Call another tool of the gate, under the same permission (see `callgate.host`)."""


__all__ = [
    "FINAL_STATES",
    "CallRecord",
    "CallState",
    "CallTool",
    "Checked",
    "Content",
    "Decision",
    "FinishReason",
    "FunctionCall",
    "History",
    "Json",
    "JsonObject",
    "Limits",
    "Loss",
    "Media",
    "ModelSettings",
    "Part",
    "PlainJson",
    "Price",
    "Progress",
    "Reply",
    "ResultStatus",
    "SessionRule",
    "ToolChoice",
    "ToolContext",
    "ToolDefinition",
    "ToolKind",
    "ToolResult",
    "Usage",
    "Verdict",
]  # fmt: skip
