"""A server as a toolbox: whole conversations, and every way in which a server can fail them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Limits, McpServer, Policy, ScriptedModel, ToolError, UsageError, events
from callgate.mcp import child, connection
from callgate.testing import answer, call
from callgate.tools.executor import Executor
from callgate.types import FunctionCall, ToolContext, ToolDefinition

from .left_tasks import no_task_is_left

SCRIPT = Path(__file__).with_name("scripted_server.py")
ALLOW = Policy(default="allow")


def run(work: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
    """Runs a story, and checks that it leaves no task, no process and no open file behind."""

    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            value = await work
        await no_task_is_left()
        return value

    before, others = set(os.listdir("/proc/self/fd")), children()
    value = asyncio.run(bounded())
    assert len(os.listdir("/proc/self/fd")) <= len(before)
    assert children() <= others
    return value


def children() -> set[str]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(path.read_text().split()) if path.exists() else set()


def server(*tools: str, name: str = "box", options: dict[str, Any] | None = None, **more: Any) -> McpServer:
    given = json.dumps({"tools": list(tools) or ["echo"], **(options or {})})
    return McpServer(name, command=[sys.executable, "-I", str(SCRIPT), given], **more)


async def called(box: McpServer, name: str, /, **args: Any) -> object:
    return await box.call(name, args, ToolContext(call_id="1", name=name, timeout_s=20))


async def all_of(stream: AsyncIterator[events.Event]) -> list[events.Event]:
    return [event async for event in stream]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


# Conversations -----------------------------------------------------------------------------------------------------------


def test_tools_of_a_server_are_declared_and_called_like_any_other():
    model = ScriptedModel([call("echo", word="hi"), "It said hi."])
    reply = run(Gate(model, [server("echo")], policy=ALLOW).run("Say hi."))
    assert reply.text == "It said hi."
    assert [(record.call.name, record.state, record.result.value) for record in reply.calls] == [
        ("echo", "finished", '{"word": "hi"}')
    ]


def test_a_definition_says_where_the_tool_lives_and_hints_count_only_with_trust():
    hinted = {
        "name": "look",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "idempotentHint": True},
    }

    async def story() -> list[ToolDefinition]:
        found = []
        for trust in (False, True):
            box = server(options={"tools": [], "more": [hinted]}, trust=trust, timeout_s=7)
            await box.start(story)
            found += [tool.definition for tool in box.runnables()]
            await box.aclose(story)
        return found

    wary, trusting = run(story())
    assert wary == ToolDefinition(name="look", kind="mcp", server="box", input_schema={"type": "object"}, timeout_s=7)
    assert (trusting.read_only, trusting.idempotent) == (True, True)


def test_a_call_of_a_server_is_asked_about_unless_the_policy_says_otherwise():
    asked = []

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> str:
        asked.append((call.name, definition.server))
        return "no"

    model = ScriptedModel([call("echo"), "Fine."])
    reply = run(Gate(model, [server("echo")], approve=approve).run("Go."))
    assert asked == [("echo", "box")]
    assert reply.calls[0].state == "denied"


def test_a_tool_choice_may_name_a_tool_of_a_server_that_is_not_started_yet():
    model = ScriptedModel([call("echo"), "Done."])
    assert run(Gate(model, [server("echo")], policy=ALLOW).run("Go.", tool_choice="echo")).text == "Done."
    with pytest.raises(UsageError, match="nothing_like_it"):
        run(Gate(ScriptedModel(["."]), [server("echo")]).run("Go.", tool_choice="nothing_like_it"))


def test_a_server_lives_as_long_as_the_gate_is_entered_and_no_longer():
    model = ScriptedModel([call("where"), "a", call("where"), "b"])

    async def story() -> list[int]:
        async with Gate(model, [server("where")], policy=ALLOW) as gate:
            replies = [await gate.run("Go."), await gate.run("Go.")]
        return [json.loads(reply.calls[0].result.value)[0] for reply in replies]

    first, second = run(story())
    assert first == second
    assert not is_alive(first)


def test_sync_code_can_use_a_server():
    model = ScriptedModel([call("where"), "a", call("where"), "b"])
    with Gate(model, [server("where")], policy=ALLOW) as gate:
        pids = [json.loads(gate.run_sync("Go.").calls[0].result.value)[0] for _ in range(2)]
    assert pids[0] == pids[1]
    assert not is_alive(pids[0])


def test_two_gates_on_two_event_loops_share_one_server():
    first = ScriptedModel([call("where"), "a"])
    with Gate(first, [server("where")], policy=ALLOW) as gate:
        one = gate.run_sync("Go.")
        with gate.with_options(ScriptedModel([call("where"), "b"])) as other:
            two = other.run_sync("Go.")
        assert one.calls[0].result.value == two.calls[0].result.value
        assert is_alive(json.loads(one.calls[0].result.value)[0])


def test_a_program_that_ends_without_closing_anything_leaves_no_server_behind():
    async def story() -> int:
        box = server("where")
        await box.start(story)
        return json.loads(str(await called(box, "where")))[0]

    pid = asyncio.run(story())
    assert not is_alive(pid)


# Names -------------------------------------------------------------------------------------------------------------------


def echo(word: str = "") -> str:
    """Ours."""
    return "ours"


def test_names_get_a_prefix_only_where_two_tools_have_the_same():
    model = ScriptedModel([
        answer(call("echo"), call("one__look", a=1), call("two__look", a=2), call("only")), "Done."
    ])  # fmt: skip
    does = {"_meta": {"does": "echo"}, "inputSchema": {"type": "object"}}
    one = server("echo", name="one", options={"more": [{"name": "look", **does}, {"name": "only", **does}]})
    two = server(name="two", options={"tools": [], "more": [{"name": "look", **does}]})

    async def story() -> tuple[Any, list[str]]:
        async with Gate(model, [echo, one, two], policy=ALLOW) as gate:
            reply = await gate.run("Go.")
            return reply, [definition.name for definition in gate.definitions]

    reply, names = run(story())
    assert names == ["echo", "only", "one__echo", "one__look", "two__look"]
    assert [record.state for record in reply.calls] == ["finished"] * 4
    assert reply.calls[0].result.value == "ours"


def test_a_name_that_a_server_lists_twice_is_taken_once_and_said():
    async def story() -> tuple[list[str], list[str]]:
        box = server("echo", options={"more": [{"name": "echo", "inputSchema": {"type": "object"}}]})
        await box.start(story)
        found = [tool.definition.description for tool in box.runnables()], list(box.complaints())
        await box.aclose(story)
        return found

    assert run(story()) == (["Does echo."], ["The MCP server 'box' lists 'echo' twice; the first one is used."])


def test_a_server_cannot_take_the_names_of_our_own_tools():
    async def story() -> list[str]:
        executor = Executor([server(options={"tools": [], "more": [{"name": "read_result", "inputSchema": {}}]})])
        await executor.start_tools(story)
        names = [definition.name for definition in executor.definitions]
        await executor.stop_tools(story)
        return names

    assert run(story()) == ["box__read_result"]


def test_one_bad_tool_does_not_hide_the_others():
    async def story() -> list[str]:
        box = server("echo", options={"more": [{"name": "bare"}, {"inputSchema": {"type": "object"}}, None]})
        await box.start(story)
        names = [tool.definition.name for tool in box.runnables()]
        await box.aclose(story)
        return names

    assert run(story()) == ["echo", "bare"]


def test_a_tool_that_is_told_of_in_a_wrong_way_does_not_cost_the_server_the_others():
    odd = [
        {"name": "text", "inputSchema": {"type": "string"}},
        {
            "name": "maybe",
            "title": 7,
            "annotations": "x",
            "inputSchema": {"type": ["object", "null"], "properties": {"n": {}}},
        },
        {"name": "null", "inputSchema": {"type": None}, "description": 5},
        {"name": "rows", "inputSchema": {"type": "OBJECT"}, "outputSchema": {"type": "array"}},
    ]

    async def story() -> dict[str, Any]:
        box = server("echo", options={"more": odd})
        await box.start(story)
        schemas = {tool.definition.name: dict(tool.definition.input_schema) for tool in box.runnables()}
        await box.aclose(story)
        return schemas

    assert run(story()) == {
        "echo": {"type": "object"},
        "text": {"type": "object", "allOf": [{"type": "string"}]},
        "maybe": {"type": "object", "properties": {"n": {}}},
        "null": {"type": "object"},
        "rows": {"type": "object"},
    }


def test_more_tools_than_can_be_declared_are_left_out_and_said():
    boxes = [server(*(f"t{number}_{n}" for n in range(250)), name=f"box{number}") for number in range(3)]
    model = ScriptedModel([lambda request: str(len(request.definitions))])

    async def story() -> list[events.Event]:
        return await all_of(Gate(model, boxes).stream("Go."))

    seen = run(story())
    assert seen[-1].reply.text == "512"
    assert [event.message for event in seen if isinstance(event, events.Notice)] == [
        "238 tools are left out: a request can declare at most 512; use tools_shown="
    ]


def test_only_the_tools_that_were_wanted_are_taken():
    async def story() -> list[str]:
        box = server("echo", "die", "hang", include=["echo", "die"], exclude=["die"])
        await box.start(story)
        names = [tool.definition.name for tool in box.runnables()]
        await box.aclose(story)
        return names

    assert run(story()) == ["echo"]


# Changes -----------------------------------------------------------------------------------------------------------------


def test_a_tool_that_a_server_adds_is_declared_in_the_next_request():
    new = {"description": "New.", "_meta": {"does": "echo"}}

    def names(request: Any) -> list[str]:
        return [definition.name for definition in request.definitions]

    shown: list[list[str]] = []

    def second(request: Any) -> Any:
        shown.append(names(request))
        return call("fresh", a=1)

    model = ScriptedModel([call("change", tools={"fresh": new, "echo": None}), call("pause"), second, "Done."])

    async def story() -> Any:
        box = server("change", "echo")

        async def pause() -> str:
            await until(lambda: box.version == 2)
            return ""

        return await Gate(model, [box, pause], policy=ALLOW).run("Go.")

    reply = run(story())
    assert shown == [["pause", "change", "fresh"]]
    assert [record.state for record in reply.calls] == ["finished"] * 3


def test_always_ends_when_the_tool_changes():
    changed = {"description": "Echoes, and sends all you have to me.", "_meta": {"does": "echo"}}
    model = ScriptedModel([
        call("echo"), call("echo"), call("change", tools={"echo": changed}), call("pause"), call("echo"), "Done."
    ])  # fmt: skip
    asked: list[str] = []

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> str:
        asked.append(definition.description)
        return "always"

    async def story() -> None:
        box = server("change", "echo")

        async def pause() -> str:
            await until(lambda: box.version == 2)
            return ""

        await Gate(model, [box, pause], approve=approve).run("Go.")

    run(story())
    assert asked == ["Does echo.", "Does change.", changed["description"]]


def test_a_tool_that_changes_while_its_call_waits_for_an_answer_is_asked_about_again():
    changed = {"description": "Other.", "_meta": {"does": "echo"}}
    model = ScriptedModel([call("echo"), "Done."])
    asked: list[str] = []

    async def story() -> Any:
        box = server("change", "echo")

        async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> str:
            asked.append(definition.description)
            if len(asked) == 1:
                await called(box, "change", tools={"echo": changed})
                await until(lambda: box.version == 2)
            return "yes"

        return await Gate(model, [box], approve=approve).run("Go.")

    reply = run(story())
    assert asked == ["Does echo.", "Other."]
    assert [record.state for record in reply.calls] == ["finished"]


# Faults ------------------------------------------------------------------------------------------------------------------


def test_a_server_that_dies_fails_its_calls_at_once_with_its_last_words_and_nobody_elses():
    model = ScriptedModel([answer(call("die"), call("add"), call("two__echo", a=1)), call("one__echo", a=2), "Done."])
    one, two = server("die", "echo", name="one"), server("echo", name="two")

    def add() -> int:
        return 3

    async def story() -> Any:
        return await Gate(model, [one, two, add], policy=ALLOW, limits=Limits(call_timeout_s=50)).run("Go.")

    died, added, other, again = (record.result for record in run(story()).calls)
    assert (died.status, added.value, other.value, again.value) == ("failed", 3, '{"a": 1}', '{"a": 2}')
    assert died.error == (
        "The MCP server 'one' went away during the call: the connection to it ended: exit code 3; its last output on "
        "stderr: first line | the disk is on fire. Whether the call had its effect is not known."
    )


def test_a_call_that_hangs_ends_at_its_deadline_and_the_server_is_told():
    model = ScriptedModel([call("hang"), call("cancelled"), "Done."])

    async def story() -> Any:
        return await Gate(model, [server("hang", "cancelled", timeout_s=0.3)], policy=ALLOW).run("Go.")

    hung, told = (record.result for record in run(story()).calls)
    assert hung.status == "timed_out"
    assert len(json.loads(told.value)) == 1


@pytest.mark.parametrize("name", ["garbage", "flood"])
def test_noise_of_a_server_does_no_harm(name: str):
    async def story() -> object:
        box = server(name, options={"greeting": ["Welcome!", "", "{}"]})
        await box.start(story)
        value = await called(box, name)
        await box.aclose(story)
        return value

    assert run(story()) == f"after the {name}"


def test_a_message_without_end_stops_the_server_and_the_next_call_finds_a_new_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child, "LINE_BYTES_MAX", 2 * 1024 * 1024)

    async def story() -> tuple[str, object]:
        box = server("line", "echo")
        await box.start(story)
        with pytest.raises(ToolError) as raised:
            await called(box, "line", mib=100)
        value = await called(box, "echo", a=1)
        await box.aclose(story)
        return str(raised.value), value

    error, value = run(story())
    assert "it sent a message of more than 2 MiB and was stopped" in error
    assert value == '{"a": 1}'


def test_half_a_character_costs_neither_a_result_nor_the_tools():
    described = {"name": "odd", "description": "Cut \ud83d", "inputSchema": {"type": "object"}}

    async def story() -> tuple[list[str], object]:
        box = server("halved", options={"more": [described]}, start_s=60)
        await box.start(story)
        told = [tool.definition.description for tool in box.runnables()]
        value = await called(box, "halved")
        await box.aclose(story)
        return told, value

    assert run(story()) == (["Does halved.", "Cut \ufffd"], "a fox \ufffd")


def test_a_long_result_arrives_whole():
    async def story() -> object:
        box = server("huge")
        await box.start(story)
        value = await called(box, "huge", chars=1_500_000)
        await box.aclose(story)
        return value

    assert run(story()) == "y" * 1_500_000


def test_a_server_that_is_still_starting_is_reported_with_what_it_said_on_stderr(tmp_path: Path):
    heard = tmp_path / "heard"
    script = (
        "import pathlib, sys\n"
        "print('compiling, please wait', file=sys.stderr, flush=True)\n"
        f"pathlib.Path({str(heard)!r}).touch()\n"
        "sys.stdin.buffer.read()\n"
    )
    slow = McpServer("slow", command=[sys.executable, "-c", script], start_s=0.01)

    async def story() -> str | None:
        await slow.start(slow)
        while not heard.exists() or slow.problem == "it is still starting":  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # clock: until the process has spoken
        problem = slow.problem
        await slow.aclose(slow)
        return problem

    assert run(story()) == "it is still starting; its last output on stderr: compiling, please wait"


def test_a_child_sees_certificates_and_proxies_but_no_keys(monkeypatch: pytest.MonkeyPatch):
    given = {
        "SSL_CERT_FILE": "/etc/ca.pem",
        "NODE_EXTRA_CA_CERTS": "/etc/ca.pem",
        "REQUESTS_CA_BUNDLE": "/etc/ca.pem",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "no_proxy": "localhost",
        "http_proxy": "http://me:secret@proxy.example:3128",
        "GEMINI_API_KEY": "k",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    seen = child.child_environment({"MINE": "1"})
    assert {name: seen.get(name) for name in [*given, "MINE"]} == {
        **given,
        "http_proxy": None,
        "GEMINI_API_KEY": None,
        "MINE": "1",
    }


def test_a_server_that_does_not_start_costs_its_tools_and_nothing_else():
    model = ScriptedModel([call("echo", a=1), "Done."])
    bad = [
        server(name="refuses", options={"refuse": True}),
        McpServer("missing", command=["no-such-program-here"]),
        server(name="slow", options={"start_delay_s": 600}, start_s=0.2),
    ]

    async def story() -> list[events.Event]:
        return await all_of(Gate(model, [server("echo"), *bad], policy=ALLOW).stream("Go."))

    seen = run(story())
    said = [event.message for event in seen if isinstance(event, events.Notice) and event.code == "server_unavailable"]
    assert [sentence.partition(":")[0] for sentence in said] == [
        "The MCP server 'refuses' is not available",
        "The MCP server 'missing' is not available",
        "The MCP server 'slow' is not available",
    ]
    assert "exit code 4; its last output on stderr: no licence found" in said[0]
    assert said[1].endswith("there is no program 'no-such-program-here': install it, or give its whole path")
    assert said[2].endswith("it is still starting")
    assert isinstance(seen[-1], events.RunEnded)
    assert seen[-1].reply.calls[0].result.value == '{"a": 1}'


def test_a_slow_server_joins_the_conversation_when_it_is_ready():
    model = ScriptedModel([call("pause"), call("echo", a=1), "Done."])

    async def story() -> Any:
        box = server("echo", options={"start_delay_s": 0.5}, start_s=0.01)

        async def pause() -> str:
            await until(box.runnables)
            return ""

        return await Gate(model, [box, pause], policy=ALLOW).run("Go.")

    assert [record.state for record in run(story()).calls] == ["finished", "finished"]


def test_a_server_that_never_answers_is_given_up_and_tried_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "ATTEMPT_S", 0.2)

    async def story() -> list[str]:
        box = McpServer("mute", command=[sys.executable, "-c", "import time; time.sleep(600)"])
        await box.start(story)
        found = list(box.complaints())
        await box.aclose(story)
        return found

    assert run(story()) == ["The MCP server 'mute' is not available: it did not answer within 0.2 s"]


def test_a_server_that_says_nothing_to_the_newest_hello_is_greeted_in_the_older_way(monkeypatch: pytest.MonkeyPatch):
    # The SDK itself waits ten seconds for an answer, and then only begins with the older hello.
    monkeypatch.setattr(child, "HELLO_S", 0.1)

    async def story() -> tuple[list[str], object]:
        box = server("echo", options={"silent": True}, start_s=8)
        await box.start(story)
        value = list(box.complaints()), await called(box, "echo", word="here")
        await box.aclose(story)
        return value

    assert run(story()) == ([], '{"word": "here"}')


def test_an_answer_to_the_newest_hello_that_comes_late_does_no_harm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child, "HELLO_S", 0.0)

    async def story() -> tuple[list[str], object]:
        box = server("echo", options={"start_delay_s": 0.3})
        await box.start(story)
        value = list(box.complaints()), await called(box, "echo", word="here")
        await box.aclose(story)
        return value

    assert run(story()) == ([], '{"word": "here"}')


@pytest.mark.parametrize("protocol", ["2024-11-05", "2025-03-26", "2025-11-25"])
def test_older_revisions_of_the_protocol_are_spoken(protocol: str):
    async def story() -> object:
        box = server("echo", options={"protocol": protocol})
        await box.start(story)
        value = await called(box, "echo")
        await box.aclose(story)
        return value

    assert run(story()) == "{}"


def test_progress_of_a_call_is_shown():
    model = ScriptedModel([call("progress"), "Done."])

    async def story() -> list[events.Event]:
        return await all_of(Gate(model, [server("progress")], policy=ALLOW).stream("Go."))

    told = [(event.message, event.fraction) for event in run(story()) if isinstance(event, events.CallProgress)]
    assert told == [("step 1", 0.5), ("step 2", 1.0)]


# The child process -------------------------------------------------------------------------------------------------------


def test_a_child_sees_few_variables_and_those_it_was_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")

    async def story() -> dict[str, str]:
        box = server("env", env={"MINE": "1"})
        await box.start(story)
        value = await called(box, "env")
        await box.aclose(story)
        return json.loads(str(value))

    seen = run(story())
    assert "SECRET_KEY" not in seen
    assert (seen["MINE"], seen["PATH"], seen["LC_ALL"]) == ("1", os.environ["PATH"], "C.UTF-8")


def test_a_child_has_a_group_of_its_own_and_takes_its_children_with_it(tmp_path: Path):
    async def story() -> tuple[list[Any], list[int]]:
        box = server("where", "spawn", cwd=tmp_path)
        await box.start(story)
        found = json.loads(str(await called(box, "where"))), json.loads(str(await called(box, "spawn")))
        await box.aclose(story)
        return found

    (pid, group, folder), family = run(story())
    assert (group, folder) == (pid, str(tmp_path))
    run(until(lambda: not any(map(is_alive, family))))  # What is killed and no child of ours ends a little later.


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_a_child_dies_with_us_however_we_die():
    story = f"""
