"""Races of answers on three real processes that share PostgreSQL: every call is answered once, as one client was told."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from callgate.testing import call

from .test_processes import GEMINI, Served, launch, model_server, until

__all__ = ["launch"]

RACES = 1_000
CLIENTS = 8
TOOLS = '''
import os
from callgate import tool

@tool
def pay(name: str, amount: int) -> str:
    """Pays."""
    with open(os.environ["TOOL_LOG"], "a") as file:
        file.write(f"{name} {amount}\\n")
    return "paid"
'''


@pytest.mark.slow
def test_1000_races_of_answers_at_three_processes_lose_and_double_nothing(needs, postgres_url, launch, tmp_path) -> None:
    needs("postgres")
    (tmp_path / "tools.py").write_text(TOOLS)
    log = tmp_path / "paid"
    log.touch()
    (tmp_path / "policy.toml").write_text('default = "ask"\n')

    def say(said: str, since: str) -> Any:
        return "Over." if since else call("pay", name=said, amount=1)

    with model_server(say) as model:
        environment = {**GEMINI, "GOOGLE_GEMINI_BASE_URL": model, "TOOL_LOG": str(log)}
        words = ("-T", "tools.py:pay", "--policy", "policy.toml", "--store", postgres_url)
        served = [launch(*words, **environment) for _ in range(3)]
        # A process prints its address before it has loaded everything, and what is measured here is not its start.
        assert [one.chat(prompt="first", session=f"first{place}").status for place, one in enumerate(served)] == [202] * 3
        with ThreadPoolExecutor(CLIENTS) as pool:
            outcomes = list(pool.map(lambda number: race(served, number), range(RACES)))
    paid: dict[str, list[int]] = {}
    for line in log.read_text().splitlines():
        name, amount = line.split()
        paid.setdefault(name, []).append(int(amount))
    wrong = [
        (name, kind, paid.get(name), given)
        for name, kind, given in outcomes
        if paid.get(name, []) != {"no": [], "yes": [1], "edit": [7], None: None}[kind]
    ]
    heard = sorted(took_s for _, _, given in outcomes for took_s, status, _ in given if status == 200)
    late = [outcome for outcome in outcomes if any(took_s > 1 and status == 200 for took_s, status, _ in outcome[2])]
    print(f"{len(outcomes)} races, heard after {heard[len(heard) // 2]:.3f} s (median), {heard[-1]:.3f} s (slowest)")
    print(f"{len(late)} after more than 1 s: {late}")
    assert wrong == []


BODIES = {"yes": {"answer": "yes"}, "no": {"answer": "no"}}


def race(served: list[Served], number: int) -> tuple[str, str | None, list[tuple[float, int, str]]]:
    """One call that waits in a stream or paused, and answers from several processes at once; the one that counted."""
    dice, name = random.Random(number), f"n{number}"
    holder = dice.choice(served)
    streams = dice.random() < 0.7
    connection = http.client.HTTPConnection("127.0.0.1", holder.port, timeout=120)
    body = {"prompt": name, "session": name, "stream": streams}
    connection.request("POST", "/api/v1/chat", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if streams:
        call_id = waiting_call(response)
    else:
        paused = json.loads(response.read())
        assert response.status == 202, paused
        call_id = paused["approvals"][0]["call_id"]
    kinds = [dice.choice(("yes", "no", "edit")) for _ in range(dice.choice((1, 2, 3)))]

    def give(kind: str) -> tuple[float, int, str]:
        edited = {"answer": "yes", "arguments": {"name": name, "amount": 7}}
        begun_s = time.perf_counter()
        given = dice.choice(served).request("POST", f"/api/v1/approvals/{name}/{call_id}", BODIES.get(kind, edited))
        assert given.status in (200, 404, 409), given.body
        return time.perf_counter() - begun_s, given.status, kind

    with ThreadPoolExecutor(len(kinds)) as pool:
        given = list(pool.map(give, kinds))
    for attempt in itertools.count():
        counted = [kind for _, status, kind in given if status == 200]
        assert len(counted) <= 1, (name, given)
        if counted:
            break
        assert attempt < 20, (name, given)  # All were refused, so that the call must still wait.
        given.append(give("no"))
    if streams:
        response.read()
    else:
        until(lambda: _is_idle(served[0], name), f"the end of {name}")
    connection.close()
    return name, counted[0], given


def waiting_call(response: Any) -> str:
    """Read a stream up to the first question; return the call that it is about."""
    event = b""
    for line in response:
        if line.startswith(b"event:"):
            event = line.split(b":", 1)[1].strip()
        if line.startswith(b"data:") and event == b"approval_needed":
            return json.loads(line[5:])["call"]["id"]
    raise AssertionError("the stream ended before a call was waited for")


def _is_idle(served: Served, session: str) -> bool:
    return served.request("GET", f"/api/v1/sessions/{session}").json["state"] == "idle"
