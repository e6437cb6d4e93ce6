"""The shape of the package: imports point one way, the core does no I/O, the wire's words stay at the wire.

Each check reads `src/callgate` with `ast` and returns its breaches as sentences; each is also run on a tiny made-up tree
that breaks the rule, because a check that cannot fail holds nothing.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import callgate

SRC = Path(__file__).resolve().parent.parent / "src" / "callgate"

# --- the tables ----------------------------------------------------------------------------------------------------------

WORDS = ("lazy_names", "base_errors", "metadata", "types", "prices", "errors", "events", "strict_json", "config")
PURE = (
    "content", "history", "definitions", "schema", "declaration", "prompted", "request", "setting_values", "translation",
    "machine", "timeline",
)  # fmt: skip
EDGES = (
    "wire", "gemini", "interactions", "openai", "anthropic", "embedded", "models", "permission", "threads", "user_code",
    "tools", "calls", "media_files", "sync", "store", "sessions", "files",
    "mcp", "workers", "telemetry", "host", "foreign", "adapters",
)  # fmt: skip
# A unit (a module or folder of the package) may import from the layers before its own.
LAYERS = (WORDS, PURE, EDGES, ("run",), ("server",), ("cli",), ("__main__",))
TOP = ("server", "cli", "__main__")

# What everything rests on stays small enough to be read: modules that import few others, and are not long.
CORE = ("content", "history", "machine", "calls", "tools", "run", "store", "models", "sync", "user_code", "host", "threads")
IMPORTS_MAX = 12
HUBS = {"models.embedded": "the embedded model puts eight pure pieces of `embedded/` together, and little else"}
LINES_MAX = 500

# Words have an order of their own: each may import those before it.
WORD_ORDER = (
    ("lazy_names",),
    ("base_errors", "metadata"),
    ("types",),
    ("errors", "prices"),
    ("strict_json",),
    ("events", "config"),
)

# Test doubles are product code beside the layers; nothing but the top and the tests builds on them.
TESTING_MAY_IMPORT = (*WORDS, *PURE, "models")

# Edges do not know one another, but for these arrows, each with its reason.
ALLOWED = {
    ("models", "gemini"): "the Gemini model speaks through the native wire",
    ("models", "interactions"): "the model of the Interactions API speaks through its wire",
    ("interactions", "gemini"): "both APIs of Gemini are at the same place, with the same credentials and settings",
    (
        "interactions",
        "wire",
    ): "how requests are timed and tried again, and streams cut into JSON, is the same for all servers",
    ("models", "openai"): "the OpenAI model speaks through the wire of chat completions",
    ("models", "anthropic"): "the Anthropic model speaks through the wire of the Messages API",
    ("models", "wire"): "the model behind a client of Google's SDK has the same words for what went wrong",
    ("models", "user_code"): "a model may be the program's own",
    ("models", "embedded"): "the embedded model speaks through its own engine",
    ("gemini", "wire"): "how requests are timed and tried again, and streams cut into JSON, is the same for every server",
    ("openai", "wire"): "how requests are timed and tried again, and streams cut into JSON, is the same for every server",
    ("anthropic", "wire"): "how requests are timed and tried again, and streams cut into JSON, is the same for every server",
    ("wire", "telemetry"): "a request carries the context of the span that it belongs to",
    ("sessions", "store"): "what is done with whole sessions is done in their store",
    ("files", "tools"): "file tools are a toolset of the executor",
    ("files", "threads"): "file work is done off the event loop",
    ("tools", "threads"): "sync tools run in threads",
    ("permission", "user_code"): "approve and hooks are code of the user's",
    ("calls", "user_code"): "approve is code of the user's",
    ("tools", "user_code"): "tools and validators are code of the user's",
    ("threads", "user_code"): "what an error says is told by code of the user's",
    ("telemetry", "permission"): "the content of spans passes the redactor of the audit log",
    ("telemetry", "user_code"): "exporters are code of the user's",
    ("calls", "host"): "a tool runs for the person behind the run",
    ("calls", "telemetry"): "each call that starts has its span",
    ("permission", "threads"): "people are asked by sync functions in threads that do not hold up anything else",
    ("files", "permission"): "one list says which files hold secrets, for the question and for the search",
    ("mcp", "tools"): "MCP tools are toolsets of the executor",
    ("mcp", "permission"): "calls of MCP clients pass the same guard as those of a model",
    ("mcp", "calls"): "calls of MCP clients go through the one pipeline",
    ("mcp", "host"): "what a server wants to know is asked of the person behind the run that called it",
    ("calls", "permission"): "the pipeline asks the guard",
    ("calls", "tools"): "the pipeline runs tools",
    ("embedded", "tools"): "which tools fit a question is found in the same way as by find_tools",
    ("tools", "workers"): "functions that ask for a process run in the workers that the program shares",
    ("tools", "media_files"): "a result may have media of files",
    ("workers", "media_files"): "so may that of a tool in a worker",
    ("tools", "host"): "a tool that runs can call others, and finds the way by its context",
    ("tools", "foreign"): "tools of other frameworks are recognised where tools come in",
    ("workers", "host"): "so can a tool in a worker, whose way leads to another process",
    ("workers", "threads"): "what is said of a failed tool is the same in a thread and in a process",
    ("foreign", "threads"): "what is sync or fails in another framework's tool is treated as in a function",
    ("adapters", "foreign"): "one place for both directions",
    ("adapters", "tools"): "tools that go out to other frameworks are run by the executor",
    ("adapters", "permission"): "calls of other frameworks pass the same guard as those of a model",
    ("adapters", "calls"): "calls of other frameworks go through the one pipeline",
    ("adapters", "sync"): "sync frameworks need the one door into the event loop",
    ("adapters", "models"): "the model that speaks through google-genai's client is one of the models",
}

# Words and pure work touch no file, socket, clock, thread or dice: the same input gives the same output, always.
IMPURE = frozenset([
    "anyio", "asyncio", "concurrent", "http", "httpx", "httpx2", "multiprocessing", "os", "pathlib", "random", "requests",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading",
    "time", "uuid",
])  # fmt: skip
IMPURE_CALLS = frozenset({"open", "input", "print"})
# (unit, what it may use after all): why.
PURE_EXCEPTIONS = {
    ("config", "os"): "settings come from the environment",
    ("config", "pathlib"): "settings come from a file",
    ("schema", "threading"): "one lock around the cache of compiled validators, which several threads may share",
    ("content", "uuid"): "UUIDs among a tool's results are recognised; ids of calls are drawn unless a source is passed",
    ("content", "pathlib"): "paths among a tool's results are recognised and written as text, never opened",
}

# Names of the wire in camelCase, and the only places that may spell them.
# The service for Gemini's clients documents what they send, and the AI SDK has a word or two in common with Google.
WIRE_PLACES = (
    "content/", "gemini/", "testing/", "declaration.py", "server/compat/gemini.py",
    "server/compat/ui_stream.py",
)  # fmt: skip
# Gemini is also a format among others, in either spelling; what an answer says beside its content is no part of it.
FORMAT_PLACES = (*WIRE_PLACES, "definitions/gemini.py")
WIRE_WORDS = dict.fromkeys(
    ("finishReason", "usageMetadata", "groundingMetadata", "functionCallingConfig", "generationConfig"), WIRE_PLACES
) | (
    dict.fromkeys(
        (
            "functionCall",
            "functionResponse",
            "inlineData",
            "fileData",
            "thoughtSignature",
            "functionDeclarations",
            "systemInstruction",
        ),
        FORMAT_PLACES,
    )
)

# `import callgate` must stay light: these are loaded where they are used.
HEAVY = [
    "anyio", "click", "httpx", "httpx2", "jsonschema_rs", "mcp", "opentelemetry", "prompt_toolkit", "pydantic",
    "pydantic_core", "rich", "starlette", "uvicorn",
]  # fmt: skip


# --- reading a tree ------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def modules_of(root: Path) -> dict[str, ast.Module]:
    """Every module below `root`, by its dotted name; the package itself is ''."""
    modules: dict[str, ast.Module] = {}
    for path in sorted(root.rglob("*.py")):
        names = path.relative_to(root).with_suffix("").parts
        names = names[:-1] if names[-1] == "__init__" else names
        modules[".".join(names)] = ast.parse(path.read_text("utf-8"), str(path))
    return modules


def place_of(root: Path, name: str) -> str:
    """The file of a module, as a path inside the package."""
    inside = name.replace(".", "/")
    return f"{inside}/__init__.py" if (root / inside).is_dir() else f"{inside}.py"


def imports_of(root: Path, name: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Absolute dotted names that a module imports, with lines: in functions, under TYPE_CHECKING and by name too."""
    package = ["callgate", *filter(None, name.split("."))]
    if not (root / name.replace(".", "/")).is_dir():
        package.pop()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                yield f"{source}.{alias.name}", node.lineno
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value, node.lineno


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@functools.lru_cache(maxsize=2)
def arrows_of(root: Path) -> list[tuple[str, str, int]]:
    """(importing module, imported module of ours, line). A name that is no module leads to the module that holds it."""
    modules = modules_of(root)
    found: list[tuple[str, str, int]] = []
    for name, tree in modules.items():
        for target, line in imports_of(root, name, tree):
            if target == "callgate" or target.startswith("callgate."):
                inside = target.removeprefix("callgate").lstrip(".")
                while inside and inside not in modules:
                    inside = inside.rpartition(".")[0]
                # `__version__` is the one name of the front door that costs nothing and points nowhere.
                if target != "callgate.__version__":
                    found.append((name, inside, line))
    return found


