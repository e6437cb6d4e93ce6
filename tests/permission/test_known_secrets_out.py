"""Secrets that the program knows stand in no log record, notice or error."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import callgate
from callgate import Gate, GeminiModel, McpServer, Policy, ScriptedModel, ToolContext
from callgate.cli import cli
from callgate.config.known_secrets import remember_secrets
from callgate.errors import ServerUnavailableError
from callgate.events import CallProgress, Notice
from callgate.mcp.serve import ToolServer
from callgate.permission import Hook, Rule
from callgate.testing import call
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_gemini import call as model_call
from mcp import Client

KEY = "AIzaSyTESTKEY-abcdefghijklmnopqrstu1234"
TOKEN = "hdr-Secret-0123456789xyz"
DYING_SERVER = """
import os, sys
from mcp.server import MCPServer
server = MCPServer("d")
@server.tool()
def die() -> str:
    "Die."
    sys.stderr.write("fatal: token " + os.environ["TOK"] + chr(10))
    sys.stderr.flush()
    os._exit(3)
server.run("stdio")
"""


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(params=["callgate", "callgate.run"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    logger, handler = logging.getLogger(request.param), Kept()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def run(work: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await work

    return asyncio.run(bounded())


def test_a_key_that_the_model_repeats_is_in_no_log_record(kept: Kept) -> None:
    def note(text: str) -> str:
        """Note a text."""
        return text

    async def story() -> None:
        async with FakeGemini([model_call("note", text=KEY), f"ok {KEY}"]) as fake:
            env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": fake.base_url}
            await Gate(GeminiModel("gemini-3.8-flash", env=env), [note]).run(f"hello {KEY}")

    run(story())
    assert kept.lines
    assert [line for line in kept.lines if KEY in line] == []


def test_a_variable_that_is_set_after_a_log_record_is_known_all_the_same(kept: Kept, monkeypatch: Any) -> None:
    logger = logging.getLogger("callgate.run")
    logger.warning("nothing that anybody hides")
    monkeypatch.setenv("LATER_API_TOKEN", "set-after-the-first-record")
    logger.warning("the token is set-after-the-first-record")
    assert kept.lines[-1] == "the token is [redacted: known secret]"


def test_tracebacks_in_log_records_have_no_known_secrets(kept: Kept) -> None:
    remember_secrets(TOKEN)
    try:
        raise ValueError(f"refused: {TOKEN}")
    except ValueError:
        logging.getLogger("callgate.run").exception("a request with %s failed", TOKEN)
    assert "ValueError: refused" in kept.lines[0]
    assert TOKEN not in kept.lines[0]


def test_a_record_with_a_faulty_format_is_left_to_its_handler() -> None:
    record = logging.LogRecord("callgate.run", logging.DEBUG, __file__, 1, "%d", ("x",), None)
    assert all(check(record) for check in logging.getLogger("callgate.run").filters if callable(check))
    assert (record.msg, record.args) == ("%d", ("x",))


def test_every_logger_of_the_package_hides_secrets() -> None:
    source = Path(callgate.__file__).parent
    texts = [file.read_text("utf-8") for file in source.rglob("*.py")]
    names = {name for text in texts for name in re.findall(r'getLogger\("(callgate[^"]*)"\)', text)}
    assert [name for name in sorted(names) if not logging.getLogger(name).filters] == []


def test_what_a_dying_server_says_of_its_variables_reaches_neither_the_model_nor_a_notice(tmp_path: Path) -> None:
    (tmp_path / "die.py").write_text(DYING_SERVER)
    told: list[str] = []

    async def story() -> tuple[str, str]:
        server = McpServer("d", command=[sys.executable, str(tmp_path / "die.py")], start_s=120, env={"TOK": TOKEN})
        model = ScriptedModel([call("die"), "ok"])
        async with Gate(model, [server], policy=Policy(mode="yolo")) as gate:
            async for event in gate.stream("x"):
                told.extend([event.message] if isinstance(event, Notice) else [])
        return str(model.requests[0].contents), str(model.requests[1].contents)

    sent = run(story())
    assert "fatal: token" in sent[1], told
    assert [text for text in (*sent, *told) if TOKEN in text] == []


def test_the_error_of_a_tool_has_no_known_secrets() -> None:
    remember_secrets(TOKEN)

    def connect() -> str:
        """Connect."""
        raise ConnectionError(f"refused for {TOKEN}")

    reply = run(Gate(ScriptedModel([call("connect"), "ok"]), [connect]).run("x"))
    assert "refused for" in str(reply.calls[0].result.error)
    assert TOKEN not in str(reply.calls[0].result.error)


def observed(gate: Gate, kind: Any, text: str = "x") -> list[str]:
    async def story() -> list[str]:
        async with gate:
            return [event.message async for event in gate.stream(text) if isinstance(event, kind)]

    return run(story())


def ping() -> str:
    """Ping."""
    return "pong"


def failing_approval() -> Gate:
    async def approve(*_: Any) -> Any:
        raise ConnectionError(f"said: no access with {TOKEN}")

    return Gate(ScriptedModel([call("ping"), "ok"]), [ping], policy=Policy(rules=["ask ping"]), approve=approve)


def failing_hook() -> Gate:
    command = [sys.executable, "-c", f"import sys; print('said: {TOKEN}', file=sys.stderr); sys.exit(1)"]
    hook = Hook(command=command, when="before", tool="ping")
    return Gate(ScriptedModel([call("ping"), "ok"]), [ping], policy=Policy(hooks=[hook]))


def failing_model() -> Gate:
    class Broken(ScriptedModel):
        async def generate(self, request: Any) -> Any:
            raise ServerUnavailableError(f"said: {TOKEN}")
            yield

    return Gate([Broken(["x"]), ScriptedModel(["ok"])])


def rule_about_a_secret() -> Gate:
    policy = Policy(rules=[Rule(verdict="deny", tool="ping", args={"nothing": f"said: {TOKEN}"})])
    return Gate(ScriptedModel([call("ping"), "ok"]), [ping], policy=policy)


@pytest.mark.filterwarnings("ignore:approve failed:RuntimeWarning")
@pytest.mark.parametrize("gate", [failing_approval, failing_hook, failing_model, rule_about_a_secret])
def test_no_notice_has_a_known_secret(gate: Any) -> None:
    remember_secrets(TOKEN)
    told = observed(gate(), Notice)
    assert [text for text in told if "said:" in text]
    assert [text for text in told if TOKEN in text] == []


def test_the_warning_about_a_failed_approval_has_no_known_secret() -> None:
    remember_secrets(TOKEN)
    with pytest.warns(RuntimeWarning, match="approve failed") as warned:
        run(failing_approval().run("x"))
    assert [str(one.message) for one in warned if TOKEN in str(one.message)] == []


def progressing(context: ToolContext) -> str:
    """Progress."""
    context.progress(f"said: {base64.b64encode(TOKEN.encode()).decode()} and {TOKEN}", 0.5)
    return "done"


def test_progress_has_no_known_secret_in_a_run_or_at_a_dispatcher() -> None:
    remember_secrets(TOKEN)
    told = observed(Gate(ScriptedModel([call("progressing"), "ok"]), [progressing]), CallProgress)

    async def dispatched() -> None:
        async with Client(ToolServer.of([progressing]).sdk) as client:
            await client.call_tool("progressing", progress_callback=note)

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    run(dispatched())
    gone = "[redacted: known secret]"
    assert told == [f"said: {gone} and {gone}"] * 2


@pytest.mark.parametrize(
    "words",
    [
        ["sessions", "list"],
        ["sessions", "show", "s"],
        ["trace", "s"],
        ["trace", "s", "-o", "json"],
        ["trace", "s", "--svg", "-"],
    ],
)
def test_commands_that_show_a_session_print_no_known_secret(tmp_path: Path, words: list[str]) -> None:
    remember_secrets(TOKEN)
    store = str(tmp_path / "s.db")
    run(Gate(ScriptedModel([f"It is {TOKEN}."]), store=store).run(f"Is it {TOKEN}?", session="s"))
    shown = CliRunner().invoke(cli, [*words, "--store", store])
    assert shown.exit_code == 0, shown.output
    assert "Is it" in shown.output
    assert TOKEN not in shown.output


def test_the_list_of_servers_prints_no_secret_of_their_commands_and_addresses(tmp_path: Path) -> None:
    servers = {
        "docs": {"httpUrl": f"http://127.0.0.1:1/mcp?api_key={TOKEN}"},
        "own": {"command": "sh", "args": ["-c", "exit 1", "--token=argSecretValue12345"]},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    for more in ([], ["-o", "json"]):
        shown = CliRunner().invoke(cli, ["mcp", "list", str(file), *more]).output
        assert "exit 1" in shown
        assert [secret for secret in (TOKEN, "argSecretValue12345") if secret in shown] == []


def test_a_large_record_is_cut_and_no_secret_at_the_cut_is_shown(kept: Kept) -> None:
    remember_secrets(KEY)
    text = "x" * (callgate.LOGGED_CHARS_MAX - 10) + KEY + "y" * 1_000_000
    logging.getLogger("callgate.run").debug("%s", text)
    (line,) = kept.lines
    assert len(line) < callgate.LOGGED_CHARS_MAX + 100
    assert line.endswith(f"... ({len(text)} characters)")
    assert KEY[:6] not in line


def test_a_record_that_cannot_be_searched_is_not_shown_and_its_writer_does_not_fail(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "callgate.config.known_secrets", None)
    logging.getLogger("callgate.run").warning("the key is %s", KEY)
    assert kept.lines == ["A log record could not be searched for secrets: ModuleNotFoundError"]
