"""The documentation: its blocks run, its links lead somewhere, and its tables are complete."""

from __future__ import annotations

import ast
import contextvars
import dataclasses
import gc
import importlib
import re
import shlex
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import click
import pytest

import callgate
from callgate import Limits, McpServer, Policy, UsageError, events, tool
from callgate.cli import cli
from callgate.config import SETTINGS, load_settings
from callgate.gemini import request
from callgate.openai import quirks
from callgate.openai import request as openai_request
from callgate.permission import MODES, Hook, Rule
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_gemini import call as fake_call

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
STORIES = ("sessions.md", "howto/web.md")
"""Pages whose blocks share a folder: they are run there one after another."""


def blocks_of(text: str) -> list[str]:
    """The Python blocks of a page, but for those that say why they are not run, and files that are for other blocks."""
    found = re.findall(r"(<!-- not run: [^>]{10,} -->\n)?```python\n(.*?)\n```", text, re.DOTALL)
    return [block for reason, block in found if not reason]


def output_of(page: str, block: str) -> str:
    """The text that stands right below a block: what it prints, or nothing."""
    found = re.match(r"\n```\n\n```text\n(.*?)```\n", (DOCS / page).read_text("utf-8").partition(block)[2], re.DOTALL)
    return found[1] if found else ""


def blocks_of_pages() -> list[tuple[str, list[str]]]:
    """The pages, each with the blocks that are run in one folder."""
    blocks: list[tuple[str, list[str]]] = []
    for page in PAGES:
        name = page.relative_to(DOCS).as_posix()
        if name in (
            "quickstart.md",
            "tutorial.md",
        ):  # Gone through line by line, in a home of their own, by test_first_hour.py.
            continue
        found = blocks_of(page.read_text("utf-8"))
        blocks += [(name, found)] if name in STORIES else [(name, [block]) for block in found]
    return blocks


BLOCKS = blocks_of_pages()


