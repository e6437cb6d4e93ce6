"""Who answers, and the command that gets the embedded model's files."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from callgate.cli import cli
from callgate.cli import provider as providers
from callgate.cli.provider import choose
from callgate.embedded import weights
from callgate.errors import UsageError
from callgate.models.demo import DemoModel


def invoked(*words: str, **env: str) -> Result:
    return CliRunner().invoke(cli, words, env=env)


@pytest.fixture
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_packaged", lambda: iter(()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


# --- the choice ----------------------------------------------------------------------------------------------------------


def test_without_a_key_and_without_weights_the_demo_answers(no_weights: None) -> None:
    chosen = choose(None, None, {})
    assert isinstance(chosen.model, DemoModel)
    assert chosen.line is not None
    assert chosen.line.startswith("demo: ")


def test_a_key_means_gemini() -> None:
    assert choose(None, None, {"GEMINI_API_KEY": "k"}).model.name == "gemini-flash-latest"
    assert choose(None, "gemini-x", {"GEMINI_API_KEY": "k"}).model.name == "gemini-x"


def test_without_a_key_the_embedded_model_answers_and_says_what_it_is(embedded: None) -> None:
    chosen = choose(None, None, {})
    assert chosen.model.name == "callgate-tools-135m"
    assert chosen.line == (
        "embedded: callgate-tools-135m, a small language model on this machine's CPU, so check what it says; "
        "set GEMINI_API_KEY to use Gemini"
    )


def test_the_environment_names_a_provider_and_an_option_beats_it() -> None:
    assert isinstance(choose(None, None, {"CALLGATE_PROVIDER": "demo", "GEMINI_API_KEY": "k"}).model, DemoModel)
    assert choose("gemini", None, {"CALLGATE_PROVIDER": "demo", "GEMINI_API_KEY": "k"}).model.name == "gemini-flash-latest"
    known = "demo, gemini, openai, openai-responses, anthropic, embedded"
    with pytest.raises(click.UsageError, match=f"there is no provider 'nobody'; there are {known}"):
        choose(None, None, {"CALLGATE_PROVIDER": "nobody"})


def test_a_named_provider_that_cannot_work_is_an_error_and_no_switch(
    no_weights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers.importlib.util, "find_spec", lambda name: object())
    done = invoked("chat", "--provider", "embedded", "hi")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "run `callgate model fetch`" in done.stderr
    monkeypatch.setattr(providers.importlib.util, "find_spec", lambda name: None)
    done = invoked("chat", "--provider", "embedded", "hi")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "pip install 'callgate[local]'" in done.stderr


def test_a_file_that_is_no_model_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers.importlib.util, "find_spec", lambda name: object())
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    done = invoked("chat", "-m", str(path), "hi")
    assert done.exit_code == 42
    assert "it was not copied whole" in done.stderr


# --- callgate model ------------------------------------------------------------------------------------------------------


def test_the_path_of_weights_that_are_not_there_is_an_error(no_weights: None) -> None:
    done = invoked("model", "path")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "callgate model fetch" in done.stderr


def test_the_list_says_what_is_missing_and_what_is_ready(no_weights: None) -> None:
    done = invoked("model", "list")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("callgate-tools-135m: ")
    assert lines[1].split() == [weights.BASE.name, "98.4", "MB", "Apache-2.0", "missing"]
    assert lines[3].split() == [weights.ADAPTER.name, "20.8", "MB", "Apache-2.0", "ready"]


def test_fetch_shows_its_steps_on_stderr_and_the_path_on_stdout(no_weights: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(report: weights.Report) -> str:
        for what, done in (("download", 0), ("download", 50), ("unpack", 100)):
            report(what, done, 100)
        return "/there"

    monkeypatch.setattr(weights, "fetch", fetch)
    done = invoked("model", "fetch")
    assert (done.exit_code, done.stdout) == (0, "/there\n")
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["download", "unpack"]


def test_a_fetch_that_fails_is_one_sentence(no_weights: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(report: weights.Report) -> str:
        raise UsageError("the registry is away")

    monkeypatch.setattr(weights, "fetch", fetch)
    done = invoked("model", "fetch")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "the registry is away" in done.stderr


@pytest.mark.slow
def test_a_prompt_is_answered_by_the_embedded_model_without_a_key(embedded: None) -> None:
    done = invoked("chat", "-o", "json", "Hello!", CALLGATE_PROVIDER="embedded")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["response"]
    assert "embedded: callgate-tools-135m" in done.stderr
