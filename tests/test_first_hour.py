"""README, installation, quickstart and tutorial, line by line, by somebody who has nothing: a new home, an empty folder.

A Python block is a file, which its first line may name; one that no command runs is run as it stands. A shell block is
typed, and so is what stands behind a `$`, and at the end of a page every command in its sentences. A block of plain text is
what the one before it must have printed, and nothing is printed that the page does not show. `make` runs the tasks of the
real Makefile in a clone whose environment is set up already, because setting it up takes the network. Where a page wants a
key, the strict fake server is the API.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from callgate.testing import FakeGemini, call

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = {
    "make test": "it runs the tests, of which this is one",
    "make docs": "test_site.py builds the site",
    "pip install 'callgate[cli]'": "there is no release yet, as the page says",
    "callgate mcp serve": "an MCP client starts it, as tests/mcp do",
    "pip install .": "test_package.py installs the wheel",
    "pip install '.[cli]'": "test_package.py installs the wheel",
    "pipx install '.[cli]'": "the same, by another program",
    "uvx --from '.[cli]' callgate doctor": "the same, by another program",
    "export GEMINI_API_KEY=...": "the page has a key from the start",
}
"""Commands that are not typed here, and why."""


def _with_ctrl_c() -> None:
    """Undo what a shell does to a background job, whose children ignore Ctrl-C until they ask for it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Newcomer:
    """Somebody at a shell."""

    home: Path
    clone: Path
    folder: Path
    programs: Path
    more: dict[str, str] = field(default_factory=lambda: {"CALLGATE_PROVIDER": "demo"})
    """Further variables: at first the demo, or the embedded model would be loaded where it is installed."""

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": f"{self.programs}:/usr/bin:/bin", "LANG": "C.UTF-8", **self.more}

    def type(self, line: str, more: str = "") -> str:
        """Types a line, and then more of them into what it starts; gives what it prints."""
        folder = self.clone if line.startswith("make") else self.folder
        done = subprocess.run(
            ["/bin/sh", "-ec", line],
            cwd=folder,
            env=self.env,
            input=more,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve(self, line: str) -> None:
        """Types a line that starts a service, opens the link that it prints, and ends it with Ctrl-C."""
        words = ["/bin/sh", "-ec", f"exec {line} --port 0"]  # The usual port may be taken by another test.
        with subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_with_ctrl_c,
        ) as service:
            assert service.stdout is not None
            printed: list[str] = []
            for said in service.stdout:
                printed.append(said)
                if link := re.search(r"http://\S+", said):
                    assert httpx.get(link[0], trust_env=False).status_code == 200
                    service.send_signal(signal.SIGINT)
                    break
            printed.append(service.stdout.read())
        assert service.returncode in (0, 130), "".join(printed)


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    top = tmp_path_factory.mktemp("newcomer")
    person = Newcomer(*(top / name for name in ("home", "clone", "work", "bin")))
    for folder in (person.home, person.folder, person.programs, person.clone / ".venv/bin", person.clone / "scripts"):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", person.clone)
    programs = {
        person.programs / "python": f'exec "{sys.executable}" -W error "$@"',
        person.programs / "callgate": f'exec "{sys.executable}" -m callgate "$@"',
        person.clone / ".venv/bin/callgate": f'exec "{sys.executable}" -m callgate "$@"',
        person.clone / "scripts/setup": "exit 0",
    }
    for file, text in programs.items():
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    return person


def commands_in(block: str) -> list[str]:
    lines = [re.sub(r"\s+#.*", "", line).strip() for line in block.splitlines()]
    return [line for line in lines if line]


def lines_of(language: str, block: str) -> list[str]:
    """The lines of a block that are typed, but for those that are skipped."""
    typed = commands_in("\n".join(re.findall(r"^\$ (.*)$", block, re.MULTILINE)) if language == "console" else block)
    return [line for line in typed if line not in SKIPPED]