@pytest.mark.parametrize(("page", "blocks"), BLOCKS, ids=[f"{page}-{n}" for n, (page, _) in enumerate(BLOCKS)])
def test_a_block_of_a_page_runs_as_it_stands_and_prints_what_is_shown(
    page: str, blocks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    # A server that others wrote may take longer to start on a busy machine than a run waits for it by default.
    init: Any = McpServer.__init__
    monkeypatch.setattr(McpServer, "__init__", lambda *given, **more: init(*given, **{"start_s": 120.0, **more}))
    # A model that is named is found on a fake server on this machine.
    with FakeGemini.in_thread(
        [fake_call("get_weather", city="Oslo"), "It snows in Oslo.", "It will snow until Friday."]
    ) as fake:
        for name, value in {"GOOGLE_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}.items():
            monkeypatch.setenv(name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # The programs of others may leave their clients open.
            for block in blocks:
                # A block that begins with the name of a file is a module that later blocks of the page can import.
                named = re.match(r"# (\w+)\.py\n", block)
                module = types.ModuleType(named[1] if named else "block")
                monkeypatch.setitem(sys.modules, module.__name__, module)
                contextvars.copy_context().run(exec, compile(block, f"{page} (block)", "exec"), module.__dict__)
                assert capsys.readouterr().out == output_of(page, block)
            gc.collect()
    if page.startswith("migrate/"):
        assert len(fake.requests) == 2, "a call was answered"
        assert fake.refusals == []


def test_a_program_of_a_page_that_has_a_main_calls_it():
    programs = [(page, block) for page, blocks in BLOCKS for block in blocks if "def main(" in block]
    idle = [page for page, block in programs if not re.search(r"\bmain\(\)\)?$", block)]
    assert idle == []


def test_a_block_that_is_not_run_says_why():
    good = "<!-- not run: it needs a key -->\n```python\na\n```\n"
    assert blocks_of(good + "```python\nb\n```\n<!-- not run: -->\n```python\nc\n```") == ["b", "c"]


def reference() -> dict[str, set[str]]:
    """The names that the reference describes, by their modules; `*` stands for all of a module that are not chosen there."""
    sys.path.insert(0, str(DOCS.parent / "scripts"))
    try:
        pages: dict[str, tuple[tuple[str, ...], str]] = importlib.import_module("write_reference").PAGES
    finally:
        sys.path.pop(0)
    found: dict[str, set[str]] = {}
    for page, (specs, _) in pages.items():
        headings = set(re.findall(r"^## (\w+)$", (DOCS / "reference" / f"{page}.md").read_text("utf-8"), re.MULTILINE))
        for module, _, chosen in (spec.partition(":") for spec in specs):
            names = chosen.split() or getattr(importlib.import_module(module), "__all__", ())
            found[module] = found.get(module, set()) | {name for name in names if name in headings}
            assert {*names} - headings == set(), f"{module}: missing on the page {page}"
    return found


def imported_names(text: str) -> set[str]:
    """Names that a program imports from callgate, each with its module."""
    return {
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "callgate"
        for alias in node.names
    }


def is_public(name: str, known: dict[str, set[str]]) -> bool:
    """True for a module of the reference, and for a name that stands there with the same object."""
    module, _, last = name.rpartition(".")
    item = getattr(importlib.import_module(module), last)
    if isinstance(item, types.ModuleType):
        return name in known
    return any(
        last in names and getattr(importlib.import_module(place), last, None) is item for place, names in known.items()
    )


def test_every_public_name_and_every_name_that_a_program_of_the_docs_imports_is_in_the_reference():
    known = reference()
    pages = [DOCS.parent / "README.md", *PAGES]
    programs = {f"{page.name}, {n}": b for page in pages for n, b in enumerate(blocks_of(page.read_text("utf-8")))}
    programs |= {path.name: path.read_text("utf-8") for path in (DOCS.parent / "examples").rglob("*.py")}
    missing = {
        where: {name for name in imported_names(text) if not is_public(name, known)} for where, text in programs.items()
    }
    assert {where: names for where, names in missing.items() if names} == {}


def command_lines() -> list[tuple[str, list[str]]]:
    """Every line of a shell block that calls callgate."""
    lines: list[tuple[str, list[str]]] = []
    for page in (*PAGES, DOCS.parent / "README.md"):
        for block in re.findall(r"```sh\n(.*?)\n```", page.read_text("utf-8"), re.DOTALL):
            words = [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]
            lines += [(page.name, line[1:]) for line in words if line[:1] == ["callgate"]]
    return lines


def test_the_commands_of_shell_blocks_and_their_options_exist():
    wrong: list[str] = []
    for page, words in command_lines():
        command, rest = cli, list(words)
        while isinstance(command, click.Group) and rest:
            found = command.get_command(click.Context(command), rest[0])
            if found is None:
                break
            command, rest = found, rest[1:]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        ours = rest[: rest.index("--")] if "--" in rest else rest
        used = {word.partition("=")[0] for word in ours if word.startswith("-") and len(word) > 1}
        if isinstance(command, click.Group) and rest:
            wrong.append(f"{page}: callgate {shlex.join(words)}: there is no command {rest[0]!r}")
        wrong += [
            f"{page}: callgate {shlex.join(words)}: there is no option {option}" for option in used - known - {"--help"}
        ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def broken_tables(text: str) -> list[str]:
    """Rows of a page that belong to no table, because a blank line or the row of dashes is in the wrong place."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    tables = [block.splitlines() for block in re.findall(r"(?:^\|.*\n?)+", prose, re.MULTILINE)]
    return [rows[0] for rows in tables if len(rows) < 3 or not re.fullmatch(r"\|(?: ?:?-+:? ?\|)+", rows[1])]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_row_of_a_page_belongs_to_a_table(page: Path):
    assert broken_tables(page.read_text("utf-8")) == []


def test_a_row_after_a_blank_line_is_found():
    assert broken_tables("| a |\n|---|\n| b |\n\n| c |\n") == ["| c |"]


def names_in(page: str, heading: str) -> set[str]:
    """The names in the first column of the table under a heading."""
    section = (DOCS / page).read_text("utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`([^`=]+)[^`]*`", row)}


def test_the_page_on_running_lists_every_event():
    assert names_in("running.md", "Events") == {event.__name__ for event in events.EVENTS}


def test_the_page_on_running_lists_every_option_of_a_tool():
    assert names_in("running.md", "Tools") <= set(tool.__kwdefaults__ or {}) | {
        "name", "description", "read_only", "idempotent", "sequential", "timeout_s", "isolation", "run_in",
    }  # fmt: skip


def test_every_code_of_a_notice_is_on_the_page_on_notices():
    sources = "".join(path.read_text("utf-8") for path in Path(callgate.__file__).parent.rglob("*.py"))
    codes = set(re.findall(r'\bNotice\(\s*"([a-z_]+)"', sources))
    listed = re.findall(r"^\| `([a-z_]+)` ", (DOCS / "notices.md").read_text("utf-8"), re.MULTILINE)
    assert codes - {*listed} == set()
    assert listed == sorted(listed)


def test_the_page_on_gemini_lists_every_setting():
    with pytest.raises(UsageError) as raised:
        request.settings_of({"zzzzzz": 1}, "developer")
    known = set(str(raised.value).partition("known are ")[2].split(", "))
    section = (DOCS / "gemini.md").read_text("utf-8").split("\n## Settings\n", 1)[1].split("\n## ", 1)[0]
    assert {name for name in known if f"`{name}" not in section} == set()
    assert names_in("gemini.md", "Settings") <= known


def test_the_page_on_openai_lists_every_setting_and_every_server():
    assert names_in("openai.md", "Settings") == {*openai_request.SETTINGS}
    assert names_in("openai.md", "What servers do differently") == {*quirks.QUIRKS}
    section = (DOCS / "openai.md").read_text("utf-8").split("\n## Settings\n", 1)[1].split("\n## ", 1)[0]
    assert {name for name in quirks.SAMPLING if f"`{name}`" not in section} == set()


def test_the_figures_of_the_pages_are_the_limits():
    limits = Limits()
    told = (limits.connect_s, limits.first_byte_s, limits.idle_s, limits.total_s, limits.attempts)
    assert told == (10, 60, 60, 600, 5)
    assert (limits.event_bytes, limits.body_bytes) == (16 << 20, 64 << 20)
    assert limits.call_timeout_s == 30


def test_the_figures_of_the_readme_are_those_that_were_measured():
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    lines = [
        *(DOCS / "performance.md").read_text("utf-8").splitlines(),
        *(DOCS / "workers.md").read_text("utf-8").splitlines(),
    ]
    rows = {
        cells[1]: cells[2:] for line in lines if line.startswith("| ") and (cells := [c.strip() for c in line.split("|")])
    }
    first, genai, by_hand = rows["process start to first answer"][:3]
    assert f"{first} ms from process start to the first answer ({genai}; hand-written {by_hand})" in readme
    at_10, at_400 = (float(rows["callgate"][n]) for n in (0, 2))
    assert f"{at_10:.1f} ms of processor time a turn" in readme
    assert at_400 < 1.2 * at_10, "as much at turn 400 as at turn 10"
    assert f"(google-genai {rows['google-genai'][0]} at turn 10)" in readme
    assert f"at most {rows['`while True: pass`'][3]} late" in readme


def test_every_public_name_has_a_docstring():
    assert [name for name in callgate.__all__ if not getattr(callgate, name).__doc__] == []


def test_the_page_on_permission_names_every_field_of_a_rule_and_of_a_hook():
    text = (DOCS / "permission.md").read_text("utf-8")
    fields = [f.name for kind in (Rule, Hook) for f in dataclasses.fields(kind) if f.init]
    assert [name for name in fields if f"`{name}" not in text] == []
    assert [mode for mode in MODES if f"`{mode}`" not in text] == []


def test_the_page_on_settings_lists_every_setting_with_its_variables_and_its_flag():
    rows = {
        line.split("`")[1]: line for line in (DOCS / "config.md").read_text("utf-8").splitlines() if line.startswith("| `")
    }
    assert set(rows) == {key for key in SETTINGS if not key.startswith("limits.")}
    for key, row in rows.items():
        setting = SETTINGS[key]
        assert setting.doc in row
        named = [*setting.variables, *setting.choices, *filter(None, [setting.flag])]
        assert [word for word in named if f"`{word}`" not in row] == []


def test_the_settings_of_the_page_can_be_read(tmp_path: Path):
    (table,) = re.findall(r"```toml\n(.*?)```", (DOCS / "config.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "config.toml").write_text(table)
    settings = load_settings({"CALLGATE_CONFIG": str(tmp_path / "config.toml")}, folder=tmp_path)
    assert (settings["limits.turns"], settings.notices) == (40, ())
    assert set(settings["mcp.servers"]) == {"git"}


def test_the_policy_file_of_the_page_on_permission_can_be_read(tmp_path: Path):
    (table,) = re.findall(r"```toml\n(.*?)```", (DOCS / "permission.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "policy.toml").write_text(table)
    policy = Policy.from_file(tmp_path / "policy.toml")
    assert (policy.problems, len(policy.rules), len(policy.hooks)) == ((), 4, 1)
