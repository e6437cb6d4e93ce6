"""Ask a running service with the clients that people have, and write the table of docs/clients.md.

    python scripts/clients.py            # all of them
    python scripts/clients.py openai llm # these, without touching the table

Each client is a program of `scripts/client_programs` in an environment of its own below build/clients, made at the first
use: what it installs must not change what the package is tested with. The service is `callgate serve`; its model is Gemini,
played by the strict fake, which understands six prompts. A cell is what the client said, compared with what is expected.
The status is 1 if a cell differs for which no reason is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callgate.testing.answers import calls, text
from callgate.testing.exchange import Exchange
from callgate.testing.fake_gemini import MODELS, FakeGemini
from callgate.testing.fault_row import FaultStep, row

sys.path.insert(0, str(Path(__file__).parent))
from foreign_packages import MissingError, install, is_installed, node

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "scripts" / "client_programs"
BUILD = ROOT / "build" / "clients"
PAGE = ROOT / "docs" / "clients.md"
TOKEN = "a-token-for-all-clients"
MODEL = "gemini-3.8-flash"
RUN_S = 900

DEEDS = ("text", "stream", "parallel", "ours", "its", "error", "abort")
PROMPTS = {
    "text": "Say hello.",
    "stream": "Count to eight.",
    "parallel": "How is the weather in Oslo and in Rome?",
    "ours": "What is 1 + 2?",
    "its": "How is the weather in Oslo?",
    "error": "Say hello.",
    "abort": "Tell a long story.",
}
EXPECTED: dict[str, Any] = {
    "text": "Hello from the model.",
    "stream": ["one two three four five six seven eight", True],
    "parallel": [["Oslo", "Rome"], "Oslo is cold, Rome is cold"],
    "ours": "It is 3.",
    "its": [["Oslo"], "Oslo is cold"],
    "error": 404,
    "abort": ["Once upon a time", True],
}


@dataclass(frozen=True)
class Client:
    """One client: its program, and what has to be there to run it."""

    name: str
    program: str
    packages: tuple[str, ...] = ()
    """For pip, or for npm if the program is one of Node.js. The first gives the version in the table."""
    known: dict[str, str] = field(default_factory=dict[str, str])
    """Reasons for cells that differ, by `way: deed`."""

    @property
    def is_node(self) -> bool:
        return self.program.endswith(".mjs")


WHOLE_ARGS = "a partial value needs arguments in pieces; Gemini sends those of a call in one"
NOTHING_YET = "`aresponses()` hands nothing on of a stream that goes on, so there is nothing to leave"
CLIENTS = (
    Client("openai (Python)", "openai_sdk.py", ("openai",)),
    Client("openai (Node.js)", "openai_sdk.mjs", ("openai",)),
    Client("openai-agents", "openai_agents.py", ("openai-agents",)),
    Client("anthropic (Python)", "anthropic_sdk.py", ("anthropic",)),
    Client("anthropic (Node.js)", "anthropic_sdk.mjs", ("@anthropic-ai/sdk",)),
    Client("google-genai (Python)", "google_genai.py", ("google-genai",)),
    Client("@google/genai (Node.js)", "google_genai.mjs", ("@google/genai",)),
    Client(
        "AI SDK",
        "ai_sdk.mjs",
        ("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic", "@ai-sdk/google", "zod"),
    ),
    Client(
        "LangChain",
        "langchain_agents.py",
        ("langchain", "langchain-openai", "langchain-anthropic", "langchain-google-genai"),
    ),
    Client("pydantic-ai", "pydantic_ai_agents.py", ("pydantic-ai-slim[openai,anthropic,google]",)),
    Client("LiteLLM", "litellm_calls.py", ("litellm", "mcp"), {"`responses()`: abort": NOTHING_YET}),
    Client("llm", "llm_models.py", ("llm",)),
    Client(
        "instructor",
        "instructor_calls.py",
        ("instructor", "openai", "anthropic", "google-genai", "jsonref"),
        {f"{way}: stream": WHOLE_ARGS for way in ("chat completions", "Responses", "Messages", "generateContent")},
    ),
    Client("Codex CLI", "codex_cli.py", ("npm:@openai/codex",)),
    Client("Claude Code", "claude_code.py", ("npm:@anthropic-ai/claude-code",)),
    Client("Gemini CLI", "gemini_cli.py", ("npm:@google/gemini-cli",)),
)


# Environments ------------------------------------------------------------------------------------------------------------


def folder_of(client: Client) -> Path:
    """The folder of a client's environment."""
    return BUILD / re.sub(r"\W+", "-", client.name.lower()).strip("-")


def is_ready(client: Client) -> bool:
    """True if the environment of a client is there."""
    return is_installed(folder_of(client), packages_of(client)[0])


