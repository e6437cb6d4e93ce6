"""The scripts of this repository: the coverage gate, and the set-up's sentences."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def gate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_gate", ROOT / "scripts" / "coverage_gate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(**files: tuple[int, int, int, int]) -> dict[str, Any]:
    """`coverage json` output, shortened to what is read; `_` in a name stands for `/`."""
    keys = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return {
        "meta": {"branch_coverage": True},
        "files": {
            f"src/callgate/{name.replace('_', '/')}.py": {"summary": dict(zip(keys, counts, strict=True))}
            for name, counts in files.items()
        },
    }


def breaches(gate: ModuleType, table: dict[str, Any], **files: tuple[int, int, int, int]) -> list[str]:
    return gate.breaches(gate.counts_of(measured(**files)), table)


def test_coverage_that_reaches_the_minimum_exactly_holds(gate: ModuleType) -> None:
    assert breaches(gate, {"overall": 90}, turn=(10, 9, 10, 9)) == []


def test_branches_count_by_themselves(gate: ModuleType) -> None:
    assert breaches(gate, {"overall": 90}, turn=(1000, 1000, 10, 8)) == [
        "the whole package must reach 90 %, but ran 8 of 10 branches (80.00 %)"
    ]


def test_almost_all_is_not_all(gate: ModuleType) -> None:
    assert breaches(gate, {"overall": 0, "modules": {"turn.py": 100}}, turn=(100_000, 99_999, 4, 4)) == [
        "turn.py must reach 100 % (row 'turn.py'), but ran 99999 of 100000 statements (99.99 %)"
    ]


def test_a_folder_row_holds_for_every_file_in_it_and_for_no_other(gate: ModuleType) -> None:
    table = {"overall": 0, "modules": {"permission/": 100}}
    found = breaches(gate, table, permission_rules=(4, 4, 2, 1), permission_audit=(4, 4, 2, 2), permissions=(4, 0, 2, 0))
    assert found == ["permission/rules.py must reach 100 % (row 'permission/'), but ran 1 of 2 branches (50.00 %)"]


def test_a_file_without_branches_has_them_all(gate: ModuleType) -> None:
    assert breaches(gate, {"overall": 100}, types=(5, 5, 0, 0)) == []


def test_a_row_that_guards_nothing_is_a_breach(gate: ModuleType) -> None:
    assert breaches(gate, {"overall": 0, "modules": {"tern.py": 100}}, turn=(1, 1, 0, 0)) == [
        "the table asks for 100 % of 'tern.py', but no such file was measured; fix or remove that row"
    ]


def test_only_files_of_the_package_count_wherever_the_tree_lies(gate: ModuleType) -> None:
    data = measured(turn=(2, 2, 0, 0))
    data["files"] = {f"/a b/{path}": file for path, file in data["files"].items()}
    data["files"]["tests/test_turn.py"] = {"summary": {}}
    assert list(gate.counts_of(data)) == ["turn.py"]


def run_gate(tmp_path: Path, data: str, table: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "coverage.json").write_text(data)
    (tmp_path / "pyproject.toml").write_text(table)
    command = [
        sys.executable,
        ROOT / "scripts" / "coverage_gate.py",
        tmp_path / "coverage.json",
        tmp_path / "pyproject.toml",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


TABLE = "[tool.callgate.coverage]\noverall = 90\n"


def test_the_script_says_held_and_ends_with_0(tmp_path: Path) -> None:
    done = run_gate(tmp_path, json.dumps(measured(turn=(10, 10, 3, 3))), TABLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "coverage-gate: held: 100.00 % of statements, 100.00 % of branches\n"


def test_the_script_says_what_is_missing_and_ends_with_1(tmp_path: Path) -> None:
    done = run_gate(tmp_path, json.dumps(measured(turn=(10, 5, 3, 3))), TABLE)
    assert done.returncode == 1
    assert "must reach 90 %, but ran 5 of 10 statements (50.00 %)" in done.stderr


@pytest.mark.parametrize(
    ("data", "table", "sentence"),
    [
        ("not json", TABLE, "cannot judge"),
        ('{"meta": {"branch_coverage": false}, "files": {}}', TABLE, "holds no branches"),
        ('{"meta": {"branch_coverage": true}, "files": {}}', TABLE, "run `make test` first"),
        (json.dumps(measured(turn=(1, 1, 0, 0))), "[tool]\n", "has no 'overall'"),
    ],
)
def test_what_cannot_be_judged_ends_with_2_and_never_passes(tmp_path: Path, data: str, table: str, sentence: str) -> None:
    done = run_gate(tmp_path, data, table)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_the_table_of_this_repository_can_be_read(gate: ModuleType) -> None:
    table = gate.table_of(ROOT / "pyproject.toml")
    assert table["overall"] >= 90
    assert table["modules"]["machine/"] == table["modules"]["permission/"] == 100


# --- shell scripts -------------------------------------------------------------------------------------------------------


def shell(script: str, *arguments: str, cwd: Path, path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of a script that finds only the programs in `path`."""
    (cwd / "scripts").mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts" / script, cwd / "scripts" / script)
    command = ["/bin/sh", str(cwd / "scripts" / script), *arguments]
    env = {"PATH": str(path), **environ}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False)


