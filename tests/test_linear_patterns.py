"""A lint over the sources: no pattern that can be made to try many ways, no recursion over foreign text without a bound."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import callgate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import sre_constants as sre
    import sre_parse

SRC = Path(callgate.__file__).parent
ALPHABET = frozenset(map(chr, range(128))) | frozenset("é“\u00a0\u200b")
CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_NOT_DIGIT: r"\D", sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w", sre.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
Item = tuple[Any, Any]


def chars_of(item: Item) -> frozenset[str]:
    """The characters that an item of a parsed pattern may match, of those that are tried."""
    kind, value = item
    if kind is sre.LITERAL:
        return ALPHABET & {chr(value)}
    if kind is sre.NOT_LITERAL:
        return ALPHABET - {chr(value)}
    if kind is sre.ANY or kind is sre.GROUPREF:
        return ALPHABET
    if kind is sre.IN:
        return _class(value)
    if kind is sre.BRANCH:
        return frozenset().union(*(chars_of(inner) for branch in value[1] for inner in branch))
    if kind in REPEATS or kind is sre.POSSESSIVE_REPEAT:
        return frozenset().union(*map(chars_of, value[2]))
    if kind is sre.SUBPATTERN:
        return frozenset().union(*map(chars_of, value[3]))
    return frozenset().union(*map(chars_of, value)) if kind is sre.ATOMIC_GROUP else frozenset()


def _class(items: Sequence[Item]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for kind, value in items:
        if kind is sre.LITERAL:
            found |= {chr(value)}
        elif kind is sre.RANGE:
            found |= {char for char in ALPHABET if value[0] <= ord(char) <= value[1]}
        elif kind is sre.CATEGORY:
            found |= {char for char in ALPHABET if re.match(CATEGORIES[value], char)}
    return (ALPHABET - found if items[0][0] is sre.NEGATE else found) & ALPHABET


REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)


def is_run(item: Item) -> bool:
    return item[0] in REPEATS and item[1][1] is sre.MAXREPEAT


def may_be_empty(item: Item) -> bool:
    kind, value = item
    if kind in (*REPEATS, sre.POSSESSIVE_REPEAT):
        return value[0] == 0 or all(map(may_be_empty, value[2]))
    if kind is sre.SUBPATTERN:
        return all(map(may_be_empty, value[3]))
    if kind is sre.BRANCH:
        return any(all(map(may_be_empty, branch)) for branch in value[1])
    return kind in (sre.AT, sre.ASSERT, sre.ASSERT_NOT, sre.GROUPREF_EXISTS)


def flat(items: Sequence[Item]) -> Iterator[Item]:
    """The items of a sequence, those of groups among them."""
    for item in items:
        if item[0] is sre.SUBPATTERN:
            yield from flat(item[1][3])
        else:
            yield item


def faults_in(items: Sequence[Item]) -> Iterator[str]:
    """Where a text could be shared out among runs in very many ways."""
    chain: list[frozenset[str]] = []
    for item in flat(items):
        if is_run(item):
            own = chars_of(item)
            chain = [*chain, own] if chain and chain[-1] & own else [own]
            if len(chain) >= 3:
                yield "three runs of the same characters behind one another"
            inner = list(flat(item[1][2]))
            runs = [place for place, one in enumerate(inner) if is_run(one)]
            if any(all(may_be_empty(one) for spot, one in enumerate(inner) if spot != place) for place in runs):
                yield "a run of runs"
        elif not may_be_empty(item):
            chain = []
        for below in _below(item):
            yield from faults_in(below)


def _below(item: Item) -> list[Sequence[Item]]:
    kind, value = item
    if kind is sre.BRANCH:
        return list(value[1])
    if kind in (*REPEATS, sre.POSSESSIVE_REPEAT):
        return [value[2]]
    return [value[1]] if kind in (sre.ASSERT, sre.ASSERT_NOT) else []


def faults_of(pattern: str | bytes, flags: int = 0) -> list[str]:
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(faults_in(sre_parse.parse(text, flags & ~re.UNICODE if isinstance(pattern, bytes) else flags)))


def compiled_patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Every pattern that a module holds, also in its tables."""
    for module in pkgutil.walk_packages([str(SRC)], "callgate."):
        if module.name.endswith("__main__"):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:  # an extra that is not installed
            continue
        for name, value in vars(loaded).items():
            held = [value, *(value.values() if type(value) is dict else value if type(value) in (list, tuple) else ())]
            held += [inner for item in held if type(item) is tuple for inner in item]
            yield from ((f"{module.name}.{name}", one) for one in held if isinstance(one, re.Pattern))


def written_patterns() -> Iterator[tuple[str, str | bytes]]:
    """Every pattern that is written as one text where it is used."""
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            given = node.args[0]
            is_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.func.attr != "escape"
            if is_re and isinstance(given, ast.Constant) and isinstance(given.value, (str, bytes)):
                yield f"{path.relative_to(SRC)}:{node.lineno}", given.value


def test_no_pattern_can_share_a_text_out_among_its_runs_in_very_many_ways() -> None:
    held = [(where, pattern.pattern, pattern.flags) for where, pattern in compiled_patterns()]
    written = [(where, pattern, 0) for where, pattern in written_patterns()]
    assert len(held) > 100
    assert len(written) > 50
    found = {
        (where, pattern): faults for where, pattern, flags in [*held, *written] if (faults := faults_of(pattern, flags))
    }
    assert found == {}


