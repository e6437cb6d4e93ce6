"""Commands of the user's around a call: one before it may block it or change its arguments, one after it may remark.

The call goes to the command as JSON on stdin; its exit code, stdout and stderr come back as a `HookOutcome`. A command gets
a bounded time, is read up to a bound, sees a filtered environment, and is ended together with everything that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

from callgate import strict_json, user_code
from callgate.base_errors import expect_list
from callgate.config.known_secrets import redact_known
from callgate.errors import JsonError, UsageError
from callgate.permission.rules import KINDS
from callgate.permission.subject import Subject
from callgate.threads import error_sentence
from callgate.types import FunctionCall, JsonObject, ToolDefinition, ToolKind, ToolResult

__all__ = ["Hook", "HookOutcome", "hook_from", "run_after", "run_before"]

logger = logging.getLogger("callgate.hooks")

BLOCK = 2
"""The exit code that blocks a call."""
KEPT_ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT",
    "COMSPEC", "PATHEXT", "PYTHONUTF8",
)  # fmt: skip
"""Environment variables that a command gets; keys of models and clouds are not among them."""
# Any variable may begin with LC_; only those that hold a locale are taken for one.
_LOCALE = re.compile(r"(?:C|POSIX|[a-z]{2,3}(?:_[A-Z]{2})?)(?:\.[A-Za-z0-9-]{1,12})?(?:@[a-z]{1,12})?")
MESSAGE_CHARS_MAX = 4_000
REWRITES_MAX = 3
"""Maximum number of times that hooks may change the arguments of one call, with an approver's changes in between."""
PIPES_S = 1.0
"""Seconds to wait for the output of a command that has ended, if another process still has it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A command that is run before or after the calls of some tools."""

    command: tuple[str, ...]
    """The program and its arguments; a text is taken apart as a shell would, but no shell runs it."""
    when: Literal["before", "after"] = "before"
    """Before the call, where it can refuse it, or after it."""
    tool: str = "*"
    """A glob for the tool's own name; `@server/tool` and `@builtin` as in rules."""
    server: str | None = None
    """A glob for the name of the server that the tool lives on."""
    kind: ToolKind | None = None
    """The origin of the tools that it is for; None: any."""
    timeout_s: float = 30.0
    """Seconds until it is killed."""
    output_bytes: int = 64 * 1024
    """Maximum output that is kept; the rest is read and dropped."""
    may_rewrite: bool = False
    """True if `{"args": {...}}` on its stdout changes the arguments. They are checked and decided about again."""
    on_failure: Literal["warn", "deny"] = "warn"
    """The fate of the call when the command fails: a crash, a time-out, an exit code other than 0 and 2."""
    environment: tuple[str, ...] = ()
    """Names of variables that it may see besides the usual ones."""

    def __post_init__(self) -> None:
        command: Any = self.command
        words: list[Any] = shlex.split(command) if isinstance(command, str) else []
        if isinstance(command, Sequence) and not words:
            words = [*cast("Sequence[Any]", command)]
        if not words or not all(isinstance(word, str) and word for word in words):
            raise UsageError(f"a hook has the command {command!r:.80}: use a list of words, the program first")
        object.__setattr__(self, "command", tuple(words))
        expect_list(self.environment, "a hook has environment={}", "a list of names of variables")
        object.__setattr__(self, "environment", tuple(self.environment))
        if self.when not in ("before", "after"):
            raise UsageError(f"a hook runs {self.when!r}: use 'before' or 'after'")
        if self.on_failure not in ("warn", "deny"):
            raise UsageError(f"a hook has on_failure={self.on_failure!r}: use 'warn' or 'deny'")
        if self.kind is not None and self.kind not in KINDS:
            raise UsageError(f"a hook is for the kind {self.kind!r}: use {', '.join(map(repr, KINDS))}")
        if not 0 < _number(self.timeout_s, "timeout_s") < float("inf") or not (
            1 <= _number(self.output_bytes, "output_bytes") < float("inf")
        ):
            raise UsageError("a hook needs a timeout_s above 0 and output_bytes of at least 1")
        subject = Subject.read(self.tool, self.server, what="a hook")
        object.__setattr__(self, "tool", subject.tool)
        object.__setattr__(self, "server", subject.server)

    def is_for(self, definition: ToolDefinition) -> bool:
        """True if it is run around the calls of this tool."""
        if self.kind is not None and self.kind != definition.kind:
            return False
        return Subject(self.tool, self.server).fits(definition, wide=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOutcome:
    """The combined outcome of all hooks around a call."""

    blocked: str | None = None
    """Reason why the call may not run, as a sentence for the model."""
    args: Mapping[str, Any] | None = None
    """The arguments that it shall run with instead."""
    notes: tuple[str, ...] = ()
    """Additional notes for the model."""
    warnings: tuple[str, ...] = ()
    """Warnings for people."""


def hook_from(given: object) -> Hook:
    """A hook from a table.

    Raises:
        UsageError: it cannot be read; the sentence says why.
    """
    if isinstance(given, Hook):
        return given
    if not isinstance(given, Mapping):
        raise UsageError(f"{given!r:.80} is no hook: use a table")
    table = cast("Mapping[str, Any]", given)
    known = [f.name for f in dataclasses.fields(Hook)]
    if unknown := [key for key in table if key not in known]:
        raise UsageError(f"a hook has no field {', '.join(map(repr, unknown))}: known are {', '.join(known)}")
    if "command" not in table:
        raise UsageError("a hook has no command")
    return Hook(**table)


async def run_before(
    hooks: Iterable[Hook], definition: ToolDefinition, call: FunctionCall, *, session: str | None
) -> HookOutcome:
    """Run the commands before a call, one after another; the first that blocks ends it.

    A command that changes the arguments makes another call of it: commands that saw other arguments than those that would
    run are run once more with these, and may block them.
    """
    waiting = [hook for hook in hooks if hook.when == "before" and hook.is_for(definition)]
    args: Mapping[str, Any] = call.args
    seen: list[Mapping[str, Any]] = []
    warnings: list[str] = []
    for hook in waiting:
        outcome = await _run_before(hook, definition, call, args, session)
        warnings += outcome.warnings
        if outcome.blocked is not None:
            return HookOutcome(blocked=outcome.blocked, warnings=tuple(warnings))
        args = args if outcome.args is None else outcome.args
        seen.append(args)
    for hook in [hook for hook, shown in zip(waiting, seen, strict=True) if shown != args]:
        outcome = await _run_before(hook, definition, call, args, session)
        warnings += outcome.warnings
        if outcome.blocked is not None:
            return HookOutcome(blocked=outcome.blocked, warnings=tuple(warnings))
        if outcome.args is not None and outcome.args != args:
            warnings.append(f"The hook {hook.command[0]!r} would change the arguments again; it may only once.")
    changed = dict(args) if dict(args) != dict(call.args) else None
    return HookOutcome(args=changed, warnings=tuple(dict.fromkeys(warnings)))


async def _run_before(
    hook: Hook, definition: ToolDefinition, call: FunctionCall, args: Mapping[str, Any], session: str | None
) -> HookOutcome:
    """Run one command before a call."""
    ended = await _contained(hook, partial(_hook_input, hook, definition, call, args, session))
    if ended.code == BLOCK:
        return HookOutcome(blocked=ended.message or "A hook blocked it.")
    if ended.code == 0:
        try:
            rewritten = _rewritten(hook, ended.output)
        except JsonError as error:
            ended = dataclasses.replace(ended, code=None, message=f"its answer cannot be read ({error})")
        else:
            if rewritten is None or hook.may_rewrite:
                return HookOutcome(args=rewritten)
            ignored = f"The hook {hook.command[0]!r} may not change arguments; its change was ignored."
            return HookOutcome(warnings=(ignored,))
    sentence = f"The hook {hook.command[0]!r} failed: {ended.message or f'exit code {ended.code}'}."
    return HookOutcome(blocked=sentence) if hook.on_failure == "deny" else HookOutcome(warnings=(sentence,))


async def run_after(
    hooks: Iterable[Hook], definition: ToolDefinition, call: FunctionCall, result: ToolResult, *, session: str | None
) -> HookOutcome:
    """Run the commands after a call. What one that exits with 2 says on stderr becomes a note for the model."""
    notes: list[str] = []
    warnings: list[str] = []
    for hook in hooks:
        if hook.when != "after" or not hook.is_for(definition):
            continue
        ended = await _contained(hook, partial(_hook_input, hook, definition, call, call.args, session, result))
        if ended.code == BLOCK:
            notes.append(ended.message or "A hook objects to this call.")
        elif ended.code != 0:
            warnings.append(f"The hook {hook.command[0]!r} failed: {ended.message or f'exit code {ended.code}'}.")
    return HookOutcome(notes=tuple(notes), warnings=tuple(warnings))


# One command -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ended:
    """End of a command: without a code it was not started, or not waited for."""

    code: int | None
    output: bytes = b""
    message: str = ""


def _hook_input(
    hook: Hook,
    definition: ToolDefinition,
    call: FunctionCall,
    args: Mapping[str, Any],
    session: str | None,
    result: ToolResult | None = None,
) -> JsonObject:
    told: JsonObject = {
        "event": f"{hook.when}_tool", "session": session, "call_id": call.id, "tool": definition.own_name,
        "server": definition.server, "kind": definition.kind, "read_only": definition.read_only, "args": dict(args),
        "cwd": os.getcwd(),
    }  # fmt: skip
    if definition.alias_of is not None:
        told["alias"] = definition.name
    if result is not None:
        told["result"] = {
            "status": result.status, "value": result.value, "error": result.error, "duration_s": result.duration_s,
        }  # fmt: skip
    return told


async def _contained(hook: Hook, told: Callable[[], JsonObject]) -> _Ended:
    """Run a command; whatever keeps it from running (a working folder that is gone, a value that is no JSON) is its end."""
    outcome = await user_code.call_async(lambda: _run(hook, told()))
    if outcome.value is not None:
        return outcome.value
    logger.error("the hook %r failed", hook.command[0], exc_info=outcome.error)
    return _Ended(None, message=error_sentence(outcome.error) if outcome.error else "it did not run")


def _rewritten(hook: Hook, output: bytes) -> Mapping[str, Any] | None:
    """The arguments that a command wants instead. What is no answer is only a fault where one is expected."""
    try:
        answer: Any = strict_json.parse(output) if output.strip() else {}
        if output.strip() and "keys" in strict_json.lost_by_reading(output.decode("utf-8", "replace")):
            raise JsonError("a key stands twice in it")
        table = cast("JsonObject", answer) if isinstance(answer, dict) else {}
        if hook.may_rewrite and (unknown := [key for key in table if key != "args"]):
            raise JsonError(f"it has {unknown[0]!r:.80}, and only 'args' is known")
        args: Any = table.get("args")
        if args is not None and not isinstance(args, dict):
            raise JsonError("'args' is not an object")
    except JsonError:
        if hook.may_rewrite:
            raise
        return None
    return cast("JsonObject | None", args)


async def _run(hook: Hook, told: JsonObject) -> _Ended:
    environment = {name: os.environ[name] for name in (*KEPT_ENVIRONMENT, *hook.environment) if name in os.environ}
    environment |= {n: v for n, v in os.environ.items() if n.startswith("LC_") and _LOCALE.fullmatch(v)}
    try:
        process = await asyncio.create_subprocess_exec(
            *hook.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return _Ended(None, message=f"it cannot be started ({error.strerror if isinstance(error, OSError) else error})")
    try:
        async with asyncio.timeout(hook.timeout_s):
            return await _communicate(process, strict_json.dump(told), hook.output_bytes)
    except TimeoutError:
        return _Ended(None, message=f"it did not end within {hook.timeout_s:g} s")
    finally:
        _end_group(process)
        await asyncio.shield(_exited(process))  # One that was not waited for would stay behind as a zombie.
        _transport_of(process).close()


async def _communicate(process: asyncio.subprocess.Process, message: bytes, bytes_max: int) -> _Ended:
    assert process.stdout is not None
    assert process.stderr is not None
    said, complained = bytearray(), bytearray()
    reading = {
        asyncio.create_task(_read_head(stream, kept, bytes_max))
        for stream, kept in ((process.stdout, said), (process.stderr, complained))
    }
    writing = asyncio.create_task(_write(process, message))
    try:
        code = await _exited(process)
        _end_group(process)  # A child that holds the pipes open would keep their ends from being seen.
        await asyncio.wait(reading, timeout=PIPES_S)
    finally:
        for task in (*reading, writing):
            task.cancel()
        await asyncio.gather(*reading, writing, return_exceptions=True)
    text = " ".join(strict_json.without_surrogates(complained.decode("utf-8", "replace")).split())
    return _Ended(code, bytes(said), redact_known(text)[:MESSAGE_CHARS_MAX])


async def _exited(process: asyncio.subprocess.Process) -> int:
    """The exit code, as soon as there is one: `wait` would wait for everybody who holds the pipes, too."""
    pause_s = 0.001
    while process.returncode is None:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.02)
    return process.returncode


async def _write(process: asyncio.subprocess.Process, message: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # A command need not read what it is told.
        process.stdin.write(message + b"\n")
        await process.stdin.drain()
        process.stdin.close()


async def _read_head(stream: asyncio.StreamReader, kept: bytearray, bytes_max: int) -> None:
    """Keep the first bytes of a stream; the rest is read and dropped, so that the writer does not hang."""
    while piece := await stream.read(64 * 1024):
        kept += piece[: bytes_max - len(kept)]


def _end_group(process: asyncio.subprocess.Process) -> None:
    """Kill the command with everything that it started and that did not leave its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:  # pragma: no cover - Windows has no process groups of this kind
            process.kill()


def _transport_of(process: asyncio.subprocess.Process) -> asyncio.SubprocessTransport:
    return process._transport  # pyright: ignore - there is no public way to close the pipes


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"a hook has {name}={value!r}: use a number")
    return value