def programs(folder: Path, *real: str, **fake: str) -> Path:
    """A folder for PATH with some of this machine's programs and some made up ones."""
    folder.mkdir()
    for name in real:
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    for name, body in fake.items():
        file = folder / name.replace("_", "-")
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
    return folder


posix = pytest.mark.skipif(os.name != "posix", reason="the scripts are POSIX shell")


@posix
def test_set_up_without_python_says_so_in_one_sentence(tmp_path: Path) -> None:
    done = shell("setup", "chat", "cli", cwd=tmp_path, path=programs(tmp_path / "bin", "dirname", "cat"))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "callgate: there is no 'python3' here; install Python 3.11 or newer, or name one: make chat PYTHON=/path/to/python3"
    ]


@posix
def test_set_up_with_an_old_python_says_so_in_one_sentence(tmp_path: Path) -> None:
    old = programs(tmp_path / "bin", "dirname", "cat", python3='case "$2" in *print*) echo 3.9;; *) exit 1;; esac')
    done = shell("setup", "test", "cli", "dev", cwd=tmp_path, path=old)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "callgate: 'python3' is Python 3.9, and 3.11 or newer is needed; name another one: make test PYTHON=/path/to/python3"
    ]


@posix
def test_system_packages_does_nothing_where_nothing_is_missing(tmp_path: Path) -> None:
    path = programs(
        tmp_path / "bin",
        bwrap="",
        chromium="",
        firefox="",
        fish="",
        nginx="",
        node="",
        npm="",
        pgbouncer="",
        postgres="",
        slowhttptest="",
        zsh="",
        apt_get="exit 9",
    )
    done = shell("system-packages", cwd=tmp_path, path=path)
    assert (done.returncode, done.stdout) == (0, "system-packages: everything is here already\n")


@posix
def test_system_packages_installs_what_is_missing_and_no_more(tmp_path: Path) -> None:
    there = dict.fromkeys(("bwrap", "firefox", "fish", "nginx", "node", "pgbouncer", "postgres", "slowhttptest", "zsh"), "")
    fakes = {**there, "id": "echo 0", "apt_get": 'echo "$DEBIAN_FRONTEND $*"'}
    done = shell("system-packages", cwd=tmp_path, path=programs(tmp_path / "bin", **fakes))
    first, update, install = done.stdout.splitlines()
    assert done.returncode == 0
    assert first == "system-packages: installing chromium npm"
    assert update.startswith("noninteractive ")
    assert update.endswith(" update")
    assert install.endswith(" install --yes --no-install-recommends chromium npm")


@posix
@pytest.mark.parametrize(
    ("fakes", "sentence"),
    [({"id": "echo 0"}, "there is no apt-get here"), ({"id": "echo 1000", "apt_get": "exit 9"}, "run it as root")],
)
def test_system_packages_that_cannot_install_says_why(tmp_path: Path, fakes: dict[str, str], sentence: str) -> None:
    done = shell(
        "system-packages",
        cwd=tmp_path,
        path=programs(tmp_path / "bin", firefox="", postgres="", fish="", nginx="", zsh="", **fakes),
    )
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "chromium nodejs npm" in done.stderr


