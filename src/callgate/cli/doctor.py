"""`callgate doctor`: what works here, what does not, and how to fix it.

Takes options; prints lines, or JSON for programs. Servers are started and asked for their tools, and the provider is
asked whether it knows the model; no tool is called and nothing is generated. `findings.py` words the findings; this file
only collects facts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import click

from callgate.cli import findings
from callgate.cli.convert import echo_json
from callgate.cli.findings import Answer, Finding, Level
from callgate.cli.mcp import OWN_TOOLS
from callgate.cli.options import store_option
from callgate.cli.state import is_missing, store_place
from callgate.cli.style import Piece, echo, marks_of
from callgate.cli.style import counted as many
from callgate.errors import CallgateError, UsageError
from callgate.types import JsonObject, ToolDefinition

if TYPE_CHECKING:
    from callgate.mcp import McpServer, ServerStatus

__all__ = ["doctor", "examined"]

REACH_S = 10.0
START_S = 60.0
"""The time-out for the start of a server, which may have to be installed first."""
WORDS_MAX = 300

_MEANINGS: Mapping[Level, str] = {"ok": "done", "note": "note", "warning": "notice", "broken": "failed"}
"""Level -> the meaning by which it is marked and coloured, as calls in a chat are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticContext:
    """The subject of a diagnosis: options, environment and settings."""

    mcp: Sequence[str] = ()
    tool: Sequence[str] = ()
    provider: str | None = None
    model: str | None = None
    store: str | None = None
    offline: bool = False


