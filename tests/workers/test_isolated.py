"""`@tool(isolation="process")` without any set-up."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import Executor, FunctionCall, Gate, ScriptedModel, ToolDefinition, UsageError, tool
from callgate.testing import call, text
from callgate.workers import pool
from callgate.workers.address import Address, address_of, resolve
from callgate.workers.isolated import shared_pool
from callgate.workers.job import Job
from callgate.workers.protocol import WorkerCall, WorkerDiedError


def test_a_function_runs_in_another_process_and_its_successor_too(toolbox):
    executor = Executor([toolbox.apart])
    first, second = asyncio.run(executor.execute_all([FunctionCall(name="apart", args={"a": n}, id=str(n)) for n in (1, 2)]))
    assert [first.value[0], second.value[0]] == [1, 2]
    assert os.getpid() not in (first.value[1], second.value[1])
    assert (executor.definition("apart").kind, executor.definition("apart").server) == ("function", None)


def test_an_endless_function_is_stopped_and_the_next_call_served(toolbox):
    executor = Executor([toolbox.apart_forever, toolbox.apart])

    async def story():
        await executor.execute(FunctionCall(name="apart", args={"a": 1}, id="0"))  # Now there is a worker to begin at once.
        stopped = await executor.execute(FunctionCall(name="apart_forever", id="1"))
        return stopped, await executor.execute(FunctionCall(name="apart", args={"a": 1}, id="2"))

    stopped, served = asyncio.run(story())
    assert (stopped.status, stopped.error) == (
        "timed_out",
        "The call did not finish within 1 s. Whether it had its effect is not known.",
    )
    assert served.status == "finished"


def test_a_gate_runs_it_from_sync_code(toolbox):
    with Gate(ScriptedModel([call("apart", a=4), text("done")]), tools=[toolbox.apart]) as gate:
        reply = gate.run_sync("Go.")
    assert reply.calls[0].result.value[0] == 4


def test_arguments_are_checked_before_anything_leaves_the_program(toolbox):
    result = asyncio.run(Executor([toolbox.apart]).execute(FunctionCall(name="apart", args={"a": "x"}, id="1")))
    assert result.error.startswith("The arguments of 'apart' are not valid: ")


def inner() -> object:
    @tool(name="inside", isolation="process")
    def inside() -> None: ...

    return inside


class Thing:
    def method(self) -> None: ...


@pytest.mark.parametrize(
    "fn", [lambda: None, inner(), Thing().method, functools.partial(print)], ids=["lambda", "inside", "bound", "partial"]
)
def test_what_another_process_cannot_import_is_refused_with_what_to_do(fn):
    with pytest.raises(UsageError, match=r"needs a function that another process can import.*at the top of a module"):
        address_of(fn, tool_name="x")


def test_an_address_leads_back_to_its_function(toolbox):
    address = address_of(toolbox.add, tool_name="add")
    assert address == Address("toolbox", "add", str(Path(toolbox.__file__).resolve()))
    assert resolve(address) is toolbox.add


def test_an_address_that_leads_nowhere_says_so():
    with pytest.raises(UsageError, match="module 'json' has no 'nothing' when a worker imports it"):
        resolve(Address("json", "nothing", None))


SCRIPT = '''
import asyncio, os
from callgate import Executor, FunctionCall, tool

@tool(isolation="process")
def where(a: int) -> list:
    """Where it runs."""
    return [a, os.getpid() != {pid}, __name__]

async def main():
    result = await Executor([where]).execute(FunctionCall(name="where", args={{"a": 3}}, id="1"))
    print(result.status, result.value or result.error)

{guard}
    asyncio.run(main())
'''


# Without the guard the script runs once more in the worker, where it starts no workers of its own: it ends there.
@pytest.mark.parametrize("guard", ['if __name__ == "__main__":', "if True:"], ids=["guarded", "unguarded"])
def test_a_function_of_the_script_itself_is_found_by_its_file(guard, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(SCRIPT.format(guard=guard, pid=os.getpid()))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "finished [3, True, '__callgate_main__']\n", done.stderr


def test_a_worker_starts_no_workers_of_its_own(use_pool):
    async def story(pool):
        return await pool.execute(None, "breed", {})

    assert use_pool(story).error.startswith("UsageError: a worker process does not start workers of its own;")


def test_a_function_typed_into_an_interpreter_is_refused():
    code = (
        "from callgate import Executor, tool\n"
        "@tool(isolation='process')\ndef f() -> int: return 1\n"
        "try:\n    Executor([f])\nexcept ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "typed into an interactive session; put it in a file and import it" in done.stdout


def test_a_process_that_cannot_be_started_costs_its_call_and_says_that_nothing_ran(toolbox, monkeypatch):
    """Such as when the machine has no room for another process, which may be over a moment later."""
    executor = Executor([toolbox.apart])
    shared_pool().close()
    asked = FunctionCall(name="apart", args={"a": 1}, id="1")

    def no_room() -> None:
        raise OSError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(pool, "WorkerProcess", no_room)
        failed = asyncio.run(executor.execute(asked))
    assert (failed.status, failed.error) == (
        "failed",
        "Not run: no worker could be started: [Errno 11] Resource temporarily unavailable.",
    )
    assert asyncio.run(executor.execute(asked)).status == "finished"


def test_a_call_that_finds_its_pool_closed_for_want_of_a_process_says_so_too(toolbox, monkeypatch):
    """The pool closes in a thread of its own, so a call may come before or after."""

    def no_room() -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(pool, "WorkerProcess", no_room)
    workers = pool.WorkerPool(size=1, name="process", eager=False, cluster="none")
    with pytest.raises(UsageError, match="cannot start"):
        workers.runnables()
    workers.close()
    isolated = Executor([toolbox.apart]).definition("apart")
    refused = asyncio.run(
        workers.run(isolated, {"a": 1}, timeout_s=60.0, address=address_of(toolbox.apart, tool_name="apart"))
    )
    assert (refused.status, refused.error) == (
        "failed",
        "Not run: no worker could be started: [Errno 11] Resource temporarily unavailable.",
    )


def test_a_worker_that_died_before_it_read_of_a_call_cannot_have_run_it():
    async def story():
        definition = ToolDefinition(name="send", input_schema={"type": "object"})
        job = Job(definition, {}, None, 1.0, asyncio.get_running_loop())
        unread = WorkerCall(job, None, grace_s=0.1).crashed(WorkerDiedError("exit status 1.", unread=True))
        job.has_begun = True
        return unread, WorkerCall(job, None, grace_s=0.1).crashed(WorkerDiedError("exit status 1."))

    unread, read = asyncio.run(story())
    assert unread.error == (
        "The worker process died before it read of the call: exit status 1. It had not begun, so it had no effect."
    )
    assert read.error == "The worker process died during the call: exit status 1. Whether it had its effect is not known."
