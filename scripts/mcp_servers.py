"""Start, ask, kill and ask again MCP servers of other people, and write the table of docs/mcp-servers.md.

    python scripts/mcp_servers.py             # all of them
    python scripts/mcp_servers.py memory git  # these, without touching the table

Each is installed into an environment of its own below build/mcp-servers at the first use. A server is started by its command
with the tools that callgate has for a model; one tool is called, the process is killed while nothing is asked of it, and the
same call is made once more, which needs a server that was started again. Most servers need a network or a key for their
work: their own error then counts as an answer, and the table says so. The status is 1 if a server was installed and failed.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callgate import McpServer, ToolError, declare
from callgate.testing.examples import example_of
from callgate.types import JsonObject, ToolContext

sys.path.insert(0, str(Path(__file__).parent))
from foreign_packages import MissingError, install, node

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "mcp-servers"
PAGE = ROOT / "docs" / "mcp-servers.md"
START_S, CALL_S = 240, 120


@dataclass(frozen=True)
class Server:
    """One server: its package and what it needs beside it, its command, and a call of it.

    Without a call, it is that of its first tool with example values.
    """

    package: str
    command: str
    words: tuple[str, ...] = ()
    call: tuple[str, dict[str, Any]] | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])
    is_npm: bool = False


def _npm(package: str, command: str, *words: str, **more: Any) -> Server:
    return Server(package, command, words, is_npm=True, **more)


SERVERS = (
    _npm("@modelcontextprotocol/server-everything", "mcp-server-everything", call=("echo", {"message": "hi"})),
    _npm("@modelcontextprotocol/server-filesystem", "mcp-server-filesystem", ".", call=("list_allowed_directories", {})),
    _npm("@modelcontextprotocol/server-memory", "mcp-server-memory", call=("read_graph", {})),
    _npm("@modelcontextprotocol/server-sequential-thinking", "mcp-server-sequential-thinking"),
    _npm("@cyanheads/git-mcp-server", "git-mcp-server", call=("git_status", {"path": "."})),
    _npm("@mui/mcp", "mcp"),
    _npm("@eslint/mcp", "mcp"),
    _npm("@antv/mcp-server-chart", "mcp-server-chart"),
    _npm("next-devtools-mcp", "next-devtools-mcp"),
    _npm("mcp-graphql", "mcp-graphql", env={"ENDPOINT": "http://127.0.0.1:9/graphql"}),
    _npm("tavily-mcp", "tavily-mcp", env={"TAVILY_API_KEY": "tvly-none"}),
    _npm("firecrawl-mcp", "firecrawl-mcp", env={"FIRECRAWL_API_KEY": "fc-none"}),
    _npm("@brave/brave-search-mcp-server", "brave-search-mcp-server", env={"BRAVE_API_KEY": "none"}),
    _npm("@upstash/context7-mcp", "context7-mcp"),
    _npm("@notionhq/notion-mcp-server", "notion-mcp-server", env={"NOTION_TOKEN": "ntn_none"}),
    _npm("@hubspot/mcp-server", "mcp-hubspot", env={"PRIVATE_APP_ACCESS_TOKEN": "none"}),
    Server("mcp-server-time", "mcp-server-time", (), ("get_current_time", {"timezone": "Europe/Oslo"})),
    Server("mcp-server-git", "mcp-server-git", (), ("git_status", {"repo_path": "."})),
    Server("mcp-server-fetch", "mcp-server-fetch", (), ("fetch", {"url": "http://127.0.0.1:9/"})),
    Server("mcp-server-sqlite mcp<2", "mcp-server-sqlite", ("--db-path", "db.sqlite"), ("list_tables", {})),
    Server("mcp-server-calculator", "mcp-server-calculator", (), ("calculate", {"expression": "6 * 7"})),
    Server("excel-mcp-server", "excel-mcp-server", ("stdio",)),
    Server("office-word-mcp-server", "word_mcp_server", (), ("list_available_documents", {"directory": "."})),
    Server("markitdown-mcp", "markitdown-mcp", (), ("convert_to_markdown", {"uri": "data:text/html,<h1>Hi</h1>"})),
    Server(
        "mcp-server-motherduck",
        "mcp-server-motherduck",
        ("--db-path", ":memory:", "--read-write"),
        ("execute_query", {"sql": "select 42"}),
    ),
    Server("code-index-mcp", "code-index-mcp", (), ("set_project_path", {"path": "."})),
    Server("wikipedia-mcp", "wikipedia-mcp"),
    Server("duckduckgo-mcp-server", "duckduckgo-mcp-server"),
    Server("mcp-pandoc", "mcp-pandoc"),
    Server("arxiv-mcp-server", "arxiv-mcp-server"),
    Server("awslabs.aws-documentation-mcp-server", "awslabs.aws-documentation-mcp-server"),
    Server("mcp-simple-arxiv", "mcp-simple-arxiv"),
)


def folder_of(server: Server) -> Path:
    """The folder of a server's environment."""
    return BUILD / re.sub(r"\W+", "-", server.package.split()[0]).strip("-")


