"""Rules about arguments hold for the value that runs, in whatever spelling the model or the rule has it."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import uuid
from typing import Annotated, Any

import pydantic
import pytest

from callgate import FunctionCall, Gate, Policy, ScriptedModel, ToolDefinition, ToolError, host, tool
from callgate.permission import Rule
from callgate.permission.approval import Answered
from callgate.permission.argument_values import PLACES_MAX
from callgate.testing import call_with, text
from callgate.tools.executor import Executor

U = "12345678-1234-5678-1234-567812345678"
Strip = Annotated[str, pydantic.StringConstraints(strip_whitespace=True)]
Lower = Annotated[str, pydantic.AfterValidator(str.lower)]


class Role(enum.Enum):
    ROOT = "root"
    GUEST = "guest"


class Target(pydantic.BaseModel):
    to: Strip
    at: datetime.datetime | None = None
    id: uuid.UUID | None = None


@dataclasses.dataclass
class Point:
    x: float


MOMENT = ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00+00:00", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00.000Z"]
MOMENT += ["2024-01-01T01:00:00+01:00"]
IDS = [U, U.upper(), U.replace("-", ""), "{" + U + "}", "urn:uuid:" + U]
SAME: list[tuple[str, Any, list[str], list[Any]]] = [
    # name, type, spellings of one value in a rule, and in a call
    ("float", float, ["5", "5.0", "5e0"], [5, 5.0, "5.0", "5e0"]),
    ("a large float", float, ["1000000", "1e6"], [1000000, 1e6, "1e6"]),
    ("int", int, ["5", "5.0"], [5, 5.0, "5"]),
    ("date", datetime.date, ["2024-01-01", "2024-01-01T00:00:00"], ["2024-01-01", "2024-01-01T00:00:00"]),
    ("datetime", datetime.datetime, MOMENT, MOMENT),
    ("Decimal", decimal.Decimal, ["5", "5.0", "05", "5E0"], ["5", "5.0", "5.00", "05", "5E0", 5.0, 5]),
    ("UUID", uuid.UUID, IDS, IDS),
    ("timedelta", datetime.timedelta, ["PT60S", "PT1M"], ["PT60S", "PT1M"]),
    ("time", datetime.time, ["12:00", "12:00:00"], ["12:00", "12:00:00", "12:00:00.000"]),
    ("stripped text", Strip, ["root", " root"], ["root", " root", "root\n"]),
    ("lower case", Lower, ["root", "ROOT"], ["root", "Root"]),
    ("enum", Role, ["root"], ["root"]),
    ("path", pathlib.Path, ["/etc/passwd"], ["/etc/passwd", "/etc//passwd", "/etc/./passwd"]),
    ("address", ipaddress.IPv6Address, ["::1", "0:0:0:0:0:0:0:1"], ["::1", "0:0:0:0:0:0:0:1"]),
    ("list", list[uuid.UUID], IDS, [[U], [U.replace("-", "")]]),
    ("set", set[uuid.UUID], IDS, [[U], [U.replace("-", "")]]),
    ("mapping", dict[str, Strip], ["root"], [{"root": " root"}]),
    ("secret", pydantic.SecretStr, ["root"], ["root"]),
    ("bytes", bytes, ["root"], ["root"]),
    ("dataclass", Point, ["5"], [{"x": 5.0}, {"x": "5e0"}]),
    ("optional", datetime.date | None, ["2024-01-01"], ["2024-01-01", "2024-01-01T00:00:00"]),
]


def made(kind: Any, got: list[Any]) -> Any:
    def drop(v):
        """Drop."""
        got.append(v)
        return "gone"

    drop.__annotations__ = {"v": kind}
    return drop


async def run(kind: Any, said: Any, policy: Policy, **more: Any) -> tuple[str, list[Any]]:
    states, got = await run_all(kind, [said], policy, **more)
    return states[0], got


async def run_all(kind: Any, said: list[Any], policy: Policy, **more: Any) -> tuple[list[str], list[Any]]:
    got: list[Any] = []
    model = ScriptedModel([[call_with("drop", {"v": one}) for one in said], text("end")])
    reply = await Gate(model, tools=[made(kind, got)], policy=policy, **more).run("x")
    return [record.state for record in reply.calls], got


@pytest.mark.parametrize(("kind", "rules", "said"), [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_every_spelling_of_a_value_is_denied_asked_about_and_allowed_alike(kind: Any, rules: Any, said: Any) -> None:
    asked: list[FunctionCall] = []

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> str:
        asked.append(call)
        return "no"

    async def main() -> None:
        for rule in rules:
            about, refused = {"tool": "drop", "args": {"v": rule}}, (["denied"] * len(said), [])
            assert await run_all(kind, said, Policy(rules=[{"verdict": "deny", **about}])) == refused
            asked.clear()
            assert await run_all(kind, said, Policy(rules=[{"verdict": "ask", **about}]), approve=approve) == refused
            assert len(asked) == len(said)
            states, _ = await run_all(kind, said, Policy(default="deny", rules=[{"verdict": "allow", **about}]))
            assert states == ["finished"] * len(said)

    asyncio.run(main())


OTHERS = [
    (float, "5", 6.0), (float, "05", 6.0), (uuid.UUID, U, U.replace("1", "2")), (datetime.date, "2024-01-01", "2024-01-02"),
    (datetime.datetime, MOMENT[0], "2024-01-01T00:00:00"), (decimal.Decimal, "5", "5.01"), (str, "5", "5.0"),
    (Strip, "root", "ro ot"), (str, "root", " root"),
    (bool | int, "true", 1), (list[int], "5", [5, 6]), (list[Strip], "root", ["root", "x"]), (Target, "root", {"to": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "rule", "said"), OTHERS, ids=lambda item: str(item)[:40])
def test_another_value_is_not_allowed(kind: Any, rule: str, said: Any) -> None:
    policy = Policy(default="deny", rules=[Rule(verdict="allow", tool="drop", args={"v": rule})])
    assert asyncio.run(run(kind, said, policy)) == ("denied", [])


PATTERNS = [
    (float, "[0-9]{7}", 1000000.0), (float, "[0-9]{7}", "1e6"), (uuid.UUID, U, U.replace("-", "")),
    (decimal.Decimal, "5", "5.00"), (decimal.Decimal, "1E[+]999", "1e999"), (float, r"0\.5", 0.5),
    (datetime.datetime, "2024-01-01T00:00:00Z", "2024-01-01 01:00:00+01:00"),
    (datetime.datetime, r"2024-01-01T01:00:00\+01:00", "2024-01-01 01:00:00+01:00"), (datetime.timedelta, "PT1M", "PT60S"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "pattern", "said"), PATTERNS, ids=lambda item: str(item)[:40])
def test_expressions_and_globs_are_tried_on_the_value_that_runs(kind: Any, pattern: str, said: Any) -> None:
    policy = Policy(rules=[Rule(verdict="deny", tool="drop", patterns={"v": pattern})])
    assert asyncio.run(run(kind, said, policy)) == ("denied", [])


def test_values_inside_of_objects_count_and_so_does_the_text_that_was_written() -> None:
    for rule, said in (
        ("root", {"to": " root"}), (U, {"to": "x", "id": "{" + U + "}"}), ("{" + U + "}", {"to": "x", "id": U}),
        (MOMENT[0], {"to": "x", "at": MOMENT[4]}), ("* root", {"to": " root"}), ("1234*", {"to": "x", "id": "{" + U + "}"}),
    ):  # fmt: skip
        policy = Policy(rules=[Rule(verdict="deny", tool="drop", args={"v": rule.replace("{", "\\{")})])
        assert asyncio.run(run(Target, said, policy)) == ("denied", []), (rule, said)


def test_an_allowing_glob_that_fits_the_text_alone_allows_nothing() -> None:
    policy = Policy(default="deny", rules=[Rule(verdict="allow", tool="drop", args={"v": "{1234*"})])
    assert asyncio.run(run(uuid.UUID, "{" + U + "}", policy)) == ("denied", [])
    policy = Policy(default="deny", rules=[Rule(verdict="allow", tool="drop", args={"v": "1234*"})])
    assert asyncio.run(run(uuid.UUID, "{" + U + "}", policy))[0] == "finished"


def test_an_argument_of_many_values_is_compared_as_text() -> None:
    many = [U.replace("-", "")] * (PLACES_MAX + 1)
    policy = Policy(rules=[Rule(verdict="deny", tool="drop", args={"v": U})])
    assert asyncio.run(run(list[uuid.UUID], many, policy)) == ("denied", [])


def test_numbers_of_tools_without_types_are_compared_as_numbers_too() -> None:
    definition = ToolDefinition(name="pay", description="", input_schema={"type": "object"}, kind="mcp")
    for rule, said, verdict in (
        ("5", 5.0, "deny"), ("5.0", 5, "deny"), ("5e0", [1, 5], "deny"), ("5", "5.0", "ask"), ("5", True, "ask"),
        ("1e999", 1e308, "ask"), ("nan", 5, "ask"), ("1_0", 10, "ask"),
    ):  # fmt: skip
        policy = Policy(rules=[Rule(verdict="deny", tool="pay", args={"v": rule})])
        found = policy.decide(definition, FunctionCall(name="pay", args={"v": said}, id="1"))
        assert found.verdict == verdict, (rule, said)
    policy = Policy(default="deny", rules=[Rule(verdict="allow", tool="pay", args={"v": "5"})])
    assert policy.decide(definition, FunctionCall(name="pay", args={"v": 5.0}, id="1")).verdict == "deny"


def test_paths_are_those_that_the_tool_gets() -> None:
    deny = Policy(rules=[Rule(verdict="deny", tool="drop", paths=["secret"])])
    assert asyncio.run(run(Lower, "SECRET/x", deny)) == ("denied", [])
    allow = Policy(default="deny", rules=[Rule(verdict="allow", tool="drop", paths=["docs/*"])])
    assert asyncio.run(run(Strip, " docs/x", allow))[0] == "finished"
    assert asyncio.run(run(Strip, " etc/x", allow)) == ("denied", [])


def test_a_confirmation_is_wanted_for_every_spelling() -> None:
    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        return Answered(answer="yes")

    policy = Policy(rules=[Rule(verdict="ask", tool="drop", args={"v": U}, confirm="v")])
    with pytest.warns(RuntimeWarning, match="is not confirmed"):
        assert asyncio.run(run(uuid.UUID, U.replace("-", ""), policy, approve=approve)) == ("denied", [])


def test_the_rule_holds_for_calls_of_tools_edits_of_an_approver_and_functions_in_processes() -> None:
    got: list[Any] = []
    rules = [Rule(verdict="deny", tool="drop", args={"v": U}), Rule(verdict="ask", tool="drop", args={"v": "*"})]

    async def outer() -> str:
        """Call."""
        with pytest.raises(ToolError, match="has a rule against it"):
            await host.call("drop", {"v": U.replace("-", "")})
        return "refused"

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        return Answered(answer="yes", args={"v": "{" + U + "}"})

    async def main() -> list[tuple[str, Any]]:
        said = [[call_with("outer", {}), call_with("drop", {"v": U.replace("1", "2")})], text("end")]
        tools, policy = [made(uuid.UUID, got), outer], Policy(rules=rules)
        reply = await Gate(ScriptedModel(said), tools=tools, policy=policy, approve=approve).run("x")
        return [(record.state, record.result.value if record.result else None) for record in reply.calls]

    assert asyncio.run(main()) == [("finished", "refused"), ("denied", None)]
    assert got == []
    isolated = Executor([tool(name_of_day, isolation="process")])
    assert isolated.running_values("name_of_day", {"day": "2024-01-01T00:00:00"})[0] == {"day": "2024-01-01"}


def name_of_day(day: datetime.date) -> str:
    """Name."""
    return f"{day:%A}"


def test_a_rule_that_allows_a_list_allows_no_item_that_does_not_fit_by_itself():
    def delete(ids: list[str]) -> str:
        """Delete records."""
        return "deleted"

    async def story(policy: Policy) -> list[str]:
        calls = [call_with("delete", {"ids": ids}) for ids in (["tmp-1"], ["tmp-1", "prod"], ["tmp-1", "tmp-2"])]
        return [
            record.state
            for record in (await Gate(ScriptedModel([calls, text("ok")]), [delete], policy=policy).run("x")).calls
        ]

    allowing = Rule(verdict="allow", tool="delete", args={"ids": "tmp-*"})
    assert asyncio.run(story(Policy(default="deny", rules=[allowing]))) == ["finished", "denied", "finished"]
    denying = Rule(verdict="deny", tool="delete", args={"ids": "tmp-1 p*"})
    assert asyncio.run(story(Policy(rules=[denying]))) == ["finished", "denied", "finished"]


def states_of(function: Any, policy: Policy, *args: dict[str, Any]) -> list[str]:
    async def story() -> list[str]:
        calls = [call_with(function.__name__, each) for each in args]
        gate = Gate(ScriptedModel([calls, text("ok")]), [function], policy=policy)
        return [record.state for record in (await gate.run("x")).calls]

    return asyncio.run(story())


def test_an_argument_that_is_left_out_is_matched_by_its_default_null_too():
    def purge(tenant: str | None = None) -> str:
        """Purge a tenant; without one, all."""
        return "done"

    args = {"tenant": "a"}, {"tenant": None}, {}
    denied = Policy(rules=[Rule(verdict="deny", tool="purge", args={"tenant": "null"})])
    assert states_of(purge, denied, *args) == ["finished", "denied", "denied"]
    asked = Policy(rules=[Rule(verdict="ask", tool="purge", patterns={"tenant": ".*"})])
    assert states_of(purge, asked, *args) == ["denied", "denied", "denied"]
    allowed = Policy(default="deny", rules=[Rule(verdict="allow", tool="purge", args={"tenant": "*"})])
    assert states_of(purge, allowed, {"tenant": "a"}, {}) == ["finished", "denied"]


def test_the_keys_of_an_object_are_matched_like_its_values():
    def grant(roles: dict[uuid.UUID, str]) -> str:
        """Give users roles."""
        return "done"

    args = {"roles": {U.upper(): "admin"}}, {"roles": {U.replace("0", "1").replace("1234", "4321"): "guest"}}
    for test in ({"args": {"roles": U}}, {"args": {"roles": f"*{U}*"}}, {"patterns": {"roles": f".*{U}.*"}}):
        assert states_of(grant, Policy(rules=[Rule(verdict="deny", tool="grant", **test)]), *args) == ["denied", "finished"]

    def allowed(**test: Any) -> list[str]:
        return states_of(grant, Policy(default="deny", rules=[Rule(verdict="allow", tool="grant", **test)]), args[1])

    assert allowed(args={"roles": "guest"}) == ["denied"]
    assert allowed(patterns={"roles": "guest|[0-9a-f-]{36}"}) == ["finished"]


def test_a_name_that_the_schema_has_is_no_data_of_an_object():
    def move(to: Target) -> str:
        """Move something."""
        return "done"

    allowed = Policy(default="deny", rules=[Rule(verdict="allow", tool="move", patterns={"to": "home|null"})])
    assert states_of(move, allowed, {"to": {"to": "home"}}, {"to": {"to": "away"}}) == ["finished", "denied"]
