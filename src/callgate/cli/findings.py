"""The findings of `callgate doctor`: facts in, sentences with remedies out.

Nothing is examined here: responses of servers, outcomes of requests and installed packages are passed in. A finding is
`ok`, a `note`, a `warning`, or `broken`; only the last makes the command fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from callgate.config.url_secrets import shown_url
from callgate.tools.confusable_names import look_alikes
from callgate.types import ToolDefinition

if TYPE_CHECKING:
    from callgate.mcp import ServersFile, ServerStatus

__all__ = ["EXTRAS", "Answer", "Finding", "Level", "of_embedded", "of_key", "of_look_alikes", "of_model", "of_python",
           "of_sandbox", "of_server", "of_servers_file", "of_store", "of_tools"]  # fmt: skip

Level: TypeAlias = Literal["ok", "note", "warning", "broken"]

PYTHON_MIN, PYTHON_MAX = (3, 11), (3, 14)
EXTRAS: Mapping[str, tuple[str, str]] = {
    "mcp": ("mcp", "MCP servers"),
    "server": ("starlette", "the HTTP service"),
    "vertex": ("google.auth", "Gemini on Vertex"),
    "postgres": ("psycopg", "sessions in PostgreSQL"),
    "otel": ("opentelemetry", "traces"),
    "local": ("xllamacpp", "the embedded model"),
    "ray": ("ray", "workers on a cluster"),
}
"""Name of an extra -> a module of it, and what it is for."""

# Words in a server's error -> the remedy; the first match counts.
_SERVER_REMEDIES: tuple[tuple[str, str], ...] = (
    ("there is no program", "Install the program, or write its whole path as the command."),
    ("cannot be started", "See that the command can be run, and that its folder is there."),
    ("wants a login", "Log in once with `callgate mcp login` at a terminal."),
    ("last output on stderr", "Follow the server's last output, or run its command by hand to see more."),
    ("exit code", "Run its command by hand to see why it ends."),
    ("it is still starting", "Start it by hand once, so that it can load what it needs; or disable it."),
    ("did not answer within", "Check that the command starts an MCP server over stdio."),
    ("ConnectError", "See that the server runs, and that its address and port are right."),
    ("more than 16 MiB", "Configure the server to send less in one message."),
    ("401", "Give it a token in 'headers', or log in with `callgate mcp login`."),
    ("404", "See that the path of the address is right; often it ends in /mcp or /sse."),
)
_FILE_REMEDIES: tuple[tuple[str, str], ...] = (
    ("need the package mcp", "pip install 'callgate[mcp]'"),
    ("environment does not have", "Set the variable, give it a default as in ${NAME:-default}, or disable the server."),
    ("is not known and was ignored", "Remove the key, or see how it is spelled."),
    ("was left out", "Correct the server's settings in the file."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One examined item."""

    area: str
    subject: str
    level: Level
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The provider's response to a metadata request: a status and message, or why there was none."""

    status: int | None = None
    words: str = ""


# Python and what is installed --------------------------------------------------------------------------------------------


def of_python(version: tuple[int, int, int], installed: Mapping[str, bool]) -> Iterator[Finding]:
    """Report the Python version and missing extras."""
    said = ".".join(map(str, version))
    fits = PYTHON_MIN <= version[:2] <= PYTHON_MAX
    oldest, newest = (".".join(map(str, bound)) for bound in (PYTHON_MIN, PYTHON_MAX))
    yield Finding(
        area="Python",
        subject=f"Python {said}",
        level="ok" if fits else "warning",
        message="is supported" if fits else "is not supported",
        remedy="" if fits else f"Use Python {oldest} to {newest}.",
    )
    for extra, is_there in installed.items():
        if not is_there:
            yield Finding(
                area="Python",
                subject=extra,
                level="note",
                message=f"is not installed; {EXTRAS[extra][1]} would need it",
                remedy=f"pip install 'callgate[{extra}]'",
            )


# The model ---------------------------------------------------------------------------------------------------------------


