"""What `-T` names, and the one sentence for each way in which it fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callgate import Executor, FunctionCall, WorkerPool
from callgate.cli.tools import ToolLoadError, load_tools

GOOD = '''\
"""Some tools."""
from __future__ import annotations
from dataclasses import dataclass

from callgate import tool
import beside

@dataclass
class Pair:
    a: int

@tool
def roll_dice(sides: int = 6) -> int:
    """Rolls a die."""
    return beside.ROLLED

@tool(name="flip-coin")
def flip(pair: Pair) -> str:
    return "heads"

def plain(x: int) -> int:
    return x

class Group:
    @staticmethod
    def inside(x: int) -> int:
        return x

NUMBER = 7

def takes_a_group(x: Group) -> None: ...
'''


@pytest.fixture(autouse=True)
def imports_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("callgate_tools_") or str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("ROLLED = 4\n")
    (tmp_path / "my_tools.py").write_text(GOOD)
    return tmp_path / "my_tools.py"


def names(*words: str) -> list[str]:
    return [getattr(tool, "__name__", "?") for tool in load_tools(words)]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("my_tools", ["roll_dice", "flip"]),
        ("my_tools.py", ["roll_dice", "flip"]),
        ("./my_tools.py", ["roll_dice", "flip"]),
        ("my_tools:plain", ["plain"]),
        ("my_tools.py:plain", ["plain"]),
        ("my_tools.py:Group.inside", ["inside"]),
    ],
)
def test_modules_files_and_functions_in_them_are_found(good: Path, word: str, found: list[str]) -> None:
    assert names(word) == found


def test_a_file_is_run_once_and_a_tool_is_taken_once(good: Path, tmp_path: Path) -> None:
    with good.open("a") as file:
        file.write("with open('ran', 'a') as file:\n    file.write('x')\n")
    assert names("my_tools.py:plain", str(good), "my_tools.py:roll_dice") == ["plain", "roll_dice", "flip"]
    assert (tmp_path / "ran").read_text() == "x"


def test_what_a_file_imports_from_beside_it_works_from_anywhere(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (roll,) = load_tools(["../my_tools.py:roll_dice"])
    assert roll() == 4  # type: ignore[operator]


def test_a_file_beside_the_tools_does_not_take_the_place_of_a_module(good: Path, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "colorsys.py").write_text("raise SystemExit('the wrong one')\n")
    load_tools(["my_tools.py", "my_tools"])
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0)


def sentence(*words: str) -> str:
    with pytest.raises(ToolLoadError) as caught:
        load_tools(words)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gone.py", "there is no file 'gone.py'"),
        ("folder.py", "there is no file 'folder.py'"),
        ("no_such_module_here", "there is no module 'no_such_module_here' here or among the installed packages"),
        ("no_such_module_here.deep:fn", "there is no module 'no_such_module_here' here or among the installed packages"),
        ("my_tools.py:rol", "'my_tools.py' has no 'rol'; it has roll_dice, flip, plain, takes_a_group"),
        ("my_tools.py:NUMBER", "'my_tools.py': 7 is not callable, so it is not a tool"),
        ("my_tools.py:Pair", "a class is not a tool"),
        ("my_tools.py:takes_a_group", "'my_tools.py': tool 'takes_a_group': parameter 'x' cannot be declared"),
        ("empty.py", "'empty.py' has no tools: mark a function with @tool, or name one with -T empty.py:function"),
        ("divides.py", "'divides.py' cannot be imported: line 3: ZeroDivisionError: division by zero"),
        ("divides", "'divides' cannot be imported: divides.py line 3: ZeroDivisionError: division by zero"),
        ("spelled.py", "'spelled.py' cannot be imported: line 2: SyntaxError: "),
        ("leaves.py", "'leaves.py' cannot be imported: line 1: SystemExit: 3"),
        ("lacks.py", "'lacks.py' cannot be imported: line 2: ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("lacks", "'lacks' cannot be imported: lacks.py line 2: ModuleNotFoundError: No module named"),
        ("some dir/x", "-T 'some dir/x' names no tool; write module, module:function, file.py or file.py:function"),
        ("", "-T '' names no tool"),
    ],
)
def test_each_failure_is_one_sentence(good: Path, tmp_path: Path, word: str, said: str) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "divides.py").write_text("def f():\n\n    return 1 / 0\nf()\n")
    (tmp_path / "spelled.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "lacks.py").write_text("x = 1\nimport no_such_module_here\n")
    assert said in sentence(word)


def test_a_file_that_failed_can_be_loaded_once_it_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "mended.py"
    path.write_text("1 / 0\n")
    sentence("mended.py")
    path.write_text("def f(x: int) -> int:\n    return x  # mended\n")
    assert names("mended.py:f") == ["f"]


def test_tools_run_in_worker_processes_where_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "my_tools.py"
    file.write_text(
        "import os\nfrom callgate import tool\n\n@tool\ndef where() -> int:\n    'Where it runs.'\n    return os.getpid()\n"
    )
    [pool] = load_tools([str(file)], "local")
    assert isinstance(pool, WorkerPool)
    with contextlib.closing(pool):
        executor = Executor([pool])
        result = asyncio.run(executor.execute(FunctionCall(id="1", name="where", args={})))
        assert result.value in pool.pids
        assert result.value != os.getpid()
    for word, said in ((f"{file}:where", "whose tools are all offered"), (str(tmp_path / "no.py"), "there is no file")):
        with pytest.raises(ToolLoadError, match=said):
            load_tools([word], "ray")