def unit_of(module: str) -> str:
    return module.partition(".")[0]


# --- the checks ----------------------------------------------------------------------------------------------------------


def layer_breaches(root: Path) -> list[str]:
    """Imports that point the wrong way, and modules that have no layer."""
    rank = {unit: number for number, layer in enumerate(LAYERS) for unit in layer}
    found = [
        f"{place_of(root, name)} is in no layer; give {unit_of(name)!r} a place in the tables of this test"
        for name in modules_of(root)
        if unit_of(name) not in (*rank, "testing", "")
    ]
    for name, target, line in arrows_of(root):
        source, aim = unit_of(name), unit_of(target)
        if source == aim or source == "" or {source, aim} - {*rank, "testing", ""}:
            continue
        reason = _why_not(source, aim, rank)
        if reason:
            found.append(f"{place_of(root, name)}:{line} imports {target or 'callgate'!r}: {reason}")
    return found


def _why_not(source: str, aim: str, rank: Mapping[str, int]) -> str | None:
    """Why one unit may not import another one; None if it may."""
    if aim == "":
        return None if source in TOP else "the front door is for users; import from the module that holds the name"
    if source == "testing":
        return None if aim in TESTING_MAY_IMPORT else "test doubles may import words, pure work and models only"
    if aim == "testing":
        return None if source in TOP else "the library does not build on its test doubles"
    if source in WORDS and aim in WORDS:
        order = {word: number for number, group in enumerate(WORD_ORDER) for word in group}
        return None if order[aim] < order[source] else "words import only the words before them"
    if rank[aim] < rank[source] or (source, aim) in ALLOWED or (rank[aim] == rank[source] and source in PURE):
        return None
    if source in EDGES and aim in EDGES:
        return "an edge does not know another edge; let the runtime connect them, or give ALLOWED a row with a reason"
    return f"layer {rank[source] + 1} may not import from layer {rank[aim] + 1}"