def packages_of(client: Client) -> tuple[list[str], bool]:
    """The packages of a client, and whether they are npm's."""
    is_npm = client.is_node or client.packages[0].startswith("npm:")
    return [name.removeprefix("npm:") for name in client.packages], is_npm


def environment(client: Client) -> Path:
    """The folder with the packages of a client.

    Raises:
        MissingError: they cannot be installed.
    """
    packages, is_npm = packages_of(client)
    return install(folder_of(client), packages, is_npm=is_npm)


def version_of(client: Client, folder: Path) -> str:
    """The installed version of the client's own package."""
    name = re.sub(r"\[.*", "", client.packages[0].removeprefix("npm:"))
    if (package := folder / "node_modules" / name / "package.json").is_file():
        return str(json.loads(package.read_text("utf-8"))["version"])
    asked = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run(
        [folder / "bin" / "python", "-c", asked], capture_output=True, text=True, check=True
    ).stdout.strip()


# The model and the service -----------------------------------------------------------------------------------------------


_RESULT = re.compile(r"[A-Z][a-z]+ is cold|(?<![\w.])3(?![\w.])")
"""What the tools tell, whatever a client wraps it in."""


def _asked(contents: list[Any]) -> tuple[str, list[str]]:
    """What the newest known prompt wants, and the results that came after it."""
    deed, results = "text", list[str]()
    for content in contents:
        for part in content.get("parts", []):
            words = part.get("text", "") if content.get("role") == "user" else ""
            if found := next((deed for deed, prompt in PROMPTS.items() if prompt in words), None):
                deed, results = found, []
            if "functionResponse" in part:
                results += _RESULT.findall(json.dumps(part["functionResponse"]["response"]).replace(r"\n", " "))
    return deed, results


def _declared(request: dict[str, Any], *wanted: str) -> tuple[str, dict[str, Any]]:
    """The name and parameters of the first declared function with one of these parameters."""
    for group in request.get("tools", []):
        for function in group.get("functionDeclarations", []):
            schema = function.get("parametersJsonSchema") or function.get("parameters") or {}
            if set(wanted) & set(schema.get("properties", {})):
                return function["name"], schema["properties"]
    return "", {}


def _weather_calls(request: dict[str, Any], cities: list[str]) -> Any:
    """Calls of the function that takes a city, or else of the shell that an agent on a terminal has."""
    name, _ = _declared(request, "city")
    if name:
        return calls(*((name, {"city": city}) for city in cities))
    name, schema = _declared(request, "command", "cmd")
    if not name:
        return text("There is no tool for that.")
    key = "command" if "command" in schema else "cmd"
    extra = {"description": "Tells the weather."} if "description" in schema else {}
    lines = [f"echo {city} is cold" for city in cities]
    return calls(
        *((name, {key: ["sh", "-c", line] if schema[key].get("type") == "array" else line, **extra}) for line in lines)
    )


class Brain:
    """The model: answers six prompts, and writes down which streams were left by the service."""

    def __init__(self, left: Path) -> None:
        self._left = left
        left.touch()

    def __call__(self, request: dict[str, Any]) -> Any:
        deed, results = _asked(request.get("contents", []))
        if deed == "abort":
            return FaultStep(fault=row("-", "story", "A story that does not end.", self._story), variant="usual", times=1)
        if deed == "stream":
            wanted, _ = _declared(request, "city")
            return calls((wanted, {"city": EXPECTED["stream"][0]})) if wanted else text(EXPECTED["stream"][0], chunks=8)
        if deed in ("parallel", "its"):
            cities = ["Oslo", "Rome"] if deed == "parallel" else ["Oslo"]
            return text(", ".join(results)) if results else _weather_calls(request, cities)
        if deed == "ours":
            if results:
                return text(f"It is {results[0]}.")
            names = _names(request)
            name = next((each for each in names if each.endswith("add")), "add")
            if (
                name not in names and "ToolSearch" in names
            ):  # Claude Code declares tools of servers when they are looked for.
                return calls(("ToolSearch", {"query": "select:mcp__callgate__add", "max_results": 1}))
            return calls((name, {"a": 1, "b": 2}))
        return text(EXPECTED["text"])

    async def _story(self, exchange: Exchange) -> None:
        pieces = ["Once upon a time", " there was", " a gate", "."]
        body = exchange.body_of(text("".join(pieces), chunks=pieces))
        await exchange.begin(body)
        for frame in body.frames[:3]:  # Some clients hand a piece on when they have read the next.
            await exchange.send(frame)
        with self._left.with_name("begun").open("a") as file:
            file.write("begun\n")
        await exchange.until_closed()
        with self._left.open("a") as file:
            file.write("left\n")


def _names(request: dict[str, Any]) -> list[str]:
    return [each["name"] for group in request.get("tools", []) for each in group.get("functionDeclarations", [])]


