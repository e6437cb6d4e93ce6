"""Plays executable multi-turn cases of BFCL through a gate, killed at random; BFCL's own checker compares the end states.

    python bfcl_program.py BFCL_FOLDER WORK_FOLDER SEED KILLS CASE...

The calls are those of the ground truth. A model that cannot fail asks for what is not done yet, by the state that effects
left on disk: a call that ran twice, or not at all, leaves another state than the checker's own. Each life of a case is a
process; it says a dot before and after everything it does, and is killed some dots later, KILLS times at most. Prints one
line of JSON a case.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import functools
import importlib
import inspect
import json
import os
import pickle
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import state_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

from callgate import Gate, Limits, ScriptedModel, tool
from callgate.history.repair import validate
from callgate.sessions import load
from callgate.store import open_store
from callgate.testing import text
from callgate.testing.scripted_model import call_with

CATEGORY = "BFCL_v4_multi_turn_base.json"
SESSION = "case"
STEPS_MAX = 60


class Case:
    """One case: what a person says, what is called, and the state on disk that the calls work on."""

    def __init__(self, entry: dict[str, Any], truth: list[list[str]], folder: Path) -> None:
        self.entry = entry
        self.truth = truth
        self.folder = folder
        self._state = folder / "state"
        if not self._state.exists():
            self.write({name: self._made(name) for name in entry["involved_classes"]}, 0)

    def _made(self, name: str) -> Any:
        instance = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in STATELESS_CLASSES:
            instance._load_scenario(copy.deepcopy(self.entry["initial_config"].get(name, {})), long_context=False)
        return instance

    def read(self) -> tuple[dict[str, Any], int]:
        """The programs as they are, and how many calls they have had."""
        return pickle.loads(self._state.read_bytes())

    def write(self, programs: dict[str, Any], done: int) -> None:
        """In one step: a state is the one before a call, or the one after it."""
        new = self._state.with_suffix(".new")
        new.write_bytes(pickle.dumps((programs, done)))
        os.replace(new, self._state)

    def methods(self) -> dict[str, tuple[str, Callable[..., Any]]]:
        """Every method that can be called, and the program that has it; the later one wins, as in the checker."""
        programs, _ = self.read()
        return {
            name: (owner, method)
            for owner, program in programs.items()
            for name, method in inspect.getmembers(program, predicate=inspect.ismethod)
            if not name.startswith("_")
        }

    def verdict(self) -> dict[str, Any]:
        """The judgement of BFCL's checker on the state at the end."""
        last: dict[str, Any] = {}
        for calls in self.truth:
            _, last = execute_multi_turn_func_call(
                func_call_list=calls,
                initial_config=self.entry["initial_config"],
                involved_classes=self.entry["involved_classes"],
                model_name="ground_truth",
                test_entry_id=self.entry["id"],
            )
        programs, done = self.read()
        said = state_checker(programs, last)
        wanted = sum(map(len, self.truth))
        return {"valid": bool(said["valid"]) and done == wanted, "done": done, "wanted": wanted, "said": str(said)[:600]}


def arguments(source: str, methods: dict[str, tuple[str, Callable[..., Any]]]) -> tuple[str, dict[str, Any]]:
    """A call of the ground truth, which is Python, as a name and its arguments by name."""
    node = ast.parse(source.strip(), mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    values = [ast.literal_eval(value) for value in node.args]
    named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    bound = inspect.signature(methods[node.func.id][1]).bind(*values, **named)
    return node.func.id, json.loads(json.dumps(bound.arguments))


class Life:
    """One process that works on a case until it is killed, or there is nothing left to do."""

    def __init__(self, case: Case, step: Callable[[], None]) -> None:
        self._case = case
        self._step = step
        self._methods = case.methods()
        self._flat = [arguments(call, self._methods) for calls in case.truth for call in calls]
        self._ends = [sum(map(len, case.truth[: turn + 1])) for turn in range(len(case.truth))]
        self._turn = 0

    def _tool(self, name: str) -> Any:
        owner, method = self._methods[name]

        @functools.wraps(method)
        def effect(*given: Any, **named: Any) -> Any:
            self._step()
            programs, done = self._case.read()
            result = getattr(programs[owner], name)(*given, **named)
            self._case.write(programs, done + 1)
            self._step()
            return result

        return tool(effect, name=name, sequential=True)

    def _answer(self, request: Any) -> Any:
        assert validate(request.contents, sendable=True) == []
        _, done = self._case.read()
        # One at a time: of several, those after a call of unknown outcome would run as well.
        left = self._flat[done : self._ends[self._turn]][:1]
        return [call_with(name, args) for name, args in left] if left else text("Done.")

    async def live(self) -> None:
        store: Any = Watched(open_store(str(self._case.folder / "sessions.db")), self._step)
        tools = [self._tool(name) for name in sorted({name for name, _ in self._flat})]
        limits = Limits(call_timeout_s=600.0)
        async with Gate(ScriptedModel([self._answer], repeat_last=True), tools, store=store, limits=limits) as gate:
            for turn, said in enumerate(self._case.entry["question"]):
                self._turn = turn
                known = await store.load(SESSION)
                found = await load(store, SESSION) if known else None
                if found is None or found.exchanges <= self._turn:
                    await gate.run(said[0]["content"], session=SESSION)
                elif found.state == "interrupted":
                    await gate.run(None, session=SESSION)
                while self._case.read()[1] < self._ends[self._turn]:  # A call of unknown outcome had no effect.
                    await gate.run("Go on.", session=SESSION)
        await store.aclose()


class Watched:
    """A store that says a step before and after everything."""

    def __init__(self, store: Any, step: Callable[[], None]) -> None:
        self._store = store
        self._step = step

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._store, name)

        async def watched(*args: Any, **options: Any) -> Any:
            self._step()
            try:
                return await work(*args, **options)
            finally:
                self._step()

        return watched


def live(case: Case, pipe: int) -> None:
    """The child: everything that it does is said into the pipe."""
    status = 1
    try:
        asyncio.run(Life(case, lambda: os.write(pipe, b".") and None).live())
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def play(case: Case, kills: int, chance: random.Random) -> dict[str, Any]:
    """Lives follow each other until one ends by itself."""
    for lives in range(1, kills + 3):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            live(case, writing)
        os.close(writing)
        left = chance.randint(1, STEPS_MAX) if lives <= kills else -1
        while (heard := os.read(reading, 1)) and left != 0:
            left -= len(heard)
        if left == 0:
            os.kill(child, signal.SIGKILL)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return {"id": case.entry["id"], "lives": lives, **case.verdict()}
        if not os.WIFSIGNALED(status):
            break
    return {"id": case.entry["id"], "valid": False, "said": f"status {status} in life {lives}"}


def main() -> None:
    """Plays the cases that are named."""
    data, folder = Path(sys.argv[1]) / "bfcl_eval" / "data", Path(sys.argv[2])
    seed, kills, wanted = int(sys.argv[3]), int(sys.argv[4]), {int(number) for number in sys.argv[5:]}
    entries = [json.loads(line) for line in (data / CATEGORY).read_text("utf-8").splitlines()]
    truths = [json.loads(line) for line in (data / "possible_answer" / CATEGORY).read_text("utf-8").splitlines()]
    for number, (entry, truth) in enumerate(zip(entries, truths, strict=True)):
        if number in wanted:
            place = folder / str(number)
            place.mkdir()
            case = Case(entry, truth["ground_truth"], place)
            print(json.dumps(play(case, kills, random.Random(f"{seed} {number}"))), flush=True)


main()
