"""Hints for common errors: what happened, where, and what to do about it.

Takes errors, returns sentences. The error itself says what happened and where; the remedy for a user of the command is
defined here and nowhere else.
"""

from __future__ import annotations

import logging
import os
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from callgate import errors
from callgate.events import Notice

if TYPE_CHECKING:
    from callgate.cli.render import Terminal

__all__ = ["ErrorHintHandler", "for_command_line", "place_of", "port_in_use", "with_hint"]

KEY_PAGE = "https://aistudio.google.com/apikey"
_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_ADDRESSES = (
    "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "HTTPS_PROXY",
    "https_proxy",
)  # fmt: skip


def with_hint(error: errors.CallgateError, env: Mapping[str, str] = os.environ) -> str:
    """Return the error's message, followed by what a user of the command can do."""
    advice = next((advise(error, env) for kind, advise in _ADVICE.items() if isinstance(error, kind)), "")
    sentence = str(error)
    return f"{sentence}{'' if sentence.endswith('.') else '.'} {advice}" if advice else sentence


def _about_key(error: errors.CallgateError, env: Mapping[str, str]) -> str:
    used = [name for name in _KEYS if env.get(name)]
    where = f"The key comes from {' or '.join(used)}: look at it" if used else "Set GEMINI_API_KEY"
    return f"{where}, or make a new one at {KEY_PAGE} (for other servers, where they hand out theirs)."


def _about_request(error: errors.CallgateError, env: Mapping[str, str]) -> str:
    if isinstance(error, errors.InvalidRequestError) and error.status == "NOT_FOUND":
        return "Name a model that the server has, as in -m gemini-flash-latest."
    return ""


def _about_network(error: errors.CallgateError, env: Mapping[str, str]) -> str:
    used = [name for name in _ADDRESSES if env.get(name)]
    from callgate.wire.credentials import is_local

    # The one that the error is about, if it says so.
    used = [name for name in used if urlsplit(env[name]).netloc in str(error)] or used
    local = used[0] if len(used) == 1 and is_local(env[used[0]]) else None
    if local is not None and "refused" in str(error).lower():
        return f"Nothing listens at {local}={env[local]}: start the server there, or correct the variable."
    named = f", and {' and '.join(used)} in the environment" if used else ", and whether a proxy is needed (HTTPS_PROXY)"
    return f"Check the network{named}; --provider embedded answers without one."


def _about_store(error: errors.CallgateError, env: Mapping[str, str]) -> str:
    return "Keep sessions elsewhere with --store PATH, or keep nothing with --ephemeral."


_ADVICE: dict[type[errors.CallgateError], Callable[[errors.CallgateError, Mapping[str, str]], str]] = {
    errors.AuthError: _about_key,
    errors.InvalidRequestError: _about_request,
    errors.ConnectionLostError: _about_network,
    errors.StoreError: _about_store,
}
"""Kind of an error -> what can be done about it."""


def for_command_line(sentence: str) -> str:
    """Replace a remedy for programmers by one for users of the command."""
    if not sentence.startswith("no key for Gemini"):
        return sentence
    return (
        "no key for Gemini: set GOOGLE_API_KEY or GEMINI_API_KEY in the environment to one "
        f"(they are made at {KEY_PAGE}), or use --provider embedded, which needs none"
    )


def port_in_use(host: str, port: int) -> str:
    """The sentence for a service whose port is taken."""
    return (
        f"port {port} of {host} is in use by another program, so nothing was started there. "
        f"End that program, or choose another port: callgate serve --port {port + 1}"
    )


class ErrorHintHandler(logging.Handler):
    """Log handler that shows where a tool failed. The model sees only the message; `--debug` logs the traceback."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.ERROR)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        """Show the location in one line, if the record has an exception."""
        _, error, trace = record.exc_info or (None, None, None)
        if error is None or trace is None:
            return
        try:
            place = place_of(trace)
            self._terminal.show(
                Notice("tool_failed", f"{record.getMessage()} at {place}; --debug shows the whole traceback")
            )
        except Exception:
            self.handleError(record)


def place_of(trace: TracebackType) -> str:
    """Find the last executed line of the user's own code: not of a package, not of Python."""
    frames = traceback.extract_tb(trace)
    others = (os.path.dirname(os.path.dirname(__file__)), *sysconfig.get_paths().values())
    own = [frame for frame in frames if not frame.filename.startswith(others)]
    frame = (own or list(frames))[-1]
    path = os.path.relpath(frame.filename) if frame.filename.startswith(os.getcwd() + os.sep) else frame.filename
    return f"{path} line {frame.lineno}, in {frame.name}"