@pytest.mark.parametrize(
    "pattern",
    [
        r"```(?:[\w-]+(?=\s))?\s*(.*?)\s*```", r"(a+)+$", r"(?:\s*a?)*b", r"\s*(\s*)\s*x", r".*.*.*x", r"^(\w+\s?)*$",
        r"(x*y*)*z",
    ],
)  # fmt: skip
def test_the_lint_finds_patterns_that_were_slow(pattern: str) -> None:
    assert faults_of(pattern)


@pytest.mark.parametrize("pattern", [r"\s*+(.*)\s*+x", r"[ab]*[cd]*[ef]*", r"a+b+a+", r"(?:a+,)*b", r"(?>.*?a)(?>.*?a).*"])
def test_the_lint_leaves_sound_patterns_alone(pattern: str) -> None:
    assert faults_of(pattern) == []


# Recursion ---------------------------------------------------------------------------------------------------------------

PARSERS = (
    "prompted", "definitions", "config", "foreign", "timeline", "cli/markdown.py", "mcp/edit.py", "mcp/file.py",
    "embedded/gguf.py", "files/globs.py", "run/output.py", "strict_json.py", "schema/check.py", "schema/coerce.py",
    "content/salvage.py", "models/prompted.py",
)  # fmt: skip
"""Where text and values of others are read."""

_PLAIN = "`json_node.plain` has refused what is nested deeper than `DEPTH_MAX`"
_TYPES = "a type that was written in Python, by who makes the tool"
BOUNDED: dict[str, tuple[str, str]] = {
    "prompted/arguments.py": ("_Loose.items _Loose.object _Loose.value", "`DEPTH_MAX`"),
    "prompted/describe.py": ("_kind _properties _sample", "a depth to which schemas are told"),
    "definitions/amazon_q.py": ("calls_from", _PLAIN),
    "definitions/anthropic.py": ("_block _block_of_result calls_from detect results_from", _PLAIN),
    "definitions/bedrock.py": ("detect", _PLAIN),
    "definitions/detection.py": ("_each _kinds read", _PLAIN),
    "definitions/function.py": ("_mentions tool", _TYPES),
    "definitions/gemini.py": (
        "_instruction _only _part _parts_of _messages_from calls_from history_from results_from", _PLAIN
    ),
    "definitions/gemini_schema.py": ("_child json_schema_from", _PLAIN),
    "definitions/interactions.py": ("_block_to _is_step calls_from detect", _PLAIN),
    "definitions/json_decoding.py": ("_Rewriting._named _Rewriting.of string_keys", _TYPES),
    "definitions/openai.py": ("_detect_all calls_from detect", _PLAIN),
    "definitions/python_types.py": ("_never_json", _TYPES),
    "definitions/json_node.py": ("_copied _plain", "`DEPTH_MAX`"),
    "definitions/signature.py": ("_encloses _is_context _testable_types deps_types_of", _TYPES),
    "definitions/snakepit.py": ("_schema_of", "`_TYPES_DEPTH_MAX`"),
    "definitions/typed_dicts.py": (
        "TypedDictConversion._dataclass TypedDictConversion._of TypedDictConversion._typed_dict", _TYPES
    ),
    "definitions/running_values.py": ("_plain_container plain_value", "`_DEPTH_MAX`"),
    "definitions/root_unions.py": ("_Merger.object", "`_DEPTH_MAX`"),
    "config/encoded_secrets.py": ("SecretNeedles._is_nested", "`NESTED_MAX`"),
    "config/edit.py": ("_literal _pruned", "`tomllib` gives up sooner, and keys have at most 100 parts"),
    "config/loader.py": ("_flat", "the depth of the table of settings"),
    "cli/markdown.py": ("_emphasis _link _span spans", "`HOLD_CHARS_MAX`"),
    "mcp/file.py": ("_expanded", "`strict_json.parse` has refused what is nested deeper than `DEPTH_MAX`"),
    "strict_json.py": (
        "_Isolation.clean _Isolation.member _is_long dump_pieces was_replaced without_bad",
        "`depth_max`, or a number of levels",
    ),
    "schema/coerce.py": (
        "_Coercion._branch _Coercion._repaired _Coercion.settled _WholeNumbers.read _applying", "`DEPTH_MAX`, `_CHAIN_MAX`"
    ),
    "content/salvage.py": ("_is_json", "the parser of Python gives up sooner"),
}  # fmt: skip
"""Functions of a file that come back to themselves, and what keeps them from doing so too often."""


def recursive_in(path: Path) -> set[str]:
    """The functions of a file that may come back to themselves, by the names that they use."""
    tree = ast.parse(path.read_text("utf-8"))
    functions: dict[str, ast.AST] = {}
    for node in ast.walk(tree):
        members = node.body if isinstance(node, (ast.Module, ast.ClassDef)) else []
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        functions |= {
            f"{prefix}{one.name}": one for one in members if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
    arrows = {name: _used(name, body, functions) for name, body in functions.items()}
    reached = {name: set(aims) for name, aims in arrows.items()}
    for _ in arrows:
        reached = {name: aims.union(*(reached[aim] for aim in aims)) for name, aims in reached.items()}
    return {name for name, aims in reached.items() if name in aims}


def _used(name: str, body: ast.AST, functions: dict[str, ast.AST]) -> set[str]:
    owner = name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and node.id in functions:
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            found |= {f"{owner}.{node.attr}"} & functions.keys()
    return found


def test_nothing_that_reads_foreign_text_comes_back_to_itself_without_a_bound() -> None:
    files = [
        path for part in PARSERS for path in ([SRC / part] if part.endswith(".py") else sorted((SRC / part).glob("*.py")))
    ]
    found = {str(path.relative_to(SRC)): names for path in files if (names := recursive_in(path))}
    assert found == {path: set(names.split()) for path, (names, _) in BOUNDED.items()}
