"""Elicitation and login of MCP servers at the terminal.

Takes a server's question, returns an answer. The server's text has a prefix, so that none of it passes for a question of
callgate's; nothing is sent that the user has not seen in full and clearly confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import webbrowser
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from callgate.cli.escaping import ascii_json, one_line, wrapped

if TYPE_CHECKING:
    from callgate.cli.approve import Approver
    from callgate.mcp import Answer, Host, Question
    from callgate.mcp.forms import Field

__all__ = ["ServerAsker", "show_login"]

MARK = "  | "
TRIES_MAX = 3
MESSAGE_LINES_MAX = 40
MODEL_LINES_MAX = 400

Say = Callable[[str], None]


class ServerAsker:
    """Questions on the terminal; anything but a clear answer declines."""

    def __init__(self, say: Say, approver: Approver, environ: Mapping[str, str] = os.environ) -> None:
        self._say = say
        self._approver = approver
        self._environ = environ

    def host(self) -> Host:
        """The host functions of MCP servers where there is a terminal: elicitation and login."""
        from callgate.mcp import Host

        return Host(elicit=self.elicit, login=self.login)

    async def login(self, server: str, url: str) -> None:
        """Show the page, and open it in a browser if there is one."""
        await show_login(self._say, server, url, self._environ)

    async def elicit(self, question: Question) -> Answer:
        """Ask one question on behalf of a server."""
        async with self._approver.asking():
            wants = "wants your model to answer this" if question.wants_model else "asks you"
            self._say(f"? The MCP server {ascii_json(question.server)} {wants}:")
            room = max(40, shutil.get_terminal_size().columns) - len(MARK) - 1
            lines = [piece for line in question.message.splitlines() for piece in wrapped(line, room)]
            most = MODEL_LINES_MAX if question.wants_model else MESSAGE_LINES_MAX
            for line in lines[:most]:
                self._say(MARK + line)
            if len(lines) > most:
                self._say(f"  {len(lines) - most} more lines are not shown.")
            if question.wants_model:
                return await self._loan()
            return await (self._page(question.url) if question.url is not None else self._form(question))

    async def _loan(self) -> Answer:
        from callgate.mcp import Answer

        return Answer("accept" if await self._yes("Lend it the model for this? [y]es, [n]o") else "decline")

    async def _page(self, url: str) -> Answer:
        from callgate.mcp import Answer

        self._say(f"  It wants you to visit a page of {ascii_json(urlsplit(url).hostname)}:")
        self._say(f"{MARK}{ascii_json(url)[1:-1]}")
        if not await self._yes("Visit it? [y]es, [n]o"):
            return Answer("decline")
        if not await _opened(url, self._environ):
            self._say("  Open it in a browser.")
        return Answer("accept" if await self._yes("Are you done there? [y]es, [n]o") else "cancel")

    async def _form(self, question: Question) -> Answer:
        from callgate.mcp import Answer
        from callgate.mcp.forms import fields_of

        if not await self._yes("Answer it? Never give a password or a key here. [y]es, [n]o"):
            return Answer("decline")
        content: dict[str, Any] = {}
        for field in fields_of(question.schema or {}):
            if not await self._field(field, content):
                self._say("  No answer is sent.")
                return Answer("cancel")
        self._say(f"  {ascii_json(content)}")
        return Answer("accept", content) if await self._yes("Send this? [y]es, [n]o") else Answer("cancel")

    async def _field(self, field: Field, content: dict[str, Any]) -> bool:
        """Ask for one field; return False to give up."""
        from callgate.mcp.forms import value_of

        if field.description:
            self._say(MARK + one_line(field.description, 500))
        for number, (_, title) in enumerate(field.options, 1):
            self._say(f"{MARK}{number}. {one_line(title, 200)}")
        hint = {"boolean": " [y]es, [n]o", "choices": " (numbers, with commas)", "choice": " (a number)"}.get(field.kind, "")
        default = None if field.default is None else ascii_json(field.default)
        enter = default or ("ask again" if field.required else "leave it out")
        for _ in range(TRIES_MAX):
            typed = (await self._approver.ask_line(f"{one_line(field.title or field.name, 200)}{hint}:", enter)).strip()
            if not typed and field.default is not None:
                content[field.name] = field.default
                return True
            if not typed and not field.required:
                return True
            if typed:
                value, problem = value_of(field, typed)
                if problem is None:
                    content[field.name] = value
                    return True
                self._say(f"  {one_line(problem, 300)}")
        return False

    async def _yes(self, question: str) -> bool:
        return (await self._approver.ask_line(question, "no")).strip().lower() in ("y", "yes")


async def show_login(say: Say, server: str, url: str, environ: Mapping[str, str] = os.environ) -> None:
    """Print the login URL, and open it in a browser if there is one."""
    say(f"The MCP server {ascii_json(server)} wants you to log in, at a page of {ascii_json(urlsplit(url).hostname)}:")
    say(ascii_json(url)[1:-1])
    await _opened(url, environ)


async def _opened(url: str, environ: Mapping[str, str]) -> bool:
    """Open a page; return False if that is impossible. Text browsers would take over this terminal, so they are not used."""
    has_screen = sys.platform in ("darwin", "win32") or environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    if not (has_screen or environ.get("BROWSER")):
        return False
    with contextlib.suppress(webbrowser.Error, OSError):
        browser = webbrowser.get()
        if environ.get("BROWSER") or type(browser) is not webbrowser.GenericBrowser:
            return await asyncio.to_thread(browser.open, url)
    return False
