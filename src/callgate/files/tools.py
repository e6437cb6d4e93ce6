"""`FileTools`: list, read, write, edit and search in a root that nothing gets out of.

Arguments of calls come in, plain values and notes go out. Each tool is one method; how paths are opened, text is read and
files are written is in the files beside this one. Whether a call may run was decided before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal

from callgate.errors import CallgateError, ToolError, UsageError
from callgate.files.backups import Backups, Change, default_state_dir
from callgate.files.beneath import BackEnd, let_go
from callgate.files.bounds import Bounds
from callgate.files.contents import Contents
from callgate.files.definitions import DEFINITIONS
from callgate.files.globs import glob_of
from callgate.files.paths import Names, shown
from callgate.files.reader import LineRequest, ReadText, read_text
from callgate.files.root import Root
from callgate.files.search import Query, Search, expression
from callgate.files.tree import Found, Walk
from callgate.files.undo import difference, restore, took_effect
from callgate.files.writer import Writer, WriteResult
from callgate.permission.policy import Policy
from callgate.schema import check_arguments
from callgate.threads import THREADS, error_sentence
from callgate.types import Limits, ToolContext, ToolDefinition, ToolResult

__all__ = ["FileTools"]

logger = logging.getLogger("callgate.files")


class FileTools:
    """Tools for the files below one folder; a gate takes it as it is.

    ```python
    files = FileTools(".")
    gate = Gate("gemini-3.8-flash", tools=[files])
    files.call_sync("read_file", {"path": "README.md"}).value
    ```

    `symlinks=True` follows links that stay inside the root, `hard_links=True` reads files that have other names, and
    `ignore=False` lists what ignore files leave out. `state_dir` is where backups go; None is the user's own state folder.
    The folder is opened here and kept open, whatever is moved or put in its place later.

    Raises:
        UsageError: the root is no folder, or this system cannot keep the promise.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = ".",
        *,
        state_dir: str | os.PathLike[str] | None = None,
        ignore: bool = True,
        symlinks: bool = False,
        hard_links: bool = False,
        bounds: Bounds | None = None,
        backend: BackEnd = "auto",
    ) -> None:
        self._bounds = bounds or Bounds()
        self._ignore, self._symlinks, self._hard_links = ignore, symlinks, hard_links
        self._root = Root(root, links=symlinks, hard_links=hard_links, back_end=backend)
        self._backups = Backups(os.path.abspath(os.fspath(state_dir or default_state_dir())), self._bounds)
        self._root.keep_out_of(self._backups.state_dir)
        self._contents = Contents(self._root, self._bounds)
        self._writer = Writer(self._root, self._backups, self._bounds)
        self._tools: dict[str, _FileTool] = {
            name: _FileTool(dataclasses.replace(definition, roots=self._root.paths), self, preview=self._previews.get(name))
            for name, definition in DEFINITIONS.items()
        }

    @property
    def root(self) -> str:
        """The path by which the root was opened."""
        return self._root.path

    @property
    def follows_links(self) -> bool:
        """True if links inside the root are followed."""
        return self._symlinks

    def __repr__(self) -> str:
        return f"FileTools({self.root!r})"

    def close(self) -> None:
        """Let go of the root; no call works after that."""
        self._root.close()

    def __enter__(self) -> FileTools:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Calling -------------------------------------------------------------------------------------------------------------

    def runnables(self) -> Sequence[_FileTool]:
        """The tools, as an executor takes them."""
        return list(self._tools.values())

    def call_sync(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        """A call of the program itself: arguments are validated, no approval is requested, a failure is an error result."""
        started_s = time.monotonic()
        context = ToolContext(call_id="", name=name)
        problem, checked = self._checked(name, args)
        if problem:
            return ToolResult(call_id="", name=name, status="failed", error=problem)
        result = self._result(name, checked, context, page_chars=None)
        return _timed(result, started_s)

    async def call(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        """`call_sync` for code on an event loop: the work is done in a thread."""
        work = functools.partial(self.call_sync, name, args)
        result = await THREADS.run(work, abandoned_max=Limits().abandoned_threads)
        assert isinstance(result, ToolResult)
        return result

    def _checked(self, name: str, args: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        if name not in DEFINITIONS:
            return f"There is no tool {name!r} here; there are {', '.join(DEFINITIONS)}.", {}
        if not isinstance(args, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - programs make mistakes, too
            return f"The arguments of {name!r} must be an object with names and values.", {}
        checked = check_arguments(DEFINITIONS[name], args)
        if checked.problems:
            listed = "; ".join(problem.rstrip(".") for problem in checked.problems)
            return f"The arguments of {name!r} are not valid: {listed}. Correct them and call again.", {}
        return "", checked.args

    def _result(self, name: str, args: Mapping[str, Any], context: ToolContext, *, page_chars: int | None) -> ToolResult:
        """Run one tool here and now. Whatever goes wrong becomes a sentence."""
        try:
            value, notes = self._deeds[name](self, args, context, page_chars)
        except (ToolError, OSError) as error:
            return _failed(name, context, _error_text(error))
        except (CallgateError, ValueError, MemoryError, RecursionError) as error:
            logger.exception("tool %r failed", name)
            return _failed(name, context, error_sentence(error))
        return ToolResult(call_id=context.call_id, name=name, status="finished", value=value, notes=tuple(notes))

    async def run(self, name: str, args: Mapping[str, Any], context: ToolContext) -> object:
        """A call that a model made and that was allowed; its answer is cut to what a model is shown."""
        args = args if context.decided is None else context.decided
        work = functools.partial(self._result, name, args, context, page_chars=self._bounds.page_chars)
        return await THREADS.run(work, abandoned_max=Limits().abandoned_threads)

    # The tools -----------------------------------------------------------------------------------------------------------

    def _list_files(
        self, args: Mapping[str, Any], context: ToolContext, page_chars: int | None
    ) -> tuple[list[str], list[str]]:
        names = self._names(args.get("path") or ".", context)
        pattern = args.get("pattern") or ""
        walk = self._walk(context, pattern, after=args.get("after") or "")
        paths, chars = list[str](), 0
        cut: str | None = None
        with self._folder(names) as folder:
            for found in walk.files(names.names, folder):
                if context.hides is not None and self._is_hidden(context.hides, found.path, names):
                    walk.hide("left out")
                    continue
                chars += len(found.path) + 4
                if len(paths) >= self._bounds.entries or (page_chars is not None and chars > page_chars):
                    cut = found.path
                    break
                paths.append(found.path)
        notes = walk.notes
        if cut is not None:
            last = shown(paths[-1]) if paths else "''"
            notes.insert(
                0, f"Cut after {len(paths)} paths; there are more. Go on with after={last}, or give a narrower pattern."
            )
        elif not paths and pattern.startswith(f"{names.text}/"):
            notes.append(f"The pattern is looked for below {shown(names.text)}: leave that folder out of it.")
        return paths, notes

    def _read_file(self, args: Mapping[str, Any], context: ToolContext, page_chars: int | None) -> tuple[str, Sequence[str]]:
        names = self._names(args["path"], context)
        wanted = LineRequest(start=args.get("start_line"), end=args.get("end_line"), chars_max=page_chars)
        read = self._read(names, wanted, self._bounds, context)
        return read.text, read.notes

    def _read_files(
        self, args: Mapping[str, Any], context: ToolContext, page_chars: int | None
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Each file gets its share of what may be given, and of what those before it left over."""
        paths = list(dict.fromkeys(args["paths"]))
        parts = list[dict[str, Any]]()
        chars, size = page_chars, self._bounds.read_bytes
        for left, path in zip(range(len(paths), 0, -1), paths, strict=True):
            if context.is_cancelled():
                raise ToolError("The call was given up while it read the files.")
            bounds = dataclasses.replace(self._bounds, read_bytes=max(size // left, 1))
            wanted = LineRequest(start=None, end=None, chars_max=None if chars is None else max(chars // left, 1))
            try:
                read = self._read(self._names(path, context), wanted, bounds, context)
            except (ToolError, OSError) as error:
                parts.append({"path": path, "error": _error_text(error)})
                continue
            size -= len(read.text.encode(errors="replace"))
            chars = None if chars is None else chars - len(read.text)
            parts.append({"path": path, "text": read.text} | ({"notes": [*read.notes]} if read.notes else {}))
        if all("error" in part for part in parts):
            raise ToolError(" ".join(part["error"] for part in parts))
        failed = sum("error" in part for part in parts)
        return parts, [f"{failed} of {len(parts)} files could not be read."] if failed else []

    def _read(self, names: Names, wanted: LineRequest, bounds: Bounds, context: ToolContext) -> ReadText:
        descriptor, _ = self._root.open_file(names)
        try:
            return read_text(names.text, descriptor, wanted, bounds, context.is_cancelled)
        finally:
            let_go(descriptor)

    def _write_file(self, args: Mapping[str, Any], context: ToolContext, page_chars: int | None) -> tuple[str, list[str]]:
        names = self._names(args["path"], context)
        notes: list[str] = []
        written = self._writer.write(names, functools.partial(self._contents.written, names, args, notes), context)
        return _confirmation(names, written, append=args.get("mode") == "append"), [
            *notes,
            *written.notes,
            _undo_note(written),
        ]

    def _edit_file(self, args: Mapping[str, Any], context: ToolContext, page_chars: int | None) -> tuple[str, list[str]]:
        names = self._names(args["path"], context)
        counts: list[int] = []
        written = self._writer.write(
            names, functools.partial(self._contents.edited, names, args, counts), context, fresh_ok=False
        )
        places = "1 place" if counts[0] == 1 else f"{counts[0]} places"
        return f"Changed {places} in {shown(names.text)}.", [*written.notes, _undo_note(written)]

    def _search_files(
        self, args: Mapping[str, Any], context: ToolContext, page_chars: int | None
    ) -> tuple[list[dict[str, Any]], list[str]]:
        names = self._names(args.get("path") or ".", context)
        tested = expression(
            args["pattern"], ignore_case=args.get("ignore_case", False), chars_max=self._bounds.pattern_chars
        )
        walk = self._walk(context, args.get("include") or "")
        hides = context.hides or _default_hides()
        query = Query(
            expression=tested,
            context=args.get("context", 0),
            is_hidden=lambda path: self._is_hidden(hides, path, names),
            hard_links=self._hard_links,
        )
        search = Search(query, walk, self._bounds, chars_max=page_chars)
        with self._searched(names, walk) as files:
            search.run(files)
        return search.matches, [*search.notes, *walk.notes]

    _deeds: Mapping[str, Callable[..., tuple[Any, Sequence[str]]]] = {
        "list_files": _list_files,
        "read_file": _read_file,
        "read_files": _read_files,
        "write_file": _write_file,
        "edit_file": _edit_file,
        "search_files": _search_files,
    }

    def real_args(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the paths that their links lead to now, so that rules are about the files themselves."""
        named = {key: args[key] for key in ("path", "paths") if key in args}
        return {
            **args,
            **{key: [*map(self._real, value)] if key == "paths" else self._real(value) for key, value in named.items()},
        }

    def _real(self, path: str) -> str:
        try:
            names = self._root.names(path)
        except ToolError:
            return path  # It leads nowhere; the call will say why.
        return names.text + "/" * (names.folder and bool(names.names))

    # What they share -----------------------------------------------------------------------------------------------------

    def _names(self, path: str, context: ToolContext) -> Names:
        return self._root.names(path, follow=context.decided is None)

    def _walk(self, context: ToolContext, pattern: str, *, after: str = "") -> Walk:
        return Walk(
            self._root,
            self._bounds,
            glob=glob_of(pattern, chars_max=self._bounds.pattern_chars) if pattern else None,
            ignore=self._ignore,
            links=self._symlinks,
            after=after,
            is_cancelled=context.is_cancelled,
        )

    def _is_hidden(self, hides: Callable[[str, str], bool], path: str, named: Names) -> bool:
        """True if the policy keeps a file out of sight, by its name or by that of the file that it leads to."""
        known = {path, self._real(path)} if self._symlinks else {path}
        return any(hides(each, named.text) for each in known)

    @contextlib.contextmanager
    def _folder(self, names: Names) -> Generator[int]:
        folder = self._root.open_folder(names)
        try:
            yield folder
        finally:
            let_go(folder)

    @contextlib.contextmanager
    def _searched(self, names: Names, walk: Walk) -> Generator[Iterator[Found]]:
        """The files to search: those of a folder, or the one file that was named."""
        try:
            descriptor, _ = self._root.open_file(names)
        except ToolError:
            with self._folder(names) as folder:
                yield walk.files(names.names, folder)
            return
        let_go(descriptor)
        with self._folder(Names(names.names[:-1])) as folder:
            yield iter([Found(names.text, names.names[-1], folder)])

    # Before and after a write --------------------------------------------------------------------------------------------

    def _preview_write(self, args: Mapping[str, Any]) -> str | None:
        names = self._root.names(args["path"])
        return self._contents.preview(names, functools.partial(self._contents.written, names, args, []))

    def _preview_edit(self, args: Mapping[str, Any]) -> str | None:
        names = self._root.names(args["path"])
        return self._contents.preview(names, functools.partial(self._contents.edited, names, args, []))

    _previews: Mapping[str, Callable[..., str | None]] = {"write_file": _preview_write, "edit_file": _preview_edit}

    def changes(self, *, session: str | None = None, call_id: str | None = None) -> list[Change]:
        """The writes below this root that can be undone, the newest first; only those of a session or call, if named."""
        return [
            change
            for change in self._backups.changes()
            if change.root == self.root
            and (session is None or change.session == session)
            and (call_id is None or change.call_id == call_id)
        ]

    def diff(self, id: str) -> str:
        """Preview undoing a change as a unified diff against the current file."""
        return difference(self._root, self._backups, self._own_change(id))

    def undo(self, id: str | None = None, *, force: bool = False) -> Change:
        """Put back what was there before a write, or before the newest one; returns the record of that, to be undone again.

        Raises:
            UsageError: there is no such write, or the file was changed since (then `force` puts it back all the same).
        """
        if id is None:
            newest = next(filter(self.took_effect, self.changes()), None)
            if newest is None:
                raise UsageError(f"nothing was written below {self.root!r}, so there is nothing to undo")
            id = newest.id
        return restore(self._writer, self._own_change(id), force=force)

    def took_effect(self, change: Change) -> bool:
        """Return False for a change that was recorded by a process which was killed before it made it."""
        return took_effect(self._root, change)

    def _own_change(self, id: str) -> Change:
        change = self._backups.change(id)
        if change.root != self.root:
            raise UsageError(f"change {change.id} was made below {change.root!r}, not below {self.root!r}")
        return change


class _FileTool:
    """One of the tools, as an executor runs it."""

    def __init__(self, definition: ToolDefinition, files: FileTools, preview: Callable[..., str | None] | None) -> None:
        self.definition = definition
        self._files = files
        self._preview = preview
        if files.follows_links:
            self.running_values = files.real_args

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Check nothing beyond the schema: whether a path can be used is known when it is opened."""
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Run the tool in a thread."""
        return await self._files.run(self.definition.name, args, context)

    async def preview(self, args: Mapping[str, Any]) -> str | None:
        """Preview the call as a unified diff, or as the sentence why it must fail; None if the tool changes nothing."""
        if self._preview is None:
            return None
        try:
            diff = await THREADS.run(
                functools.partial(self._preview, self._files, args), abandoned_max=Limits().abandoned_threads
            )
        except (ToolError, OSError, UsageError) as error:
            return f"As the files are now, this call would fail: {_error_text(error)}"
        assert diff is None or isinstance(diff, str)
        return diff


# Internals ---------------------------------------------------------------------------------------------------------------


@functools.cache
def _default_hides() -> Callable[[str, str], bool]:
    """The test for a program's own calls, which no policy decides about."""
    return Policy().hides(DEFINITIONS["search_files"])


def _confirmation(names: Names, written: WriteResult, *, append: bool) -> str:
    change = written.change
    if not change.existed:
        return f"Created {shown(names.text)} with {change.after_size} bytes."
    if append:
        return (
            f"Appended {change.after_size - change.size} bytes to {shown(names.text)}; it has {change.after_size} bytes now."
        )
    return f"Wrote {change.after_size} bytes to {shown(names.text)}; it had {change.size} bytes before."


def _undo_note(written: WriteResult) -> str:
    return f"Can be undone: change {written.change.id}."


def _error_text(error: ToolError | OSError | UsageError) -> str:
    """The sentence of an error that a call can meet."""
    if isinstance(error, OSError):
        return f"It could not be done: {error.strerror or type(error).__name__}."
    return str(error)


def _failed(name: str, context: ToolContext, error: str) -> ToolResult:
    status: Literal["failed"] = "failed"
    return ToolResult(call_id=context.call_id, name=name, status=status, error=error.encode(errors="replace").decode())


def _timed(result: ToolResult, started_s: float) -> ToolResult:
    return dataclasses.replace(result, duration_s=time.monotonic() - started_s)
