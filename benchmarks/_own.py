"""What callgate alone can be measured at: one figure or a few for each task, as one line of JSON.

    python _own.py TASK

Times are microseconds of processor time unless they say something else, medians of several rounds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _child import schema

CALLS = 100
ROUNDS = 9


def _micros(work: Callable[[], object], count: int, rounds: int = ROUNDS) -> float:
    took: list[float] = []
    for _ in range(rounds):
        gc.collect()
        before = time.process_time()
        for _ in range(count):
            work()
        took.append((time.process_time() - before) / count * 1e6)
    return statistics.median(took)


def check() -> dict[str, float]:
    """One check of the arguments of a call against its schema."""
    from callgate import ToolDefinition, check_arguments

    definition = ToolDefinition(name="tool_0", description="Does it.", input_schema=schema(0))
    args = {"query_0": "x", "limit": 5, "state": "open", "labels": ["a", "b"], "range": {"first": 1}}
    assert not check_arguments(definition, args).problems
    return {"us": _micros(lambda: check_arguments(definition, args), 1000)}


def parser() -> dict[str, float]:
    """The parser of prompted calling: megabytes a second of prose, and microseconds for an answer with one call."""
    from callgate.prompted import parse_text

    prose = "An answer that calls nothing, in plain words and a few lines.\n" * 4_000
    call = 'I will look.\nTOOL_CALL: look_up({"number": 5, "text": "a line of some length"})\n'
    assert len(parse_text(call, tools=["look_up"]).calls) == 1
    micros = _micros(lambda: parse_text(prose, tools=["look_up"]), 3)
    return {"MB/s": len(prose) / micros, "us a call": _micros(lambda: parse_text(call, tools=["look_up"]), 300)}


def dispatch() -> dict[str, float]:
    """What a call costs beyond the function itself, with everything on.

    Checked, decided by rules, looked up in the cache, counted by limits, written to the audit log before and after,
    journalled, run with a deadline, and answered; a hundred calls of one answer, so that many share the model's part.
    """
    from callgate import Gate, Limits, Policy, ScriptedModel
    from callgate.permission import Rate, RateLimits, ResultCache, Rule
    from callgate.testing import call

    async def add(first: int, second: int) -> int:
        """Adds."""
        return first + second

    limits = Limits(parallel=CALLS, calls=10**6, repeats=10**6, calls_per_turn=CALLS)

    async def bare() -> float:
        before = time.process_time()
        for number in range(CALLS):
            await add(number, 1)
        return time.process_time() - before

    async def once(folder: str, count: int) -> float:
        wanted = [call("add", first=number, second=1) for number in range(count)]
        script = [wanted, "Done."] if wanted else ["Done."]
        gate = Gate(
            ScriptedModel(script),
            [add],
            limits=limits,
            policy=Policy(
                rules=[
                    Rule(verdict="allow", tool="add"),
                    Rule(verdict="deny", tool="remove_*"),
                    Rule(verdict="ask", kind="mcp"),
                ]
            ),
            rates=RateLimits(total=Rate(per_s=1e6, burst=10**6)),
            audit=str(Path(folder) / "audit.jsonl"),
            cache=ResultCache(),
        )
        gc.collect()
        before = time.process_time()
        reply = await gate.run("Go.")
        took = time.process_time() - before
        assert len(reply.calls) == count
        return took

    async def measured() -> tuple[float, float]:
        with_calls, without = [], []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(ROUNDS):
                with_calls.append(await once(folder, CALLS))
                without.append(await once(folder, 0))
        return statistics.median(with_calls) - statistics.median(without), await bare()

    run, function = asyncio.run(measured())
    return {"us": (run - function) / CALLS * 1e6}


def pool() -> dict[str, float]:
    """A warm call of a function in a worker process, in microseconds of wall time."""
    from callgate import WorkerPool

    async def measured() -> float:
        took: list[float] = []
        async with WorkerPool([Path(__file__).with_name("workers.py")], size=1) as pool:
            for number in range(500):
                start = time.perf_counter()
                result = await pool.execute(None, "no_op", {"number": number})
                took.append((time.perf_counter() - start) * 1e6)
                assert result.value == number, result
        return statistics.median(took[50:])

    return {"us": asyncio.run(measured())}


def files() -> dict[str, float]:
    """Calls of file tools, in microseconds of wall time."""
    from callgate.files import FileTools

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.txt").write_text("a line\n" * 100, "utf-8")
        tools = FileTools(folder)
        took: dict[str, float] = {}
        for name, args in {"read_file": {"path": "a.txt"}, "list_files": {"path": "."}}.items():
            assert not tools.call_sync(name, args).is_error
            samples = []
            for _ in range(300):
                start = time.perf_counter()
                tools.call_sync(name, args)
                samples.append((time.perf_counter() - start) * 1e6)
            took[name] = statistics.median(samples)
        return took


class _Caller:
    """A model that makes so many calls and keeps nothing."""

    name = "caller"

    def __init__(self) -> None:
        self.left = 0

    async def generate(self, request: Any) -> Any:
        self.left -= 1
        call = {"functionCall": {"id": f"c{self.left}", "name": "read", "args": {"number": self.left}}}
        part = {**call, "thoughtSignature": f"{self.left:08}" * 10} if self.left >= 0 else {"text": "Done."}
        yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}


def memory_of_a_long_session() -> dict[str, float]:
    """What a session of 400 turns takes, in bytes of its history; every call returns 4 KB of text."""
    import tracemalloc

    from callgate import Gate, Limits

    async def read(number: int) -> str:
        """Reads."""
        return f"{number:08} " + "a line of some length, as tools return it " * 97

    async def measured() -> tuple[int, int]:
        model = _Caller()
        gate = Gate(model, [read], limits=Limits(turns=1000, calls=1000, repeats=1000))
        model.left = 3
        await gate.run("Go.", session="first")  # Loads what is loaded late.
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        model.left = 400
        reply = await gate.run("Go.", session="long")
        history = sum(len(json.dumps(content, ensure_ascii=False)) for content in reply.contents)
        assert len(reply.calls) == 400
        del reply
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before, history

    grown, history = asyncio.run(measured())
    return {"grown_bytes": grown, "history_bytes": history, "ratio": grown / history}


def memory_of_idle_sessions() -> dict[str, float]:
    """KiB that each of a thousand idle sessions takes."""
    from sessions import idle

    return {"KiB": asyncio.run(idle("memory"))}


def memory_of_idle_gates() -> dict[str, float]:
    """KiB that each of a thousand idle gates takes, all with the same twenty tools."""
    import tracemalloc

    from systems.by_callgate import _Tool

    from callgate import Gate, ScriptedModel, definition_from

    raw = [{"name": f"tool_{n}", "description": "Does it.", "inputSchema": schema(n)} for n in range(20)]

    def gate() -> Gate:
        return Gate(ScriptedModel([]), [_Tool(definition_from(tool)) for tool in raw])

    gates = [gate()]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    gates += [gate() for _ in range(1000)]
    gc.collect()
    return {"KiB": (tracemalloc.get_traced_memory()[0] - before) / 1000 / 1024}


def encoding_of_a_large_result() -> dict[str, float]:
    """A run whose call returns 10 MB, as a multiple of encoding these once."""
    from pydantic_core import to_json

    from callgate import Gate, ScriptedModel
    from callgate.testing import call

    rows = [{"id": n, "name": f"row {n}", "text": "a line of some length, as tools return it"} for n in range(130_000)]

    async def read() -> list[dict[str, Any]]:
        """Reads."""
        return rows

    async def once() -> float:
        gate = Gate(ScriptedModel([call("read"), "Done."]), [read])
        before = time.process_time()
        reply = await gate.run("Go.")
        assert not reply.calls[0].result.is_error
        return time.process_time() - before

    encoding = _micros(lambda: to_json(rows), 1) / 1e6
    took = min(asyncio.run(once()) for _ in range(4))
    return {"ms": 1000 * took, "ratio": took / encoding}


def growth() -> dict[str, float]:
    """Microseconds for each of 10 to 10,000 tools of a gate, and for each of as many sessions of one turn."""
    from systems.by_callgate import _Tool

    from callgate import Gate, ScriptedModel, definition_from

    found: dict[str, float] = {}
    for count in (10, 100, 1_000, 10_000):
        raw = [{"name": f"tool_{count}_{n}", "description": "Does it.", "inputSchema": schema(n)} for n in range(count)]
        rounds = max(1, 2_000 // count)
        gc.collect()
        before = time.process_time()
        for number in range(rounds):
            named = [{**tool, "description": f"Does it {number}."} for tool in raw]
            Gate(ScriptedModel([]), [_Tool(definition_from(tool)) for tool in named], tools_shown=10)
        found[f"{count} tools"] = (time.process_time() - before) / count / rounds * 1e6

        async def talk(count: int = count, rounds: int = rounds) -> None:
            for number in range(rounds):
                gate = Gate(ScriptedModel(["Yes."] * count))
                for n in range(count):
                    await gate.run("Go.", session=f"s{number}-{n}")

        gc.collect()
        before = time.process_time()
        asyncio.run(talk())
        found[f"{count} sessions"] = (time.process_time() - before) / count / rounds * 1e6
    return found


TASKS: dict[str, Callable[[], dict[str, float]]] = {
    "check": check,
    "parser": parser,
    "dispatch": dispatch,
    "pool": pool,
    "files": files,
    "long session": memory_of_a_long_session,
    "idle sessions": memory_of_idle_sessions,
    "idle gates": memory_of_idle_gates,
    "large result": encoding_of_a_large_result,
    "growth": growth,
}


if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]]()))
