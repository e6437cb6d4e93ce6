"""Trust is in the content of a project's files, and a project's rules make decisions stricter only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from callgate import FunctionCall, ToolDefinition
from callgate.cli.settings import policy_from
from callgate.config import is_trusted, load_settings, trust
from callgate.permission.redact import Redactor


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def own(env: dict[str, str], text: str) -> None:
    path = Path(env["XDG_CONFIG_HOME"]) / "callgate" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


@pytest.mark.parametrize("changed", [".callgate.toml", "mine.py", "pkg/__init__.py", "serve.sh", "callgate.toml"])
def test_a_project_that_was_changed_since_it_was_trusted_is_not_read(env: dict[str, str], project: Path, changed: str):
    (project / "pkg").mkdir()
    for name in ("mine.py", "pkg/__init__.py", "serve.sh", "other.py"):
        (project / name).write_text("1")
    (project / ".callgate.toml").write_text(
        'tools = ["mine.py:add", "pkg"]\n[mcp.servers.x]\ncommand = ["sh", "./serve.sh"]\n'
    )
    trust(project, env)
    assert load_settings(env, folder=project).is_trusted
    (project / "other.py").write_text("2")
    assert is_trusted(project, env), "a file that it does not name is none of its business"
    (project / changed).write_text("# 2")
    found = load_settings(env, folder=project)
    assert not found.is_trusted
    assert "was changed since you trusted it" in found.notices[0]
    trust(project, env)
    assert is_trusted(project, env)


SPELLINGS = {
    "plain": 'command = ["python", "srv.py"]',
    "with a dot": 'command = ["python", "./srv.py"]',
    "option with a sign": 'command = ["python", "--script=srv.py"]',
    "option with a colon": 'command = ["prog", "/script:srv.py"]',
    "option without a sign": 'command = ["prog", "-rsrv.py"]',
    "module": 'command = ["python", "-m", "srv"]',
    "module in one word": 'command = ["python", "-msrv"]',
    "application": 'command = ["uvicorn", "srv:app"]',
    "module in a folder": 'command = ["python", "-m", "pkg.deep"]',
    "folder": 'command = ["python", "pkg"]',
    "shell": 'command = ["sh", "-c", "cd . && exec python srv.py --fast"]',
    "shell with quotes": """command = ["sh", "-c", 'python "sr"v.py']""",
    "shell with a pattern": 'command = ["sh", "-c", "python sr*.py"]',
    "shell with braces": 'command = ["sh", "-c", "cat {srv,x}.py | python"]',
    "code": """command = ["python", "-c", "import srv; srv.main()"]""",
    "code that opens": """command = ["python", "-c", "exec(open('srv.py').read())"]""",
    "variable": 'command = ["python", "${PWD}/srv.py"]',
    "variable of a shell": 'command = ["sh", "-c", "python $(pwd)/srv.py"]',
    "args": 'command = "python"\nargs = ["--config", "x=srv.py"]',
    "env": 'command = ["prog"]\nenv = {NODE_OPTIONS = "--require ./srv.py"}',
    "path of modules": 'command = ["python", "-m", "below"]\nenv = {PYTHONPATH = "sub:lib"}',
    "path of programs": 'command = ["run"]\nenv = {PATH = "sub:/usr/bin"}',
    "working folder": 'command = ["python", "below.py"]\ncwd = "sub"',
    "long text": f'command = ["sh", "-c", "{"true; " * 500} python srv.py"]',
    "package": 'command = ["npm", "start"]',
    "tasks": 'command = ["make", "serve"]',
    "URL with an escape": 'command = ["node", "--import", "file:./srv%2epy"]',
    "URL with a query": 'command = ["node", "--import", "./srv.py?v=1"]',
    "names with blanks": 'command = ["prog", "--script=my srv.py"]',
}
NAMED = ("srv.py", "my srv.py", "pkg/__main__.py", "pkg/deep.py", "sub/below.py", "sub/run", "package.json", "Makefile")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_file_that_a_server_runs_is_part_of_the_trust_however_it_is_spelled(
    env: dict[str, str], project: Path, spelling: str
):
    for name in (*NAMED, "other.txt"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("1")
    (project / ".callgate.toml").write_text(f"[mcp.servers.x]\n{SPELLINGS[spelling]}\n")
    trust(project, env)
    (project / "other.txt").write_text("2")
    assert is_trusted(project, env)
    noticed: list[str] = []
    for name in NAMED:
        (project / name).write_text("2")
        noticed += [] if is_trusted(project, env) else [name]
        (project / name).write_text("1")
    assert noticed, "the file that it runs"
    assert len(noticed) <= 3, "and not all of them"


@pytest.mark.parametrize("changed", ["list.json", "srv.py", "hook.js"])
def test_lists_of_servers_are_followed_to_what_they_run(env: dict[str, str], project: Path, changed: str):
    (project / "list.json").write_text(
        '{"mcpServers": {"x": {"command": "python", "args": ["--script=srv.py"], "env": {"NODE_OPTIONS": "-r./hook.js"}}}}'
    )
    for name in ("srv.py", "hook.js"):
        (project / name).write_text("1")
    (project / ".callgate.toml").write_text('system = "Never look at notes.md."\n[mcp]\nfiles = ["list.json"]\n')
    (project / "notes.md").write_text("1")
    trust(project, env)
    (project / "notes.md").write_text("2")
    assert is_trusted(project, env), "a text for the model runs nothing"
    (project / changed).write_text("{}")
    assert not is_trusted(project, env)


def test_a_server_that_would_run_another_file_of_that_name_is_not_trusted_there(
    env: dict[str, str], project: Path, monkeypatch: pytest.MonkeyPatch
):
    (project / "srv.py").write_text("1")
    (project / "sub").mkdir()
    (project / ".callgate.toml").write_text('[mcp.servers.x]\ncommand = ["python", "srv.py"]\n')
    trust(project, env)
    monkeypatch.chdir(project / "sub")
    assert is_trusted(project, env)
    (project / "sub" / "srv.py").write_text("other")
    assert not is_trusted(project, env)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"mcpServers": 5}', "[1]", "\xff"])
def test_a_list_of_servers_that_is_none_counts_by_its_content(env: dict[str, str], project: Path, content: str):
    (project / "list.json").write_text(content, "latin-1")
    (project / ".callgate.toml").write_text('[mcp]\nfiles = ["list.json", "a\\u0000b"]\n')
    trust(project, env)
    assert is_trusted(project, env)
    (project / "list.json").write_text("{}")
    assert not is_trusted(project, env)


def test_a_list_of_folders_without_their_content_trusts_none(env: dict[str, str], project: Path):
    state = Path(env["XDG_STATE_HOME"]) / "callgate"
    state.mkdir(parents=True)
    (state / "trusted.json").write_text(f'{{"folders": ["{os.path.realpath(project)}"]}}')
    assert not is_trusted(project, env)


def test_large_and_unreadable_files_are_no_error(env: dict[str, str], project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules["callgate.config.trust_store"], "BYTES_MAX", 5)
    (project / ".callgate.toml").write_text("this is = no TOML at all")
    trust(project, env)
    assert is_trusted(project, env)


def verdict(env: dict[str, str], project: Path, name: str = "wipe") -> str:
    settings = load_settings(env, folder=project)
    policy = policy_from(settings, settings["policy.file"], settings["approval_mode"])
    return policy.decide(ToolDefinition(name=name), FunctionCall(name=name)).verdict


def test_an_ask_rule_of_a_project_does_not_lift_the_users_deny(env: dict[str, str], project: Path):
    own(env, 'approval_mode = "yolo"\n[policy]\ndefault = "deny"\nrules = ["allow read_file"]\n')
    assert verdict(env, project) == "deny"
    (project / ".callgate.toml").write_text('[policy]\nrules = ["ask *"]\n')
    trust(project, env)
    assert verdict(env, project) == "deny"
    own(env, '[policy]\nrules = ["allow look"]\n')
    assert [verdict(env, project, name) for name in ("wipe", "look")] == ["ask", "ask"]
    (project / ".callgate.toml").write_text('[policy]\nrules = ["allow wipe", "deny look"]\n')
    trust(project, env)
    assert [verdict(env, project, name) for name in ("wipe", "look")] == ["allow", "deny"]


def test_a_file_of_rules_does_not_lift_the_default_of_the_settings(env: dict[str, str], project: Path, tmp_path: Path):
    (tmp_path / "more.toml").write_text('default = "allow"\nrules = ["ask wipe"]\n')
    own(env, f'[policy]\ndefault = "deny"\nrules = ["allow look"]\nfile = "{tmp_path / "more.toml"}"\n')
    assert [verdict(env, project, name) for name in ("wipe", "look", "other")] == ["deny", "allow", "deny"]


def test_a_rule_of_the_settings_that_cannot_be_read_is_told_with_its_place(env: dict[str, str], project: Path):
    own(env, '[policy]\nrules = ["wipe dney"]\n')
    settings = load_settings(env, folder=project)
    assert policy_from(settings, None, None).problems[0].startswith(f"{settings.user_file}:2: rule 1 cannot be read")
    assert verdict(env, project, "anything") == "deny"


def test_the_secrets_of_the_settings_are_known_to_everything_that_redacts(env: dict[str, str], project: Path):
    own(
        env,
        '[openai]\napi_key = "made-up-settings-key-1"\n[mcp.servers.x]\nurl = "http://x"\n'
        'headers = {authorization = "Bearer made-up-header-2"}\n',
    )
    load_settings(env, folder=project)
    for secret in ("made-up-settings-key-1", "made-up-header-2"):
        assert secret not in Redactor().text(f"see {secret}")
