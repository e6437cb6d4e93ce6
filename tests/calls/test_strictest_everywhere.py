"""Random policies and calls through every door: the verdict is the strictest that applies, under every spelling.

Which rules apply to a call is known by how they were made up, without asking the code that matches them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
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
from mcp import Client

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
COUNT = 2_000 if SCALE == 1 else 5_000 * SCALE
"""Policies that are asked about a call."""
CALLS = 20 if SCALE == 1 else 100
"""Calls of one policy through a door, all made in one turn where a model makes them."""
POLICIES = 6 if SCALE == 1 else 50 * SCALE
"""Policies for each door: in a soak of scale 20 100,000 pairs of a policy and a call go through every door."""
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
    """A tool that takes a path, and notes that it ran."""

    def __init__(self, server: str | None, name: str) -> None:
        self.server, self.own_name = server, name
        self.alias = f"{server}__{name}" if name == "delete_repo" else name
        own = name if self.alias != name else None
        self.definition = ToolDefinition(
            name=self.alias, alias_of=own, server=server, kind="mcp" if server else "file", input_schema=SCHEMA
        )

    def problems(self, args: Any) -> tuple[str, ...]:
        return ()

    async def run(self, args: Any, context: ToolContext) -> object:
        RAN.append((self.alias, args["path"]))
        return "it ran"


TOOLS = [Runnable(server, name) for server, name in NAMES]
RAN: list[tuple[str, str]] = []


@tool
async def relay(calls: list[tuple[str, str]], context: ToolContext) -> str:
    """Calls tools."""
    for name, path in calls:
        await context.call_tool(name, {"path": path})
    return "relayed"


@dataclass(frozen=True)
class Call:
    """A call: a tool, a folder, and one of the spellings of a file in it."""

    tool: Runnable
    folder: str
    path: str
    is_plain: bool
    """Whether a rule that allows understands the path too."""

    @property
    def key(self) -> tuple[str, str]:
        return self.tool.alias, self.path


@dataclass(frozen=True)
class Drawn:
    """A policy, and how it was made up."""

    policy: Policy
    rules: list[tuple[str, str, bool, str | None]]
    """Verdict, pattern, whether a rule that allows understands it too, folder."""
    default: str
    part: str | None
    """The default of a policy that it was combined with."""

    def verdict(self, call: Call) -> tuple[str, bool]:
        """The verdict that must come, and whether everything is spelled so that `allow` counts."""
        about = [
            (verdict, allows)
            for verdict, pattern, allows, folder in self.rules
            if fits(pattern, call.tool.server, call.tool.own_name) and folder in (None, call.folder)
        ]
        is_plain = call.is_plain and all(allows or verdict != "allow" for verdict, allows in about)
        applying = [strictest(verdict for verdict, _ in about) if about else self.default]
        return strictest([*applying, *([self.part] if self.part else [])]), is_plain


def strictest(verdicts: Iterable[str]) -> str:
    return max(verdicts, key=VERDICTS.index)


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


def made_call(dice: random.Random) -> Call:
    called = dice.choice(TOOLS)
    folder = dice.choice(FOLDERS)
    return Call(called, folder, *spelled_path(dice, folder, called.server))


def made(dice: random.Random) -> Drawn:
    rules: list[Rule] = []
    described: list[tuple[str, str, bool, str | None]] = []
    for _ in range(dice.randrange(5)):
        pattern, allows = spelled_tool(dice, *dice.choice(NAMES))
        folder = dice.choice([None, dice.choice(FOLDERS)])
        verdict: Any = dice.choice(VERDICTS)
        paths = {"paths": (dice.choice([f"{folder}/**", f"./{folder}/"]),)} if folder else {}
        rules.append(Rule(verdict=verdict, tool=pattern, **paths))
        described.append((verdict, pattern, allows, folder))
    default: Any = dice.choice(VERDICTS)
    part: Any = dice.choice(VERDICTS) if dice.random() < 0.3 else None
    policy = Policy(rules=rules, default=default)
    if part:  # A part that is added can only make it stricter.
        policy = policy.strictest(Policy(default=part))
    return Drawn(policy, described, default, part)


def test_the_verdict_is_the_strictest_that_applies_under_every_spelling():
    wrong: list[str] = []
    seen = dict.fromkeys(VERDICTS, 0)
    for seed in range(COUNT):
        dice = random.Random(seed)
        drawn, call = made(dice), made_call(dice)
        definition = call.tool.definition
        given = drawn.policy.decide(definition, FunctionCall(name=definition.name, args={"path": call.path}, id="c")).verdict
        seen[given] += 1
        verdict, is_plain = drawn.verdict(call)
        # A spelling that only careful rules understand never makes a call laxer.
        if given != verdict and (is_plain or VERDICTS.index(given) < VERDICTS.index(verdict)):
            wrong.append(f"{seed}: {given} instead of {verdict}: {call.key} {drawn.policy}")
    assert wrong[:3] == []
    assert min(seen.values()) > COUNT // 20


# The doors ---------------------------------------------------------------------------------------------------------------

Door = Callable[[Policy, list[Call]], Awaitable[object]]
"""Makes calls under a policy. Nobody is there who could be asked."""


def scripted(calls: list[Call]) -> ScriptedModel:
    """A model that makes the calls in one turn."""
    return ScriptedModel([[call_with(call.tool.alias, {"path": call.path}) for call in calls], "x"])


async def by_run(policy: Policy, calls: list[Call]) -> None:
    async with Gate(scripted(calls), TOOLS, policy=policy) as gate:
        states = [record.state for record in (await gate.run("Go.")).calls]
    assert [call.key for call, state in zip(calls, states, strict=True) if state == "finished"] == RAN


async def by_nested(policy: Policy, calls: list[Call]) -> None:
    model = ScriptedModel([call_with("relay", {"calls": [[*call.key] for call in calls]}), "x"])
    policy = replace(policy, rules=[*policy.rules, Rule(verdict="allow", tool="relay")])
    async with Gate(model, [*TOOLS, relay], policy=policy) as gate:
        await gate.run("Go.")


async def by_framework(policy: Policy, calls: list[Call]) -> None:
    async with GatedTools(TOOLS, policy=policy) as gated:
        given = [(await gated.call(call.tool.alias, {"path": call.path})).status for call in calls]
    assert [call.key for call, status in zip(calls, given, strict=True) if status == "finished"] == RAN


async def by_langchain(policy: Policy, calls: list[Call]) -> None:
    async with GatedTools(TOOLS, policy=policy) as gated:
        exported = {one.name: one for one in to_langchain(gated)}
        for call in (call for call in calls if call.tool.alias in exported):
            called = {"type": "tool_call", "id": "c", "name": call.tool.alias, "args": {"path": call.path}}
            await exported[call.tool.alias].ainvoke(called)


async def by_agents_sdk(policy: Policy, calls: list[Call]) -> None:
    async with GatedTools(TOOLS, policy=policy) as gated:
        exported = {one.name: one for one in to_openai_agents(gated)}
        for call in (call for call in calls if call.tool.alias in exported):
            name, text = call.tool.alias, json.dumps({"path": call.path})
            context = AgentsContext(context=None, tool_name=name, tool_call_id="c", tool_arguments=text)
            await exported[name].on_invoke_tool(context, text)


async def by_pydantic_ai(policy: Policy, calls: list[Call]) -> None:
    async with GatedTools(TOOLS, policy=policy) as gated:
        exported = to_pydantic_ai(gated)
        context = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage(), tool_call_id="c")
        tools = await exported.get_tools(context)
        for call in (call for call in calls if call.tool.alias in tools):
            with contextlib.suppress(ToolFailed):
                await exported.call_tool(call.tool.alias, {"path": call.path}, context, tools[call.tool.alias])


async def by_google_genai(policy: Policy, calls: list[Call]) -> None:
    async with GatedTools(TOOLS, policy=policy) as gated:
        exported = {one.__name__: one for one in to_google_genai(gated, is_async=True)}
        for call in (call for call in calls if call.tool.alias in exported):
            with contextlib.suppress(ToolError):
                await exported[call.tool.alias](path=call.path)


async def by_mcp(policy: Policy, calls: list[Call]) -> None:
    async with Client(ToolServer.of(TOOLS, policy=policy).sdk, mode="legacy") as client:
        given = [(await client.call_tool(call.tool.alias, {"path": call.path})).is_error for call in calls]
    assert [call.key for call, is_error in zip(calls, given, strict=True) if not is_error] == RAN


async def by_http(path: str, policy: Policy, calls: list[Call]) -> None:
    """Ask an endpoint."""
    service = Service(Gate(scripted(calls), TOOLS, policy=policy), options=ServiceOptions())
    async with service, _client(create_app(service)) as client:
        answer = await client.post(path, json=ENDPOINTS[path])
    assert answer.status_code in (200, 202), f"{path}: {answer.status_code} {answer.text}"


@contextlib.asynccontextmanager
async def _client(app: Any) -> AsyncGenerator[Any]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        yield client


DOORS: dict[str, Door] = {
    "run": by_run, "nested": by_nested, "framework": by_framework, "LangChain": by_langchain, "Agents SDK": by_agents_sdk,
    "pydantic-ai": by_pydantic_ai, "google-genai": by_google_genai, "MCP": by_mcp,
    **{path: partial(by_http, path) for path in ENDPOINTS},
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_only_what_the_strictest_verdict_allows_runs_through_a_door(door: str):
    async def story() -> tuple[list[str], int]:
        wrong: list[str] = []
        ran_count = 0
        seeds = itertools.count(0)
        for _ in range(POLICIES):
            # The tool that passes calls on must be allowed, which a part that speaks about every tool can prevent.
            dice, drawn = next(
                (dice, drawn)
                for seed in seeds
                if (drawn := made(dice := random.Random(seed))).part in (None, "allow") or door != "nested"
            )
            calls = list({call.key: call for call in (made_call(dice) for _ in range(3 * CALLS))}.values())[:CALLS]
            if door in ENDPOINTS:  # A call that waits for an answer there holds back those after it.
                calls.sort(key=lambda call, drawn=drawn: drawn.verdict(call) != ("allow", True))
            RAN.clear()
            await DOORS[door](drawn.policy, calls)
            assert len(RAN) == len({*RAN}), "a call ran twice"
            ran_count += len(RAN)
            for call in calls:
                verdict, is_plain = drawn.verdict(call)
                if (ran := call.key in RAN) != (verdict == "allow") and (ran or is_plain):
                    wrong.append(f"ran: {ran}, {verdict}: {call.key} {drawn.policy}")
        return wrong, ran_count

    wrong, ran_count = asyncio.run(story())
    assert wrong[:3] == []
    assert ran_count > 0, "some of them are allowed"
