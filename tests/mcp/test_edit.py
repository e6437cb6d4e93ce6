"""One server more or less in a file: the rest of it stays as it was written."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.errors import UsageError
from callgate.mcp.edit import change_file, with_server, without_server

ROW = {"command": "uvx", "args": ["mcp-server-git"]}

TABBED = """{
\t"theme":   "dark",   "odd" : [1,2,
  3],
\t"mcpServers": {
\t\t"a": {"command": "x", "zz": 1.50},
\t\t"b": { "url": "http://localhost/mcp" }
\t},
\t"last": null
}
"""


def test_a_server_is_added_at_the_end_in_the_layout_of_its_neighbours():
    assert with_server(TABBED, "git", ROW) == TABBED.replace(
        '"http://localhost/mcp" }\n',
        '"http://localhost/mcp" },\n\t\t"git": {\n\t\t\t"command": "uvx",\n\t\t\t"args": [\n'
        '\t\t\t\t"mcp-server-git"\n\t\t\t]\n\t\t}\n',
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '{\n  "mcpServers": {\n    "git": {\n      "x": 1\n    }\n  }\n}\n'),
        ("{}", '{\n  "mcpServers": {\n    "git": {\n      "x": 1\n    }\n  }\n}'),
        ('{"a": 1}', '{"a": 1, "mcpServers": {"git": {"x": 1}}}'),
        ('{"mcpServers":{"b":{}}}\n', '{"mcpServers":{"b":{}, "git": {"x": 1}}}\n'),
        (
            '{\n    "a": 1,\n    "mcpServers": {}\n}\n',
            '{\n    "a": 1,\n    "mcpServers": {\n        "git": {\n            "x": 1\n        }\n    }\n}\n',
        ),
    ],
)
def test_files_of_every_layout_take_a_server(text: str, expected: str):
    assert with_server(text, "git", {"x": 1}) == expected


def test_a_server_of_the_same_name_is_replaced_only_by_force_and_in_its_place():
    with pytest.raises(UsageError, match="--force"):
        with_server(TABBED, "a", {"command": "y"})
    assert with_server(TABBED, "a", {"command": "y"}, force=True) == TABBED.replace(
        '{"command": "x", "zz": 1.50}', '{\n\t\t\t"command": "y"\n\t\t}'
    )


def test_a_server_is_removed_wherever_it_stands():
    for name, gone in (
        ("a", '"a": {"command": "x", "zz": 1.50},\n\t\t'),
        ("b", ',\n\t\t"b": { "url": "http://localhost/mcp" }'),
    ):
        text, row = without_server(TABBED, name)
        assert text == TABBED.replace(gone, "")
        assert row == json.loads(TABBED)["mcpServers"][name]
    assert without_server('{"mcpServers": {"a": 1}, "b": 2}', "a") == ('{"mcpServers": {}, "b": 2}', 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": 1, // a remark\n}', "not JSON"),
        ("[]", "does not hold a JSON object"),
        ('{"mcpServers": []}', "is not an object"),
        ('{"mcpServers": {}, "mcpServers": {}}', "twice"),
        ('{"mcpServers": {"git": 1, "git": 2}}', "twice"),
    ],
)
def test_what_is_no_such_file_is_left_alone(text: str, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        with_server(text, "git", ROW)


@pytest.mark.parametrize("text", ["{}", '{"mcpServers": {"a": {}}}'])
def test_a_server_that_is_not_there_cannot_be_removed(text: str):
    with pytest.raises(UsageError, match="there is no server 'git'"):
        without_server(text, "git")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    before=st.dictionaries(st.text(max_size=6), VALUES, max_size=4),
    servers=st.none() | st.dictionaries(st.text(max_size=6), VALUES, max_size=4),
    name=st.text(max_size=6),
    row=st.dictionaries(st.text(max_size=6), VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 1, 2, 4, "\t"]),
)
def test_adding_changes_one_member_and_removing_it_gives_the_same_values_back(
    before: dict[str, Any], servers: dict[str, Any] | None, name: str, row: dict[str, Any], indent: Any
):
    before = {key: value for key, value in before.items() if key != "mcpServers"}
    servers = None if servers is None else {key: value for key, value in servers.items() if key != name}
    document = before | ({} if servers is None else {"mcpServers": servers})
    added = with_server(json.dumps(document, indent=indent), name, row)
    assert json.loads(added) == before | {"mcpServers": {**(servers or {}), name: row}}
    removed, gone = without_server(added, name)
    assert gone == row
    assert json.loads(removed) == before | {"mcpServers": servers or {}}


def test_a_file_is_replaced_whole_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("\ufeff" + TABBED)
    real.chmod(0o640)
    link.symlink_to(real)
    change_file(link, lambda text: with_server(text, "git", ROW))
    assert link.is_symlink()
    assert (real.stat().st_mode & 0o777, real.read_text()) == (0o640, "\ufeff" + with_server(TABBED, "git", ROW))
    fresh = tmp_path / "fresh.json"
    change_file(fresh, lambda text: with_server(text, "git", ROW))
    assert fresh.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["fresh.json", "link.json", "real.json"]


def test_a_change_that_fails_leaves_the_file_and_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "mcp.json"
    file.write_text(TABBED)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UsageError, match="No space left"):
        change_file(file, lambda text: with_server(text, "git", ROW))
    assert (os.listdir(tmp_path), file.read_text()) == (["mcp.json"], TABBED)
    file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UsageError, match="not UTF-8"):
        change_file(file, lambda text: text)


def test_changes_at_the_same_time_are_all_there_in_the_end(tmp_path: Path):
    file = tmp_path / "mcp.json"

    def add(number: int) -> None:
        change_file(file, lambda text: with_server(text, f"s{number}", ROW))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    assert len(json.loads(file.read_text())["mcpServers"]) == 16
