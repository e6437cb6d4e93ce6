"""A pytest plugin: what other people's programs and test suites say of callgate, as a table in docs/judges.md.

    python -m pytest -p scripts.judges -m "not slow"

A test says by `@pytest.mark.judge("openai")` whose judgement it asks for; names and where they come from are in `JUDGES`. A
test that puts many questions says how many were answered well by `record_property("judged", [passed, all])`, and why the
others were not by `record_property("judge_known", {"reason": count})`. A run prints one line for each judge. What each test
said is kept in pytest's cache, since some are quick and some are slow: the row of a judge is renewed once all of its tests
have been run. A run of a few files, or one in which a judge was skipped, leaves the table alone.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "judges.md"
NPM = ROOT / ".venv" / "npm" / "node_modules"
_CACHE_KEY = "callgate/judges"
_PLUGIN = "callgate-judges"


@dataclass(frozen=True)
class Judge:
    """One judge: what it judges, and where its version stands."""

    what: str
    package: str
    is_npm: bool = False
    folder: str = ""
    """The folder of .venv into which `scripts/judge_packages.py` brings it, if it does."""

    @property
    def version(self) -> str:
        """The version that is installed; `-` if none is."""
        try:
            if self.folder:
                (stamp,) = (ROOT / ".venv" / self.folder).glob(f".{self.package}-*")
                return stamp.name.removeprefix(f".{self.package}-").rpartition("-")[0]
            if self.is_npm:
                return json.loads((NPM / self.package / "package.json").read_text("utf-8"))["version"]
            return importlib.metadata.version(self.package)
        except (OSError, ValueError, KeyError, importlib.metadata.PackageNotFoundError):
            return "-"


JUDGES = {
    "AI SDK": Judge("the event stream for web pages", "ai", is_npm=True),
    "aimock": Judge("both clients, against servers of another author", "@copilotkit/aimock", is_npm=True),
    "anthropic": Judge("the Messages endpoint", "anthropic"),
    "axe": Judge("accessibility of the page", "axe-core", is_npm=True),
    "BFCL multi-turn": Judge("calls with effects, through a gate that is killed and resumed", "bfcl-eval", folder="bfcl"),
    "google-genai": Judge("requests to Gemini, the fake server and the compatible endpoint", "google-genai"),
    "gunicorn's requests": Judge("the HTTP layer of the service", "gunicorn", folder="gunicorn-requests"),
    "JSON Schema": Judge("argument checks and declarations", "jsonschema", folder="json-schema-suite"),
    "llmock": Judge("the OpenAI client, against a server of another author", "llmock"),
    "MCP conformance, client": Judge("the MCP client", "@modelcontextprotocol/conformance", is_npm=True),
    "MCP conformance, server": Judge("the MCP server", "@modelcontextprotocol/conformance", is_npm=True),
    "MCP inspector": Judge("the MCP server", "@modelcontextprotocol/inspector", is_npm=True),
    "openai": Judge("requests to OpenAI, the fake server and the compatible endpoint", "openai"),
    "pa11y": Judge("accessibility of the page", "@pa11y/html_codesniffer", is_npm=True),
    "protobuf": Judge("requests to Gemini as Google's messages", "google-ai-generativelanguage"),
    "schemathesis": Judge("the OpenAPI document of the service", "schemathesis"),
}


@dataclass
class Score:
    """How a judge has judged in this run."""

    passed: int = 0
    total: int = 0
    skipped: bool = False
    known: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, report: pytest.TestReport, said: dict[str, Any]) -> None:
        """Counts one test, or the questions that it put."""
        self.skipped |= report.skipped
        if report.skipped:
            return
        passed, total = said.get("judged", (int(report.passed), 1))
        self.passed += passed if report.passed else 0
        self.total += total
        for reason, count in said.get("judge_known", {}).items():
            self.known[reason] = self.known.get(reason, 0) + count


class Table:
    """Collects the scores of a run, in the process that the others report to."""

    def __init__(self, cache: Any, *, is_whole: bool) -> None:
        self._cache = cache
        self._is_whole = is_whole
        self._scores: dict[str, dict[str, Score]] = {}
        self.tests: dict[str, list[str]] = {}
        """The tests of each judge, quick and slow ones."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test is over."""
        said: dict[str, Any] = dict(report.user_properties)
        if "judge" in said and (report.when == "call" or not report.passed):
            of_judge = self._scores.setdefault(said["judge"], {})
            of_judge.setdefault(_function(report.nodeid), Score()).add(report, said)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process that ran tests says which it has found."""
        self.tests |= getattr(node, "workeroutput", {}).get("judges", {})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints one line for each judge, and renews the page."""
        for name, scores in sorted(self._scores.items()):
            score = total(scores.values())
            told = f", {sum(score.known.values())} known failures" if score.known else ""
            skipped = ", some skipped" if score.skipped else ""
            line = f"judge {name} {JUDGES[name].version}: {score.passed} / {score.total}{told}{skipped}"
            terminalreporter.write_line(line)
        if self._is_whole and self._cache is not None:
            renew(PAGE, self._complete())

    def _complete(self) -> dict[str, Score]:
        """The judges of this run all of whose tests have been run, in this run or before."""
        kept: dict[str, dict[str, Any]] = self._cache.get(_CACHE_KEY, {})
        complete: dict[str, Score] = {}
        for name, scores in self._scores.items():
            if any(score.skipped or not score.total for score in scores.values()):
                continue
            known = kept.get(name, {}) | {test: asdict(score) for test, score in scores.items()}
            kept[name] = {test: known[test] for test in self.tests.get(name, []) if test in known}
            if kept[name] and len(kept[name]) == len(self.tests[name]):
                complete[name] = total(Score(**score) for score in kept[name].values())
        self._cache.set(_CACHE_KEY, kept)
        return complete


