"""An answer survives the process that waits for it: killed (SIGKILL) right before and right after its journal has it."""

from __future__ import annotations

import http.client
import json
import signal
from typing import Any

import pytest

from callgate.testing import call

from .test_answer_races import BODIES, waiting_call
from .test_processes import GEMINI, PATIENCE_S, Served, launch, model_server, until

__all__ = ["launch"]

TOOLS = '''
import os, signal
from callgate import tool
from callgate.machine.facts import ApprovalAnswered
from callgate.store.sql import SqlStore

@tool
def pay(name: str, amount: int) -> str:
    """Pays."""
    with open(os.environ["TOOL_LOG"], "a") as file:
        file.write(f"{name} {amount}\\n")
    return "paid"

append, dies = SqlStore.append, os.environ.get("DIES")

async def dying(self, lease, facts, **how):
    answers = any(isinstance(fact, ApprovalAnswered) for fact in facts)
    if answers and dies == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    await append(self, lease, facts, **how)
    if answers and dies == "after":
        os.kill(os.getpid(), signal.SIGKILL)

SqlStore.append = dying
'''


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request, tmp_path) -> str:
    if request.param == "postgres":
        request.getfixturevalue("needs")("postgres")
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "sessions.db")


@pytest.mark.slow
@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("kind", ["yes", "no"])
def test_an_answer_that_was_reported_as_given_counts_though_its_owner_is_killed(store, launch, tmp_path, dies, kind) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    log = tmp_path / "paid"
    log.touch()
    (tmp_path / "policy.toml").write_text('default = "ask"\n')

    def say(said: str, since: str) -> Any:
        return "Over." if since else call("pay", name="n", amount=1)

    with model_server(say) as model:
        environment = {**GEMINI, "GOOGLE_GEMINI_BASE_URL": model, "TOOL_LOG": str(log)}
        words = ("-T", "tools.py:pay", "--policy", "policy.toml", "--store", store)
        owner, other = launch(*words, **environment, DIES=dies), launch(*words, **environment)
        connection = http.client.HTTPConnection("127.0.0.1", owner.port, timeout=PATIENCE_S)
        body = {"prompt": "pay", "session": "s", "stream": True}
        connection.request("POST", "/api/v1/chat", json.dumps(body), {"Content-Type": "application/json"})
        call_id = waiting_call(connection.getresponse())
        given = other.request("POST", f"/api/v1/approvals/s/{call_id}", BODIES[kind])
        assert given.status == 200, given.body
        assert owner.process.wait(PATIENCE_S) == -signal.SIGKILL
        connection.close()
        _go_on(other)
        assert other.request("GET", "/api/v1/approvals").json["approvals"] == []
        again = other.request("POST", f"/api/v1/approvals/s/{call_id}", BODIES["yes"])
        assert again.json["error"] == "not_waiting"
    assert log.read_text().splitlines() == (["n 1"] if kind == "yes" else [])


def _go_on(served: Served) -> None:
    """Resume the session if its run was interrupted, until it is over."""

    def is_idle() -> bool:
        state = served.request("GET", "/api/v1/sessions/s").json["state"]
        if state == "interrupted":
            served.chat(session="s")
        return state == "idle"

    until(is_idle, "the end of the run")
