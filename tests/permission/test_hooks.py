"""Commands around a call: they block, rewrite, remark, crash, hang and flood."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from callgate import FunctionCall, Gate, Policy, ScriptedModel, ToolContext, ToolDefinition, tool
from callgate.config.known_secrets import remember_secrets
from callgate.errors import UsageError
from callgate.events import Notice
from callgate.permission import Hook, Rule
from callgate.permission.hooks import hook_from, run_before
from callgate.testing import call

pytestmark = pytest.mark.skipif(os.name != "posix", reason="runs commands in groups of their own")


def run(work: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", f"import json, os, sys, time\n{code}")


class Note:
    """A tool that keeps what it was called with."""

    definition = ToolDefinition(
        name="note", kind="file", input_schema={"type": "object", "properties": {"n": {"type": "integer"}}}
    )

    def __init__(self) -> None:
        self.ran: list[Any] = []

    def problems(self, args: Any) -> list[str]:
        return []

    async def run(self, args: Any, context: ToolContext) -> object:
        self.ran.append(dict(args))
        return "noted"


def story(*hooks: Hook, approve: Any = None, policy: Policy | None = None, **args: Any) -> tuple[Note, Any, list[Any], Any]:
    note = Note()
    policy = policy or Policy(default="allow", hooks=hooks)
    model = ScriptedModel([call("note", **args), "ok"])
    gate = Gate(model, [note], policy=policy, approve=approve)

    async def all_events() -> list[Any]:
        return [event async for event in gate.stream("Go", session="s")]

    seen = run(all_events())
    response = model.requests[1].contents[-1]["parts"][0]["functionResponse"]["response"]
    return note, seen[-1].reply, [event for event in seen if isinstance(event, Notice)], response


# --- before --------------------------------------------------------------------------------------------------------------


def test_a_hook_is_told_of_the_call_and_lets_it_run(tmp_path: Path):
    hook = Hook(command=python(f"open({str(tmp_path / 'told')!r}, 'w').write(sys.stdin.read())"))
    note, reply, notices, _ = story(hook, n=1)
    told = json.loads((tmp_path / "told").read_text())
    assert told == {
        "event": "before_tool", "session": "s", "call_id": reply.calls[0].call.id, "tool": "note", "server": None,
        "kind": "file", "read_only": False, "args": {"n": 1}, "cwd": os.getcwd(),
    }  # fmt: skip
    assert (note.ran, notices) == ([{"n": 1}], [])


def test_exit_2_blocks_and_its_complaint_goes_to_the_model():
    hook = Hook(command=python("print('Not on\\nSundays.', file=sys.stderr); sys.exit(2)"))
    note, reply, _, response = story(hook, n=1)
    assert (note.ran, reply.calls[0].state) == ([], "denied")
    assert response == {"error": "This call was not allowed. Not on Sundays."}
    assert reply.calls[0].decision.by == "hook"
    silent, *_, response = story(Hook(command=python("sys.exit(2)")), n=1)
    assert (silent.ran, response) == ([], {"error": "This call was not allowed. A hook blocked it."})


def test_a_complaint_holds_no_secret_that_is_known():
    remember_secrets("s3cr3t-of-the-hook")
    for when in ("before", "after"):
        hook = Hook(command=python("print('No: s3cr3t-of-the-hook', file=sys.stderr); sys.exit(2)"), when=when)
        *_, response = story(hook, n=1)
        assert "No: [redacted: known secret]" in json.dumps(response)


REWRITE = "args = json.load(sys.stdin)['args']; print(json.dumps({'args': {'n': args['n'] + 1}}))"


def test_a_rewrite_is_used_where_it_is_allowed_and_the_model_is_told():
    note, _, notices, response = story(Hook(command=python(REWRITE), may_rewrite=True), n=1)
    assert (note.ran, notices) == ([{"n": 2}], [])
    assert response["notes"] == ['A hook changed the arguments before the call ran: {"n": 2}']


def test_several_hooks_rewrite_one_after_another_and_each_once():
    hook = Hook(command=python(REWRITE), may_rewrite=True)
    note, *_ = story(hook, hook, hook, n=1)
    assert note.ran == [{"n": 4}]


def test_a_rewrite_is_ignored_where_it_is_not_allowed_and_that_is_told():
    note, _, notices, _ = story(Hook(command=python(REWRITE)), n=1)
    assert note.ran == [{"n": 1}]
    assert "may not change arguments" in notices[0].message


def test_what_a_hook_made_of_a_call_is_checked_and_decided_again():
    hook = Hook(command=python("print(json.dumps({'args': {'n': 'many'}}))"), may_rewrite=True)
    note, reply, _, response = story(hook, n=1)
    assert (note.ran, reply.calls[0].state) == ([], "failed")
    assert "not valid" in response["error"]
    rules = Policy(
        default="allow",
        rules=[Rule(verdict="deny", args={"n": "2"})],
        hooks=(Hook(command=python(REWRITE), may_rewrite=True),),
    )
    note, reply, _, _ = story(policy=rules, n=1)
    assert (note.ran, reply.calls[0].state) == ([], "denied")


def test_the_user_is_asked_about_what_the_hook_made_of_it():
    asked: list[Any] = []

    async def approve(call: FunctionCall, *_: Any) -> str:
        asked.append(dict(call.args))
        return "yes"

    note, *_ = story(approve=approve, policy=Policy(hooks=(Hook(command=python(REWRITE), may_rewrite=True),)), n=1)
    assert (asked, note.ran) == ([{"n": 2}], [{"n": 2}])


@pytest.mark.parametrize("code", ["sys.exit(1)", "sys.exit(77)", "os.kill(os.getpid(), 9)", "1/0"])
@pytest.mark.parametrize("on_failure", ["warn", "deny"])
def test_a_hook_that_fails_warns_or_denies_as_it_is_set(code: str, on_failure: Any):
    note, _, notices, response = story(Hook(command=python(code), on_failure=on_failure), n=1)
    if on_failure == "warn":
        assert note.ran == [{"n": 1}]
        assert [notice.level for notice in notices] == ["warning"]
    else:
        assert note.ran == []
        assert "failed" in response["error"]


def test_a_hook_that_is_not_there_or_says_nonsense_has_failed():
    note, _, notices, _ = story(Hook(command=("/no/such/command",)), n=1)
    assert note.ran == [{"n": 1}]
    assert "cannot be started" in notices[0].message
    note, _, _, response = story(Hook(command=python("print('{')"), may_rewrite=True, on_failure="deny"), n=1)
    assert note.ran == []
    assert "its answer cannot be read" in response["error"]
    note, _, _, response = story(Hook(command=python("print('{\"args\": 7}')"), may_rewrite=True, on_failure="deny"), n=1)
    assert note.ran == []
    misspelt = Hook(command=python("print('{\"arguments\": {}}')"), may_rewrite=True, on_failure="deny")
    assert story(misspelt, n=1)[0].ran == []
    note, _, notices, _ = story(
        Hook(command=python("print('hello')")), Hook(command=python("print([1])"), may_rewrite=True), n=1
    )
    assert (note.ran, notices) == ([{"n": 1}], [])


@pytest.mark.parametrize("on_failure", ["warn", "deny"])
def test_a_hook_that_cannot_be_told_of_the_call_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, on_failure: Any
):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with caplog.at_level(logging.CRITICAL, "callgate"):
        note, reply, notices, _ = story(Hook(command=python("sys.exit(0)"), on_failure=on_failure), n=1)
    assert (len(note.ran), reply.calls[0].state) == {"warn": (1, "finished"), "deny": (0, "denied")}[on_failure]
    assert ["FileNotFoundError" in notice.message for notice in notices] == [True] * (on_failure == "warn")


def test_a_hook_that_hangs_is_ended_with_its_children(tmp_path: Path):
    mark = tmp_path / "alive"
    child = f"import time\nwhile True:\n    open({str(mark)!r}, 'a').write('x')\n    time.sleep(0.02)"
    code = (
        f"import subprocess\nsubprocess.Popen([sys.executable, '-I', '-S', '-c', {child!r}])\n"
        f"while not os.path.exists({str(mark)!r}): time.sleep(0.01)\ntime.sleep(600)"
    )
    note, _, _, response = story(Hook(command=python(code), timeout_s=3, on_failure="deny"), n=1)
    assert note.ran == []
    assert "did not end within 3 s" in response["error"]
    size = mark.stat().st_size
    time.sleep(0.3)  # clock: what is dead stays silent; no event shows that
    assert mark.stat().st_size == size


def test_a_child_that_keeps_the_pipes_open_does_not_hold_the_call_up():
    code = "import subprocess\nsubprocess.Popen(['sleep', '600'])\nprint('No.', file=sys.stderr, flush=True); sys.exit(2)"
    note, *_, response = story(Hook(command=python(code), timeout_s=30), n=1)
    assert (note.ran, response) == ([], {"error": "This call was not allowed. No."})


def test_a_child_that_left_its_group_and_keeps_the_pipes_does_not_either(tmp_path: Path):
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess\nchild = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\nprint('No.', file=sys.stderr, flush=True); sys.exit(2)"
    )
    note, *_, response = story(Hook(command=python(code), timeout_s=30), n=1)
    os.kill(int(pid_file.read_text()), 9)
    assert (note.ran, response) == ([], {"error": "This call was not allowed. No."})


def test_a_flood_of_output_is_cut_and_what_it_means_still_counts():
    code = "sys.stdout.write('x' * 10_000_000); sys.stderr.write('No! ' * 1_000_000); sys.exit(2)"
    note, _, _, response = story(Hook(command=python(code), output_bytes=100), n=1)
    assert note.ran == []
    assert response["error"] == "This call was not allowed. " + ("No! " * 25).strip()


def test_a_hook_need_not_read_and_sees_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    monkeypatch.setenv("MINE", "yes")
    monkeypatch.setenv("LC_TEST", "C")
    code = f"json.dump(dict(os.environ), open({str(tmp_path / 'env')!r}, 'w')); os.close(0)"
    note = Note()
    big = FunctionCall(name="note", args={"text": "x" * 1_000_000}, id="c")
    run(run_before([Hook(command=python(code), environment=("MINE",))], note.definition, big, session=None))
    env = json.loads((tmp_path / "env").read_text())
    assert ("GEMINI_API_KEY" in env, env["MINE"], env["LC_TEST"], "PATH" in env) == (False, "yes", "C", True)


def test_cancelling_a_run_ends_its_hooks(tmp_path: Path):
    pid_file = tmp_path / "pid"

    async def cancelled() -> Any:
        note = Note()
        hook = Hook(command=python(f"open({str(pid_file)!r}, 'w').write(str(os.getpid()) + ';'); time.sleep(600)"))
        gate = Gate(ScriptedModel([call("note", n=1)]), [note], policy=Policy(default="allow", hooks=(hook,)))
        task = asyncio.create_task(gate.run("Go", session="s"))
        while not (pid_file.exists() and pid_file.read_text().endswith(";")):  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.01)
        assert gate.cancel("s")
        return note, await task

    note, reply = run(cancelled())
    assert (note.ran, reply.finish_reason) == ([], "cancelled")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text().rstrip(";")), 0)


# --- after ---------------------------------------------------------------------------------------------------------------


def test_an_after_hook_is_told_of_the_result_and_may_remark(tmp_path: Path):
    told = tmp_path / "told"
    code = f"open({str(told)!r}, 'w').write(sys.stdin.read()); print('Run the tests.', file=sys.stderr); sys.exit(2)"
    note, reply, _, response = story(Hook(command=python(code), when="after"), n=1)
    assert note.ran == [{"n": 1}]
    assert response == {"result": "noted", "notes": ["Run the tests."]}
    result = json.loads(told.read_text())["result"]
    assert (result["status"], result["value"], result["error"]) == ("finished", "noted", None)
    assert reply.calls[0].state == "finished"
    *_, response = story(Hook(command=python("sys.exit(2)"), when="after"), n=1)
    assert response["notes"] == ["A hook objects to this call."]


def test_an_after_hook_that_fails_is_a_warning():
    note, _, notices, response = story(Hook(command=python("sys.exit(3)"), when="after"), n=1)
    assert (note.ran, response) == ([{"n": 1}], {"result": "noted"})
    assert "failed: exit code 3" in notices[0].message
    others = Hook(command=python("sys.exit(2)"), when="after", tool="other")
    *_, notices, _ = story(Hook(command=python("sys.exit(0)"), when="after"), others, n=1)
    assert notices == []


# --- settings ------------------------------------------------------------------------------------------------------------


def test_a_hook_is_for_the_tools_that_it_names():
    mine = ToolDefinition(name="get_issue", kind="mcp", server="github")
    assert Hook(command=("x",)).is_for(mine)
    assert Hook(command=("x",), tool="get_*", server="git*", kind="mcp").is_for(mine)
    assert not Hook(command=("x",), tool="set_*").is_for(mine)
    assert not Hook(command=("x",), server="gitlab").is_for(mine)
    assert not Hook(command=("x",), kind="file").is_for(mine)
    assert not Hook(command=("x",), server="*").is_for(ToolDefinition(name="f"))

    @tool
    def free() -> str:
        return "ran"

    policy = Policy(
        hooks=(
            Hook(command=python("sys.exit(2)"), tool="other"),
            Hook(command=python("sys.exit(2)"), when="after", tool="other"),
        )
    )
    assert run(Gate(ScriptedModel([call("free"), "ok"]), [free], policy=policy).run("Go")).calls[0].state == "finished"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (7, "is no hook: use a table"),
        ({}, "a hook has no command"),
        ({"command": []}, "use a list of words"),
        ({"command": ["a", 1]}, "use a list of words"),
        ({"command": 7}, "use a list of words"),
        ({"command": "x", "whenn": "before"}, "a hook has no field 'whenn'"),
        ({"command": "x", "when": "during"}, "use 'before' or 'after'"),
        ({"command": "x", "on_failure": "panic"}, "use 'warn' or 'deny'"),
        ({"command": "x", "kind": "thing"}, "a hook is for the kind 'thing'"),
        ({"command": "x", "timeout_s": 0}, "timeout_s above 0"),
        ({"command": "x", "timeout_s": "long"}, "use a number"),
        ({"command": "x", "output_bytes": 0}, "output_bytes of at least 1"),
        ({"command": "x", "tool": "["}, "without its ']'"),
    ],
)
def test_a_hook_that_cannot_be_meant_is_an_error(table: Any, said: str):
    with pytest.raises(UsageError) as raised:
        hook_from(table)
    assert said in str(raised.value)


def test_a_command_may_be_a_text_but_no_shell_reads_it():
    hook = hook_from({"command": "./check 'a b' $HOME"})
    assert hook.command == ("./check", "a b", "$HOME")
    assert hook_from(hook) is hook
