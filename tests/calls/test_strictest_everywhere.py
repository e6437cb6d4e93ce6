"""Random policies and calls through every door: the verdict is the strictest that applies, under every spelling.

Which rules apply to a call is known by how they were made up, without asking the code that matches them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from agents.tool_context import ToolContext as AgentsContext
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from callgate import FunctionCall, Gate, Policy, ScriptedModel, ToolContext, ToolDefinition, ToolError, tool
from callgate.adapters import GatedTools, to_google_genai, to_langchain, to_openai_agents, to_pydantic_ai
from callgate.mcp.serve import ToolServer
from callgate.permission import Rule
from callgate.server import Service, ServiceOptions
from callgate.server.app import create_app
from callgate.testing import call_with
from callgate.types import ToolResult
from mcp import Client

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
COUNT = 2_000 if SCALE == 1 else 100_000
BLOCKS = 1 if SCALE == 1 else 20
"""Policies and calls that are decided about; some of them go through each door."""
SAID = [{"role": "user", "content": "Go."}]
ENDPOINTS: dict[str, dict[str, Any]] = {
    "/api/v1/chat": {"prompt": "Go."},
    "/v1/chat/completions": {"model": "callgate", "messages": SAID},
    "/v1/messages": {"model": "callgate", "max_tokens": 10, "messages": SAID},
    "/v1/responses": {"model": "callgate", "input": "Go."},
    "/v1beta/models/callgate:generateContent": {"contents": [{"role": "user", "parts": [{"text": "Go."}]}]},
    "/v1beta/interactions": {"model": "callgate", "input": "Go."},
    "/api/v1/ui/chat": {"id": "a", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Go."}]}]},
}
THROUGH = {"run": 40, "nested": 100, "framework": 40, "MCP": 200, **dict.fromkeys(ENDPOINTS, 250)}
"""One of how many goes through a door; 100 where nothing is said. In a soak all of them go through all doors."""
VERDICTS = ("allow", "ask", "deny")
FOLDERS = ("docs", "src", "2024", "a b", "true")
NAMES = (
    ("github", "delete_repo"),
    ("evil", "delete_repo"),
    ("github", "read_page"),
    (None, "save_note"),
    (None, "delete_note"),
)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


class Runnable:
    """A tool that takes a path, and says that it ran."""

    def __init__(self, server: str | None, name: str) -> None:
        alias = f"{server}__{name}" if name == "delete_repo" else name
        own = name if alias != name else None
        self.definition = ToolDefinition(
            name=alias, alias_of=own, server=server, kind="mcp" if server else "file", input_schema=SCHEMA
        )

    def problems(self, args: Any) -> tuple[str, ...]:
        return ()

    async def run(self, args: Any, context: ToolContext) -> object:
        RAN.append(self.definition.name)
        return "it ran"


TOOLS = [Runnable(server, name) for server, name in NAMES]
GIVEN: list[ToolResult] = []
RAN: list[str] = []


@tool
async def relay(name: str, args: dict[str, Any], context: ToolContext) -> str:
    """Calls a tool."""
    GIVEN.append(await context.call_tool(name, args))
    return "relayed"


@dataclass(frozen=True)
class Case:
    """A policy, a call, the verdict that must come of it, and whether every rule is spelled so that `allow` counts."""

    policy: Policy
    tool: Runnable
    args: dict[str, Any]
    verdict: str
    is_plain: bool


def spelled_tool(dice: random.Random, server: str | None, name: str) -> tuple[str, bool]:
    """A pattern for one tool, and whether a rule that allows understands it too."""
    ways: list[tuple[str, bool]] = [(name, True), (name.upper(), False), (f"{name[:4]}*{name[-3:]}", True)]
    ways += [(name.replace("e", "\u0435", 1), False), (name[:1] + "?" + name[2:], True)]
    if server is not None:
        ways += [(f"@{server}/{name}", True), (f"@{server.upper()}/{name}", False)]
        if name == "delete_repo":
            ways.append((f"{server}__{name}", False))
    return dice.choice(ways)


def fits(pattern: str, server: str | None, name: str) -> bool:
    """Whether such a pattern is about a tool: by its words alone."""
    pattern = pattern.lower().replace("\u0435", "e")
    of, _, inside = pattern[1:].partition("/") if pattern.startswith("@") else ("", "", pattern)
    if of and of != server:
        return False
    if "__" in inside:
        return inside == f"{server}__{name}"
    if "*" in inside:
        head, _, tail = inside.partition("*")
        return name.startswith(head) and name.endswith(tail)
    return len(inside) == len(name) and all(one in ("?", other) for one, other in zip(inside, name, strict=True))


def spelled_path(dice: random.Random, folder: str, server: str | None) -> tuple[str, bool]:
    path = f"{folder}/x.md"
    ways = [(path, True), (f"./{path}", True), (f"{folder}//x.md", True), (f"{folder}/./x.md", True)]
    ways += [(f"{folder}/y/../x.md", False), (f"{folder.upper()}/x.md", False)]
    if server is not None:
        ways += [(f"file:{quote(path)}", False), (f"file:{path.replace('x', '%78')}", False)]
    return dice.choice(ways)


def made(seed: int) -> Case:
    dice = random.Random(seed)
    chosen = dice.randrange(len(NAMES))
    server, name = NAMES[chosen]
    folder = dice.choice(FOLDERS)
    path, is_plain = spelled_path(dice, folder, server)
    rules: list[Rule] = []
    applying: list[str] = []
    for _ in range(dice.randrange(5)):
        about = dice.choice(NAMES)
        pattern, allows = spelled_tool(dice, *about)
        paths = dice.choice([(), (), (f"{dice.choice(FOLDERS)}/**",), (f"./{dice.choice(FOLDERS)}/",)])
        verdict: Any = dice.choice(VERDICTS)
        rules.append(Rule(verdict=verdict, tool=pattern, **({"paths": paths} if paths else {})))
        if fits(pattern, server, name) and (not paths or paths[0].strip("./*") == folder):
            applying.append(verdict)
            is_plain = is_plain and (allows or verdict != "allow")
    default: Any = dice.choice(VERDICTS)
    policy = Policy(rules=rules, default=default)
    if dice.random() < 0.3:  # A part that is added can only make it stricter.
        part: Any = dice.choice(VERDICTS)
        policy = policy.strictest(Policy(default=part))
        applying = [max([*applying] or [default], key=VERDICTS.index), part]
    verdict = max(applying or [default], key=VERDICTS.index)
    return Case(policy, TOOLS[chosen], {"path": path}, verdict, is_plain)


def judged(case: Case, verdict: str) -> str | None:
    """What is wrong with a verdict. A spelling that only careful rules understand never makes a call laxer."""
    is_right = verdict == case.verdict or (not case.is_plain and VERDICTS.index(verdict) > VERDICTS.index(case.verdict))
    told = f"{verdict} instead of {case.verdict}: {case.tool.definition.name} {case.args} {case.policy}"
    return None if is_right else told


def test_the_verdict_is_the_strictest_that_applies_under_every_spelling():
    wrong: list[str] = []
    seen = dict.fromkeys(VERDICTS, 0)
    for seed in range(COUNT):
        case = made(seed)
        definition = case.tool.definition
        decision = case.policy.decide(definition, FunctionCall(name=definition.name, args=case.args, id="c"))
        seen[decision.verdict] += 1
        if found := judged(case, decision.verdict):
            wrong.append(f"{seed}: {found}")
    assert wrong[:3] == []
    assert min(seen.values()) > COUNT // 20


# The doors ---------------------------------------------------------------------------------------------------------------

Door = Callable[[Case], Awaitable[bool]]
"""Makes the call of a case; True if it ran. Nobody is there who could be asked."""


async def by_run(case: Case) -> bool:
    async with Gate(
        ScriptedModel([call_with(case.tool.definition.name, case.args), "x"]), TOOLS, policy=case.policy
    ) as gate:
        return (await gate.run("Go.")).calls[0].state == "finished"


async def by_nested(case: Case) -> bool:
    GIVEN.clear()
    args = {"name": case.tool.definition.name, "args": case.args}
    policy = replace(case.policy, rules=[*case.policy.rules, Rule(verdict="allow", tool="relay")])
    async with Gate(ScriptedModel([call_with("relay", args), "x"]), [*TOOLS, relay], policy=policy) as gate:
        await gate.run("Go.")
    return bool(GIVEN) and GIVEN[0].status == "finished"


async def by_framework(case: Case) -> bool:
    async with GatedTools(TOOLS, policy=case.policy) as gated:
        return (await gated.call(case.tool.definition.name, case.args)).status == "finished"


async def by_langchain(case: Case) -> bool:
    async with GatedTools(TOOLS, policy=case.policy) as gated:
        exported = {one.name: one for one in to_langchain(gated)}
        name = case.tool.definition.name
        if name not in exported:
            return False
        called = {"type": "tool_call", "id": "c", "name": name, "args": case.args}
        return (await exported[name].ainvoke(called)).status == "success"


async def by_agents_sdk(case: Case) -> bool:
    async with GatedTools(TOOLS, policy=case.policy) as gated:
        exported = {one.name: one for one in to_openai_agents(gated)}
        name, text = case.tool.definition.name, json.dumps(case.args)
        if name not in exported:
            return False
        context = AgentsContext(context=None, tool_name=name, tool_call_id="c", tool_arguments=text)
        return await exported[name].on_invoke_tool(context, text) == "it ran"


async def by_pydantic_ai(case: Case) -> bool:
    async with GatedTools(TOOLS, policy=case.policy) as gated:
        exported = to_pydantic_ai(gated)
        name = case.tool.definition.name
        context = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage(), tool_call_id="c")
        tools = await exported.get_tools(context)
        if name not in tools:
            return False
        try:
            return await exported.call_tool(name, case.args, context, tools[name]) == "it ran"
        except ToolFailed:
            return False


async def by_google_genai(case: Case) -> bool:
    async with GatedTools(TOOLS, policy=case.policy) as gated:
        exported = {one.__name__: one for one in to_google_genai(gated, is_async=True)}
        name = case.tool.definition.name
        if name not in exported:
            return False
        try:
            return await exported[name](**case.args) == "it ran"
        except ToolError:
            return False


async def by_mcp(case: Case) -> bool:
    server = ToolServer.of(TOOLS, policy=case.policy)
    async with Client(server.sdk, mode="legacy") as client:
        return not (await client.call_tool(case.tool.definition.name, case.args)).is_error


async def by_http(path: str, case: Case) -> bool:
    """Ask an endpoint."""
    script = [call_with(case.tool.definition.name, case.args), "x"]
    gate = Gate(ScriptedModel(script), TOOLS, policy=case.policy)
    service = Service(gate, options=ServiceOptions())
    RAN.clear()
    async with service, _client(create_app(service)) as client:
        answer = await client.post(path, json=ENDPOINTS[path])
    assert answer.status_code in (200, 202), f"{path}: {answer.status_code} {answer.text}"
    return [case.tool.definition.name] == RAN


@contextlib.asynccontextmanager
async def _client(app: Any) -> AsyncGenerator[Any]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        yield client


DOORS: dict[str, Door] = {
    "run": by_run, "nested": by_nested, "framework": by_framework, "LangChain": by_langchain, "Agents SDK": by_agents_sdk,
    "pydantic-ai": by_pydantic_ai, "google-genai": by_google_genai, "MCP": by_mcp,
    **{path: partial(by_http, path) for path in ENDPOINTS},
}  # fmt: skip


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("door", DOORS)
def test_only_what_the_strictest_verdict_allows_runs_through_a_door(door: str, block: int):
    async def story() -> tuple[list[str], int]:
        wrong: list[str] = []
        ran_count = 0
        size = COUNT // BLOCKS
        step = THROUGH.get(door, 100) if BLOCKS == 1 else 1
        for seed in range(block * size, (block + 1) * size, step):
            case = made(seed)
            if door == "nested" and case.policy.rules is not None and _has_parts(case.policy):
                continue
            ran = await DOORS[door](case)
            ran_count += ran
            if ran and case.verdict != "allow":
                wrong.append(f"{seed}: it ran, {case.verdict}: {case.tool.definition.name} {case.args} {case.policy}")
            elif not ran and case.verdict == "allow" and case.is_plain:
                wrong.append(f"{seed}: it did not run: {case.tool.definition.name} {case.args} {case.policy}")
        return wrong, ran_count

    wrong, ran_count = asyncio.run(story())
    assert wrong[:3] == []
    assert ran_count > 0, "some of them are allowed"


def _has_parts(policy: Policy) -> bool:
    """Whether a part of a policy speaks about every tool, the one that passes calls on included."""
    return policy != Policy(rules=policy.rules, default=policy.default)
