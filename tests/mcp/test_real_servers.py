"""Servers of other people's making, from two registries: listed, declared, called with good and with bad arguments.

All of them run at the same time, once for the whole file; what they answered is looked at afterwards.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from callgate import McpServer, Media, ToolError, declare
from callgate.mcp import Answer, Host, Question, ServerPrompt
from callgate.types import JsonObject, ToolContext, ToolDefinition

pytestmark = pytest.mark.slow

OLD = Path(__file__).resolve().parent.parent.parent / ".venv" / "old-mcp"
HARMLESS = {"title", "default"}
"""Keywords that say nothing of which arguments are right."""


@dataclass(eq=False)
class InFlightCall:
    """A server, what is asked of it, and what it answered."""

    box: McpServer
    calls: list[tuple[str, JsonObject]]
    definitions: list[ToolDefinition] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    told: list[tuple[str, float | None]] = field(default_factory=list)

    async def make(self) -> None:
        await self.box.start(self)
        assert self.box.complaints() == []
        self.definitions = [tool.definition for tool in self.box.runnables()]
        for name, args in self.calls:
            context = ToolContext(call_id="1", name=name, timeout_s=30, progress=self._tell)
            try:
                self.answers.append(await self.box.call(name, args, context))
            except ToolError as error:
                self.answers.append(error)

    def _tell(self, message: str, fraction: float | None = None) -> None:
        self.told.append((message, fraction))

    @property
    def names(self) -> set[str]:
        return {definition.name for definition in self.definitions}


def everything(program: str) -> InFlightCall:
    async def elicit(question: Question) -> Answer:
        assert question.schema is not None
        return Answer("accept", {"name": "Ada", "check": True})

    async def sample(server: str, request: JsonObject) -> str:
        return "a model's words"

    host = Host(elicit=elicit, sample=sample, roots=[Path(__file__).parent])
    return InFlightCall(
        McpServer("everything", command=[program], host=host, start_s=90),
        [
            ("echo", {"message": "hi"}),
            ("get-sum", {"a": 2, "b": 3}),
            ("get-sum", {"a": "two"}),
            ("get-tiny-image", {}),
            ("get-structured-content", {"location": "Chicago"}),
            ("get-resource-links", {"count": 1}),
            ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
            ("trigger-elicitation-request", {}),
            ("trigger-sampling-request", {"prompt": "Say it.", "maxTokens": 5}),
            ("get-roots-list", {}),
            ("get-env", {}),
        ],
    )


def filesystem(program: str, root: Path) -> InFlightCall:
    # The folder above is made here too, and is still none of the server's business.
    (root.parent / "secret.txt").write_text("no")
    return InFlightCall(
        McpServer("filesystem", command=[program, str(root)], start_s=90),
        [
            ("write_file", {"path": f"{root}/a.txt", "content": "one\ntwo\n"}),
            ("read_text_file", {"path": f"{root}/a.txt", "head": 1}),
            ("list_directory", {"path": str(root)}),
            ("read_text_file", {"path": f"{root}/none.txt"}),
            ("read_text_file", {"path": f"{root.parent}/secret.txt"}),
            ("read_text_file", {"wrong": 1}),
        ],
    )


def memory(program: str, folder: Path) -> InFlightCall:
    ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    return InFlightCall(
        McpServer("memory", command=[program], env={"MEMORY_FILE_PATH": str(folder / "memory.json")}, start_s=90),
        [
            ("create_entities", {"entities": [ada]}),
            ("search_nodes", {"query": "programs"}),
            ("create_entities", {"entities": "Ada"}),
            ("add_observations", {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}),
        ],
    )


def git(folder: Path) -> InFlightCall:
    repository = folder / "repository"
    commands = [
        ["init", "-q", str(repository)], ["-C", str(repository), "config", "user.email", "a@example.com"],
        ["-C", str(repository), "config", "user.name", "A"],
    ]  # fmt: skip
    for command in commands:
        subprocess.run(["git", *command], check=True)
    (repository / "a.txt").write_text("one\n")
    here = {"repo_path": str(repository)}
    command = [sys.executable, "-m", "mcp_server_git", "--repository", str(repository)]
    return InFlightCall(
        McpServer("git", command=command, start_s=90),
        [
            ("git_add", here | {"files": ["a.txt"]}),
            ("git_commit", here | {"message": "The first one"}),
            ("git_log", here | {"max_count": 1}),
            ("git_show", here | {"revision": "no-such-thing"}),
            ("git_status", {"repo_path": str(folder)}),
        ],
    )


def clock() -> InFlightCall:
    args = {"source_timezone": "Asia/Tokyo", "time": "16:30", "target_timezone": "UTC"}
    return InFlightCall(
        McpServer("time", command=[sys.executable, "-m", "mcp_server_time"], start_s=90),
        [("convert_time", args), ("convert_time", args | {"time": "25 o'clock"}), ("get_current_time", {})],
    )


def sqlite(folder: Path) -> InFlightCall:
    code = "import mcp_server_sqlite, sys; sys.argv[0] = 'x'; mcp_server_sqlite.main()"
    command = [sys.executable, "-c", code, "--db-path", str(folder / "x.db")]
    return InFlightCall(
        McpServer("sqlite", command=command, env={"PYTHONPATH": str(OLD)}, start_s=90),
        [
            ("create_table", {"query": "create table t (a integer, b text)"}),
            ("write_query", {"query": "insert into t values (7, 'seven')"}),
            ("read_query", {"query": "select * from t"}),
            ("read_query", {"query": "select * from nowhere"}),
            ("read_query", {}),
        ],
    )


def children() -> set[str]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(path.read_text().split()) if path.exists() else set()


@pytest.fixture(scope="module")
def visits(npm_program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, InFlightCall]:
    folder = tmp_path_factory.mktemp("servers")
    root = folder / "root"
    root.mkdir()
    programs = [npm_program(f"mcp-server-{name}") for name in ("everything", "filesystem", "memory")]
    for module in ("mcp_server_git", "mcp_server_time"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    if not (OLD / ".callgate-installed").exists():
        pytest.skip("mcp-server-sqlite is not installed (scripts/old-mcp-packages does it)")
    made = [
        everything(programs[0]), filesystem(programs[1], root), memory(programs[2], folder), git(folder), clock(),
        sqlite(folder),
    ]  # fmt: skip

    async def story() -> None:
        async with asyncio.timeout(120):
            try:
                await asyncio.gather(*(visit.make() for visit in made))
                await look_around(made[0].box)
            finally:
                await asyncio.gather(*(visit.box.aclose(visit) for visit in made))

    before, others = set(os.listdir("/proc/self/fd")) if sys.platform == "linux" else set(), children()
    asyncio.run(story())
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) <= len(before)
        assert children() <= others
    return {visit.box.name: visit for visit in made}


async def look_around(box: McpServer) -> None:
    """What the server with everything has beside tools."""
    prompts = {prompt.name: prompt for prompt in await box.prompts()}
    assert prompts["simple-prompt"] == ServerPrompt(name="simple-prompt", description="A prompt with no arguments")
    filled = await box.get_prompt("args-prompt", {"city": "Oslo"})
    assert any("Oslo" in piece for piece in filled if isinstance(piece, str))
    with pytest.raises(ToolError):
        await box.get_prompt("args-prompt")
    resources = await box.resources()
    plain = next(one for one in resources if not one.is_template)
    assert isinstance(await box.read_resource(plain.uri), str)
    assert any(one.is_template for one in resources)
    with pytest.raises(ToolError):
        await box.read_resource("demo://resource/nowhere")


NAMES = {
    "everything": {"echo", "get-sum", "trigger-elicitation-request", "get-roots-list", "list_resources", "read_resource"},
    "filesystem": {"read_text_file", "write_file", "edit_file", "list_directory", "move_file", "search_files"},
    "memory": {"create_entities", "read_graph", "search_nodes", "list_resources", "read_resource"},
    "git": {"git_status", "git_add", "git_commit", "git_log", "git_show", "git_checkout"},
    "time": {"get_current_time", "convert_time"},
    "sqlite": {"read_query", "write_query", "create_table", "list_tables", "describe_table", "append_insight"},
}


@pytest.mark.parametrize("server", NAMES)
def test_every_tool_is_listed_and_declared_and_nothing_that_matters_is_lost(visits: dict[str, InFlightCall], server: str):
    visit = visits[server]
    assert NAMES[server] <= visit.names
    declared = declare(visit.definitions)
    assert (len(declared.names), declared.quarantined) == (len(visit.definitions), {})
    assert {loss.keyword for loss in declared.losses} <= HARMLESS


def test_the_server_with_everything(visits: dict[str, InFlightCall]):
    visit = visits["everything"]
    echo, total, wrong, image, weather, links, long, answered, sampled, roots, env = visit.answers
    assert echo == "Echo: hi"
    assert total == "The sum of 2 and 3 is 5."
    assert "Invalid arguments" in str(wrong)
    assert [type(piece) for piece in image if isinstance(piece, Media)] == [Media]
    assert set(weather) == {"temperature", "conditions", "humidity"}
    assert any(isinstance(piece, dict) and piece["type"] == "resource_link" for piece in links)
    assert "completed" in long
    assert [fraction for _, fraction in visit.told] == [0.5, 1.0]
    assert "Ada" in json.dumps(answered)
    assert "a model's words" in json.dumps(sampled)
    assert Path(__file__).parent.as_uri() in json.dumps(roots)
    assert not {name for name in json.loads(env) if name.startswith(("GEMINI", "GOOGLE", "CALLGATE"))}


def test_the_server_of_files(visits: dict[str, InFlightCall]):
    written, read, listed, missing, outside, wrong = visits["filesystem"].answers
    assert "Successfully wrote" in json.dumps(written)
    assert "one" in json.dumps(read)
    assert "two" not in json.dumps(read)
    assert "a.txt" in json.dumps(listed)
    assert isinstance(missing, ToolError)
    assert "Access denied" in str(outside)
    assert isinstance(wrong, ToolError)


def test_the_server_that_remembers(visits: dict[str, InFlightCall]):
    made, found, wrong, nobody = visits["memory"].answers
    ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    assert made == {"entities": [ada]}
    assert found["entities"] == [ada]
    assert isinstance(wrong, ToolError)
    assert "Nobody" in str(nobody)


def test_the_server_of_git(visits: dict[str, InFlightCall]):
    added, committed, log, missing, outside = visits["git"].answers
    assert not isinstance(added, ToolError)
    assert "committed" in json.dumps(committed).lower()
    assert "The first one" in json.dumps(log)
    assert isinstance(missing, ToolError)
    assert isinstance(outside, ToolError)


def test_the_server_of_time(visits: dict[str, InFlightCall]):
    converted, odd, nowhere = visits["time"].answers
    assert converted["target"]["datetime"].endswith("T07:30:00+00:00")
    assert "Invalid time format" in str(odd)
    assert isinstance(nowhere, ToolError)


def test_the_server_of_tables_which_speaks_an_older_revision(visits: dict[str, InFlightCall]):
    table, written, read, nowhere, empty = visits["sqlite"].answers
    assert "created" in str(table)
    assert "1" in str(written)
    assert "seven" in str(read)
    # This server says what went wrong in a text that is not marked as an error.
    assert "no such table" in str(nowhere)
    assert isinstance(empty, ToolError) or "Error" in str(empty) or "error" in str(empty)