NPM = 'while [ "$1" != --prefix ]; do shift; done; mkdir -p "$2/node_modules"; echo "$*" >>"$2/../asked"'


@posix
def test_npm_packages_are_installed_once_with_their_versions_and_without_their_scripts(tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", "dirname", "cat", "awk", "mkdir", "rm", npm=NPM)
    folder = str(tmp_path / "npm")
    first = shell("npm-packages", folder, cwd=tmp_path, path=path)
    again = shell("npm-packages", folder, cwd=tmp_path, path=path)
    assert (first.returncode, again.returncode, again.stderr) == (0, 0, "")
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert "--ignore-scripts" in asked
    assert " @modelcontextprotocol/inspector@1." in asked


@posix
@pytest.mark.parametrize(("required", "code"), [("", 0), ("1", 1)])
def test_npm_packages_that_cannot_be_had_are_told_in_one_sentence(tmp_path: Path, required: str, code: int) -> None:
    tools = ("dirname", "cat", "awk", "mkdir", "rm", "grep", "tail")
    without = programs(tmp_path / "bin", *tools)
    done = shell("npm-packages", str(tmp_path / "npm"), cwd=tmp_path, path=without, CALLGATE_REQUIRE_ALL=required)
    assert done.returncode == code
    assert done.stderr == "npm-packages: npm is not installed (apt-get install npm); what needs them is not tested\n"
    failing = programs(tmp_path / "failing", *tools, npm='echo "no network"; exit 1')
    done = shell("npm-packages", str(tmp_path / "npm"), cwd=tmp_path, path=failing, CALLGATE_REQUIRE_ALL=required)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1] == "npm-packages: npm install failed: no network; what needs them is not tested"
    assert not (tmp_path / "npm" / ".callgate-installed").exists()


@posix
def test_servers_of_the_first_sdk_are_installed_once_and_apart(tmp_path: Path) -> None:
    uv = 'while [ "$1" != --target ]; do shift; done; mkdir -p "$2"; echo "$*" >>"$2/../asked"'
    path = programs(tmp_path / "bin", "dirname", "cat", "mkdir", "rm", uv=uv)
    folder = str(tmp_path / "old")
    first = shell("old-mcp-packages", folder, cwd=tmp_path, path=path)
    again = shell("old-mcp-packages", folder, cwd=tmp_path, path=path)
    assert (first.returncode, again.returncode, again.stderr) == (0, 0, "")
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.endswith(" mcp-server-sqlite==2025.4.25 mcp<2")


@posix
@pytest.mark.parametrize(("required", "code"), [("", 0), ("1", 1)])
def test_servers_of_the_first_sdk_that_cannot_be_had_are_told(tmp_path: Path, required: str, code: int) -> None:
    path = programs(tmp_path / "bin", "dirname", "cat", "mkdir", "rm", "grep", "tail", uv='echo "no network"; exit 1')
    done = shell("old-mcp-packages", str(tmp_path / "old"), cwd=tmp_path, path=path, CALLGATE_REQUIRE_ALL=required)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1] == "old-mcp-packages: no network; what needs them is not tested"
    assert not (tmp_path / "old" / ".callgate-installed").exists()


# What runs the tests -----------------------------------------------------------------------------------------------------


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses look up the module that they are in.
    spec.loader.exec_module(module)
    return module


def test_files_that_take_long_are_expected_first(tmp_path: Path) -> None:
    whole_files = script("whole_files")
    for name, source in {"quick.py": "", "starts.py": "import subprocess"}.items():
        (tmp_path / name).write_text(source)
    known = {"measured.py": 2.0}
    many = {"gone.py": 50, "measured.py": 2, str(tmp_path / "quick.py"): 100, str(tmp_path / "starts.py"): 1}
    found = {Path(file).name: whole_files.expected_s(file, tests, known) for file, tests in many.items()}
    assert found == pytest.approx({"gone.py": 1.5, "measured.py": 4.0, "quick.py": 3.0, "starts.py": 3.03})