@contextlib.contextmanager
def service(folder: Path) -> Iterator[tuple[str, FakeGemini, Path]]:
    """A service on a free port: its address, the fake of its model, and the file of streams that were left."""
    left = folder / "left"
    with FakeGemini.in_thread([Brain(left)], repeat_last=True, models=MODELS) as fake:
        env = {**os.environ, "GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url, "CALLGATE_TOKEN": TOKEN}
        options = ["--provider", "gemini", "-m", MODEL, "--port", "0", "--ephemeral", "-T", str(PROGRAMS / "tools.py")]
        command = [sys.executable, "-m", "callgate", "serve", *options]
        log = (folder / "service.log").open("w+")
        with log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env) as process:
            try:
                yield _address(process, Path(log.name)), fake, left
            finally:
                process.terminate()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    while process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text("utf-8")):
            return found[0]
        time.sleep(0.05)
    raise SystemExit(f"the service did not start: {log.read_text('utf-8')}")


# The run -----------------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """What one way of a client has done."""

    client: Client
    version: str
    way: str
    cells: dict[str, str]

    def unexplained(self) -> dict[str, str]:
        """The cells that differ for no known reason."""
        bad = {deed: said for deed, said in self.cells.items() if said != "ok" and not said.startswith("- ")}
        return {deed: said for deed, said in bad.items() if f"{self.way}: {deed}" not in self.client.known}


def ask(client: Client, folder: Path, address: str, left: Path) -> list[Row]:
    """Run the program of a client against the service."""
    given = {
        "SERVICE_URL": address, "SERVICE_TOKEN": TOKEN, "PROMPTS": json.dumps(PROMPTS), "EXPECTED": json.dumps(EXPECTED),
        "LEFT_FILE": str(left), "CLIENT_FOLDER": str(folder),
    }  # fmt: skip
    with contextlib.suppress(MissingError):
        given["NODE"] = node()
    program = PROGRAMS / client.program
    if client.is_node:
        # A module finds its packages beside itself.
        program = Path(shutil.copy(program, folder / client.program))
        shutil.copy(PROGRAMS / "report.mjs", folder / "report.mjs")
        command = [node(), str(program)]
    else:
        python = folder / "bin" / "python"
        command = [str(python) if python.exists() else sys.executable, str(program)]
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")} | given
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=RUN_S, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"way"')]
    if done.returncode or not found:
        raise MissingError(f"{client.program}: {done.stderr.strip()[-600:] or 'it said nothing'}")
    version = version_of(client, folder)
    return [Row(client, version, each["way"], each["rows"]) for each in found]


def table(rows: list[Row]) -> str:
    """The rows in Markdown, with a remark for each cell that is not `ok`."""
    remarks: list[str] = []

    def cell(row: Row, deed: str) -> str:
        said = row.cells[deed]
        if said == "ok":
            return "yes"
        words = row.client.known.get(f"{row.way}: {deed}") or said.removeprefix("- ")
        if words not in remarks:
            remarks.append(words)
        return f"{'-' if said.startswith('- ') else 'no'} ({remarks.index(words) + 1})"

    lines = [f"| client | version | by | {' | '.join(DEEDS)} |", f"|{'---|' * (3 + len(DEEDS))}"]
    for each in rows:
        cells = " | ".join(cell(each, deed) for deed in DEEDS)
        lines.append(f"| {each.client.name} | {each.version} | {each.way} | {cells} |")
    return "\n".join([*lines, "", *(f"{number}. {words}" for number, words in enumerate(remarks, 1))]).rstrip()


def main(names: list[str]) -> int:
    """Ask with the named clients, or with all of them."""
    chosen = [each for each in CLIENTS if not names or any(name.lower() in each.name.lower() for name in names)]
    rows: list[Row] = []
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        folders = [(client, pool.submit(environment, client)) for client in chosen]
        with tempfile.TemporaryDirectory() as place, service(Path(place)) as (address, fake, left):
            for client, made in folders:
                try:
                    found = ask(client, made.result(), address, left)
                except (MissingError, subprocess.TimeoutExpired) as error:
                    print(f"{client.name}: not asked: {error}", flush=True)
                    failed += 1
                    continue
                for each in found:
                    cells = " ".join(f"{deed}={'ok' if said == 'ok' else repr(said)}" for deed, said in each.cells.items())
                    print(f"{client.name} {each.version}, {each.way}: {cells}", flush=True)
                    failed += len(each.unexplained())
                rows += found
            for refusal in fake.refusals:
                print(f"the fake Gemini refused a request of the service: {refusal}", flush=True)
            failed += len(fake.refusals) + len(fake.errors)
    if not names:
        before, _, rest = PAGE.read_text("utf-8").partition("<!-- table -->\n")
        PAGE.write_text(f"{before}<!-- table -->\n{table(rows)}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}", "utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