def of_key(env: Mapping[str, str]) -> Iterator[Finding]:
    """Report which key is used. Keys are never shown."""
    both = [name for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY") if env.get(name, "").strip()]
    if len(both) == 2 and env["GOOGLE_API_KEY"].strip() != env["GEMINI_API_KEY"].strip():
        yield Finding(
            area="Model", subject="key", level="warning",
            message="GOOGLE_API_KEY and GEMINI_API_KEY differ; the first is used",
            remedy="Unset the one that is not meant.",
        )  # fmt: skip
    elif both:
        yield Finding(area="Model", subject="key", level="ok", message=f"{both[0]} is set")


def of_model(name: str, place: str, answer: Answer) -> Finding:
    """Report whether the provider accepts the key and knows the model."""
    subject = f"{name} at {place}"
    words = f": {answer.words}" if answer.words else ""
    if answer.status is not None and 200 <= answer.status < 300:
        return Finding(area="Model", subject=subject, level="ok", message="can be reached")
    is_key = answer.status in (401, 403) or "API key" in answer.words or "API_KEY" in answer.words
    if answer.status is None:
        message, remedy = (
            f"cannot be reached{words}",
            "See that there is a network, and that the base URL and proxy are right.",
        )
    elif is_key:
        message, remedy = (
            f"refuses the key{words}",
            "Get a key that is valid, and set GEMINI_API_KEY or OPENAI_API_KEY to it.",
        )
    elif answer.status == 404:
        message, remedy = f"does not know the model{words}", "Name another model with -m or GEMINI_MODEL."
    elif answer.status == 429:
        message, remedy = f"allows no more requests now{words}", "Wait, or ask for a larger quota."
    else:
        message, remedy = (
            f"answers with status {answer.status}{words}",
            "Try again later, or check the base URL.",
        )
    return Finding(area="Model", subject=subject, level="broken", message=message, remedy=remedy)


def of_embedded(problem: str | None, *, has_engine: bool, is_needed: bool) -> Finding:
    """Report whether the embedded model works, and which provider is used otherwise."""
    if problem is None and has_engine:
        return Finding(area="Model", subject="embedded", level="ok", message="is installed and intact")
    level: Level = "warning" if is_needed else "note"
    fetch = "Run `callgate model fetch`."
    install = "pip install 'callgate[local]', then `callgate model fetch`."
    without = "; without it and without a key, only the demo answers" if is_needed else ""
    message = (problem or "xllamacpp is not installed") + without
    return Finding(area="Model", subject="embedded", level=level, message=message, remedy=fetch if has_engine else install)


# Servers and tools -------------------------------------------------------------------------------------------------------


def of_servers_file(path: str, read: ServersFile | str) -> Iterator[Finding]:
    """Report problems in a servers file; `read` is a sentence if the file cannot be read at all."""
    area = "MCP servers"
    if isinstance(read, str):
        yield Finding(area=area, subject=path, level="broken", message=read, remedy="Correct the file, or name another one.")
        return
    for sentence in read.warnings:
        remedy = next(remedy for words, remedy in _FILE_REMEDIES if words in sentence or words == "was left out")
        is_lost = "was left out" in sentence
        yield Finding(area=area, subject=path, level="broken" if is_lost else "warning", message=sentence, remedy=remedy)
    for name in read.disabled:
        yield Finding(area=area, subject=name, level="note", message="is disabled")


def of_server(status: ServerStatus) -> Iterator[Finding]:
    """True if a server works, and which of its tools it keeps to itself."""
    area = "MCP servers"
    if status.problem is not None:
        remedy = next((remedy for words, remedy in _SERVER_REMEDIES if words in status.problem), "Run its command by hand.")
        yield Finding(area=area, subject=status.name, level="broken", message=status.problem, remedy=remedy)
        return
    about = status.about
    told = " ".join(filter(None, [about.get("name"), about.get("version")]))
    said = f"{told}, protocol {about.get('protocol')}" if told else f"protocol {about.get('protocol')}"
    yield Finding(area=area, subject=status.name, level="ok", message=f"works: {said}, {len(status.tools)} tools")
    for remark in status.remarks:
        yield Finding(
            area=area,
            subject=status.name,
            level="warning",
            message=remark,
            remedy="Report it to the author of the server, or exclude it.",
        )


def of_tools(definitions: Sequence[ToolDefinition]) -> Iterator[Finding]:
    """Report each tool: its declared name, and what is lost in its declaration."""
    from callgate.declaration import declare

    for definition in definitions:
        name = definition.name if definition.name.isascii() else ascii(definition.name)
        where = f"{name} ({definition.server})" if definition.server else name
        declaration = declare([definition])
        if definition.name in declaration.quarantined:
            why = declaration.quarantined[definition.name]
            remedy = "Correct its schema; until then it is left out, and the other tools are not."
            yield Finding(area="Tools", subject=where, level="broken", message=f"cannot be declared: {why}", remedy=remedy)
            continue
        declared = next((sent for sent, own in declaration.names.items() if own == definition.name), definition.name)
        became = "declared" if declared == definition.name else f"declared as {declared!r}"
        lost = dict.fromkeys(
            f"{loss.keyword} ({loss.instead})" if loss.instead else loss.keyword for loss in declaration.losses
        )
        if not lost:
            yield Finding(area="Tools", subject=where, level="ok", message=f"{became} whole")
        else:
            stored = "Nothing need be done: arguments are checked against the whole schema before it runs."
            message = f"{became}; not declared, or only described: {', '.join(lost)}"
            yield Finding(area="Tools", subject=where, level="note", message=message, remedy=stored)


def of_look_alikes(own: Sequence[str], definitions: Sequence[ToolDefinition]) -> Iterator[Finding]:
    """Report tools with confusable names."""
    named = [(name, None) for name in own]
    for pair in look_alikes([*named, *((d.name, d.server) for d in definitions)]):
        remedy = "Check that it is intended; if not, leave it out with 'excludeTools', or remove the server."
        yield Finding(area="Tools", subject=ascii(pair.name), level="warning", message=str(pair), remedy=remedy)


# Storage and sandbox ------------------------------------------------------------------------------------------------------


def of_store(place: str, problem: str | None, sessions: int | None) -> Finding:
    """True if sessions can be stored."""
    shown = shown_url(place)
    if problem is not None:
        remedy = "Move the file away, or name another place with --store."
        return Finding(area="Sessions", subject=shown, level="broken", message=problem, remedy=remedy)
    message = "does not exist yet, and will be made" if sessions is None else f"works, {sessions} sessions"
    return Finding(area="Sessions", subject=shown, level="ok", message=message)


def of_sandbox(weaknesses: Sequence[str]) -> Iterator[Finding]:
    """Report guarantees that are weaker on this system."""
    if not weaknesses:
        yield Finding(area="Sandbox", subject="file tools", level="ok", message="everything that guards them is here")
    for sentence in weaknesses:
        level: Level = "warning" if "no file tools" in sentence else "note"
        yield Finding(area="Sandbox", subject="file tools", level=level, message=sentence)