def cycle_breaches(root: Path) -> list[str]:
    """Modules, or units, that import one another in a circle."""
    arrows = [(name, target) for name, target, _ in arrows_of(root) if name and target and name != target]
    found = []
    for what, pairs in (("modules", arrows), ("units", [(unit_of(name), unit_of(target)) for name, target in arrows])):
        graph: dict[str, set[str]] = {}
        for name, target in pairs:
            if name != target:
                graph.setdefault(name, set()).add(target)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = " <- ".join(error.args[1])
            found.append(f"{what} import one another in a circle: {circle}; move what they share to a layer below")
    return found


def purity_breaches(root: Path) -> list[str]:
    """I/O, clocks, threads and dice in words and pure work."""
    found = []
    for name, tree in modules_of(root).items():
        unit = unit_of(name)
        if unit not in (*WORDS, *PURE):
            continue
        uses = [(target.partition(".")[0], line) for target, line in imports_of(root, name, tree)]
        uses = [(used, line) for used, line in uses if used in IMPURE]
        uses += [
            (node.func.id, node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
        ]
        found += [
            f"{place_of(root, name)}:{line} uses {used!r}; this part does no I/O, so take the value as an argument"
            for used, line in uses
            if (unit, used) not in PURE_EXCEPTIONS
        ]
    return found


def wire_word_breaches(root: Path) -> list[str]:
    """Names of the wire that are spelled out away from the wire, as strings, keywords or attributes."""
    found = []
    for name, tree in modules_of(root).items():
        place = place_of(root, name)
        for node in ast.walk(tree):
            word = _spelled(node)
            if word in WIRE_WORDS and not place.startswith(WIRE_WORDS[word]):
                found.append(f"{place}:{getattr(node, 'lineno', 0)} spells {word!r}; use a view or builder of content/")
    return found


def _spelled(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(word)) | ast.keyword(arg=str(word)) | ast.Attribute(attr=word) | ast.Name(id=word):
            return word
        case _:
            return ""


def docstring_breaches(root: Path) -> list[str]:
    """Public modules without a docstring."""
    return [
        f"{place_of(root, name)} has no docstring; say what comes in, what goes out and what it refuses to know"
        for name, tree in modules_of(root).items()
        if name and not name.rpartition(".")[2].startswith("_") and ast.get_docstring(tree) is None
    ]


def hub_breaches(root: Path) -> list[str]:
    """Modules of the core that import more others of ours at run time than a reader can keep in mind."""
    wanted: dict[str, set[str]] = {}
    modules = modules_of(root)
    for name, target, line in arrows_of(root):
        if unit_of(name) in CORE and name != target and not _is_for_types(modules[name], line):
            wanted.setdefault(name, set()).add(target)
    return [
        f"{place_of(root, name)} imports {len(targets)} modules of ours; split it, at most {IMPORTS_MAX} can be followed"
        for name, targets in wanted.items()
        if len(targets) > IMPORTS_MAX and name not in HUBS
    ]


def _is_for_types(tree: ast.Module, line: int) -> bool:
    """Whether a line stands under `if TYPE_CHECKING`."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return any(block.lineno <= line <= (block.end_lineno or 0) for block in blocks)


def length_breaches(root: Path) -> list[str]:
    """Modules of the core that are too long to be read in one go."""
    found = []
    for name in filter(lambda name: unit_of(name) in CORE, modules_of(root)):
        place = root / place_of(root, name)
        lines = len(place.read_text("utf-8").splitlines())
        if lines > LINES_MAX:
            found.append(f"{place_of(root, name)} has {lines} lines; split it, {LINES_MAX} are the most")
    return found


CHECKS = (
    hub_breaches,
    length_breaches,
    layer_breaches,
    cycle_breaches,
    purity_breaches,
    wire_word_breaches,
    docstring_breaches,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package_keeps_its_shape(check) -> None:
    assert check(SRC) == []


# --- the checks can fail -------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path):
    def write(**files: str) -> Path:
        """A package of files whose text is given; `__` in a name stands for `/`, as in gemini__client."""
        root = tmp_path / "callgate"
        root.mkdir()
        (root / "__init__.py").write_text("__version__ = '1'\n")
        for name, text in files.items():
            path = root / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(text)
        return root

    return write


def test_imports_that_point_down_are_no_breach(tree) -> None:
    root = tree(
        types="",
        errors="from callgate.types import Json",
        machine="from callgate import errors, __version__\nfrom .history import f",
        history="from .types import Json",
        gemini__wire="from .. import content\nfrom ..history import f",
        gemini__client="from . import wire\nfrom .wire import x\nfrom callgate.gemini.wire import y",
        content="import callgate.types",
        models="from callgate.gemini import client",
        run="import callgate.models, callgate.machine.machine",
        cli="from callgate import Gate\nimport callgate.run.gate",
        testing="from callgate.models import Model",
    )
    assert layer_breaches(root) == []
    assert cycle_breaches(root) == []


@pytest.mark.parametrize(
    ("files", "breach"),
    [
        (
            {"machine": "from callgate.tools.executor import run", "tools": ""},
            "machine.py:1 imports 'tools': layer 2 may not",
        ),
        ({"machine": "def f():\n    from .tools import run", "tools": ""}, "machine.py:2 imports 'tools'"),
        ({"machine": "if TYPE_CHECKING:\n    import callgate.tools.executor", "tools": ""}, "machine.py:2 imports 'tools'"),
        ({"machine": "importlib.import_module('callgate.tools.executor')", "tools": ""}, "machine.py:1 imports 'tools'"),
        ({"machine": "from . import tools", "tools": ""}, "machine.py:1 imports 'tools'"),
        ({"schema__deep": "from ..gemini.wire import x", "gemini__wire": ""}, "schema/deep.py:1 imports 'gemini.wire'"),
        ({"schema__deep": "from .. import run", "run": ""}, "schema/deep.py:1 imports 'run'"),
        (
            {"types": "import callgate.machine.machine", "machine": ""},
            "types.py:1 imports 'machine': layer 1 may not import from layer 2",
        ),
        ({"types": "import callgate.errors", "errors": ""}, "words import only the words before them"),
        ({"events": "import callgate.config", "config": ""}, "words import only the words before them"),
        ({"store": "import callgate.mcp", "mcp": ""}, "an edge does not know another edge"),
        ({"gemini": "import callgate.models", "models": ""}, "an edge does not know another edge"),
        ({"server": "import callgate.cli", "cli": ""}, "layer 5 may not import from layer 6"),
        ({"testing": "import callgate.run.gate", "run": ""}, "test doubles may import words"),
        ({"models": "import callgate.testing", "testing": ""}, "does not build on its test doubles"),
        ({"schema": "from callgate import Gate"}, "schema.py:1 imports 'callgate': the front door is for users"),
        ({"utils": ""}, "utils.py is in no layer"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_found(tree, files: dict[str, str], breach: str) -> None:
    found = layer_breaches(tree(**files))
    assert len(found) == 1
    assert breach in found[0]


def test_circles_of_modules_are_found(tree) -> None:
    (found,) = cycle_breaches(tree(gemini__a="from . import b", gemini__b="from . import c", gemini__c="from .a import x"))
    assert found.startswith("modules import one another in a circle: ")
    assert {"gemini.a", "gemini.b", "gemini.c"} <= set(found.replace(";", "").split())


def test_circles_of_units_are_found_where_no_two_modules_form_one(tree) -> None:
    root = tree(
        schema__a="import callgate.definitions.b", definitions__b="", definitions__c="import callgate.schema.d", schema__d=""
    )
    (found,) = cycle_breaches(root)
    assert found.startswith("units import one another in a circle: ")


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("import time", "time"),
        ("import os.path", "os"),
        ("from pathlib import Path", "pathlib"),
        ("def f():\n    import asyncio", "asyncio"),
        ("from concurrent.futures import Future", "concurrent"),
        ("def f():\n    return open('x')", "open"),
        ("import importlib\nimportlib.import_module('socket')", "socket"),
    ],
)
@pytest.mark.parametrize("place", ["machine", "types", "schema__deep"])
def test_io_in_the_core_is_found(tree, place: str, text: str, used: str) -> None:
    (found,) = purity_breaches(tree(**{place: text}))
    assert found.startswith(place.replace("__", "/") + ".py:")
    assert f"uses {used!r}" in found


def test_io_at_the_edges_and_named_exceptions_are_no_breach(tree) -> None:
    assert purity_breaches(tree(tools="import time, asyncio", config="import os\nimport pathlib", machine="import re")) == []


@pytest.mark.parametrize(
    "text",
    ["x = {'functionCall': 1}", "part['functionCall']", "dict(functionCall=1)", "part.functionCall", "f(functionCall)"],
)
def test_words_of_the_wire_away_from_it_are_found(tree, text: str) -> None:
    (found,) = wire_word_breaches(tree(machine=text))
    assert found.startswith("machine.py:1 spells 'functionCall'")


def test_words_of_the_wire_in_their_places_and_in_prose_are_no_breach(tree) -> None:
    wire = "x = {'functionCall': 1, 'functionDeclarations': 2}"
    root = tree(
        content__read=wire,
        gemini__client=wire,
        declaration=wire,
        testing__fake=wire,
        definitions__gemini="x = 'functionDeclarations'",
        machine="'''A functionCall comes in.'''\nraise ValueError('a functionCall without a name')",
    )
    assert wire_word_breaches(root) == []


def test_a_hub_in_the_core_is_found_and_imports_for_types_do_not_count(tree) -> None:
    names = [f"schema__m{index}" for index in range(14)]
    imports = [f"import callgate.{name.replace('__', '.')}" for name in names]
    for_types = "if TYPE_CHECKING:\n    " + "\n    ".join(imports[11:])
    small = "\n".join([*imports[:11], for_types])
    root = tree(**dict.fromkeys(names, ""), run__hub="\n".join(imports), run__small=small)
    assert hub_breaches(root) == ["run/hub.py imports 14 modules of ours; split it, at most 12 can be followed"]


def test_a_long_module_of_the_core_is_found(tree) -> None:
    root = tree(machine="x = 1\n" * 501, schema="x = 1\n" * 900)
    assert length_breaches(root) == ["machine.py has 501 lines; split it, 500 are the most"]


def test_a_module_without_a_docstring_is_found(tree) -> None:
    (found,) = docstring_breaches(tree(machine="x = 1", history="'''Calls.'''", _private="x = 1"))
    assert found.startswith("machine.py has no docstring")


# --- the front door ------------------------------------------------------------------------------------------------------


def fresh(code: str) -> str:
    """What a fresh interpreter prints, one that saw nothing of this test run."""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_callgate_loads_nothing_heavy() -> None:
    loaded = json.loads(fresh("import json, sys, callgate; print(json.dumps(sorted(sys.modules)))"))
    assert "callgate" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_the_public_names_are_listed_in_order_and_all_there() -> None:
    assert list(callgate.__all__) == sorted(set(callgate.__all__))
    assert [name for name in callgate.__all__ if getattr(callgate, name, None) is None] == []
    assert set(callgate.__all__) <= set(dir(callgate))


def test_star_import_gives_every_public_name() -> None:
    given = json.loads(fresh("import json\nfrom callgate import *\nimport callgate\nprint(json.dumps(sorted(globals())))"))
    assert set(callgate.__all__) <= set(given)


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = callgate.no_such_name


def test_the_page_on_development_lists_the_units_of_every_layer() -> None:
    page = (SRC.parent.parent / "docs" / "development.md").read_text("utf-8")
    table = page.partition("## The layers")[2].partition("\n\n`testing`")[0]
    rows = re.findall(r"^\| [a-z ]+ \| (`.*`) \|", table, re.MULTILINE)
    listed = [set(re.findall(r"`(\w+)`", row)) for row in rows]
    assert listed == [set(WORDS), set(PURE), set(EDGES), {"run"}, set(TOP)]