def test_a_file_that_was_compiled_ahead_is_taken_by_pytest_as_it_is(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_files = script("whole_files")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "test_this.py").write_text("def test_it():\n    assert [1] == [2]\n")
    (tmp_path / "helper.py").write_text("")
    files = whole_files.files_of([f"{tmp_path}/test_this.py::test_it", str(tmp_path)])
    assert files == [tmp_path / "test_this.py"]
    whole_files.compile_files(files, request.config)
    (compiled,) = (tmp_path / "__pycache__").iterdir()
    before = compiled.stat()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""}, capture_output=True, text=True
    )
    assert "At index 0 diff: 1 != 2" in done.stdout
    assert [*(tmp_path / "__pycache__").iterdir()] == [compiled]
    after = compiled.stat()  # It was read, and neither written again nor beside another one.
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


EVERY_OUTCOME = """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError("set up")

@pytest.fixture
def left():
    yield
    raise RuntimeError("cleared away")

def test_passes(): pass
def test_fails(): assert 0
def test_is_not_set_up(broken): pass
def test_is_not_cleared_away(left): pass
@pytest.mark.skip
def test_is_skipped(): pass
"""


@pytest.mark.parametrize("more", [[], ["--junitxml=results.xml"]], ids=["", "with a file of results"])
def test_whatever_becomes_of_a_test_in_another_process_is_told(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "test_this.py").write_text(EVERY_OUTCOME)
    words = ["-n", "1", "--dist", "loadfile", "-p", "scripts.whole_files", "-p", "scripts.progress", *more, str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", *words], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert "1 failed, 2 passed, 1 skipped, 2 errors" in done.stdout
    assert "5 of 5 tests in " in done.stdout
    assert (tmp_path / "results.xml").exists() == bool(more)


def test_the_time_that_is_left_follows_from_what_files_took_the_last_time() -> None:
    progress = script("progress")
    estimate = progress.Estimate(["quick.py"] * 100 + ["slow.py"] * 10, {"quick.py": 0.1, "slow.py": 9.0})
    assert progress.line_of(estimate, 1, 0) == "0 of 110 tests in 1 s"
    for _ in range(100):
        estimate.finish("quick.py")
    assert progress.line_of(estimate, 20, 2) == "100 of 110 tests in 20 s, about 3:00 min left, 2 failed"
    for _ in range(10):
        estimate.finish("slow.py")
    assert progress.line_of(estimate, 200, 2) == "110 of 110 tests in 3:20 min, 2 failed"


def test_a_random_order_keeps_the_tests_of_a_file_together_and_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled = script("shuffled")
    names = [f"{file}::test_{number}" for file in "abcdef" for number in range(6)]

    def order(seed: str) -> list[str]:
        monkeypatch.setenv("CALLGATE_ORDER", seed)
        items = [SimpleNamespace(nodeid=name) for name in names]
        shuffled.pytest_collection_modifyitems(items)
        return [item.nodeid for item in items]

    assert order("1") == order("1") != order("2")
    assert sorted(order("1")) == names
    assert len([file for file, _ in itertools.groupby(order("1"), key=lambda name: name[0])]) == 6


@pytest.mark.slow
def test_stress_tells_of_each_test_that_failed_and_how_to_repeat_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_good(): pass\ndef test_bad(): assert False\n")
    command = [sys.executable, str(ROOT / "scripts" / "stress.py"), "--rounds", "1", "--load", "1", "--jobs", "1"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CALLGATE_ORDER": "7"},
    )
    assert done.returncode == 1
    assert "test_it.py::test_bad" in done.stdout
    assert "round 1 of 1, CALLGATE_ORDER=7: 1 failed" in done.stdout


LEAKING = """
import logging, os, socket, tempfile, threading
import pytest
import callgate.strict_json

KEPT = []

@pytest.fixture(scope="module")
def shared():
    os.environ["OF_THE_FILE"] = "1"
    with socket.socket() as held:
        yield held
    del os.environ["OF_THE_FILE"]

def test_a_variable(): os.environ["LEFT"] = "1"
def test_a_logger(): logging.getLogger("left").setLevel("ERROR")
def test_a_signal(): __import__("signal").signal(__import__("signal").SIGUSR1, print)
def test_a_descriptor(): KEPT.append(socket.socket())
def test_a_thread(): threading.Thread(target=threading.Event().wait, name="left", daemon=True).start()
def test_a_file(): os.mkdir(os.path.join(tempfile.gettempdir(), "left"))
def test_nothing(monkeypatch, shared, tmp_path): monkeypatch.setenv("LEFT", "2")
def test_what_is_closed_in_time(): KEPT.append(socket.socket()); KEPT.pop().close()
def test_an_attribute(shared): callgate.strict_json.DEPTH_MAX = object()
def test_the_end(): pass
"""


@pytest.mark.slow
def test_a_test_that_leaves_something_in_its_process_fails_with_what_it_left(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"import logging\nlogging.getLogger('left')\n{LEAKING}")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "scripts.leaks",
            "-p",
            "no:cacheprovider",
            "-c",
            "/dev/null",
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CALLGATE_LEAKS_S": "0.1"},
    )
    left = set(re.findall(r"^(?:.*::)?(\S+) leaves (\w+ \S+)", done.stdout, re.MULTILINE))
    kinds = {(test, what) for test, what in left if not what.startswith(("descriptor", "file"))}
    assert kinds == {
        ("test_a_variable", "environment LEFT:"),
        ("test_a_logger", "logger left:"),
        ("test_a_signal", "signal SIGUSR1:"),
        ("test_a_thread", "thread left"),
        ("test_it.py", "attribute callgate.strict_json.DEPTH_MAX:"),
    }
    assert {test for test, _ in left - kinds} == {"test_a_descriptor", "test_a_file"}
    assert "10 passed, 4 errors" in done.stdout


