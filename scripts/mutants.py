"""Judges the tests: changes the code in one place at random, and sees whether a quick test notices.

    python scripts/mutants.py [--count 50] [--seed 7] [--jobs 2] [--least 0] [PATH ...]

A mutant has one comparison flipped, one `and` made an `or`, one constant swapped or one statement dropped. It is killed if a
test of the same folder fails, hangs or cannot be collected; what survives is told with its line. PATH chooses files or
folders of src/callgate. Exits with 1 if fewer than --least per cent are killed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "callgate"
TESTS = {
    "machine": ["tests/machine", "tests/simulation"],
    "calls": ["tests/calls", "tests/tools", "tests/run"],
    "permission": ["tests/permission"],
    "schema": ["tests/schema"],
    "strict_json.py": ["tests/test_strict_json.py", "tests/content"],
}
"""Folders and files of src/callgate, and the tests that must notice a change there; the mirror of a module comes first."""
SECONDS_MAX = 900
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
WORDS_ONLY = ("logger", "warnings", "cast", "assert_never")
"""What is called by these names changes nothing that a test should see."""

Change = Callable[[ast.AST], None]


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the number of the place in it, among all places that could be changed."""

    path: Path
    place: int
    line: int
    told: str


def places_in(tree: ast.Module) -> Iterator[tuple[int, str, Change, ast.AST]]:
    """Every change that can be made: its line, what it is, what makes it, and the node that it is made in."""
    for node in _running(tree):
        if isinstance(node, ast.Compare):
            kind = type(node.ops[0])
            yield node.lineno, f"{ast.unparse(node)}: {kind.__name__} flipped", _flip, node
        elif isinstance(node, ast.BoolOp):
            yield node.lineno, f"{ast.unparse(node)}: `and` and `or` swapped", _swap, node
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            yield node.lineno, f"constant {node.value!r} changed", _other_constant, node
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            for number, statement in enumerate(statements if isinstance(statements, list) else []):
                if _can_be_dropped(statement):
                    told = ast.unparse(statement).partition("\n")[0]
                    yield statement.lineno, f"dropped: {told}", _dropping(name, number), node


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that do something when the code runs: no annotations, no assertions, no names for type checkers."""
    if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
        return
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__all__", "__slots__"):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _running(child)


def _can_be_dropped(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        called = ast.unparse(node.value)
        return not isinstance(node.value, (ast.Constant, ast.Yield)) and not called.startswith(WORDS_ONLY)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete))


def _flip(node: ast.AST) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[0] = FLIPPED[type(node.ops[0])]()


def _swap(node: ast.AST) -> None:
    assert isinstance(node, ast.BoolOp)
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _other_constant(node: ast.AST) -> None:
    assert isinstance(node, ast.Constant)
    node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]


def _dropping(field: str, number: int) -> Change:
    def drop(node: ast.AST) -> None:
        statements = getattr(node, field)
        statements[number] = ast.copy_location(ast.Pass(), statements[number])

    return drop


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of a file."""
    tree = ast.parse(path.read_text("utf-8"))
    return [Mutant(path, place, line, told) for place, (line, told, _, _) in enumerate(places_in(tree))]


def mutated(source: str, place: int) -> str:
    """The text of a file with the change at this place made."""
    tree = copy.deepcopy(ast.parse(source))
    _, _, change, node = list(places_in(tree))[place]
    change(node)
    return ast.unparse(ast.fix_missing_locations(tree))


def tests_for(path: Path) -> list[list[str]]:
    """The tests of a file of src/callgate in stages: those that mirror it, then its folder and what is named beside it."""
    within = path.relative_to(SOURCE)
    folders = TESTS.get(within.parts[0], [f"tests/{within.parent}"])
    mirror = ROOT / "tests" / within.parent / f"test_{within.stem.strip('_')}.py"
    first = str(mirror.relative_to(ROOT))
    rest = [folder for folder in folders if folder != first]
    return [[first], rest] if mirror.exists() else [rest]


def is_killed(mutant: Mutant | None, stages: list[list[str]]) -> bool:
    """Whether the tests of a stage fail with a copy of the sources that has this change, or none."""
    with tempfile.TemporaryDirectory(prefix="callgate-mutant-") as folder:
        sources = Path(folder) / "src"
        shutil.copytree(ROOT / "src", sources)  # With the bytecode: all files but one stay as they are.
        if mutant is not None:
            target = sources / mutant.path.relative_to(ROOT / "src")
            target.write_text(mutated(mutant.path.read_text("utf-8"), mutant.place), "utf-8")
        return any(_is_noticed(sources, tests) for tests in stages)


def _is_noticed(sources: Path, tests: list[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "--no-header"]
    environment = os.environ | {"PYTHONPATH": str(sources), "CALLGATE_TEST_LIMIT_S": "120"}
    try:
        done = subprocess.run(
            [*command, *tests], cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in (0, 5)  # 5: all tests of the stage are slow ones.


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge the tests by changes that they should notice.")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.0)
    parser.add_argument("paths", nargs="*", default=list(TESTS))
    options = parser.parse_args()
    seed = random.getrandbits(32) if options.seed is None else options.seed
    files = [file for path in options.paths for file in sorted((SOURCE / path).rglob("*.py") or [])]
    files += [SOURCE / path for path in options.paths if (SOURCE / path).is_file()]
    everything = [mutant for file in files for mutant in mutants_of(file)]
    chosen = random.Random(seed).sample(everything, min(options.count, len(everything)))
    print(f"{len(chosen)} of {len(everything)} mutants of {len(files)} files, seed {seed}", flush=True)

    def judged(mutant: Mutant) -> bool:
        killed = is_killed(mutant, tests_for(mutant.path))
        if not killed:
            print(f"  survived: {mutant.path.relative_to(ROOT)}:{mutant.line}: {mutant.told}", flush=True)
        return killed

    with ThreadPoolExecutor(options.jobs) as pool:
        killed = sum(pool.map(judged, chosen))
    score = 100 * killed / len(chosen) if chosen else 100.0
    print(f"{killed} of {len(chosen)} mutants were killed ({score:.1f} %)")
    return 0 if score >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