@click.command()
@click.option("--mcp", multiple=True, metavar="FILE", help="A file with mcpServers; repeatable.")
@click.option("-T", "--tool", multiple=True, metavar="TOOL", help="Your own tools, as in callgate chat; repeatable.")
@click.option(
    "--provider",
    type=click.Choice(["gemini", "openai", "openai-responses", "anthropic", "embedded"]),
    help="Provider of the model to check.",
)
@click.option("-m", "--model", metavar="NAME", help="The model to check.")
@store_option
@click.option("--offline", is_flag=True, help="Send no request to the model.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Lines, or one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, output: str, **given: Any) -> None:
    """Check the model and its key, servers, tools, sessions and the sandbox.

    For every server and tool it reports its state, losses, problems and remedies. Servers are started and stopped again;
    no tool is called.

    Exit codes: 0, 1 something is broken, 2 wrong usage.
    """
    found = asyncio.run(examined(DiagnosticContext(**given), os.environ))
    counted = Counter(finding.level for finding in found)
    if output == "json":
        echo_json({"findings": [dataclasses.asdict(finding) for finding in found], "broken": counted["broken"]})
    else:
        _show(found)
        sums = f"{counted['broken']} broken, {many(counted['warning'], 'warning')}, {many(counted['note'], 'note')}"
        echo()
        echo(sums, "failed" if counted["broken"] else "notice" if counted["warning"] else "done")
    ctx.exit(1 if counted["broken"] else 0)


async def examined(patient: DiagnosticContext, env: Mapping[str, str]) -> list[Finding]:
    """Collect all findings, area by area."""
    model, servers, store = await asyncio.gather(
        _model_findings(patient, env), _server_findings(patient), _store_finding(store_place(patient.store, env))
    )
    return [*_python_findings(), *model, *servers, store, *_sandbox_findings()]


def _show(found: Sequence[Finding]) -> None:
    area, marks = "", marks_of(sys.stdout)
    for finding in found:
        if finding.area != area:
            if area:
                echo()
            echo(finding.area, "strong")
            area = finding.area
        meaning = _MEANINGS[finding.level]
        head: Sequence[Piece] = [
            (f"  {marks[meaning]} {finding.subject}", meaning if finding.level != "note" else None),
            (f": {finding.message}", None),
        ]
        echo(head, indent=4)
        if finding.remedy:
            echo(f"      {finding.remedy}", "quiet", indent=6)


# Looking -----------------------------------------------------------------------------------------------------------------


def _python_findings() -> Iterator[Finding]:
    installed = {extra: _is_there(module) for extra, (module, _) in findings.EXTRAS.items()}
    yield from findings.of_python((sys.version_info[0], sys.version_info[1], sys.version_info[2]), installed)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # The parent package is missing too.
        return False


def _sandbox_findings() -> Iterator[Finding]:
    from callgate.files import weaknesses

    yield from findings.of_sandbox(weaknesses())


async def _store_finding(place: str) -> Finding:
    from callgate.store import open_store
    from callgate.store.schema import NoStoreError

    if is_missing(place):
        return findings.of_store(place, None, None)
    try:
        store = open_store(place, read_only=True)
        try:
            sessions = await store.sessions()
        finally:
            await store.aclose()
    except CallgateError as error:
        is_new = isinstance(error.__cause__, NoStoreError)
        return findings.of_store(place, None if is_new else str(error), None)
    return findings.of_store(place, None, len(sessions))


async def _server_findings(patient: DiagnosticContext) -> list[Finding]:
    from callgate.mcp import read_servers

    found: list[Finding] = []
    definitions, unusable = _own_tools(patient.tool)
    for path in patient.mcp:
        try:
            read = read_servers(path)
        except UsageError as error:
            found += findings.of_servers_file(path, str(error))
            continue
        found += findings.of_servers_file(path, read)
        for status in await asyncio.gather(*map(_status_of, read.servers)):
            found += findings.of_server(status)
            definitions += status.tools
    own = [*OWN_TOOLS, *(d.name for d in definitions if d.server is None)]
    alike = findings.of_look_alikes(own, [d for d in definitions if d.server is not None])
    return [*found, *unusable, *findings.of_tools(definitions), *alike]


async def _status_of(server: McpServer) -> ServerStatus:
    server.start_s = max(server.start_s, START_S)
    await server.start(server)
    status = server.status()
    await server.aclose(server)
    return status


def _own_tools(words: Sequence[str]) -> tuple[list[ToolDefinition], list[Finding]]:
    from callgate.cli.tools import ToolLoadError, load_tools
    from callgate.tools.executor import Executor

    try:
        return Executor(load_tools(words)).definitions, []
    except (ToolLoadError, CallgateError) as error:
        remedy = "Correct it, or leave it out of -T."
        return [], [Finding(area="Tools", subject="-T", level="broken", message=str(error), remedy=remedy)]


# The model ---------------------------------------------------------------------------------------------------------------


async def _model_findings(patient: DiagnosticContext, env: Mapping[str, str]) -> list[Finding]:
    from callgate.config import ConfigError, load_settings
    from callgate.models.choice import has_gemini_key, provider_of

    found = list(findings.of_key(env))
    name, provider = patient.model, patient.provider
    try:
        env = load_settings(env).environment(env)
    except ConfigError as error:
        remedy = "Correct it: callgate config path shows the files."
        found.append(Finding(area="Model", subject="settings", level="broken", message=str(error), remedy=remedy))
    if provider is None and name is not None:
        provider, name = provider_of(name)
    if provider is None and has_gemini_key(env):
        provider = "gemini"
    if provider in _PLACES and not patient.offline:
        found.append(await _reached(provider, name, env))
    elif provider is None:
        remedy = "Set GEMINI_API_KEY to use Gemini; the embedded model needs none."
        found.append(Finding(area="Model", subject="key", level="note", message="there is none", remedy=remedy))
    return [*found, _embedded_finding(is_needed=provider not in _PLACES)]


def _embedded_finding(*, is_needed: bool) -> Finding:
    from callgate.embedded.weights import FilesMissingError, find_files

    problem = None
    try:
        find_files()
    except FilesMissingError as error:
        problem = str(error)
    has_engine = importlib.util.find_spec("xllamacpp") is not None
    return findings.of_embedded(problem, has_engine=has_engine, is_needed=is_needed)


async def _reached(provider: str, name: str | None, env: Mapping[str, str]) -> Finding:
    """Ask the provider for the model's metadata, which costs nothing, unlike a generated answer."""
    import httpx2

    try:
        name, base, url, headers = await _PLACES[provider](name, env)
    except CallgateError as error:
        remedy = "Do what the sentence says, or choose another --provider."
        return Finding(area="Model", subject=provider, level="broken", message=str(error), remedy=remedy)
    try:
        async with httpx2.AsyncClient(timeout=REACH_S) as client:
            response = await client.get(url, headers=headers)
            answer = _answer(response, name)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        answer = Answer(words=f"{type(error).__name__}: {error}".rstrip(": ")[:WORDS_MAX])
    secret = next(iter(headers.values()), "").removeprefix("Bearer ")
    if secret:
        answer = replace(answer, words=answer.words.replace(secret, "***"))
    return findings.of_model(name, base, answer)


def _answer(response: Any, name: str) -> Answer:
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    said = cast("JsonObject", body) if isinstance(body, dict) else {}
    if response.is_success:
        # Chat completion servers list their models, and have no endpoint for a single one.
        listed = [str(one.get("id")) for one in cast("list[JsonObject]", said.get("data") or [])]
        if listed and name not in listed:
            return Answer(status=404, words=f"it has {', '.join(listed[:5])}" + (" and others" if listed[5:] else ""))
        return Answer(status=response.status_code)
    error: Any = said.get("error")
    words: Any = cast("JsonObject", error).get("message") if isinstance(error, dict) else error
    return Answer(status=response.status_code, words=" ".join(str(words or "").split())[:WORDS_MAX])


async def _gemini_place(name: str | None, env: Mapping[str, str]) -> tuple[str, str, str, dict[str, str]]:
    from callgate.gemini.surface import surface_from_environment
    from callgate.models.choice import MODEL_DEFAULT

    surface = surface_from_environment(env)
    name = name or env.get("GEMINI_MODEL") or MODEL_DEFAULT
    # Model metadata needs no project, on Vertex either.
    return name, surface.base_url, replace(surface, project=None).place(name), await surface.headers()


async def _openai_place(name: str | None, env: Mapping[str, str]) -> tuple[str, str, str, dict[str, str]]:
    from callgate.openai.client import endpoint_from_environment

    endpoint = endpoint_from_environment(env)
    if name is None:
        raise UsageError("an OpenAI-compatible server has many models: name one with -m")
    return name, endpoint.base_url, f"{endpoint.base_url.rstrip('/')}/models", await endpoint.headers()


async def _anthropic_place(name: str | None, env: Mapping[str, str]) -> tuple[str, str, str, dict[str, str]]:
    from callgate.anthropic.client import endpoint_from_environment

    endpoint = endpoint_from_environment(env)
    if name is None:
        raise UsageError("Anthropic has several models: name one with -m")
    return name, endpoint.base_url, f"{endpoint.base_url}/v1/models/{name}", await endpoint.headers()


_PLACES = {
    "gemini": _gemini_place, "openai": _openai_place, "openai-responses": _openai_place, "anthropic": _anthropic_place,
}  # fmt: skip
"""Provider -> the model's name, its server, the metadata URL, and the authentication headers."""
