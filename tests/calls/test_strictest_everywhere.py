"""Random policies and calls through every door: the verdict is the strictest that applies, under every spelling.

Which rules apply to a call is known by how they were made up, without asking the code that matches them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from callgate import FunctionCall, Gate, Policy, ScriptedModel, ToolContext, ToolDefinition, tool
from callgate.adapters.gated_tools import GatedTools
from callgate.mcp.serve import ToolServer
from callgate.permission import Rule
from callgate.server import Service, ServiceOptions
from callgate.server.app import create_app
from callgate.testing import call_with
from callgate.types import ToolResult
from mcp import Client

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
COUNT = 2_000 if SCALE == 1 else 100_000
"""Policies and calls that are decided about; some of them go through each door."""
THROUGH = {"run": 40, "nested": 100, "framework": 40, "MCP": 200, "HTTP": 200}
"""One of how many goes through a door."""
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
        return "it ran"


TOOLS = [Runnable(server, name) for server, name in NAMES]
GIVEN: list[ToolResult] = []


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


async def by_mcp(case: Case) -> bool:
    server = ToolServer.of(TOOLS, policy=case.policy)
    async with Client(server.sdk, mode="legacy") as client:
        return not (await client.call_tool(case.tool.definition.name, case.args)).is_error


async def by_http(case: Case) -> bool:
    script = [call_with(case.tool.definition.name, case.args), "x"]
    gate = Gate(ScriptedModel(script), TOOLS, policy=case.policy)
    service = Service(gate, options=ServiceOptions())
    async with service, _client(create_app(service)) as client:
        answer = await client.post("/api/v1/chat", json={"prompt": "Go."})
    return "it ran" in answer.text


@contextlib.asynccontextmanager
async def _client(app: Any) -> AsyncGenerator[Any]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        yield client


DOORS: dict[str, Door] = {
    "run": by_run, "nested": by_nested, "framework": by_framework, "MCP": by_mcp, "HTTP": by_http,
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_only_what_the_strictest_verdict_allows_runs_through_a_door(door: str):
    async def story() -> list[str]:
        wrong: list[str] = []
        for seed in range(0, COUNT, THROUGH[door]):
            case = made(seed)
            if door == "nested" and case.policy.rules is not None and _has_parts(case.policy):
                continue
            ran = await DOORS[door](case)
            if ran and case.verdict != "allow":
                wrong.append(f"{seed}: it ran, {case.verdict}: {case.tool.definition.name} {case.args} {case.policy}")
            elif not ran and case.verdict == "allow" and case.is_plain:
                wrong.append(f"{seed}: it did not run: {case.tool.definition.name} {case.args} {case.policy}")
        return wrong

    assert asyncio.run(story())[:3] == []


def _has_parts(policy: Policy) -> bool:
    """Whether a part of a policy speaks about every tool, the one that passes calls on included."""
    return policy != Policy(rules=policy.rules, default=policy.default)
