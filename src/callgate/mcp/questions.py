"""A question about a call -> an elicitation in the form of the client's protocol version, and its answer.

Older clients are asked while their request waits. Newer ones get the question as the result, and make the call again with
the answer and a mark that stands for the question. A mark is good once, for the very call and tool that it was given
for, and for the client that it was given to.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Literal

from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from callgate.calls.dispatcher import DeferredCall
from callgate.calls.environment import Ask, Question
from callgate.permission.approval import Answered, Approval

__all__ = ["KEY", "Questions", "can_be_asked", "identity_of", "is_modern"]

MARKS_MAX = 10_000
ARGS_CHARS_MAX = 4_000
PREVIEW_CHARS_MAX = 8_000
KEY = "permission"

Context = ServerRequestContext[Any, Any]


def can_be_asked(ctx: Context) -> bool:
    """True if the client can put a form before its user."""
    capabilities = ctx.session.client_capabilities
    can = None if capabilities is None else capabilities.elicitation
    if can is None or (can.form is None and can.url is not None):  # Nothing in it means forms: so it was at first.
        return False
    return is_modern(ctx) or ctx.session.can_send_request


def is_modern(ctx: Context) -> bool:
    """True if the client is sent no requests, and is asked by results."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


class Questions:
    """Questions to clients, with the pending ones of newer clients."""

    mark_prefix = ""
    """The beginning of all marks, by which an answer finds the process that has put its question."""

    def __init__(self, spelled: Callable[[str], str] | None = None) -> None:
        self._spelled = spelled or _ascii
        self.client_name: Callable[[Context], str] = _unnamed
        """The name of the client of a request, for the audit log; empty: the user of the program."""
        self._marks: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """Mark -> the client that it was given to, and the call that it was given for."""

    def asker(self, ctx: Context, params: CallToolRequestParams, *, lasts: bool) -> Ask:
        """Ask the client of this request; `lasts`: whether it will be recognised, so that "always" has a meaning."""

        async def ask(question: Question) -> Approval:
            who = self.client_name(ctx)
            answers = ("yes", "always", "no") if lasts else ("yes", "no")
            form = ElicitRequestFormParams(message=self._text(question), requested_schema=_form(answers, question.confirm))
            if not is_modern(ctx):
                result = await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id)
                return _answered(result, answers, who)
            given = (params.input_responses or {}).get(KEY)
            if given is not None and self._redeemed(params.request_state, who, question):
                return _answered(given, answers, who)
            raise DeferredCall(
                InputRequiredResult(
                    input_requests={KEY: ElicitRequest(params=form)}, request_state=self._marked(who, _identity(question))
                )
            )

        return ask

    def _marked(self, who: str, identity: str) -> str:
        mark = f"{self.mark_prefix}{secrets.token_urlsafe(24)}"
        self._marks[mark] = (who, identity)
        while len(self._marks) > MARKS_MAX:
            self._marks.popitem(last=False)
        return mark

    def _redeemed(self, mark: str | None, who: str, question: Question) -> bool:
        if mark is None or self._marks.get(mark, ("", ""))[0] != who:
            return False  # The mark of another client stays good for that one.
        return self._marks.pop(mark, None) == (who, _identity(question))

    def _text(self, question: Question) -> str:
        call = question.call
        where = f" (of {question.definition.server})" if question.definition.server else ""
        args = _shortened(json.dumps(dict(call.args), ensure_ascii=False, default=str), ARGS_CHARS_MAX)
        lines = [f"May {call.name}{where} be called with {args}?", question.reason]
        if question.preview:
            lines.append(_shortened(question.preview, PREVIEW_CHARS_MAX))
        return "\n\n".join(map(self._spelled, lines))


def _unnamed(ctx: Context) -> str:
    return ""


def _form(answers: tuple[str, ...], confirm: str) -> dict[str, Any]:
    meaning = "yes: this once; always: this and calls like it, for as long as this connection lasts; no: not at all"
    answer = {
        "type": "string",
        "title": "Answer",
        "description": meaning if "always" in answers else "yes: this once; no: not at all",
        "enum": list(answers),
    }
    fields: dict[str, Any] = {"answer": answer}
    if confirm:
        fields["confirm"] = {
            "type": "string",
            "title": "To confirm",
            "description": "For a yes: the text that the question asks to type.",
        }
    return {"type": "object", "properties": fields, "required": ["answer"]}


def _answered(result: object, answers: tuple[str, ...], who: str) -> Answered:
    """An answer with what was typed to confirm it."""
    content = (result.content or {}) if isinstance(result, ElicitResult) else {}
    typed = content.get("confirm")
    return Answered(answer=_answer(result, answers), by=who, confirm=typed if isinstance(typed, str) else "")


def _answer(result: object, answers: tuple[str, ...]) -> Literal["yes", "no", "always"]:
    """The decision in an answer; everything but a clear yes is a no."""
    if isinstance(result, ElicitResult) and result.action == "accept":
        answer = (result.content or {}).get("answer")
        if answer in answers:
            return answer  # pyright: ignore[reportReturnType] - it is one of three words
    return "no"


def _identity(question: Question) -> str:
    return identity_of(question.call.name, question.call.args, question.digest)


def identity_of(name: str, args: Mapping[str, Any], digest: str = "") -> str:
    """Return a digest that two calls have in common if tool and arguments are the same."""
    what: Mapping[str, Any] = {"tool": digest, "name": name, "args": dict(args)}
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()


def _shortened(text: str, chars_max: int) -> str:
    left_out = len(text) - chars_max
    return text if left_out <= 0 else f"{text[:chars_max]} [... {left_out} more characters]"


def _ascii(text: str) -> str:
    """The text with characters escaped that could hide or reverse it."""
    return "".join(c if " " <= c <= "~" or c == "\n" else f"\\u{ord(c):04x}" for c in text)
