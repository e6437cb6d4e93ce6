"""Who is asked, and where: a person who takes long is in nobody's way."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel
from callgate.permission import Answered
from callgate.permission.approval import request_approval
from callgate.testing import call, text
from callgate.threads import THREADS
from callgate.types import FunctionCall, ToolDefinition

CALL = FunctionCall(name="drop", id="a")
DEFINITION = ToolDefinition(name="drop", description="", input_schema={"type": "object"})


def run(work: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await work

    return asyncio.run(bounded())


def drop() -> str:
    return "dropped"


async def yes(*words: Any) -> Any:
    await asyncio.sleep(0)
    return "yes"


async def answer_of(given: str, *words: Any) -> Any:
    return given


class Person:
    async def __call__(self, *words: Any) -> Any:
        return "yes"


class SyncPerson:
    def __call__(self, *words: Any) -> Any:
        return yes()


@pytest.mark.parametrize(
    "approve",
    [
        yes, functools.partial(answer_of, "yes"), Person(), SyncPerson(), lambda *words: yes(), lambda *words: "yes",
        functools.partial(lambda given, *words: given, "yes"),
    ],
    ids=["async", "partial", "object", "object-of-coroutine", "lambda-of-coroutine", "sync", "sync-partial"],
)  # fmt: skip
def test_everything_that_can_be_called_can_be_asked(approve: Any) -> None:
    assert run(request_approval(approve, CALL, DEFINITION, "why")) == "yes"


def test_a_sync_function_is_asked_in_a_thread_of_ours() -> None:
    def approve(*words: Any) -> Any:
        names.append(threading.current_thread().name)
        return "yes"

    names: list[str] = []
    run(request_approval(approve, CALL, DEFINITION, "why"))
    assert names == ["callgate-tool"]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), StopIteration()])
def test_an_approve_that_raises_whatever_refuses_the_call_and_nothing_else(error: BaseException) -> None:
    def approve(*words: Any) -> Any:
        raise error

    gate = Gate(ScriptedModel([call("drop"), text("Done.")]), [drop], policy=Policy(default="ask"), approve=approve)
    reply = run(gate.run("Go."))
    assert (reply.text, [record.state for record in reply.calls]) == ("Done.", ["denied"])


def test_people_who_take_long_hold_up_neither_the_programs_threads_nor_its_tools() -> None:
    release = threading.Event()

    def approve(*words: Any) -> Any:
        begun.release()
        release.wait(60)
        return "yes"

    begun = threading.Semaphore(0)

    async def story() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waiting = [
            asyncio.create_task(
                Gate(
                    ScriptedModel([call("drop"), text("Done.")]), [drop], policy=Policy(default="ask"), approve=approve
                ).run("Go.")
            )
            for _ in range(6)
        ]
        for _ in waiting:
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        assert await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
        for task in waiting[:3]:
            task.cancel()
        await asyncio.wait(waiting[:3])
        assert THREADS.abandoned == 0
        release.set()
        replies = await asyncio.gather(*waiting[3:])
        assert [reply.calls[0].state for reply in replies] == ["finished"] * 3

    run(story())


def test_a_cancelled_run_does_not_keep_the_program_from_ending_while_input_waits() -> None:
    program = """
        import asyncio, os, sys
        from callgate import Gate, Policy, ScriptedModel
        from callgate.testing import call, text

        def drop() -> str:
            return "dropped"

        def approve(call, definition, reason):
            return input("Drop it? ")

        async def main():
            model = ScriptedModel([call("drop"), text("Done.")])
            gate = Gate(model, [drop], policy=Policy(default="ask"), approve=approve)
            task = asyncio.create_task(gate.run("Go.", session="s"))
            await asyncio.to_thread(os.read, int(sys.argv[1]), 1)
            task.cancel()
            await asyncio.wait({task})
            print("over", flush=True)

        asyncio.run(main())
    """
    stdin, nothing = os.pipe()
    seen, tell = os.pipe()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(seen)],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[seen],
        ) as child:  # fmt: skip
            assert child.stdout is not None
            assert child.stdout.read(len("Drop it? ")) == b"Drop it? "
            os.write(tell, b"!")
            out, err = child.communicate(timeout=60)
    finally:
        for descriptor in (stdin, nothing, seen, tell):
            os.close(descriptor)
    assert (child.returncode, out) == (0, b"over\n"), err


@pytest.mark.parametrize("answer", ["yes", "always", "no"])
def test_the_note_of_any_answer_reaches_the_model(answer: Any) -> None:
    async def approve(*words: Any) -> Any:
        return Answered(answer=answer, message=" Only this once. ")

    model = ScriptedModel([call("drop"), text("done")])
    reply = run(Gate(model, tools=[drop], approve=approve, policy=Policy(default="ask")).run("drop it"))
    assert "Only this once." in str(model.requests[-1].contents[-1])
    result = reply.calls[0].result
    note = ("The user allowed this call with a note: Only this once.",)
    assert result.notes == (() if answer == "no" else note)


def test_the_note_of_an_edit_stays_with_the_call_and_outlives_the_run(tmp_path: Path) -> None:
    async def approve(*words: Any) -> Any:
        return Answered(answer="yes", args={}, message="Nothing else.")

    place = str(tmp_path / "s.db")
    run(
        Gate(
            ScriptedModel([call("drop"), "done"]), tools=[drop], approve=approve, policy=Policy(default="ask"), store=place
        ).run("x", session="s")
    )
    model = ScriptedModel(["and?"])
    run(Gate(model, tools=[drop], store=place).run("y", session="s"))
    assert "with a note: Nothing else." in str(model.requests[0].contents)