def total(scores: Iterable[Score]) -> Score:
    """All of them as one."""
    together = Score()
    for score in scores:
        together.passed += score.passed
        together.total += score.total
        together.skipped |= score.skipped
        for reason, count in score.known.items():
            together.known[reason] = together.known.get(reason, 0) + count
    return together


def _function(test: str) -> str:
    """The name of a test without the case that it was given."""
    return test.partition("[")[0]


def row(name: str, score: Score) -> str:
    """A line of the table."""
    known = "; ".join(f"{count}: {reason}" for reason, count in sorted(score.known.items()))
    judge = JUDGES[name]
    return f"| {name} | {judge.version} | {judge.what} | {score.passed:,} / {score.total:,} | {known or 'none'} |"


def renew(page: Path, scores: dict[str, Score]) -> None:
    """Writes the rows of these judges into the table of the page; the others stay."""
    text = page.read_text("utf-8")
    rows = dict(re.findall(r"^(?:\| ([^|]+) \|)(?= .*\d / )(.*)$", text, re.MULTILINE))
    rows = {name.strip(): f"| {name} |{rest}" for name, rest in rows.items() if name.strip() in JUDGES}
    rows |= {name: row(name, score) for name, score in scores.items()}
    head, table, rest = re.split(r"(?<=\|\n)((?:\| .*\n)*)(?=\n<!-- end -->)", text, maxsplit=1)
    del table
    lines = "".join(f"{rows[name]}\n" for name in sorted(rows, key=str.casefold))
    if (written := head + lines + rest) != text:
        page.write_text(written, "utf-8")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Lets each test that asks a judge say so in its report, and notes all of them, also those that are not run now."""
    tests: dict[str, dict[str, None]] = {}
    for item in items:
        if (mark := item.get_closest_marker("judge")) is not None:
            (name,) = mark.args
            if name not in JUDGES:
                raise pytest.UsageError(f"{item.nodeid}: no judge {name!r} is known to scripts/judges.py")
            item.user_properties.append(("judge", name))
            tests.setdefault(name, {})[_function(item.nodeid)] = None
    listed = {name: list(functions) for name, functions in tests.items()}
    if hasattr(config, "workeroutput"):
        config.workeroutput["judges"] = listed
    elif (table := config.pluginmanager.get_plugin(_PLUGIN)) is not None:
        table.tests = listed


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Collects scores where the reports of all processes arrive."""
    if not hasattr(config, "workerinput"):
        asked = [word for word in config.invocation_params.args if str(word).startswith(("-k", "tests/"))]
        config.pluginmanager.register(Table(getattr(config, "cache", None), is_whole=not asked), _PLUGIN)
