"""Workers see the variables that programs need, those that were named, and no keys."""

from __future__ import annotations

import asyncio
import os

from callgate import Gate, ScriptedModel, tool
from callgate.testing import call
from callgate.workers.process import worker_environment


@tool(isolation="process")
def variables() -> dict[str, str]:
    """Shows the environment."""
    return dict(os.environ)


def test_only_named_variables_and_those_of_the_system_go_along() -> None:
    ours = {
        "PATH": "/bin", "LC_ALL": "C", "GEMINI_API_KEY": "k", "CALLGATE_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "s",
        "MY_URL": "u", "APP_A": "1", "APP_B": "2", "CALLGATE_WORKER_ENV": " MY_URL, APP_* ,",
    }  # fmt: skip
    assert worker_environment(ours) == {"PATH": "/bin", "LC_ALL": "C", "MY_URL": "u", "APP_A": "1", "APP_B": "2"}


def test_a_tool_in_a_process_sees_no_key(monkeypatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "hidden-key")
    monkeypatch.setenv("CALLGATE_TOKEN", "hidden-token")
    gate = Gate(ScriptedModel([call("variables"), "Over."]), [variables])
    reply = asyncio.run(gate.run("Show it."))
    assert reply.calls[0].result is not None
    seen = str(reply.calls[0].result.value)
    assert "PATH" in seen
    assert "hidden" not in seen
