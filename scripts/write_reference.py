"""Writes docs/reference/ from docstrings: python scripts/write_reference.py [--check]

Modules are imported, and their public names are listed with signature and docstring. `--check` writes nothing, and exits
with 1 if a page is out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import sys
import textwrap
import types
import typing
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"

PAGES: dict[str, tuple[tuple[str, ...], str]] = {
    "callgate": (("callgate",), "what most programs import"),
    "events": (("callgate.events",), "the events of a run"),
    "errors": (("callgate.errors",), "the exceptions"),
    "types": (
        (
            "callgate.types",
            "callgate.calls.observer: Emit",
            "callgate.content.prompt: Prompt",
            "callgate.declaration: BuiltIn",
            "callgate.definitions.conversion: Converted",
            "callgate.definitions.format: Kind",
            "callgate.definitions.function: Isolation RunIn",
            "callgate.models.choice: Api ModelLike",
            "callgate.run.inputs: CacheLike",
            "callgate.run.many: ReportProgress",
            "callgate.run.run_options: ManyOptions RunOptions",
        ),
        "further types in the signatures of `callgate`",
    ),
    "metadata": (
        ("callgate.metadata", "callgate.content.sounds: playable"),
        "sources, citations and other data about an answer",
    ),
    "prices": (("callgate.prices: PriceTable PRICES_DATE BATCH_FACTOR",), "the prices of the usual models"),
    "permission": (
        ("callgate.permission", "callgate.permission.audit: Verified records_of verify"),
        "policies and the audit log",
    ),
    "sessions": (("callgate.sessions",), "stored sessions: state, fork, rewind, export"),
    "store": (("callgate.store",), "stores, and the protocol for your own"),
    "files": (
        (
            "callgate.files",
            "callgate.files.command: CommandTool CommandBounds",
            "callgate.files.landlock: restrict",
        ),
        "file tools and commands",
    ),
    "workers": (("callgate.workers",), "tools in worker processes"),
    "host": (("callgate.host: call call_sync",), "calls of other tools, from inside a tool"),
    "mcp": (
        (
            "callgate.mcp",
            "callgate.mcp.serve",
            "callgate.mcp.web: Endpoint",
            "callgate.mcp.host: Elicit Login Sample",
            "callgate.mcp.oauth_client: AuthMethod",
            "callgate.server.mcp_http: http_app",
        ),
        "MCP servers and clients",
    ),
    "models": (
        (
            "callgate.models: Model ModelRequest Item Mode",
            "callgate.request: Accepted Embeddings PartialCall",
            "callgate.models.prompted",
            "callgate.models.embedded",
        ),
        "the protocol of models, prompted calling, the embedded model",
    ),
    "gemini": (
        ("callgate.gemini", "callgate.gemini.surface: Surface GoogleTokens Tokens"),
        "Gemini: response reader, endpoints",
    ),
    "prompted": (
        ("callgate.prompted", "callgate.prompted.outcomes: ErrorCode"),
        "the parser and the prompts of prompted calling",
    ),
    "transport": (
        ("callgate.wire.transport: CustomResponse CustomTransport HttpClientLike Transport TransportResponse",),
        "protocols of a custom HTTP client",
    ),
    "server": (
        (
            "callgate.server",
            "callgate.server.identity: Identities Principal",
            "callgate.server.peers: Peers",
            "callgate.server.providers: Providers",
        ),
        "the HTTP service as an ASGI application",
    ),
    "config": (
        ("callgate.config: load_settings Settings Value Setting ConfigError", "callgate.config.table: Kind Project"),
        "the settings of the command",
    ),
    "timeline": (
        (
            "callgate.timeline",
            "callgate.telemetry: record_content",
        ),
        "timelines and traces",
    ),
    "adapters": (("callgate.adapters",), "other frameworks, in both directions"),
    "testing": (
        (
            "callgate.testing",
            "callgate.testing.exchange: Clock Request",
            "callgate.testing.fault_row: FaultStep",
            "callgate.testing.http_lines: HttpRequest",
            "callgate.testing.google_declarations: Refusal",
            "callgate.testing.chat_rules: ChatRefusal",
            "callgate.testing.message_rules: MessageRefusal",
            "callgate.testing.interaction_fields: InteractionRefusal",
            "callgate.testing.fake_resources: FakeResources FakeFile",
            "callgate.testing.fake_batches: FakeBatches",
        ),
        "models and servers for your tests",
    ),
    "fakes": (
        (
            "callgate.testing.fake_gemini: Answer answer call calls fault raw text thought",
            "callgate.testing.fake_openai: fault",
            "callgate.testing.fake_anthropic: fault",
            "callgate.testing.fake_interactions: fault",
        ),
        "answers and faults for the scripts of the fake servers",
    ),
}
"""Page -> its modules, each with the names that are shown unless it is `__all__`, and its purpose."""


def page_of(specs: tuple[str, ...]) -> str:
    """The page of one module, followed by modules that belong to it."""
    parts: list[str] = []
    for number, spec in enumerate(specs):
        module_name, _, chosen = spec.partition(":")
        module = importlib.import_module(module_name)
        parts += [f"# {module_name}\n", prose(module.__doc__)] if number == 0 else [f"From `{module_name}`:\n"]
        names = chosen.split() or getattr(module, "__all__", None) or public_of(module)
        documented = docs_of_imports(module) | docs_of_fields(module)
        for name in sorted(names, key=str.lower):
            pointed = module_name != "callgate" and is_on_front_page(module, name)
            parts.append(pointer(name) if pointed else entry(name, getattr(module, name), documented))
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def is_on_front_page(module: Any, name: str) -> bool:
    """True if the page of `callgate` describes the name."""
    front = importlib.import_module("callgate")
    return name in front.__all__ and getattr(front, name) is getattr(module, name)


def pointer(name: str) -> str:
    """The entry of a name that the page of `callgate` describes: no two pages say the same."""
    return f"## {name}\n\nSee [`callgate.{name}`](callgate.md#{name.lower()}).\n"


def public_of(module: Any) -> list[str]:
    """The classes and functions that a module without `__all__` defines itself."""
    return [name for name, item in vars(module).items() if not name.startswith("_") and inspect.getmodule(item) is module]


def entry(name: str, item: Any, documented: dict[str, str]) -> str:
    """One name: heading, signature, docstring, and for a class its fields and methods."""
    if inspect.ismodule(item):
        return "\n".join([f"## {name}\n", prose(item.__doc__)])
    if inspect.isclass(item):
        shown = "" if is_protocol(item) else signature_of(item).removesuffix(" -> None")
        lines = [f"## {name}\n", code(f"class {name}{shown}"), prose(item.__doc__)]
        members = [*fields_of(item), *methods_of(item)]
        return "\n".join([*lines, *members])
    if inspect.isroutine(item):
        word = "async " if is_async(item) else ""
        return "\n".join([f"## {name}\n", code(f"{word}{name}{signature_of(item)}"), prose(inspect.getdoc(item))])
    shown = alias_of(item) if is_alias(item) else value_of(item)[:300]
    return "\n".join([f"## {name}\n", code(f"{name} = {shown}"), prose(documented.get(name))])


def is_alias(item: Any) -> bool:
    """True for a name of a type that is written in another way."""
    return typing.get_origin(item) is not None or isinstance(item, types.UnionType)


def alias_of(item: Any) -> str:
    """The type that an alias stands for, with the short names of ours."""
    words = re.sub(r"\b(?:callgate|collections|typing)\.(?:\w+\.)*", "", annotation_of(item))
    words = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", words)
    return "\n    ".join(textwrap.wrap(words, 110, break_long_words=False))


def is_protocol(item: Any) -> bool:
    """True for a protocol, which nobody constructs."""
    return bool(getattr(item, "_is_protocol", False))


def docs_of_fields(source: Any) -> dict[str, str]:
    """Name -> the text that stands below its assignment, in a module or in a class."""
    try:
        text = textwrap.dedent(inspect.getsource(source))
    except (OSError, TypeError):
        return {}
    body = ast.parse(text).body
    found: dict[str, str] = {}
    if inspect.isclass(source):
        stated = typing.cast("ast.ClassDef", body[0])
        body = stated.body
        bases = [getattr(sys.modules[source.__module__], getattr(base, "id", ""), None) for base in stated.bases]
        for base in filter(typing.is_typeddict, bases):  # A `TypedDict` does not know its bases.
            found |= docs_of_fields(base)
    for statement, after in itertools.pairwise(body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        words = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(target, ast.Name) and isinstance(words, str):
            found[target.id] = inspect.cleandoc(words)
    return found


def docs_of_imports(module: Any) -> dict[str, str]:
    """Name -> the text below its assignment in the module of ours that it is imported from."""
    found: dict[str, str] = {}
    for statement in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("callgate."):
            told = docs_of_fields(importlib.import_module(str(statement.module)))
            found |= {alias.name: told[alias.name] for alias in statement.names if alias.name in told}
    return found


def fields_of(item: Any) -> list[str]:
    """The fields of a dataclass, with what stands below them."""
    told: dict[str, str] = {}
    for base in reversed(item.__mro__):
        told |= docs_of_fields(base) if base.__module__.startswith("callgate.") else {}
    if typing.is_typeddict(item):
        keys = [f"| `{key}` | {' '.join(told.get(key, '').split())} |" for key in item.__annotations__]
        return ["| key | |", "|---|---|", *keys, ""]
    if not dataclasses.is_dataclass(item):
        return []
    rows = [
        f"| `{field.name}` | `{type_of(field.type)}` | {' '.join(told.get(field.name, '').split())} |"
        for field in dataclasses.fields(item)
        if not field.name.startswith("_")
    ]
    return ["| field | type | |", "|---|---|---|", *rows, ""] if rows else []


_MIXED_IN = ("RunMethods", "FakeServer", "EndpointModel", "GoogleResources")
"""Classes that no page describes: what they define is shown with the classes that are made of them."""


def methods_of(item: Any) -> list[str]:
    """The public methods and properties that a class defines itself."""
    found: list[str] = []
    # A base that no page describes is a part of the class.
    mixed_in = [base for base in item.__bases__ if base.__module__.startswith("callgate.") and base.__name__ in _MIXED_IN]
    for name, member in {name: member for one in (*mixed_in, item) for name, member in vars(one).items()}.items():
        inner = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if not (inspect.isfunction(inner) or isinstance(inner, property)):
            continue
        if name.startswith("_") and not (name == "__call__" and is_protocol(item)):
            continue
        words = inspect.getdoc(inner)
        if not words:
            continue
        word = "async " if is_async(inner) else ""
        shown = name if isinstance(inner, property) else f"{word}{name}{signature_of(inner)}"
        found += [f"### {item.__name__}.{name}\n", *([] if isinstance(inner, property) else [code(shown)]), prose(words)]
    return found


def is_async(function: Any) -> bool:
    """Whether it must be awaited, or gone through with `async for`."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def signature_of(item: Any) -> str:
    """The signature without `self`, with the options that an overload names one by one."""
    try:
        signature = inspect.signature(item)
    except (TypeError, ValueError):
        return ""
    shown: list[str] = []
    star = False  # Whether what follows can be passed by name only.
    kept = [parameter for name, parameter in signature.parameters.items() if name not in ("self", "cls")]
    for number, parameter in enumerate(kept):
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        if parameter.kind is parameter.VAR_KEYWORD and (options := options_of(item)):
            shown += ["*", *(f"{name}: {annotation_of(hint)} = ..." for name, hint in options.items())]
        else:
            shown.append(parameter_of(parameter))
        last = number + 1 == len(kept) or kept[number + 1].kind is not parameter.POSITIONAL_ONLY
        if parameter.kind is parameter.POSITIONAL_ONLY and last:
            shown.append("/")
    returned = signature.return_annotation
    end = "" if returned is signature.empty else f" -> {annotation_of(returned)}"
    line = f"({', '.join(shown)}){end}"
    return line if len(line) <= 100 else "(\n    " + ",\n    ".join(shown) + f",\n){end}"


