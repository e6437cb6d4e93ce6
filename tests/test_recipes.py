"""The recipes of docs/development.md, each carried out once in a copy of the tree: what they name exists, and suffices.

What a recipe adds is in `recipes/`; where it goes is said here in the recipe's own words. Then the tests of the copy run:
that of the architecture, and those of the parts that were touched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ADDED = Path(__file__).parent / "recipes"
NEEDED = (
    "pyproject.toml", "src", "docs", "tests/conftest.py", "tests/test_architecture.py", "tests/test_docs.py",
    "tests/definitions", "tests/models", "tests/permission",
)  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in NEEDED:
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.gguf"))
        else:
            shutil.copy(source, target)
    return tmp_path


def put(file: Path, *, after: str, text: str) -> None:
    """Puts a text behind another one, which must be there once: a place that a recipe names."""
    there = file.read_text("utf-8")
    assert there.count(after) == 1, f"{file.name} has {after!r} {there.count(after)} times: correct recipe and test"
    file.write_text(there.replace(after, after + text), "utf-8")


def add_a_format(copy: Path) -> list[str]:
    """One file in `definitions/`, its module in `_MODULES` of `formats.py`, its name in `FORMAT_NAMES`, and cases."""
    package = copy / "src/callgate"
    shutil.copy(ADDED / "cohere.py", package / "definitions/cohere.py")
    formats = package / "definitions/formats.py"
    put(formats, after="    bedrock,\n", text="    cohere,\n")
    put(formats, after="amazon_q, bedrock, gemini, interactions, snakepit, ", text="cohere, ")
    put(package / "cli/convert.py", after='    "bedrock",\n', text='    "cohere",\n')
    case = copy / "tests/definitions/cases/cohere/tool"
    case.mkdir(parents=True)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    files = {
        "in": {"name": "get", "parameter_definitions": {"city": {"type": "str", "required": True}}},
        "out": {
            "kind": "tool",
            "definitions": [{"name": "get", "input_schema": schema}],
            "mcp": {"name": "get", "inputSchema": schema},
        },
        "losses": {},
    }
    for name, value in files.items():
        (case / f"{name}.json").write_text(json.dumps(value))
    return ["test_formats and test_case", "a_tool_goes_from_every_format"]


def add_a_model(copy: Path) -> list[str]:
    """One file in `models/`, and one row in `PROVIDERS` of `models/choice.py` if it is to have a name."""
    package = copy / "src/callgate"
    shutil.copy(ADDED / "echo_model.py", package / "models/echo.py")
    choice = package / "models/choice.py"
    opener = (
        "\n\ndef _echo(name: str | None, env: Env, limits: Limits | None) -> Model:\n"
        "    from callgate.models.echo import EchoModel\n\n"
        '    return EchoModel(name or "echo")\n'
    )
    put(choice, after="return EmbeddedModel(None if name in (None, MODEL_NAME) else name)\n", text=opener)
    put(choice, after='    "embedded": _embedded,\n', text='    "echo": _echo,\n')
    (copy / "tests/models/test_echo.py").write_text(
        "from callgate import Gate\n\n\ndef test_the_echo_answers():\n"
        '    with Gate("echo:a") as gate:\n        assert gate.run_sync("Hello.").text == "Hello."\n'
    )
    return ["test_echo"]


def add_a_tool_source(copy: Path) -> list[str]:
    """One module with a toolset, and a row in `EDGES` of the architecture test."""
    shutil.copy(ADDED / "environment.py", copy / "src/callgate/environment.py")
    put(copy / "tests/test_architecture.py", after='"mcp", "workers",', text=' "environment",')
    (copy / "tests/test_environment.py").write_text(
        "from callgate import Gate, ScriptedModel\nfrom callgate.environment import EnvironmentTools\n"
        "from callgate.testing import call, text\n\n\ndef test_only_variables_with_the_prefix_are_read(monkeypatch):\n"
        '    monkeypatch.setenv("APP_MODE", "test")\n'
        '    names = ("APP_MODE", "APP_NONE", "HOME")\n'
        '    script = [[call("read_variable", name=name) for name in names], text("Read.")]\n'
        '    with Gate(ScriptedModel(script), tools=[EnvironmentTools("APP_")]) as gate:\n'
        '        records = gate.run_sync("Go.").calls\n'
        '    assert [record.state for record in records] == ["finished", "failed", "failed"]\n'
        '    assert records[0].result.value == "test"\n'
    )
    return ["test_environment"]


def add_a_policy_rule(copy: Path) -> list[str]:
    """A field of `Rule`, its test in `matches`, its words in `sentence` and in the docs, a row in the policy's table."""
    rules = copy / "src/callgate/permission/rules.py"
    field = '    longest: int | None = None\n    """Only calls with a text of more characters than this."""\n'
    put(rules, after='without look-around and back-references."""\n', text=field)
    put(rules, after="return bool(self.paths is not None or self._args", text=" or self.longest is not None")
    test = (
        "        if self.longest is not None:\n"
        "            texts = [value for value in args.values() if isinstance(value, str)]\n"
        "            if max(map(len, texts), default=0) <= self.longest:\n                return False\n"
    )
    put(
        rules,
        after='a rule that allows is about the value.\n        """\n',
        text=test,
    )
    words = '        conditions += [f"a text is longer than {self.longest}"] if self.longest is not None else []\n'
    put(rules, after="for name, test in self._args]\n", text=words)
    page = copy / "docs/permission.md"
    page.write_text(page.read_text("utf-8") + "\nA rule with `longest` is about calls with a longer text.\n", "utf-8")
    table = copy / "tests/permission/policy_cases.json"
    cases = json.loads(table.read_text("utf-8"))
    policy = {"rules": [{"verdict": "deny", "tool": "add", "longest": 3}]}
    cases["cases"] += [
        ["longest: a longer text is denied", policy, "add", {"a": "abcd"}, "deny"],
        ["longest: a text of that length is not", policy, "add", {"a": "abc"}, "allow"],
    ]
    table.write_text(json.dumps(cases))
    return ["a_row_of_the_table", "test_what_cannot_be_read", "names_every_field_of_a_rule"]


RECIPES: tuple[Callable[[Path], list[str]], ...] = (add_a_format, add_a_model, add_a_tool_source, add_a_policy_rule)


def test_the_page_on_development_has_every_recipe_that_is_carried_out_here():
    text = (ROOT / "docs/development.md").read_text("utf-8")
    headings = [f"**{recipe.__name__.replace('_', ' ').capitalize()}" for recipe in RECIPES]
    assert [heading for heading in headings if heading not in text] == []


@pytest.mark.slow
def test_the_recipes_lead_to_a_tree_whose_tests_pass(copy: Path):
    chosen = ["keeps_its_shape", *(words for recipe in RECIPES for words in recipe(copy))]
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    files = ["tests/test_architecture.py", "tests/test_docs.py", "tests/test_environment.py"]
    files += ["tests/definitions/test_formats.py", "tests/definitions/test_convert.py", "tests/permission/test_policy.py"]
    files += ["tests/models/test_echo.py"]
    lint = ["ruff", "check", "--no-cache", "src"]
    suite = ["pytest", "-v", "-rP", "-p", "no:cacheprovider", "-k", " or ".join(f"({words})" for words in chosen), *files]
    for command in (lint, suite):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=copy, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    for shown in ("layer_breaches", "cohere-mcp", "cohere/tool", "test_the_echo_answers", "with_the_prefix", "longest:"):
        assert shown in done.stdout, f"no test of the copy is about {shown!r}"
