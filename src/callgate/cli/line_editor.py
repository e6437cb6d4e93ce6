"""The line editor of the prompt: history, multiple lines, completion, large pastes.

prompt_toolkit is imported when the first prompt is shown, and draws on stderr; without it, or on a limited terminal,
Python's own `input` reads. Knows nothing of commands but their names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from callgate.cli.edit_text import done, is_able, rich_output
from callgate.cli.fuzzy_paths import fuzzy_paths

if TYPE_CHECKING:
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyPressEvent

    from callgate.cli.chat_session import ChatSession

__all__ = ["History", "LineReader", "Pastes", "PlainLine", "completions", "line_reader"]

PROMPT = "> "
PASTE_CHARS_MAX = 2_000
PASTE_LINES_MAX = 12
"""A longer paste is shown as one word and sent whole: a terminal cannot redraw a megabyte at each key."""
PASTES_KEPT = 20
"""Pastes that a recalled line may still refer to."""
HISTORY_MAX = 1_000
HISTORY_CHARS_MAX = 20_000
"""Longer texts are not remembered."""
PREPARE_AFTER_S = 0.2
FILES_MAX = 200
"""Maximum number of file names offered at a time."""

FUZZY_MAX = 12
"""Maximum number of file names offered that only have the typed letters in their order."""

Choices = Mapping[str, Callable[[], Iterable[str]]]
"""Name of a command -> its possible arguments."""


class LineReader(Protocol):
    """Editor of one input at the prompt."""

    ends_line: bool
    """True if the cursor is in a new line after Ctrl-C and Ctrl-D."""

    def read(self) -> str:
        """The next text.

        Raises:
            EOFError: Ctrl-D in an empty line.
            KeyboardInterrupt: Ctrl-C.
        """
        ...

    def forget_typed(self) -> None:
        """Drop keys that were read already, and belong to no text yet."""
        ...


class PlainLine:
    """Lines read with `input`, for limited terminals. A backslash at the end continues the line."""

    ends_line = False

    def __init__(self) -> None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 # pyright: ignore[reportUnusedImport] - gives input() its editing and its memory

    def read(self) -> str:
        """The next text."""
        line = input(PROMPT)
        while line.endswith("\\") and not line.endswith("\\\\"):
            line = line[:-1] + "\n" + input(". ")
        return line

    def forget_typed(self) -> None:
        """Do nothing: nothing is read ahead here."""


def line_reader(
    chat: ChatSession,
    history: History,
    choices: Choices,
    show_last: Callable[[], None],
    root: str,
    footer: Callable[[], str] = lambda: "",
    echo: Callable[[str], None] | None = None,
) -> LineReader:
    """The best reader that this terminal has."""
    if not is_able():
        return PlainLine()
    try:
        return RichLine(chat, history, choices, show_last, root, footer, echo)
    except ImportError:
        return PlainLine()


# History -----------------------------------------------------------------------------------------------------------------


class History:
    """Previous inputs, in a file of one JSON text per line that only its owner may read. Without a path, in memory."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.texts: list[str] = []
        """Oldest first."""
        self.problem: str | None = None
        """The reason why the file cannot be used."""
        if path is not None:
            self._load(path)

    def _load(self, path: str) -> None:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
        except FileNotFoundError:
            return
        except OSError as error:
            self.problem = f"the history {path} cannot be read: {error.strerror}"
            return
        for line in lines[-HISTORY_MAX:]:
            with contextlib.suppress(ValueError):  # Half a line of a process that was killed.
                text = json.loads(line)
                if isinstance(text, str):
                    self.texts.append(text)
        if len(lines) > 2 * HISTORY_MAX:
            self._write([*self.texts], os.O_TRUNC)

    def add(self, text: str) -> None:
        """Remember a text, unless it begins with a blank (as in a shell), is very long, or repeats the last one."""
        if not text.strip() or text[0] == " " or len(text) > HISTORY_CHARS_MAX or self.texts[-1:] == [text]:
            return
        self.texts.append(text)
        self._write([text], os.O_APPEND)

    def _write(self, texts: list[str], flag: int) -> None:
        if self.path is None or self.problem is not None:
            return
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | flag, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(b"".join(json.dumps(text).encode("ascii") + b"\n" for text in texts))
        except OSError as error:
            self.problem = f"the history {self.path} cannot be written: {error.strerror}"