def parameter_of(parameter: inspect.Parameter) -> str:
    """A parameter as it is written."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    hint = "" if parameter.annotation is parameter.empty else f": {annotation_of(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{hint}"
    default = value_of(parameter.default)
    return f"{parameter.name}{hint}{' = ' if hint else '='}{default if len(default) <= 80 else '...'}"


def annotation_of(given: Any) -> str:
    """An annotation as it is written."""
    if isinstance(given, typing.ForwardRef):
        return given.__forward_arg__
    return given if isinstance(given, str) else inspect.formatannotation(given).replace("typing.", "")


def value_of(given: Any) -> str:
    """A default or a constant as it is written, as far as that is known."""
    if inspect.isclass(given) or inspect.isfunction(given):
        return "..." if given.__name__ == "<lambda>" else given.__name__
    if isinstance(given, tuple) and given and all(inspect.isclass(each) for each in typing.cast("tuple[Any, ...]", given)):
        return f"({', '.join(each.__name__ for each in typing.cast('tuple[Any, ...]', given))})"
    if isinstance(given, frozenset):  # In an order of its own in each process.
        return f"frozenset({sorted(typing.cast('frozenset[Any]', given))})"
    shown = re.sub(r"\s+", " ", repr(given)).replace(str(Path.home()), "~")
    return "..." if " at 0x" in shown or shown == "<factory>" else re.sub(r"^<(\S+): .*>$", r"\1", shown)


def options_of(item: Any) -> dict[str, Any]:
    """The keyword options that an overload of the function takes from a `TypedDict`."""
    for overload in typing.get_overloads(item) if inspect.isfunction(item) else ():
        try:
            hints = typing.get_type_hints(overload, include_extras=True)
        except NameError:  # Names that only type checkers import.
            continue
        for hint in hints.values():
            if typing.get_origin(hint) is typing.Unpack:
                return dict(typing.get_args(hint)[0].__annotations__)
    return {}


def type_of(given: Any) -> str:
    """A type as it is written; a bar would end the cell of a table."""
    return (given if isinstance(given, str) else getattr(given, "__name__", str(given))).replace(" | ", " or ")


def code(text: str) -> str:
    """A block that is shown and not run: signatures are no programs."""
    return f"```text\n{text}\n```\n"


def prose(text: str | None) -> str:
    """A docstring as Markdown: its sections become lists, its programs stay programs."""
    lines: list[str] = []
    in_section = False
    for line in inspect.cleandoc(text or "").replace("```python", "```text").splitlines():
        if re.fullmatch(r"(Args|Raises|Returns|Yields):", line):
            lines += [f"**{line.rstrip(':')}**", ""]
            in_section = True
        elif in_section and (found := re.fullmatch(r"    (\w+): (.*)", line)):
            lines.append(f"- `{found[1]}`: {found[2]}")
        elif in_section and line.startswith("    "):
            lines.append(line)
        else:
            in_section = in_section and not line
            lines.append(line)
    return "\n".join(lines).strip() + "\n"


def index() -> str:
    """The page that leads to the others."""
    rows = [f"| [{modules[0].partition(':')[0]}]({page}.md) | {purpose} |" for page, (modules, purpose) in PAGES.items()]
    return "\n".join([
        "# Reference\n",
        "Generated from the docstrings by `scripts/write_reference.py`. See also the [command line](command.md) and the"
        " [HTTP interface](http-api.md), option by option, and the [notice codes](../notices.md).\n",
        "| module | for |",
        "|---|---|",
        *rows,
    ]) + "\n"  # fmt: skip


def main(arguments: list[str]) -> int:
    """Writes all pages, or says which are out of date."""
    FOLDER.mkdir(exist_ok=True)
    pages = {"index.md": index(), **{f"{page}.md": page_of(modules) for page, (modules, _) in PAGES.items()}}
    stale = [n for n, t in pages.items() if not (FOLDER / n).is_file() or (FOLDER / n).read_text("utf-8") != t]
    if "--check" in arguments:
        if stale:
            print(f"out of date: {', '.join(stale)}; run python scripts/write_reference.py")
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).write_text(pages[name], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