def test_a_mutant_is_the_same_code_but_for_one_place() -> None:
    mutants = script("mutants")
    source = "def f(a: int=1) -> bool:\n    assert a\n    if a < 2 and a:\n        raise ValueError\n    return True\n"
    told = [told for _, told, _, _ in mutants.places_in(ast.parse(source))]
    made = {name: mutants.mutated(source, place) for place, name in enumerate(told)}
    assert made["a < 2: Lt flipped"] == source.replace("<", "<=").rstrip()
    assert made["a < 2 and a: `and` and `or` swapped"] == source.replace("and", "or").rstrip()
    assert made["constant 2 changed"] == source.replace("2", "3").rstrip()
    assert made["constant True changed"] == source.replace("True", "False").rstrip()
    assert made["dropped: raise ValueError"] == source.replace("raise ValueError", "pass").rstrip()
    assert made["constant 1 changed"] == source.replace("1", "2").rstrip()
    assert len(made) == 6


def test_the_tests_of_a_module_are_its_mirror_and_those_of_its_folder() -> None:
    mutants = script("mutants")
    policy = mutants.SOURCE / "permission" / "policy.py"
    assert mutants.tests_for(policy) == [["tests/permission/test_policy.py"], ["tests/permission"]]
    assert mutants.tests_for(mutants.SOURCE / "strict_json.py") == [["tests/test_strict_json.py"], ["tests/content"]]
    for folder, tests in mutants.TESTS.items():
        assert (mutants.SOURCE / folder).exists()
        assert all((ROOT / test).exists() for test in tests)


# Other versions of Python ------------------------------------------------------------------------------------------------


