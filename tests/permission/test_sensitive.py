"""The one list of files that hold secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate.files import FileTools
from callgate.permission import Policy, Rule
from callgate.permission.sensitive import SENSITIVE, is_sensitive
from callgate.types import FunctionCall, ToolDefinition

READ = ToolDefinition(name="read_file", kind="file", read_only=True, input_schema={"type": "object"})

PATHS = [
    (".env", True), ("a/.ENV.local", True), (".env.example", True), ("id_rsa", True), ("deploy_ed25519", True),
    ("x/.ssh/config", True), ("server.key", True), ("cert.pem", True), ("keyboard.py", False), (".aws/x", True),
    ("environment.py", False), (".npmrc", True), ("config/secrets.yaml", True), ("README.md", False),
    ("my-service-account-7.json", True), ("app-secrets.toml", True), ("home/.docker/config.json", True),
    ("home/.config/gh/hosts.yml", True), ("home/.m2/settings.xml", True), ("src/secretary.py", False),
    ("x.p12.old", True), (".netrc.bak", True), (".env~", True), ("a.pfx.bak.2", True), ("notes.txt.bak", False),
    ("home/.cache/huggingface/token", True), ("my_passwords.txt", True), ("login.keyring", True), ("v1.2", False),
]  # fmt: skip


@pytest.mark.rows(("path", "sensitive"), PATHS)
def test_files_that_may_hold_secrets_are_known_by_name(path: str, sensitive: bool):
    assert is_sensitive(path) is sensitive
    verdict = Policy().decide(READ, FunctionCall(name="read_file", args={"path": path}, id="1")).verdict
    assert verdict == ("ask" if sensitive else "allow")


def test_a_search_looks_into_no_file_that_a_read_would_ask_about(tmp_path: Path):
    for path, _ in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("needle\n")
    found = FileTools(tmp_path).call_sync("search_files", {"pattern": "needle"})
    assert {match["path"] for match in found.value} == {path for path, sensitive in PATHS if not sensitive} - {"x"}


def test_every_pattern_is_there_once():
    assert len(set(SENSITIVE)) == len(SENSITIVE)


# --- files that a walk meets ---------------------------------------------------------------------------------------------


def test_a_walk_hides_what_is_denied_always_and_what_is_asked_about_unless_it_was_named():
    search = ToolDefinition(name="search_files", kind="file", read_only=True)
    rules = [
        Rule(verdict="deny", paths=("vendor/",)),
        Rule(verdict="ask", tool="read_file", paths=("docs/**",)),
        Rule(verdict="allow", paths=("src/",)),
    ]
    hides = Policy(rules=rules).hides(search)
    assert [hides(path, ".") for path in ("vendor/a", "docs/a", ".env", "src/a")] == [True, True, True, False]
    assert [hides(path, "docs") for path in ("docs/a", "docs/.env")] == [False, False]
    assert hides("vendor/docs/a", "vendor/docs")
    part = Policy(sensitive=(), rules=[Rule(verdict="deny", paths=("x",))], default="allow")
    assert Policy(sensitive=()).strictest(part).hides(search)("a/x", ".")
    assert not Policy(sensitive=()).hides(search)(".env", ".")