def commands_of_sentences(page: str) -> list[str]:
    """The commands between the backquotes of a page that no block has, each once, but for those that are skipped."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    found = [" ".join(line.split()) for line in re.findall(r"`((?:callgate|make|pip|pipx|python|uvx?) [^`]+|make)`", prose)]
    typed = commands_in("\n".join(re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)))
    return [line for line in dict.fromkeys(found) if line not in SKIPPED and line not in typed]


def walk(person: Newcomer, page: str) -> dict[str, int]:
    """Goes through a page; says how many blocks of each kind there were, and how many commands in sentences."""
    count = {"python": 0, "sh": 0, "text": 0, "console": 0, "sentences": 0}
    printed = unshown = ""
    typed = "\n".join(re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    for language, block in re.findall(r"^```(python|sh|text|console)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        count[language] += 1
        assert not unshown or language in ("text", "console"), f"the page does not show {unshown!r}"
        unshown = ""
        if language == "python":
            named = re.match(r"# (?:\w+/)*(\w+\.py)\n", block)
            name = named[1] if named else f"block_{count['python']}.py"
            (person.folder / name).write_text(block)
            is_module = person.more.get("CALLGATE_PROVIDER") == "demo"  # those of the tutorial are run by its commands
            assert named or not is_module, f"the first line of a block names its file: {block[:60]!r}"
            printed = "" if is_module or f"python {name}" in typed else person.type(f"python {name}")
            unshown = printed
        elif language == "text":
            assert printed == block
        elif lines := lines_of(language, block):
            printed = "".join(person.type(line) for line in lines)
            assert printed, f"nothing was printed by {lines}"
        else:  # what a program printed, more or less
            assert language == "sh" or "$ " in block or printed.splitlines()[-1] == block.splitlines()[-1]
    assert not unshown, f"the page does not show {unshown!r}"
    for line in commands_of_sentences(page):
        count["sentences"] += 1
        if line.startswith("callgate serve"):
            person.serve(line)
        else:
            assert person.type(line, "What is 12 * 7?\n" if line.startswith("callgate chat") else ""), (
                f"{line} prints nothing"
            )
    return count


@pytest.mark.slow
def test_a_newcomer_gets_through_the_tutorial_line_by_line(newcomer: Newcomer):
    count = walk(newcomer, (ROOT / "docs/tutorial.md").read_text("utf-8"))
    assert count == {"python": 4, "sh": 5, "text": 3, "console": 0, "sentences": 3}
    assert {path.name for path in newcomer.home.iterdir()} <= {".local", ".cache", ".config"}


OSLO = call("get_weather", city="Oslo")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "answers", "blocks"),
    [
        ("README.md", [OSLO, "It is snowing in Oslo, at -3 degrees.", "84.", "Snow in both.", "It sank.", "84.", "84."], 1),
        ("docs/installation.md", ["84.", "84."], 0),
        (
            "docs/quickstart.md",
            [
                "84.", OSLO, "It snows in Oslo.", OSLO, "It snows in Oslo.", OSLO, "It snows in Oslo.",
                "It will snow until Friday.", OSLO, "You did not let me.", "Glomma, Lågen, Tana.",
            ],
            6,
        ),
    ],
)  # fmt: skip
def test_a_newcomer_with_a_key_gets_through_the_page_line_by_line(
    newcomer: Newcomer, page: str, answers: list[object], blocks: int
):
    with FakeGemini.in_thread(answers) as fake:
        person = replace(newcomer, more={"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url})
        assert walk(person, (ROOT / page).read_text("utf-8"))["python"] == blocks
    asked = [request for request in fake.requests if "generatecontent" in request.path.lower()]
    assert (len(asked), fake.refusals) == (len(answers), [])


def test_every_make_task_that_a_page_names_is_in_the_makefile():
    tasks = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {word for page in pages for word in re.findall(r"`make ([a-z][a-z-]*)", page.read_text("utf-8"))}
    assert named - tasks == set()
    assert "chat" in named


def test_a_page_that_promises_something_else_is_found(newcomer: Newcomer):
    with pytest.raises(AssertionError):
        walk(newcomer, "```sh\necho one\n```\n\n```text\ntwo\n```\n")
    with pytest.raises(AssertionError, match="names its file"):
        walk(newcomer, "```python\nprint(1)\n```\n")