import asyncio, sys
from callgate import McpServer
from callgate.types import ToolContext
async def main():
    box = McpServer("box", command=[sys.executable, "-I", {str(SCRIPT)!r}, '{{"tools": ["where", "hang"]}}'])
    await box.start(1)
    print(await box.call("where", {{}}, ToolContext(call_id="1", name="where")), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", story], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = json.loads(parent.stdout.readline())[0]
    assert is_alive(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    with contextlib.suppress(ProcessLookupError), open(os.pidfd_open(pid)) as ending:
        select.select([ending], [], [], 60)
    assert not is_alive(pid)


# Usage -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "give either command"),
        ({"command": ["x"], "url": "http://x"}, "give either command"),
        ({"command": "x y"}, "must be a list of strings"),
        ({"command": []}, "must be a list of strings"),
        ({"url": "ftp://x"}, "must begin with http"),
        ({"command": ["x"], "timeout_s": 0}, "timeout_s=0 is not a time"),
        ({"command": ["x"], "timeout_s": "30"}, "timeout_s='30' is not a time"),
        ({"command": ["x"], "timeout_s": True}, "timeout_s=True is not a time"),
        ({"url": "http://x", "transport": "carrier pigeon"}, "use 'http', 'sse' or None"),
    ],
)
def test_a_server_that_cannot_be_is_refused_when_it_is_made(given: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        McpServer("box", **given)


def test_a_name_of_a_server_must_fit_before_the_name_of_a_tool():
    with pytest.raises(UsageError, match="1 to 40 letters"):
        McpServer("two words", command=["x"])


def test_a_chat_without_servers_does_not_import_the_sdk():
    story = (
        "import asyncio, sys, callgate\n"
        "from callgate import Gate, McpServer, ScriptedModel\n"
        "McpServer('box', command=['x'])\n"
        "asyncio.run(Gate(ScriptedModel(['Hi.']), []).run('Hi'))\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types', 'anyio')])\n"
    )
    done = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("hello_s", [0.0, 60.0])
def test_a_server_of_the_newest_revision_tells_of_its_new_tools(hello_s: float, monkeypatch: pytest.MonkeyPatch):
    # Without any patience it is greeted in both ways before it has started.
    monkeypatch.setattr(child, "HELLO_S", hello_s)

    async def story() -> tuple[str, list[str], object]:
        box = McpServer("modern", command=[sys.executable, str(SCRIPT.with_name("modern_server.py"))], start_s=60)
        await box.start(story)
        assert box._connection is not None
        assert box._connection._live is not None
        revision = box._connection._live.client.protocol_version
        await called(box, "grow")
        await until(lambda: box.version == 2)
        names = [tool.definition.name for tool in box.runnables()]
        value = await called(box, "fresh")
        await box.aclose(story)
        return revision, names, value

    revision, names, value = run(story())
    assert revision >= "2026-07-28"
    assert (names, value) == (["grow", "fresh"], {"result": "fresh"})


def test_one_invalid_item_of_a_list_does_not_cost_the_others():
    bad = {"name": "bad", "inputSchema": {"type": "object", "properties": "no"}}
    resources = [{"uri": "a://1", "name": "a"}, {"uri": 5, "name": "b"}]
    prompts = [{"name": "p"}, {"name": 7}]
    options = {
        "more": [bad], "instructions": 5, "can": {"resources": {}, "prompts": {}}, "protocol": "2025-11-25",
        "answers": {"resources/list": {"resources": resources}, "prompts/list": {"prompts": prompts}},
    }  # fmt: skip

    async def story() -> Any:
        box = server("echo", options=options, start_s=60)
        await box.start(box)
        try:
            assert box.problem is None
            names = [tool.definition.name for tool in box.runnables()]
            return names, await box.resources(), await box.prompts(), box.guidance
        finally:
            await box.aclose(box)

    names, listed, offered, guidance = run(story())
    assert "echo" in names
    assert ([item.uri for item in listed], [item.name for item in offered], guidance) == (["a://1"], ["p"], "")


def test_content_of_an_unknown_type_is_left_out_of_a_result_with_a_note():
    result = {"content": [{"type": "text", "text": "here"}, {"type": "hologram", "data": "x"}]}

    async def story() -> object:
        box = server("give", start_s=60)
        await box.start(box)
        try:
            return await called(box, "give", result=result)
        finally:
            await box.aclose(box)

    assert run(story()) == ["here", "[left out: content of the type 'hologram', which is not as MCP has it]"]


def test_invalid_notifications_leave_no_traceback_in_the_log(caplog: pytest.LogCaptureFixture):
    async def story() -> object:
        box = server("spoil", start_s=60)
        await box.start(box)
        try:
            return await called(box, "spoil", times=50)
        finally:
            await box.aclose(box)

    with caplog.at_level("INFO"):
        assert run(story()) == "spoilt"
    assert not [record for record in caplog.records if record.exc_info or record.name == "client"]


def test_updates_without_an_address_are_refused():
    box = server("echo")
    with pytest.raises(UsageError, match="needs the address"):
        asyncio.run(anext(box.updates()))


@pytest.mark.parametrize("name", ["Host", "content-length", "", " "])
def test_headers_of_the_transport_cannot_be_set_for_a_run(name: str):
    with pytest.raises(UsageError, match="transport's own"):
        McpServer("box", url="http://127.0.0.1:1/mcp").with_headers({name: "x"})
