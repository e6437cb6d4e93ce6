"""The `mcpServers` file, as other programs write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callgate import UsageError, mcp_servers_from_file
from callgate.mcp import read_servers

ENV = {"TOKEN": "abc", "HOME": "/home/me"}


def written(folder: Path, **servers: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def state(server: Any) -> dict[str, Any]:
    names = ("command", "url", "trust", "_env", "_headers", "_cwd", "_timeout_s", "_include", "_exclude", "_transports")
    usual = {"command": None, "url": None, "trust": False, "_exclude": frozenset(), "_transports": []}
    return {name.strip("_"): getattr(server, name) for name in names if getattr(server, name) not in (None, usual.get(name))}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"command": "npx", "args": ["-y", "x"]}, {"command": ("npx", "-y", "x")}),
        ({"type": "stdio", "command": "x"}, {"command": ("x",)}),
        (
            {"command": "x", "env": {"K": "$TOKEN", "N": 1}, "cwd": "${HOME}/w", "timeout": 60000, "trust": True},
            {"command": ("x",), "env": {"K": "abc", "N": "1"}, "cwd": "/home/me/w", "timeout_s": 60.0, "trust": True},
        ),
        (
            {"httpUrl": "https://x.y/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            {"url": "https://x.y/mcp", "headers": {"Authorization": "Bearer abc"}, "transports": ["http"]},
        ),
        ({"url": "https://x.y/sse"}, {"url": "https://x.y/sse", "transports": ["sse", "http"]}),
        ({"url": "https://x.y/mcp"}, {"url": "https://x.y/mcp", "transports": ["http", "sse"]}),
        ({"type": "sse", "url": "https://x.y/a"}, {"url": "https://x.y/a", "transports": ["sse"]}),
        ({"type": "streamable-http", "url": "https://x.y/a"}, {"url": "https://x.y/a", "transports": ["http"]}),
        (
            {"command": "x", "includeTools": ["a"], "excludeTools": ["b"], "disabledTools": ["c"]},
            {"command": ("x",), "include": frozenset("a"), "exclude": frozenset("bc")},
        ),
        ({"command": "x", "args": ["${NOT_SET:-left}", "a$"]}, {"command": ("x", "left", "a$")}),
        ({"command": "x", "description": "What it is."}, {"command": ("x",)}),
    ],
)
def test_a_row_is_read_as_its_program_means_it(tmp_path: Path, row: Any, expected: dict[str, Any]):
    read = read_servers(written(tmp_path, box=row), ENV)
    assert ([state(server) for server in read.servers], read.disabled, read.warnings) == ([expected], [], [])


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (7, "MCP server 'box' was left out: its settings must be an object."),
        ({}, "MCP server 'box' was left out: McpServer('box'): give either command=[...] or url='...'"),
        ({"command": "x", "args": ["$NOT_SET"]}, "MCP server 'box' was left out: the environment does not have NOT_SET."),
        ({"url": "gopher://x"}, "MCP server 'box' was left out: McpServer('box'): the url must begin with http://"),
        ({"url": "http://x", "type": "ws"}, "MCP server 'box' was left out: its type 'ws' is not known"),
        ({"command": "x", "timeout": 0}, "MCP server 'box' was left out: its timeout must be more than 0 milliseconds"),
        ({"command": "x", "args": [1]}, "MCP server 'box' was left out: 1 must be a text"),
    ],
)
def test_a_row_that_cannot_be_used_costs_itself_alone(tmp_path: Path, row: Any, sentence: str):
    read = read_servers(written(tmp_path, box=row, other={"command": "x"}), ENV)
    assert [server.name for server in read.servers] == ["other"]
    (said,) = read.warnings
    assert said.startswith(sentence)


@pytest.mark.parametrize(("written_as", "timeout_s"), [("90s", 90.0), ("1500 ms", 1.5), ("2m", 120.0), (1500, 1.5)])
def test_a_time_may_name_its_unit(tmp_path: Path, written_as: Any, timeout_s: float):
    read = read_servers(written(tmp_path, box={"command": "x", "timeout": written_as}), ENV)
    assert ([server._timeout_s for server in read.servers], read.warnings) == ([timeout_s], [])


@pytest.mark.parametrize(
    ("row", "start_s"),
    [
        ({}, 10.0),
        ({"startTimeout": 90000}, 90.0),
        ({"startTimeout": "2m"}, 120.0),
        ({"startup_timeout_sec": 45}, 45.0),
        ({"startup_timeout_ms": 4500}, 4.5),
        ({"start_s": 200}, 200.0),
        ({"start_s": "200s"}, 200.0),
        ({"timeout": 30000}, 30.0),
        ({"timeout": 600000}, 60.0),
        ({"timeout": 1000}, 10.0),
    ],
)
def test_a_file_says_how_long_a_server_may_take_to_start(tmp_path: Path, row: Any, start_s: float):
    read = read_servers(written(tmp_path, box={"command": "x", **row}), ENV)
    assert ([server.start_s for server in read.servers], read.warnings) == ([start_s], [])


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"command": "x", "autoApprove": []}, "MCP server 'box': the key 'autoApprove' is not known and was ignored."),
        ({"command": "x", "timeout": "60"}, """MCP server 'box': 'timeout' cannot be "60" and was ignored."""),
        ({"command": "x", "trust": 1}, "MCP server 'box': 'trust' cannot be 1 and was ignored."),
    ],
)
def test_a_key_that_is_not_understood_is_said_and_ignored(tmp_path: Path, row: Any, sentence: str):
    read = read_servers(written(tmp_path, box=row), ENV)
    assert (len(read.servers), read.warnings) == (1, [sentence])


@pytest.mark.parametrize("row", [{"command": "x", "disabled": True}, {"command": "$NOT_SET", "enabled": False}])
def test_a_disabled_server_is_not_used(tmp_path: Path, row: Any):
    read = read_servers(written(tmp_path, box=row), ENV)
    assert (read.servers, read.disabled, read.warnings) == ([], ["box"], [])


@pytest.mark.parametrize(("text", "sentence"), [("[]", "no object 'mcpServers'"), ("{", "is not JSON")])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, sentence: str):
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        read_servers(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_servers(tmp_path / "missing.json")


def test_in_code_what_is_not_understood_is_a_warning(tmp_path: Path):
    with pytest.warns(UserWarning, match="'colour' is not known"):
        (server,) = mcp_servers_from_file(written(tmp_path, box={"command": "x", "colour": "red"}))
    assert server.name == "box"