def command_of(server: Server, folder: Path, pid_file: Path) -> list[str]:
    """The command of a server, which writes down its process."""
    place = folder / ("node_modules/.bin" if server.is_npm else "bin") / server.command
    program = [node(), os.path.realpath(place)] if server.is_npm else [str(place)]
    return ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(pid_file), *program, *server.words]


@dataclass
class Visit:
    """What became of one server."""

    tools: int = 0
    protocol: str = "-"
    version: str = "-"
    call: str = "-"
    told: str = "-"
    """What a call that is made right after the kill says, or the one that follows."""
    problem: str = ""


async def visit(server: Server, folder: Path, work: Path) -> Visit:
    """Start a server, list its tools, call one, kill it, and call once more."""
    found, pid_file, owner = Visit(), work / "pid", object()
    box = McpServer("it", command=command_of(server, folder, pid_file), cwd=work, env=server.env, start_s=START_S)
    try:
        await box.start(owner)
        status = box.status()
        if box.problem:
            found.problem = box.problem[:300]
            return found
        definitions = [tool.definition for tool in box.runnables()]
        declare(definitions)
        found.tools, found.protocol = len(definitions), str(status.about.get("protocol"))
        found.version = str(status.about.get("version"))
        name, args = server.call or (definitions[0].name, _needed(definitions[0].input_schema))
        found.call = await _called(box, name, args)
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        before = pid_file.read_text()
        for _ in range(3):
            found.told = await _called(box, name, args)
            if pid_file.read_text() != before and "away" not in found.told and "reached" not in found.told:
                break
    finally:
        await box.aclose(owner)
    return found


def _needed(schema: JsonObject) -> dict[str, Any]:
    """Example values of the arguments that have to be there."""
    needed = schema.get("required") or []
    return {name: value for name, value in (example_of(schema) or {}).items() if name in needed}


async def _called(box: McpServer, name: str, args: dict[str, Any]) -> str:
    context = ToolContext(call_id="1", name=name, timeout_s=CALL_S)
    try:
        value = await asyncio.wait_for(box.call(name, args, context), CALL_S)
    except ToolError as error:
        lost = re.search(r"went away|cannot be reached", str(error))
        return str(error)[:200] if lost else "its own error"
    return "result" if value is not None else "nothing"


def main(names: list[str]) -> int:
    """Visit the named servers, or all of them."""
    chosen = [each for each in SERVERS if not names or any(name in each.package for name in names)]
    lines, failed, missing = list[str](), 0, 0
    with ThreadPoolExecutor(2) as pool:
        folders = [
            (server, pool.submit(install, folder_of(server), server.package.split(), is_npm=server.is_npm))
            for server in chosen
        ]
        for server, made in folders:
            try:
                folder = made.result()
            except MissingError as error:
                missing += 1
                print(f"{server.package}: not there: {error}", flush=True)
                continue
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
                subprocess.run(["git", "init", "-q", work], check=False)
                found = asyncio.run(visit(server, folder, Path(work)))
            is_good = not found.problem and found.call == found.told
            failed += not is_good
            print(f"{server.package}: {found}", flush=True)
            ends = (found.call, found.told) if not found.problem else ("-", found.problem)
            cells = (
                server.package.split()[0],
                "npm" if server.is_npm else "PyPI",
                found.version,
                found.protocol,
                found.tools,
                *ends,
            )
            lines.append(f"| {' | '.join(str(cell).replace('|', '/').replace(chr(10), ' ') for cell in cells)} |")
    print(f"{len(lines) - failed} of {len(lines)} servers did it all; {missing} could not be installed", flush=True)
    if not names:
        before, _, rest = PAGE.read_text("utf-8").partition("<!-- table -->\n")
        head = (
            "| server | from | version | protocol | tools | call | after kill and restart |\n|---|---|---|---|---|---|---|"
        )
        table = "\n".join([head, *lines])
        PAGE.write_text(f"{before}<!-- table -->\n{table}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}", "utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
