"""What `/metrics` counts: calls that wait anywhere in the store, and the processes of one service together."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel
from callgate.machine.facts import Fact
from callgate.server import Service, ServiceOptions, audit_probe, health, shared_metrics
from callgate.server.counters import opening
from callgate.server.metrics import text_of
from callgate.server.peers import Peers
from callgate.store import MemoryStore
from callgate.testing import call

from .conftest import Site, add, poke, serving


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.server.metrics.WAITING_S", 0.0)


def samples(site: Site) -> dict[str, float]:
    lines = site.get("/metrics").body.decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def gate(script: list[Any], place: Path | None = None) -> Gate:
    store = None if place is None else str(place)
    return Gate(ScriptedModel(script), [add, poke], policy=Policy(rules=["ask poke"]), store=store)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_calls_that_wait_in_paused_sessions_are_counted_wherever_they_were_made(
    serve: Callable[..., Site], tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "sessions.db" if kind == "file" else None
    site = serve(gate([call("poke", where="a"), call("poke", where="b"), "done"], place))
    other = serve(gate([], place)) if place is not None else site
    assert samples(site)["callgate_approvals_waiting"] == 0
    assert [site.chat({"prompt": "go", "session": name}).status for name in ("one", "two")] == [202, 202]
    assert [samples(one)["callgate_approvals_waiting"] for one in (site, other)] == [2, 2]
    [first, _] = site.get("/api/v1/approvals").json["approvals"]
    assert site.post(f"/api/v1/approvals/{first['session']}/{first['call_id']}", {"answer": "yes"}).status == 200
    site.until(lambda: not site.service.live)
    assert [samples(one)["callgate_approvals_waiting"] for one in (site, other)] == [1, 1]


Start = Callable[[int], Site]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[tuple[Start, Callable[[int], None]]]:
    """`start(number)` a process of one service, as far as it knows, and `stop(number)`."""
    secret, running = secrets.token_bytes(32), dict[int, contextlib.ExitStack]()

    def started(number: int) -> Site:
        peers = Peers(number=number, folder=str(tmp_path), secret=secret)
        running[number] = contextlib.ExitStack()
        service = Service(gate(["hi"] * 20), options=ServiceOptions(peers=peers, stop_s=1.0))
        return running[number].enter_context(serving(service))

    def stop(number: int) -> None:
        running.pop(number).close()

    yield started, stop
    for number in list(running):
        stop(number)


RUNS = 'callgate_runs_total{outcome="STOP"}'


def chat(site: Site, times: int) -> None:
    assert [site.chat({"prompt": "a"}).status for _ in range(times)] == [200] * times


def test_every_process_tells_what_all_of_them_have_counted(start: Any) -> None:
    sites = [start[0](number) for number in range(3)]
    for number, site in enumerate(sites):
        chat(site, number + 1)
    found = [samples(site) for site in sites]
    assert [one[RUNS] for one in found] == [6, 6, 6]
    assert [one["callgate_run_seconds_count"] for one in found] == [6, 6, 6]
    assert [one['callgate_run_seconds_bucket{le="+Inf"}'] for one in found] == [6, 6, 6]
    assert len({one["process_start_time_seconds"] for one in found}) == 1
    text = sites[0].get("/metrics").body.decode().splitlines()
    for part in (text, asyncio.run(text_of(sites[0].service)).splitlines()):
        meanings = [line.split(" ", 3)[2] for line in part if line.startswith("# HELP")]
        types = [line.split(" ")[2] for line in part if line.startswith("# TYPE")]
        assert meanings == types
        assert len(types) == len(set(types))


def test_no_counter_goes_back_when_a_process_ends_and_another_takes_its_place(start: Any) -> None:
    begin, stop = start
    first, second = begin(0), begin(1)
    chat(first, 2)
    chat(second, 3)
    assert samples(first)[RUNS] == 5
    stop(1)
    left = samples(first)
    assert left[RUNS] == 5
    assert left["callgate_runs_live"] == 0
    assert left["callgate_processes_silent"] == 1
    again = begin(1)
    assert samples(again)[RUNS] == 5
    chat(again, 1)
    assert [samples(first)[RUNS], samples(again)[RUNS]] == [6, 6]


def test_the_folder_of_the_processes_has_nothing_that_answers_but_metrics_and_mcp(start: Any) -> None:
    site = start[0](0)
    assert set(site.service.peer_apps) <= {"/metrics", "/mcp"}


def test_gauges_of_one_thing_that_all_share_are_not_added_up() -> None:
    shared = [*opening("callgate_approvals_waiting", "gauge"), "callgate_approvals_waiting 2"]
    text = "\n".join([*shared, "# TYPE a gauge", "a 1.5", ""])
    parts = [shared_metrics._parsed(text)] * 2
    assert shared_metrics.added(parts) == text.replace("a 1.5", "a 3")


def test_an_audit_log_that_cannot_be_written_is_in_the_health_and_the_metrics(
    serve: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    script = [call("poke", where="a"), "It was refused."]
    site = serve(Gate(ScriptedModel(script), [poke], audit=tmp_path / "file" / "audit.jsonl"))
    chat = site.chat({"prompt": "go"})
    assert (chat.status, chat.json["metadata"]["finish_reason"]) == (200, "STOP")
    assert "It was refused." in str(chat.json)
    health = site.get("/api/v1/health").json
    assert (health["status"], health["audit"]["state"]) == ("degraded", "failing")
    assert "cannot be written" in health["audit"]["error"]
    assert b"callgate_audit_failing 1" in site.get("/metrics").body
    assert [record.levelname for record in caplog.records if record.name == "callgate.outages"] == ["ERROR"]


def audit_state(site: Any) -> tuple[str, str, bool]:
    health = site.get("/api/v1/health").json
    return health["status"], health["audit"]["state"], b"callgate_audit_failing 1" in site.get("/metrics").body


def test_the_state_of_the_audit_log_is_that_of_this_moment_without_a_call(serve: Any, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    site = serve(Gate(ScriptedModel([call("poke", where="a"), "It was refused."]), [poke], audit=folder / "audit.jsonl"))
    assert audit_state(site) == ("healthy", "ok", False)
    folder.rename(tmp_path / "away")
    assert audit_state(site) == ("degraded", "failing", True), "no call has failed yet"
    assert site.chat({"prompt": "go"}).status == 200
    assert audit_state(site) == ("degraded", "failing", True)
    (tmp_path / "away").rename(folder)
    assert audit_state(site) == ("healthy", "ok", False), "no call has succeeded yet"


class Busy(MemoryStore):
    """A store that answers while the service is busy with something else, for longer than it waits for its store."""

    async def load(self, session: str, *, start: int = 0) -> list[Fact]:
        asyncio.get_running_loop().call_soon(time.sleep, health.STORE_S + 0.1)  # clock: the loop itself is held
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().load(session, start=start)


def test_a_service_that_was_busy_does_not_call_its_store_down(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "STORE_S", 1.0)
    site = serve(Gate(ScriptedModel([]), store=Busy()))
    assert site.get("/api/v1/health").json["store"] == {"state": "ok", "error": None}


def test_an_audit_log_whose_disk_does_not_answer_is_failing_until_it_does(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    site = serve(Gate(ScriptedModel([]), [poke], audit=path))
    assert audit_state(site) == ("healthy", "ok", False)
    with monkeypatch.context() as hurried, path.with_name("audit.jsonl.head").open() as held:
        hurried.setattr(audit_probe, "PROBE_S", 0.05)
        fcntl.flock(held, fcntl.LOCK_EX)  # As another process that was frozen while it wrote.
        assert audit_state(site) == ("degraded", "failing", True)
        assert "no answer within 0.05 s" in site.get("/api/v1/health").json["audit"]["error"]
    assert audit_state(site) == ("healthy", "ok", False)
