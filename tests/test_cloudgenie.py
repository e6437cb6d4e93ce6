"""The CloudGenie example: its server in a process of its own, and its three conversations, native and prompted."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callgate import Executor, Gate, GeminiModel, McpServer, Reply, ScriptedModel
from callgate.events import CallFinished, CallProposed
from callgate.testing.fake_gemini import FakeGemini
from callgate.types import FunctionCall, ToolDefinition

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "cloudgenie"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"cloudgenie_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TALK = loaded("talk")
SCRIPTS = {"native": TALK.NATIVE, "prompted": TALK.PROMPTED}
NEW = {"name": "test-db", "type": "database", "blueprint_id": "postgresql-blueprint"}


async def conversations(model: Any, mode: str, asked: list[str], watch: Any = None) -> list[Reply]:
    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> str:
        asked.append(call.name)
        return "yes"

    server = McpServer("cloudgenie", command=TALK.SERVE, trust=True, start_s=60)
    async with asyncio.timeout(300), Gate(model, tools=[server], mode=mode, approve=approve) as gate:
        return [await gate.run(prompt, watch=watch) for prompt in TALK.PROMPTS]


def told(replies: list[Reply]) -> list[Any]:
    return [[(r.call.name, dict(r.call.args), r.state, r.result.value) for r in reply.calls] for reply in replies]


def expect(replies: list[Reply]) -> None:
    first, second, third = told(replies)
    names = [[call[0] for call in calls] for calls in (first, second, third)]
    assert names == [
        ["cloudgenie_get_blueprints"],
        ["cloudgenie_get_blueprints", "cloudgenie_create_resource"],
        ["cloudgenie_get_resources"],
    ]
    assert len(first[0][3]["result"]) == 4
    assert second[1][1:] == (NEW, "finished", {"id": "res-2", "status": "provisioning", "properties": {}, **NEW})
    assert [(item["name"], item["status"]) for item in third[0][3]["result"]] == [
        ("web-cache", "running"),
        ("test-db", "provisioning"),
    ]
    assert [reply.text for reply in replies] == [TALK.NATIVE[place] for place in (1, 4, 6)]


def test_the_three_conversations_go_as_documented_with_a_scripted_model_and_native_and_prompted_alike() -> None:
    def events_of(mode: str) -> list[Any]:
        asked: list[str] = []
        seen: list[Any] = []
        expect(asyncio.run(conversations(ScriptedModel(SCRIPTS[mode]), mode, asked, seen.append)))
        # The server is trusted, so only what it does not call read-only is asked about.
        assert asked == ["cloudgenie_create_resource"]
        kept = [event for event in seen if isinstance(event, (CallProposed, CallFinished))]
        return [(type(event), event.call.name, getattr(getattr(event, "result", None), "value", None)) for event in kept]

    native = events_of("native")
    assert native == events_of("prompted")
    assert len(native) == 8


@pytest.mark.parametrize("mode", ["native", "prompted"])
def test_the_three_conversations_go_as_documented_over_geminis_wire(mode: str) -> None:
    async def story() -> tuple[list[Reply], FakeGemini]:
        async with FakeGemini(SCRIPTS[mode]) as fake:
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
            return await conversations(GeminiModel("gemini-3.8-flash", env=env), mode, []), fake

    replies, fake = asyncio.run(story())
    expect(replies)
    assert fake.refusals == []
    first = fake.requests[0].json or {}
    if mode == "native":
        declared = [item["name"] for tools in first["tools"] for item in tools["functionDeclarations"]]
        assert (len(declared), "cloudgenie_delete_resource" in declared) == (8, True)
    else:
        assert "tools" not in first
        assert "TOOL_CALL:" in str(first)


def test_the_tools_are_the_eight_that_are_documented_and_refuse_what_makes_no_sense() -> None:
    catalogue = loaded("catalogue")
    executor = Executor([value for name, value in vars(catalogue).items() if name.startswith("cloudgenie_")])
    assert {item.name.removeprefix("cloudgenie_"): item.read_only for item in executor.definitions} == {
        "health_check": True,
        "get_blueprints": True,
        "get_blueprint": True,
        "get_resources": True,
        "get_resource": True,
        "create_resource": False,
        "update_resource_status": False,
        "delete_resource": False,
    }

    def call(name: str, /, **args: Any) -> Any:
        result = asyncio.run(executor.execute(FunctionCall(name=f"cloudgenie_{name}", args=args, id="1")))
        return result.error or result.value

    assert call("health_check") == {"status": "healthy", "blueprints": 4, "resources": 1}
    assert call("create_resource", **NEW)["id"] == "res-2"
    assert "already" in call("create_resource", **NEW)
    assert "makes a 'database', not a 'cache'" in call("create_resource", **NEW | {"type": "cache"})
    assert "it has: version, storage_gb" in call("create_resource", **NEW, properties={"color": "red"})
    assert "There is no blueprint 'x'" in call("get_blueprint", id="x")
    assert call("update_resource_status", id="res-2", status="running")["status"] == "running"
    assert "not valid" in call("update_resource_status", id="res-2", status="asleep")
    assert call("get_resource", id="res-2")["status"] == "running"
    assert call("delete_resource", id="res-2")["deleted"]["name"] == "test-db"
    assert "there are res-1" in call("get_resource", id="res-2")


def talked(*options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", FOLDER / "talk.py", *options],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_script_prints_what_its_readme_shows() -> None:
    shown = re.search(r"\$ python examples/cloudgenie/talk\.py\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert talked() == shown[1]


@pytest.mark.slow
def test_the_model_on_this_machine_calls_the_tools_of_the_server(embedded: None) -> None:
    assert talked("--model", "embedded:", TALK.PROMPTS[0]).splitlines()[:2] == [
        "> Show me all blueprints",
        "  cloudgenie_get_blueprints: finished",
    ]