def program(path: Path, said: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{said}\n")
    path.chmod(0o755)


def test_the_python_that_is_taken_is_one_that_runs_and_is_what_its_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pythons = script("pythons")
    program(tmp_path / "bin" / "python3.12", "echo pyenv: no such version >&2; exit 127")
    program(tmp_path / "pyenv" / "versions" / "3.12.9" / "bin" / "python", "echo 12")
    program(tmp_path / "pyenv" / "versions" / "3.12.10" / "bin" / "python", "echo 11")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert list(map(str, pythons.interpreters_of(12))) == [
        str(tmp_path / "bin" / "python3.12"),
        str(tmp_path / "pyenv" / "versions" / "3.12.10" / "bin" / "python"),
        str(tmp_path / "pyenv" / "versions" / "3.12.9" / "bin" / "python"),
    ]
    assert pythons.interpreter_of(12) == str(tmp_path / "pyenv" / "versions" / "3.12.9" / "bin" / "python")
    assert pythons.interpreter_of(13) is None


def test_a_version_of_python_that_is_not_here_is_told_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pythons = script("pythons")
    monkeypatch.setattr(pythons, "interpreter_of", lambda minor: None)
    monkeypatch.setattr(pythons, "MINORS", (99,))
    monkeypatch.setattr(sys, "argv", ["pythons.py"])
    assert pythons.main() == 0
    assert capsys.readouterr().out == "pythons: no Python 3.99 is here, so nothing was tested with it\n"


def test_every_event_loop_of_a_test_is_one_of_uvloop(tmp_path: Path) -> None:
    pytest.importorskip("uvloop", reason="uvloop is not installed")
    (tmp_path / "test_it.py").write_text(
        "import asyncio\n"
        "async def kind(): return type(asyncio.get_running_loop()).__module__\n"
        "def test_it(): assert asyncio.run(kind()) == 'uvloop'\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        [*command, "-p", "scripts.on_uvloop", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


# Judges ------------------------------------------------------------------------------------------------------------------


def test_a_run_renews_the_rows_of_the_judges_that_it_asked_and_leaves_the_others(tmp_path: Path) -> None:
    judges = script("judges")
    page = tmp_path / "judges.md"
    page.write_text("| judge | version | what | passed / all | known |\n|---|---|---|---|---|\n\n<!-- end -->\n\nThe end.\n")
    judges.renew(page, {"openai": judges.Score(3, 4, known={"no reason": 1}), "axe": judges.Score(2, 2)})
    judges.renew(page, {"openai": judges.Score(1_306, 1_306)})
    openai, axe = (judges.JUDGES[name] for name in ("openai", "axe"))
    assert page.read_text("utf-8").partition("|---|\n")[2].splitlines() == [
        f"| axe | {axe.version} | {axe.what} | 2 / 2 | none |",
        f"| openai | {openai.version} | {openai.what} | 1,306 / 1,306 | none |",
        "",
        "<!-- end -->",
        "",
        "The end.",
    ]


def test_a_judge_counts_tests_or_the_questions_that_they_put() -> None:
    judges = script("judges")

    def report(outcome: str) -> Any:
        return SimpleNamespace(passed=outcome == "passed", skipped=outcome == "skipped")

    score = judges.Score()
    score.add(report("passed"), {})
    score.add(report("failed"), {})
    score.add(report("passed"), {"judged": [7, 9], "judge_known": {"why": 2}})
    assert score == judges.Score(8, 11, known={"why": 2})
    score.add(report("skipped"), {})
    assert score.skipped


def test_the_row_of_a_judge_is_renewed_once_its_quick_and_its_slow_tests_have_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judges = script("judges")
    page = tmp_path / "judges.md"
    page.write_text("| judge | version | what | passed / all | known |\n|---|---|---|---|---|\n\n<!-- end -->\n")
    monkeypatch.setattr(judges, "PAGE", page)
    kept: dict[str, Any] = {}
    cache = SimpleNamespace(get=lambda key, default: kept.get(key, default), set=kept.__setitem__)
    screen = SimpleNamespace(write_line=lambda line: None)

    def run(*tests: str, outcome: str = "passed", is_whole: bool = True) -> list[str]:
        table = judges.Table(cache, is_whole=is_whole)
        table.pytest_testnodedown(SimpleNamespace(workeroutput={"judges": {"axe": ["quick", "slow"]}}))
        for test in tests:
            table.pytest_runtest_logreport(
                SimpleNamespace(
                    nodeid=test,
                    when="call",
                    passed=outcome == "passed",
                    skipped=outcome == "skipped",
                    user_properties=[("judge", "axe")],
                )
            )
        table.pytest_terminal_summary(screen)
        return re.findall(r"\d+ / \d+", page.read_text("utf-8"))

    assert run("quick[1]", "quick[2]") == []
    assert run("slow", outcome="skipped") == []
    assert run("slow", is_whole=False) == []
    assert run("slow") == ["3 / 3"]
    assert run("quick[1]", outcome="failed") == ["1 / 2"]


@pytest.mark.slow
def test_parsers_are_fuzzed_by_coverage_or_it_is_said_that_nothing_was() -> None:
    command = [sys.executable, "scripts/fuzz.py", "--seconds", "1", "globs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 parsers withstood" in done.stdout or "nothing was fuzzed" in done.stderr
