"""A pytest plugin: what other people's programs and test suites say of callgate, as a table in docs/judges.md.

    python -m pytest -p scripts.judges -m "not slow"

A test says by `@pytest.mark.judge("openai")` whose judgement it asks for; names and where they come from are in `JUDGES`. A
test that puts many questions says how many were answered well by `record_property("judged", [passed, all])`, and why the
others were not by `record_property("judge_known", {"reason": count})`. A run prints one line for each judge, and renews the
rows of those that it asked; a run of a few tests, or one in which a judge was skipped, leaves the table alone.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "judges.md"
NPM = ROOT / ".venv" / "npm" / "node_modules"


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

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self._scores: dict[str, Score] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test is over."""
        said: dict[str, Any] = dict(report.user_properties)
        if "judge" in said and (report.when == "call" or not report.passed):
            self._scores.setdefault(said["judge"], Score()).add(report, said)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints one line for each judge, and renews the page."""
        for name, score in sorted(self._scores.items()):
            told = f", {sum(score.known.values())} known failures" if score.known else ""
            skipped = ", some skipped" if score.skipped else ""
            line = f"judge {name} {JUDGES[name].version}: {score.passed} / {score.total}{told}{skipped}"
            terminalreporter.write_line(line)
        whole = {name: score for name, score in self._scores.items() if score.total and not score.skipped}
        if self._is_whole and whole:
            renew(PAGE, whole)


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
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets each test that asks a judge say so in its report."""
    for item in items:
        if (mark := item.get_closest_marker("judge")) is not None:
            (name,) = mark.args
            if name not in JUDGES:
                raise pytest.UsageError(f"{item.nodeid}: no judge {name!r} is known to scripts/judges.py")
            item.user_properties.append(("judge", name))


def pytest_configure(config: pytest.Config) -> None:
    """Collects scores where the reports of all processes arrive."""
    if not hasattr(config, "workerinput"):
        asked = [word for word in config.invocation_params.args if str(word).startswith(("-k", "tests/"))]
        config.pluginmanager.register(Table(is_whole=not asked), "callgate-judges")
