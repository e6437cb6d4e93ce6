"""What the tests themselves keep to: none of them waits by the clock, or is judged by it on a busy machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GUARD_S = 30
"""A limit in time that only ends what would hang is at least so long. What sleeps as long is meant to be stopped."""
CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}
LIMITS = {
    "wait_for": 1, "timeout": 0, "fail_after": 0, "move_on_after": 0, "wait": 0, "join": 0, "settimeout": 0, "select": 3,
}  # fmt: skip
"""Functions that end what takes too long, and which of their arguments says when."""
CLIENTS = {"Client", "AsyncClient"}


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _keywords(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}


def _owner(call: ast.Call) -> str:
    return getattr(call.func.value, "id", "") if isinstance(call.func, ast.Attribute) else ""


def _is_clock(node: ast.expr) -> bool:
    """Whether this is `time.monotonic()` or one like it."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in CLOCKS:
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id == "time"


def _polls(tree: ast.Module) -> set[ast.AST]:
    """Pauses between two looks at something that is waited for: the event ends the wait, not the clock."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.While) and not isinstance(node.test, ast.Constant)]
    calls = [inner for loop in loops for inner in ast.walk(loop) if isinstance(inner, ast.Call)]
    return {call for call in calls if _name(call) in ("sleep", "wait", "select")}


class ClockUses(ast.NodeVisitor):
    """The lines of a test file that wait by the clock or judge by it, and how."""

    def __init__(self, source: str) -> None:
        self.found: list[tuple[int, str]] = []
        tree = ast.parse(source)
        assigned = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.NamedExpr))]
        self._numbers = {
            name: node.value for node in assigned for name in _names(node) if isinstance(node.value, ast.Constant)
        }
        self._passed = {name for node in assigned for name in _names(node) if _is_passed(node.value)}
        self._polls = _polls(tree)
        self.visit(tree)

    def visit_Compare(self, node: ast.Compare) -> None:
        """`time.monotonic() < deadline` only ends a wait that would hang; what has passed is a judgement."""
        sides = [node.left, *node.comparators]
        if any(_is_passed(side) or self._is_known_to_have_passed(side) for side in sides):
            self.found.append((node.lineno, "time comparison"))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add) and _is_clock(node.left) and self._is_short(node.right):
            self.found.append((node.lineno, "limit"))
        self.generic_visit(node)

    def visit_Await(self, node: ast.Await) -> None:
        """`await time.sleep()` is one of a clock that the test winds itself."""
        if isinstance(node.value, ast.Call) and _name(node.value) == "sleep" and _owner(node.value) in ("time", "clock"):
            return
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node)
        if name == "sleep" and node not in self._polls and node.args and self._is_short(node.args[0]):
            self.found.append((node.lineno, "sleep"))
        if name in CLIENTS and _owner(node) in ("httpx", "httpx2") and not {"timeout", "transport"} & _keywords(node):
            self.found.append((node.lineno, "limit"))  # It gives up after five seconds by itself.
        place = LIMITS.get(name)
        given = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
        if place is not None and len(node.args) > place:
            given.append(node.args[place])
        if node not in self._polls and any(map(self._is_short, given)):
            self.found.append((node.lineno, "limit"))
        self.generic_visit(node)

    def _is_known_to_have_passed(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._passed
        return isinstance(node, ast.Attribute) and node.attr == "took_s"

    def _is_short(self, node: ast.expr) -> bool:
        """Whether this is a number of seconds that a busy machine may take for nothing."""
        if isinstance(node, ast.Name):
            node = self._numbers.get(node.id, node)
        return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and 0 < node.value < GUARD_S


def _names(node: ast.Assign | ast.NamedExpr) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _is_passed(node: ast.expr) -> bool:
    """Whether this is the time that has passed since something."""
    return any(
        isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub) and _is_clock(inner.left) for inner in ast.walk(node)
    )


_MAY_USE_A_CLOCK = re.compile(
    rf"timeout|took_s|httpx2?\.(?:Async)?Client|\b(?:sleep|{'|'.join(LIMITS)})\((?!['\")])|\btime\.(?:{'|'.join(CLOCKS)})\b"
)
"""Most files do not, and reading one takes longer than looking for this."""


def clock_uses(source: str) -> list[tuple[int, str]]:
    """The lines that wait by the clock or judge by it without a comment `# clock: why`."""
    if not _MAY_USE_A_CLOCK.search(source):
        return []
    lines = source.splitlines()
    return sorted({(line, kind) for line, kind in ClockUses(source).found if "# clock: " not in lines[line - 1]})


@pytest.mark.rows(
    ("code", "kinds"),
    [
        ("time.sleep(1)", ["sleep"]),
        ("async def f():\n await asyncio.sleep(0.5)", ["sleep"]),
        ("async def f():\n await asyncio.sleep(0)", []),
        ("async def f():\n await asyncio.sleep(3600)", []),
        ("async def f():\n await time.sleep(1)", []),
        ("while not seen():\n time.sleep(0.01)", []),
        ("while True:\n time.sleep(0.01)", ["sleep"]),
        ("time.sleep(1)  # clock: it has to be", []),
        ("httpx2.AsyncClient()", ["limit"]),
        ("httpx2.AsyncClient(timeout=600)\nhttpx2.Client(transport=inside)", []),
        ("asyncio.wait_for(x, 5)", ["limit"]),
        ("asyncio.wait_for(x, 60)", []),
        ("NET_S = 5\nasyncio.timeout(NET_S)", ["limit"]),
        ("process.wait(timeout=5)", ["limit"]),
        ("event.wait(5)", ["limit"]),
        ("thread.join(5)\nthread.join(60)\n' '.join(words)", ["limit"]),
        ("while not seen():\n event.wait(0.01)", []),
        ("connection.settimeout(5)", ["limit"]),
        ("select.select([pipe], [], [], 5)", ["limit"]),
        ("deadline = time.monotonic() + 5", ["limit"]),
        ("assert time.monotonic() < deadline", []),
        ("assert time.monotonic() - began < 2", ["time comparison"]),
        ("took = time.perf_counter() - began\nassert took < 2", ["time comparison"]),
    ],
)
def test_what_waits_by_the_clock_or_judges_by_it_is_found(code: str, kinds: list[str]) -> None:
    assert [kind for _, kind in clock_uses(code)] == kinds


PROCESS_WIDE = {
    "basicConfig", "chdir", "disable", "nice", "set_event_loop_policy", "set_int_max_str_digits", "setdefaulttimeout",
    "setitimer", "setlocale", "setrecursionlimit", "setrlimit", "signal", "simplefilter", "umask",
}  # fmt: skip
"""Functions that change something for all tests of a process."""


_MAY_CHANGE_THE_PROCESS = re.compile(rf"^(?:os\.environ|sys\.|[\w.]*\b(?:{'|'.join(sorted(PROCESS_WIDE))})\()", re.MULTILINE)


def import_effects(source: str) -> list[int]:
    """The lines that change the process as soon as the file is imported: it is, whichever tests are run."""
    found: list[int] = []
    if not _MAY_CHANGE_THE_PROCESS.search(source):
        return found
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            found += [node.lineno for target in node.targets if ast.unparse(target).startswith(("os.environ[", "sys."))]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            changes_list = ast.unparse(node.value.func).startswith(("os.environ.", "sys.path."))
            found += [node.lineno] * (changes_list or _name(node.value) in PROCESS_WIDE)
    return found


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("import sys\nsys.setrecursionlimit(20_000)", [2]),
        ("os.environ['A'] = '1'", [1]),
        ("os.environ.update(A='1')", [1]),
        ("sys.path.insert(0, 'x')", [1]),
        ("sys.stdout = None", [1]),
        ("def f():\n    os.chdir('/')", []),
        ("X = os.environ.get('A')\nprint(X)", []),
    ],
)
def test_what_changes_the_process_on_import_is_found(code: str, lines: list[int]) -> None:
    assert import_effects(code) == lines


def test_no_file_of_tests_changes_the_process_when_it_is_imported() -> None:
    found = [
        f"{path.relative_to(HERE)}:{line}: do this in a fixture that undoes it"
        for path in sorted(HERE.rglob("test_*.py"))
        for line in import_effects(path.read_text("utf-8"))
    ]
    assert found == []


def test_no_test_waits_by_the_clock() -> None:
    found = [
        f"{path.relative_to(HERE)}:{line}: {kind}; wait for an event, or say why with `# clock: ...`"
        for path in sorted(HERE.rglob("*.py"))
        for line, kind in clock_uses(path.read_text("utf-8"))
    ]
    assert found == []
