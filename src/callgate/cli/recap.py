"""The lines that a person sees when a conversation is resumed, and when it is left.

Takes the journal of a session, shows a few lines. `callgate sessions show` prints all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.cli.render import Terminal, one_line
from callgate.content.read import is_nonempty_text, parts_of, text_of
from callgate.errors import CallgateError
from callgate.sessions import Exchange, exchanges_of, state_from_facts
from callgate.types import Usage

if TYPE_CHECKING:
    from callgate.cli.chat_session import ChatSession
    from callgate.cli.state import StoredSession

__all__ = ["own_words", "show_recap", "show_totals"]

SAID_CHARS_MAX = 300
ANSWER_CHARS_MAX = 600


def own_words(exchange: Exchange) -> str:
    """The words of an exchange, without the texts of the files that were attached to them."""
    return " ".join(next((part["text"] for part in parts_of(exchange.content) if is_nonempty_text(part)), "").split())


def show_recap(chat: ChatSession, terminal: Terminal, stored: StoredSession) -> None:
    """Show the last exchange of a session that is resumed; its calls can be looked at with `/call`."""
    facts = chat.run(stored.store.load(chat.session))
    known = exchanges_of(facts)
    if not known:
        return
    last = known[-1]
    reply = state_from_facts(chat.session, facts).reply
    many = f"{len(known)} exchange{'' if len(known) == 1 else 's'}"
    terminal.line(f"Resumed: {one_line(own_words(known[0]), 80)} ({many})", color="quiet")
    terminal.separate("recap")
    terminal.line(f"> {one_line(own_words(last), SAID_CHARS_MAX)}", color="quiet")
    terminal.calls += [(each.call, each.result) for each in reply.calls if each.result.status != "awaiting"]
    if terminal.calls:
        count = len(terminal.calls)
        terminal.line(f"  {count} call{'' if count == 1 else 's'}; /call shows the last one", color="quiet")
    said = last.failure.partial if last.failure else _last_answer(reply.contents)
    if said.strip():
        terminal.separate("recap of the answer")
        terminal.line(one_line(said, ANSWER_CHARS_MAX), color="quiet")
    for metadata in reply.metadata:
        terminal.sources(metadata)
    terminal.media += reply.media
    if last.failure:
        terminal.line(
            f"! It failed: {one_line(last.failure.message, SAID_CHARS_MAX)} /retry sends it again.", color="notice"
        )


def show_totals(chat: ChatSession, terminal: Terminal, stored: StoredSession) -> None:
    """Show what the conversation has used, and how to resume it."""
    try:
        known = exchanges_of(chat.run(stored.store.load(chat.session)))
    except CallgateError:
        known = []
    tokens = sum((exchange.usage for exchange in known), Usage()).total_tokens
    costs = [exchange.cost for exchange in known if exchange.cost is not None]
    words = [f"{len(known)} exchange{'' if len(known) == 1 else 's'}"]
    words += [f"{tokens:,} tokens"] if tokens else []
    words += [f"cost {sum(costs):.4f}"] if costs else []
    if known:
        terminal.line(", ".join(words), color="quiet")
    terminal.line(f"To resume: callgate chat -r {chat.session}")


def _last_answer(contents: list[dict[str, object]]) -> str:
    last = contents[-1] if contents else {}
    return text_of(last) if last.get("role") == "model" else ""