class Pastes:
    """Large pastes, each by the placeholder that represents it in the line."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    def word_for(self, text: str) -> str:
        """Return what to put into the line for a paste: the text itself, or a placeholder."""
        lines = text.count("\n") + 1
        if len(text) <= PASTE_CHARS_MAX and lines <= PASTE_LINES_MAX:
            return text
        self._count += 1
        word = f"[paste {self._count}: {lines} lines, {len(text)} characters]"
        self._texts[word] = text
        while len(self._texts) > PASTES_KEPT:
            del self._texts[next(iter(self._texts))]
        return word

    def whole(self, line: str) -> str:
        """The line with every paste in its place."""
        for word, text in self._texts.items():
            line = line.replace(word, text)
        return line


# Completion --------------------------------------------------------------------------------------------------------------


def completions(before: str, choices: Choices, root: str) -> Iterator[tuple[str, int]]:
    """List completions of a text, each with the number of characters it replaces."""
    word = before.rpartition("\n")[2].rpartition(" ")[2]
    if before.startswith("/") and "\n" not in before:
        name, blank, rest = before.partition(" ")
        if not blank:
            yield from ((command, len(name)) for command in choices if command.startswith(name))
            return
        offered = choices.get(name, lambda: ())()
        yield from ((one, len(rest)) for one in offered if one.startswith(rest) and one != rest)
        return
    if word.startswith("@"):
        typed = word[1:].removeprefix('"')
        for path in _paths(typed, root):
            yield (f'@"{path}"' if " " in path and not path.endswith("/") else f"@{path}"), len(word)


def _paths(typed: str, root: str) -> Iterator[str]:
    """Files and folders whose path begins so (with a dot only if it was typed); if none does, those with these letters."""
    folder, _, begun = typed.rpartition("/")
    folder = f"{folder}/" if folder else ""
    if folder.startswith(("/", "~")) or ".." in folder.split("/"):
        return
    found: list[str] = []
    with contextlib.suppress(OSError), os.scandir(os.path.join(root, folder)) as entries:
        found = [
            f"{folder}{entry.name}{'/' if entry.is_dir(follow_symlinks=False) else ''}"
            for entry in entries
            if entry.name.startswith(begun) and (begun or not entry.name.startswith(".")) and entry.name.isprintable()
        ]
    yield from sorted(found)[:FILES_MAX] or fuzzy_paths(typed, root, FUZZY_MAX)


# prompt_toolkit ----------------------------------------------------------------------------------------------------------


class RichLine:
    """Lines read with prompt_toolkit on the event loop of the conversation, so that its servers stay responsive.

    Raises:
        ImportError: it is not installed.
    """

    ends_line = True

    def __init__(
        self,
        chat: ChatSession,
        history: History,
        choices: Choices,
        show_last: Callable[[], None],
        root: str,
        footer: Callable[[], str] = lambda: "",
        echo: Callable[[str], None] | None = None,
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.output import ColorDepth

        self._chat = chat
        self._history = history
        self._echo = echo
        """Print a text that was typed; the editor itself breaks lines inside of words."""
        self._choices, self._root = choices, root
        self._pastes = Pastes()
        depth = ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            history=InMemoryHistory(history.texts),
            completer=_completer(choices, root),
            # Room for a menu is kept only where there is something to offer.
            complete_while_typing=Condition(lambda: _offers(self._session.default_buffer.document.text_before_cursor)),
            key_bindings=self._keys(show_last),
            prompt_continuation=". ",
            enable_suspend=True,
            reserve_space_for_menu=4,
            output=rich_output(),
            color_depth=depth,
            bottom_toolbar=lambda: [("class:footer", footer())],
            style=_style(),
            erase_when_done=echo is not None,
        )

    def read(self) -> str:
        """The next text."""
        app = self._session.app

        def interrupt() -> None:
            if app.is_running and app.loop is not None:
                app.loop.call_soon_threadsafe(self._interrupted)

        self._chat.on_interrupt = interrupt
        try:
            # The conversation handles signals: prompt_toolkit would replace our handler by Python's own.
            line = self._chat.run(self._prompted())
        finally:
            self._chat.on_interrupt = None
        if self._echo is not None:
            self._echo(line)
        text = self._pastes.whole(line)
        self._history.add(text)
        return text

    def _interrupted(self) -> None:
        """Ctrl-C: empty a line that has text; in an empty one, leave."""
        app, buffer = self._session.app, self._session.default_buffer
        if not app.is_running:
            return
        if buffer.text:
            buffer.reset()
            app.invalidate()
            self._chat.forget_interrupts()
        else:
            app.exit(exception=KeyboardInterrupt())

    async def _prompted(self) -> str:
        # While the prompt is shown, prepare what the first exchange needs.
        asyncio.get_running_loop().call_later(PREPARE_AFTER_S, self._chat.prepare, self._session.app.invalidate)
        return await self._session.prompt_async(handle_sigint=False, set_exception_handler=False)

    def forget_typed(self) -> None:
        """Discard keys that arrived together with the last text."""
        from prompt_toolkit.input.typeahead import clear_typeahead

        clear_typeahead(self._session.app.input)

    def _keys(self, show_last: Callable[[], None]) -> Any:
        from prompt_toolkit.application import run_in_terminal
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.keys import Keys

        keys = KeyBindings()
        bound: list[tuple[tuple[Keys | str, ...], Callable[[KeyPressEvent], object]]] = [
            (("enter",), self._enter),
            (("tab",), self._tab),
            (("escape", "enter"), lambda event: event.current_buffer.newline(copy_margin=False)),
            ((Keys.BracketedPaste,), self._paste),
            (("c-c",), lambda event: self._interrupted()),
            (("c-o",), lambda event: run_in_terminal(show_last)),
        ]
        for sequence, action in bound:
            keys.add(*sequence)(partial(done, action))
        return keys

    def _enter(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # Takes the completion; the next Enter sends.
        elif buffer.document.char_before_cursor == "\\" and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    def _tab(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        offered = list(completions(buffer.document.text_before_cursor, self._choices, self._root))
        if len(offered) == 1:
            text, length = offered[0]
            buffer.complete_state = None
            buffer.delete_before_cursor(length)
            buffer.insert_text(text)
        elif buffer.complete_state is not None and buffer.complete_state.completions:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    def _paste(self, event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(self._pastes.word_for(text))


def _offers(before: str) -> bool:
    return before.startswith("/") or before.rpartition("\n")[2].rpartition(" ")[2].startswith("@")


def _style() -> Any:
    from prompt_toolkit.styles import Style

    return Style.from_dict({"bottom-toolbar": "noreverse", "footer": "ansibrightblack", "prompt": "bold"})


def _completer(choices: Choices, root: str) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class Offered(Completer):
        """Complete commands, their arguments, and files after an @."""

        def get_completions(self, document: Document, complete_event: Any) -> Iterator[Completion]:
            for text, length in completions(document.text_before_cursor, choices, root):
                yield Completion(text, start_position=-length)

    return Offered()
