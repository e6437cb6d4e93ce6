"""`callgate serve` up to the moment it listens: what is refused, and what its options come to."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from callgate.cli import main
from callgate.errors import ModelError
from callgate.models.demo import DemoModel
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_openai import FakeOpenAI, fault

listen = pytest.importorskip("callgate.server.listen", reason="uvicorn is not installed")

TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, tuple[str, int]]]:
    """The services that would have been run, and where."""
    found: list[tuple[Any, tuple[str, int]]] = []

    def run(service: Any, sockets: list[socket.socket], **more: Any) -> None:
        found.append((service, sockets[0].getsockname()[:2]))

    monkeypatch.setattr(listen, "serve", run)
    return found


@pytest.mark.parametrize(
    ("words", "environment", "code", "sentence"),
    [
        (["--host", "0.0.0.0", "--no-token"], {}, 2, "a token is needed"),
        (["--host", "::", "--no-token"], {}, 2, "a token is needed"),
        (["--host", "example.com", "--no-token"], {"CALLGATE_TOKEN": "a-token-that-is-long"}, 2, "a token is needed"),
        (["--host", "0.0.0.0"], {"CALLGATE_TOKEN": "short"}, 42, "at least 16"),
        (["--host", "0.0.0.0"], {}, 2, "set CALLGATE_TOKEN"),
        (["--token-file", "a", "--access", "b"], {}, 2, "--access replaces the one token"),
        (["--token-file", "/no/such/file"], {}, 42, "cannot be read"),
        (["--ephemeral", "--store", "x"], {}, 2, "--ephemeral"),
        (["-T", "no_such_module"], {}, 42, "no_such_module"),
        (["--policy", "no_such_file.toml"], {}, 42, "no_such_file.toml"),
        (["--mcp", "no_such_file.json"], {}, 42, "no_such_file.json"),
        (["--root", "/no/such/folder"], {}, 42, "/no/such/folder"),
        (["--provider", "gemini"], {}, 2, "GEMINI_API_KEY"),
        (["--port", "70000"], {}, 2, "70000"),
        (["--stop-s", "inf"], {}, 2, "'inf' is no number of seconds"),
        (["--drain-s", "nan"], {}, 2, "'nan' is no number of seconds"),
        (["--set", "retention.sessions=0d"], {}, 42, "would delete every session"),
        (["--set", "store_replica=postgresql://db2/x"], {}, 42, "store_replica needs a store in PostgreSQL"),
        (["--audit", "/proc/none/audit.jsonl"], {}, 42, "cannot be written"),
    ],
)
def test_a_service_that_cannot_start_says_why(words, environment, code, sentence, served, capsys, monkeypatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ephemeral = [] if "--ephemeral" in words else ["--ephemeral"]
    assert main(["serve", "--port", "0", *ephemeral, *words]) == code
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert served == []


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path, served, capsys) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    assert main(["serve", "--token-file", str(file)]) == 42
    assert "chmod 600" in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_sentence(served, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--ephemeral", "--port", str(port)]) == 1
    assert f"port {port} of 127.0.0.1 is in use by another program" in capsys.readouterr().err


def test_options_come_to_a_service(tmp_path: Path, served, capsys) -> None:
    file = tmp_path / "token"
    file.write_text(f" {TOKEN}\n")
    file.chmod(0o600)
    (tmp_path / "tools_here.py").write_text('def shout(text: str) -> str:\n    """Shouts."""\n    return text.upper()\n')
    (tmp_path / "policy.toml").write_text('default = "sometimes"\n')
    words = [
        "--port", "0", "--ephemeral", "--token-file", str(file), "-T", f"{tmp_path / 'tools_here.py'}:shout",
        "--root", str(tmp_path), "--policy", str(tmp_path / "policy.toml"), "--allow-host", "gate.example",
        "--allow-origin", "https://a.example", "--allow-origin", "https://b.example", "--runs", "7", "--stop-s", "3",
        "--mode", "prompted", "--system", "Be brief.",
    ]  # fmt: skip
    assert main(["serve", *words]) == 0
    ((service, (host, port)),) = served
    options = service.options
    assert (host, options.token, options.runs, options.stop_s) == ("127.0.0.1", TOKEN, 7, 3.0)
    assert set(options.hosts) == {"gate.example", "127.0.0.1"}
    assert options.origins == ("https://a.example", "https://b.example")
    assert {"shout", "read_file"} <= {definition.name for definition in service.gate.tools.definitions}
    assert service.gate.mode == "prompted"
    assert service.providers.default_provider(service.gate) == "demo"
    assert isinstance(service.providers.open("demo", None), DemoModel)
    assert service.undo is not None
    said = capsys.readouterr().err
    assert f"http://127.0.0.1:{port}" in said
    assert "sometimes" in said
    assert TOKEN not in said


@pytest.mark.parametrize("source", ["environment", "file", "flag"])
@pytest.mark.parametrize(
    ("provider", "fake_type", "named"),
    [("openai", FakeOpenAI, "gpt-4o"), ("gemini", FakeGemini, "gemini-3.8-pro")],
)
def test_every_model_that_a_request_names_is_opened_as_the_settings_say(
    provider: str, fake_type: Any, named: str, source: str, served, monkeypatch, tmp_path: Path
) -> None:
    key = f"CALLGATE_{provider.upper()}_API_KEY"
    with fake_type.in_thread(["Here."] * 3, api_key="only-of-settings") as fake:
        words: list[str] = []
        if source == "file":
            file = tmp_path / "config.toml"
            file.write_text(f'[{provider}]\nbase_url = "{fake.base_url}"\napi_key = "only-of-settings"\n')
            file.chmod(0o600)
            monkeypatch.setenv("CALLGATE_CONFIG", str(file))
        else:
            monkeypatch.setenv(key, "only-of-settings")
            if source == "flag":
                words = ["--set", f"{provider}.base_url={fake.base_url}"]
            else:
                monkeypatch.setenv(f"CALLGATE_{provider.upper()}_BASE_URL", fake.base_url)
        own = "gpt-5.2" if provider == "openai" else "gemini-3.8-flash"
        main(["serve", "--port", "0", "--ephemeral", "--no-token", "--provider", provider, "-m", own, *words])
        ((service, _),) = served
        said = []
        for asked in ({}, {"model": named}, {"provider": provider, "model": named}):
            gate = asyncio.run(service.gate_for(asked.get("provider"), asked.get("model"), None))
            said.append((gate.run_sync("Where are you?").text, gate.model.name))
        assert said == [("Here.", own), ("Here.", named), ("Here.", named)]
        assert len(fake.requests) == 3


def test_limits_of_requests_hold_for_named_models_too(served, monkeypatch) -> None:
    monkeypatch.setenv("CALLGATE_OPENAI_API_KEY", "k")
    with FakeOpenAI.in_thread([fault("unavailable"), "Too late."]) as fake:
        monkeypatch.setenv("CALLGATE_OPENAI_BASE_URL", fake.base_url)
        words = ["--provider", "openai", "-m", "gpt-5.2", "--set", "limits.attempts=1"]
        main(["serve", "--port", "0", "--ephemeral", "--no-token", *words])
        ((service, _),) = served
        gate = asyncio.run(service.gate_for(None, "gpt-4o", None))
        with pytest.raises(ModelError):
            gate.run_sync("Are you there?")
        assert len(fake.requests) == 1


def test_with_a_token_it_may_listen_on_every_address(served, monkeypatch) -> None:
    monkeypatch.setenv("CALLGATE_TOKEN", TOKEN)
    for host, names in (("0.0.0.0", ()), ("127.0.0.2", ("127.0.0.2",)), ("::1", ("[::1]",)), ("localhost", ("localhost",))):
        assert main(["serve", "--ephemeral", "--port", "0", "--host", host]) == 0
        assert served[-1][0].options.hosts == names


def test_with_an_access_file_the_one_token_of_the_environment_is_not_used(served, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setenv("CALLGATE_TOKEN", TOKEN)
    access = tmp_path / "access.toml"
    access.write_text("")
    access.chmod(0o600)
    assert main(["serve", "--ephemeral", "--port", "0", "--access", str(access)]) == 0
    options = served[-1][0].options
    assert options.token is None
    assert options.identities is not None
    assert capsys.readouterr().err.count("CALLGATE_TOKEN is not used: only the tokens of the access file are accepted") == 1


def test_file_tools_are_there_only_when_a_folder_is_named(served) -> None:
    assert main(["serve", "--ephemeral", "--port", "0"]) == 0
    names = {definition.name for definition in served[0][0].gate.tools.definitions}
    assert names == {"get_current_weather", "calculate", "current_time"}


def test_a_token_is_made_up_and_printed_as_a_link_unless_there_is_one(served, capsys) -> None:
    for _ in range(2):
        assert main(["serve", "--ephemeral", "--port", "0"]) == 0
    first, second = (service.options.token for service, _ in served)
    assert first != second
    assert len(first) >= 32
    assert f"/#token={second}" in capsys.readouterr().err
    assert main(["serve", "--ephemeral", "--port", "0", "--no-token"]) == 0
    assert served[-1][0].options.token is None
    assert "#token" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "0"], "use a number from 1 to 64"),
        (["--workers", "ray"], "is about the tools of -T"),
        (["--workers", "2", "--workers", "3"], "--workers is given twice"),
        (["-T", "a.py:f", "--workers", "local"], "whose tools are all offered"),
        (["-T", "none.py", "--workers", "ray"], "there is no file"),
    ],
)
def test_workers_that_make_no_sense_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", "--provider", "demo", "--ephemeral", *words]) in (2, 42)
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("files", "connections", "is_said"),
    [((1024, 1024), 768, True), ((256, 1024), 768, True), ((128, 128), 64, True), ((1024, 8192), 2000, False)],
)
def test_there_are_as_many_connections_as_the_limit_of_open_files_has_room_for(
    files: tuple[int, int], connections: int, is_said: bool, served, capsys, monkeypatch
) -> None:
    limit: list[tuple[int, int]] = [files]
    monkeypatch.setattr("resource.getrlimit", lambda kind: limit[-1])
    monkeypatch.setattr("resource.setrlimit", lambda kind, wanted: limit.append(wanted))
    assert main(["serve", "--port", "0", "--ephemeral", "--provider", "demo"]) == 0
    [(service, _)] = served
    assert (service.options.connections, limit[-1][0]) == (connections, files[1])
    assert (f"at most {connections} connections at once" in capsys.readouterr().err) is is_said
