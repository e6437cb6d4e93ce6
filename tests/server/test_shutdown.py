"""A service that stops: what it still answers, and what becomes of runs that do not end in time."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from uvicorn.lifespan.off import LifespanOff

from callgate import Gate, ScriptedModel, tool
from callgate.server.listen import Server
from callgate.sessions import load
from callgate.store import MemoryStore
from callgate.testing import call, text

WAIT_S = 60


class Effects:
    """A tool with effects, which takes its time in the second call until somebody lets it go."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.started, self.go = threading.Event(), threading.Event()

    @property
    def tool(self) -> Any:
        @tool(idempotent=True)
        async def pay(to: str) -> str:
            """Pays."""
            if to == "slow" and not self.go.is_set():
                self.started.set()
                await asyncio.sleep(WAIT_S)
            self.done.append(to)
            return f"paid {to}"

        return pay


SCRIPT = [call("pay", to="quick"), call("pay", to="slow"), text("All paid.")]


@pytest.fixture
def effects() -> Effects:
    return Effects()


def stopped_in_the_middle(serve: Any, effects: Effects, store: MemoryStore, *requests: dict[str, Any]) -> list[Any]:
    """The answers to requests whose runs outlast the stop of their service."""
    site = serve(Gate(ScriptedModel(SCRIPT), [effects.tool], store=store), stop_s=0.0)
    with ThreadPoolExecutor(len(requests)) as clients:
        sent = [clients.submit(site.post, "/api/v1/chat", **request) for request in requests]
        assert effects.started.wait(WAIT_S)
        site.server.should_exit = True
        return [future.result(WAIT_S) for future in sent]


@pytest.mark.parametrize("headers", [{"Idempotency_Key": "k"}, {}], ids=["key", "session"])
def test_a_run_that_outlasts_the_stop_is_answered_with_503_and_goes_on_elsewhere(
    serve: Any, effects: Effects, headers: dict[str, str]
) -> None:
    store = MemoryStore()
    request = {"body": {"prompt": "Pay both.", "session": "s"}, **headers}
    [answer] = stopped_in_the_middle(serve, effects, store, request)
    assert answer.error == (503, "stopping")
    assert int(answer.headers["retry-after"]) >= 1
    assert asyncio.run(load(store, "s")).state == "interrupted"
    effects.go.set()
    other = serve(Gate(ScriptedModel(SCRIPT[2:]), [effects.tool], store=store))
    if not headers:
        request["body"] = {"session": "s"}
    again = other.post("/api/v1/chat", **request)
    assert (again.status, again.json["response"], again.json["metadata"]["finish_reason"]) == (200, "All paid.", "STOP")
    assert effects.done == ["quick", "slow"]


def test_while_runs_come_to_their_end_new_connections_learn_that_the_service_stops(serve: Any, effects: Effects) -> None:
    site = serve(Gate(ScriptedModel(SCRIPT), [effects.tool], store=MemoryStore()), stop_s=WAIT_S)
    with ThreadPoolExecutor(1) as clients:
        sent = clients.submit(site.post, "/api/v1/chat", body={"prompt": "Pay both.", "session": "s"})
        assert effects.started.wait(WAIT_S)
        site.server.should_exit = True
        while not site.service.stopping:
            threading.Event().wait(0.01)
        health = site.get("/health")
        assert (health.status, health.json["stopping"]) == (503, True)
        assert site.chat({"prompt": "One more."}).error == (503, "stopping")
        site.service.gate.cancel("s")
        assert sent.result(WAIT_S).json["metadata"]["finish_reason"] == "cancelled"


def test_a_service_that_drains_works_on_while_it_is_down_for_load_balancers(serve: Any) -> None:
    site = serve(Gate(ScriptedModel(["one", "two"])), drain_s=WAIT_S)
    site.server.should_exit = True
    site.until(lambda: site.service.draining)
    health, chat = site.get("/health"), site.chat({"prompt": "a"}, Connection="")
    assert (health.status, health.json["status"], health.json["stopping"]) == (503, "down", True)
    assert (chat.status, chat.headers["connection"]) == (200, "close")
    site.on_loop(site.service.drained.set)


@pytest.mark.parametrize(("number", "drains"), [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGHUP, True)])
def test_every_signal_ends_it_cleanly_and_nobody_at_a_terminal_waits_for_load_balancers(
    number: signal.Signals, drains: bool
) -> None:
    seen: list[str] = []

    async def drain() -> None:
        seen.append("drain")

    async def stop() -> None:
        seen.append("stop")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nothing is asked")

    async def story() -> None:
        server = Server(uvicorn.Config(app, lifespan="off", log_config=None), stop, on_drain=drain)
        before = signal.getsignal(number)
        with server.capture_signals():
            signal.raise_signal(number)
        assert signal.getsignal(number) is before
        assert server.should_exit
        server.servers, server.lifespan = [], LifespanOff(server.config)
        await server.shutdown()

    given = signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # It is ignored where the tests run under nohup.
    try:
        asyncio.run(story())
    finally:
        signal.signal(signal.SIGHUP, given)
    assert seen == (["drain", "stop"] if drains else ["stop"])
