"""Load the tools named by `-T`: functions of modules and of files.

Takes `module:fn`, `module`, `path/file.py` and `path/file.py:fn`, returns objects that a gate accepts. Importing runs the
code of those files; nothing else is run here, and every failure is one sentence.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from callgate.definitions import FunctionTool, ToolOptions, function_tool
from callgate.definitions.frameworks import framework_of
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.foreign import adapt_tool
from callgate.tools.executor import Runnable, Toolset
from callgate.types import Limits

if TYPE_CHECKING:
    from callgate.mcp import Host

__all__ = ["ToolLoadError", "file_tools", "load_tools", "mcp_tools", "split_offers"]

_MARK = "__callgate_tool__"  # The attribute that @tool sets on a function.
_FILE = re.compile(r"(?P<place>.+\.py)(?::(?P<name>[\w.]+))?")
_MODULE = re.compile(r"(?P<place>[^\W\d]\w*(?:\.[^\W\d]\w*)*)(?::(?P<name>[\w.]+))?")


class ToolLoadError(UsageError):
    """A tool could not be loaded; the message says which and why."""


def load_tools(words: Iterable[str], workers: str | None = None) -> list[object]:
    """Load the named tools, in order, each once; with `workers` they run in worker processes there.

    Raises:
        ToolLoadError: a file or module cannot be imported, or what is named in it is no tool.
    """
    if workers is not None:
        return [_pool_of(words, workers)]
    tools: dict[int, object] = {}
    for word in words:
        tools |= {id(found): found for found in _tools_of(word)}
    return list(tools.values())


def _pool_of(words: Iterable[str], workers: str) -> object:
    """A pool whose workers import the modules. Names of functions are refused: a worker offers all tools of its modules."""
    from callgate.workers import WorkerPool

    modules: list[str] = []
    for word in words:
        named = _FILE.fullmatch(word) or _MODULE.fullmatch(word)
        if named is None or named["name"] is not None:
            raise ToolLoadError(f"-T {word!r} with --workers: name a module or a file.py, whose tools are all offered")
        place = named["place"]
        if place.endswith(".py") and not Path(place).expanduser().is_file():
            raise ToolLoadError(f"there is no file {place!r}")
        modules.append(str(Path(place).expanduser().resolve()) if place.endswith(".py") else place)
    _add_to_path(Path.cwd())
    return WorkerPool(modules, cluster="none" if workers == "local" else workers)


def split_offers(tools: Iterable[object]) -> tuple[list[object], list[object]]:
    """The tools for a model, and the functions that are resources and prompts for MCP clients."""
    from callgate.mcp.offers import offer_of

    listed = [*tools]
    offers = [item for item in listed if offer_of(item) is not None]
    return [item for item in listed if offer_of(item) is None], offers


def file_tools(root: str | None, words: Sequence[str]) -> list[object]:
    """The file tools in `root`; without one, in the current folder, unless other tools were named.

    Raises:
        UsageError: the folder that was named cannot be worked in.
    """
    if root is None and words:
        return []
    from callgate.files import FileTools

    try:
        return [FileTools(root or ".")]
    except UsageError:
        if root is not None:
            raise
        return []  # They were not requested, and are not available on this system or in this folder.


def mcp_tools(
    files: Sequence[str],
    say: Callable[[str], None],
    host: Callable[[], Host] | None = None,
    table: Mapping[str, Any] | None = None,
) -> list[object]:
    """Load the servers of files with `mcpServers` and of the settings; invalid entries are reported and skipped.

    `host` answers requests of servers to the user; without it there are none.

    Raises:
        UsageError: a file cannot be read.
    """
    if not files and not table:
        return []
    from callgate.mcp import read_servers
    from callgate.mcp.file import servers_of

    asked = host() if host is not None else None
    read = [*(read_servers(file, host=asked) for file in files), servers_of(table or {}, host=asked)]
    for sentence in (sentence for one in read for sentence in one.warnings):
        say(sentence)
    return [server for one in read for server in one.servers]


def _tools_of(word: str) -> Iterator[object]:
    if named := _FILE.fullmatch(word):
        module = _module_of_file(named["place"])
    elif named := _MODULE.fullmatch(word):
        module = _module(named["place"])
    else:
        raise ToolLoadError(f"-T {word!r} names no tool; write module, module:function, file.py or file.py:function")
    place, name = named["place"], named["name"]
    found = _marked(module) if name is None else [_attribute(module, place, name)]
    if not found:
        raise ToolLoadError(f"{place!r} has no tools: mark a function with @tool, or name one with -T {place}:function")
    for item in found:
        _require_declarable(item, place)
        yield item


def _marked(module: ModuleType) -> list[object]:
    # Tools of other frameworks count as marked, as with @tool.
    return [
        value
        for value in vars(module).values()
        if isinstance(getattr(value, _MARK, None), ToolOptions) or framework_of(value) not in (None, "google_genai")
    ]


def _attribute(module: ModuleType, place: str, name: str) -> object:
    found: Any = module
    for step in name.split("."):
        if not hasattr(found, step):
            functions = [key for key, value in vars(module).items() if _is_own_function(value, module)]
            known = f"it has {', '.join(functions[:20])}" if functions else "it has no functions"
            raise ToolLoadError(f"{place!r} has no {name!r}; {known}")
        found = getattr(found, step)
    return found


def _is_own_function(value: Any, module: ModuleType) -> bool:
    return callable(value) and not isinstance(value, type) and getattr(value, "__module__", "") == module.__name__


def _require_declarable(item: Any, place: str) -> None:
    if isinstance(item, (FunctionTool, Runnable, Toolset)):
        return
    if not callable(item) and framework_of(item) is None:
        raise ToolLoadError(f"{place!r}: {repr(item)[:80]} is not callable, so it is not a tool")
    try:
        if adapt_tool(item, Limits()) is None:
            function_tool(item)
    except ToolNotDeclarableError as error:
        raise ToolLoadError(f"{place!r}: {error}") from error


# Importing ---------------------------------------------------------------------------------------------------------------


def _module(name: str) -> ModuleType:
    _add_to_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ToolLoadError(f"there is no module {error.name!r} here or among the installed packages") from None
        raise _import_error(name, error, None) from error
    except (Exception, SystemExit) as error:
        raise _import_error(name, error, None) from error


def _module_of_file(place: str) -> ModuleType:
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise ToolLoadError(f"there is no file {place!r}")
    name = f"callgate_tools_{re.sub(r'[^0-9A-Za-z_]', '_', str(path))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Modules next to the file must be importable, and its own types must find their module.
    _add_to_path(path.parent)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, (Exception, SystemExit)):
            raise _import_error(place, error, str(path)) from error
        raise
    return module


def _add_to_path(folder: Path) -> None:
    # At the end: a file next to the tools must not shadow a module that the program imports later.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _import_error(place: str, error: BaseException, file: str | None) -> ToolLoadError:
    text = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, SyntaxError):
        where, text = _where(error.filename, error.lineno, file), error.msg
    else:
        where = _innermost(error, file)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return ToolLoadError(f"{place!r} cannot be imported: {where}{what}. Fix it there; --debug shows the traceback")


def _innermost(error: BaseException, file: str | None) -> str:
    """The last line of the file itself that was being run, or of whatever was being imported."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    frames = [frame for frame in frames if frame.filename == file] or frames
    return _where(frames[-1].filename, frames[-1].lineno, file) if frames else ""


def _where(filename: str | None, line: int | None, file: str | None) -> str:
    if line is None:
        return ""
    return f"line {line}: " if filename in (file, None) else f"{Path(str(filename)).name} line {line}: "
