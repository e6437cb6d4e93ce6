"""Quotas of principals over all processes that share a store, and for requests that come at the same moment."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, ScriptedModel
from callgate.errors import StoreError
from callgate.server import Service, ServiceOptions
from callgate.server import quotas as rates
from callgate.server.access_file import AccessFile, token_hash
from callgate.server.admissions import Admissions
from callgate.server.identity import Principal, Quota
from callgate.server.quotas import period
from callgate.server.service import STORE_S
from callgate.store import open_store
from callgate.store.principals import Used
from callgate.store.sqlite import Sqlite
from callgate.testing import answer, call
from callgate.types import Price

from .conftest import WAIT_S, Answer, Site, add, serving
from .test_processes import PATIENCE_S, noted, until, worked
from .test_quotas import ANN, PASSED_ON, TOKEN, USAGE, Held

__all__ = ["worked"]

AT_ONCE = 6
CALLS = answer(call("add", a=1, b=2), usage=USAGE)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., list[Site]]]:
    """`serve(limits, *models)`: services on one store, with one token that has these limits."""
    with contextlib.ExitStack() as stack:

        def start(limits: str, *models: Any) -> list[Site]:
            path = tmp_path / "access.toml"
            path.write_text(f'[tokens.ann]\nsha256 = "{token_hash(TOKEN)}"\n{limits}\n')
            path.chmod(0o600)
            sites = []
            for model in models:
                prices = {model.name: Price(input=1.0, output=1_000_000.0)}
                gate = Gate(model, [add], store=str(tmp_path / "sessions.db"), prices=prices)
                options = ServiceOptions(identities=AccessFile(path), stop_s=2.0)
                sites.append(stack.enter_context(serving(Service(gate, options=options))))
            return sites

        yield start


def at_once(sites: list[Site], ask: Callable[[Site], Answer], release: threading.Event, expected: int) -> list[str]:
    """What comes of so many requests that are sent at the same moment; those that wait go on when so many were refused."""
    start, refused = threading.Barrier(AT_ONCE), threading.Semaphore(0)

    def one(number: int) -> str:
        start.wait(WAIT_S)
        told = ask(sites[number % len(sites)])
        if told.status != 200:
            refused.release()
        return "ok" if told.status == 200 else str(told.json["error"] if "code" in told.json else told.json["error"]["code"])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = pool.map(one, range(AT_ONCE))
        try:
            for _ in range(expected):
                assert refused.acquire(timeout=WAIT_S)
        finally:
            release.set()
        return sorted(asked)


def used(site: Site) -> int:
    site.until(lambda: not site.service.places.taken and not site.service.admissions.writing)
    found = asyncio.run_coroutine_threadsafe(site.service.principals.usage("ann", period()), site.loop)
    return found.result(WAIT_S).tokens


def chat(site: Site) -> Answer:
    return site.chat({"prompt": "x"}, **ANN)


def passed_on(site: Site) -> Answer:
    return site.post("/v1/chat/completions", PASSED_ON, **ANN)


# Runs ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [chat, passed_on], ids=["chat", "passed on"])
def test_runs_are_counted_over_all_services_of_a_store(serve, ask: Callable[[Site], Answer]) -> None:
    models = [Held(), Held(), Held()]
    models[1].go = models[2].go = models[0].go
    sites = serve("runs = 2", *models)
    assert at_once(sites, ask, models[0].go, AT_ONCE - 2) == ["ok", "ok"] + ["too_many_runs"] * (AT_ONCE - 2)
    assert sum(model.asked for model in models) == 2


def test_a_client_that_moves_between_services_is_never_refused_for_its_own_last_run(serve) -> None:
    sites = serve("runs = 1", *(ScriptedModel(["Hello."] * 10) for _ in range(3)))
    assert {chat(sites[number % 3]).status for number in range(30)} == {200}


def test_hundreds_of_runs_of_one_client_that_begin_at_once_are_all_admitted(tmp_path) -> None:
    async def story() -> list[Any]:
        stores = [open_store(str(tmp_path / "sessions.db")) for _ in range(3)]
        ann = Principal(name="ann", quota=Quota(runs=1_000))
        for store in stores:
            store.patience_s = STORE_S  # As in a service.
        async with contextlib.AsyncExitStack() as stack:
            desks = [Admissions(store) for store in stores]
            for desk in desks:
                await stack.enter_async_context(desk.running())
            found = [await desk.admit(ann, Used(5)) for desk in desks]  # A connection is opened first.
            found += await asyncio.gather(*(desks[number % 3].admit(ann, Used(5)) for number in range(300)))
            for admission in found:
                assert admission is not None
                admission.settle(Used(3))
        used = await stores[0].usage("ann", period())
        for store in stores:
            await store.aclose()
        return [len(found), used]

    assert asyncio.run(story()) == [303, Used(909)]


# Tokens and cost -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [chat, passed_on], ids=["chat", "passed on"])
@pytest.mark.parametrize("limits", ["tokens_per_day = 50", "cost_per_day = 5.0"])
def test_requests_at_the_same_moment_cannot_exceed_a_quota_together(serve, limits: str, ask: Any) -> None:
    models = [Held(), Held()]
    models[1].go = models[0].go
    sites = serve(limits, *models)
    assert at_once(sites, ask, models[0].go, AT_ONCE - 1) == ["ok"] + ["quota_reserved"] * (AT_ONCE - 1)
    assert sum(model.asked for model in models) == 1
    assert used(sites[0]) + used(sites[1]) == 24  # The same figure, read twice.
    assert ask(sites[1]).status == 200, "what was reserved and not used is there again"


def test_a_run_is_stopped_before_it_asks_the_model_beyond_the_quota_and_goes_on_later(serve) -> None:
    model = ScriptedModel([CALLS, CALLS, answer("3", usage=USAGE)])
    (site,) = serve("tokens_per_day = 20", model)
    told = site.chat({"prompt": "x", "session": "s"}, **ANN)
    assert told.error == (429, "quota_exceeded")
    assert (len(model.requests), used(site)) == (2, 24)
    session = site.get("/api/v1/sessions/s", **ANN).json
    assert (session["state"], [record["state"] for record in session["calls"]]) == ("interrupted", ["finished"] * 2)
    access = Path(site.service.options.identities.path)
    access.write_text(access.read_text().replace("= 20", "= 2000"))
    site.service.options.identities._looked_s = 0.0
    assert site.chat({"session": "s"}, **ANN).json["response"] == "3"


@pytest.mark.parametrize("most", [1, 10**9, 2**31 - 1])
def test_a_request_may_allow_an_answer_of_any_length(serve, most: int) -> None:
    (site,) = serve("tokens_per_day = 50", ScriptedModel([answer("Hello.", usage=USAGE)] * 2))
    assert site.post("/v1/chat/completions", PASSED_ON | {"max_tokens": most}, **ANN).status == 200
    assert site.post("/v1/chat/completions", {**PASSED_ON, "max_tokens": most, "tools": []}, **ANN).status == 200
    assert used(site) == 24


def test_what_could_not_be_written_is_written_later_and_once(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    (site,) = serve("tokens_per_day = 50", ScriptedModel([answer("Hello.", usage=USAGE)] * 2))
    store = site.service.store
    settle, broken = store.settle, [True]

    async def unsure(*given: Any, **more: Any) -> None:
        await settle(*given, **more)
        if broken:
            broken.pop()
            raise StoreError("the connection broke after the commit")

    monkeypatch.setattr(store, "settle", unsure)
    assert chat(site).status == 200
    assert used(site) == 12
    asyncio.run_coroutine_threadsafe(site.service.admissions._write_late(), site.loop).result(WAIT_S)
    assert used(site) == 12
    assert chat(site).status == 200


# Requests ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still for the store, so that no bucket refills."""
    monkeypatch.setattr(Sqlite, "now_s", lambda _, tx: 1_000_000.0)


@pytest.mark.parametrize("most", [1, 7, 200])
def test_requests_are_counted_over_all_services_of_a_store(serve, frozen, most: int) -> None:
    sites = serve(f"requests_per_minute = {most}", *(ScriptedModel([]) for _ in range(3)))
    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(lambda number: sites[number % 3].get("/api/v1/tools", **ANN), range(most + 40)))
    found = Counter(one.status for one in told)
    # A service may have taken some ahead of time that it does not need: of the last ones, one in four.
    assert most - most // 50 - 3 <= found[200] <= most
    if most == 1:
        assert found == {200: 1, 429: 40}
    refusal = next(one for one in told if one.status == 429)
    assert (refusal.error, int(refusal.headers["retry-after"]) > 0) == ((429, "too_many_requests"), True)


def test_one_service_uses_all_requests_that_it_has_taken_ahead(serve, frozen) -> None:
    (site,) = serve("requests_per_minute = 200", ScriptedModel([]))
    with ThreadPoolExecutor(4) as pool:
        told = Counter(pool.map(lambda _: site.get("/api/v1/tools", **ANN).status, range(230)))
    assert told == {200: 200, 429: 30}


@pytest.mark.parametrize("how", ["fails", "never answers"])
def test_a_store_in_trouble_makes_each_process_count_by_itself(serve, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    (site,) = serve("requests_per_minute = 1", ScriptedModel([]))
    monkeypatch.setattr(rates, "ALONE_S", 3600.0)

    async def broken(*given: Any, **more: Any) -> Any:
        if how == "fails":
            raise StoreError("no answer")
        await asyncio.Event().wait()

    monkeypatch.setattr(site.service.store, "take_requests", broken)
    assert Counter(site.get("/api/v1/tools", **ANN).status for _ in range(5)) == {200: 1, 429: 4}


# Real processes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Callable[..., tuple[int, int]]]:
    """`workers(limits, *words)`: process and port of `callgate serve --workers 3` with one token that has these limits."""
    parents = []
    sockets = Path(tempfile.mkdtemp(prefix="cg-"))  # Short: paths of sockets have at most 107 characters.

    def start(limits: str, *words: str, **environment: str) -> tuple[int, int]:
        access, log = tmp_path / "access.toml", tmp_path / "log"
        access.write_text(f'[tokens.ann]\nsha256 = "{token_hash(TOKEN)}"\n{limits}\n')
        access.chmod(0o600)
        command = [sys.executable, "-m", "callgate", "serve", "--port", "0", "--workers", "3", *words]
        with log.open("w") as file:
            parents.append(
                subprocess.Popen(
                    [*command, "--store", "sessions.db", "--access", str(access)],
                    stderr=file,
                    cwd=tmp_path,
                    env={**os.environ, "TMPDIR": str(sockets), **environment},
                )
            )
        until(lambda: len(list(sockets.glob("callgate-*/*.sock"))) == 3, "three processes")
        port = int(log.read_text().partition("serves at http://127.0.0.1:")[2].partition(" ")[0])
        return parents[-1].pid, port

    yield start
    for parent in parents:
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE_S) == 0
    shutil.rmtree(sockets)


def asked(port: int, method: str, path: str, body: Any = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        headers = {**ANN, **({"Content-Type": "application/json"} if body else {})}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        response.read()
        return response.status


@pytest.mark.slow
def test_three_real_processes_count_the_requests_of_a_client_together(workers) -> None:
    _, port = workers("requests_per_minute = 20", "--provider", "demo")
    with ThreadPoolExecutor(6) as pool:
        found = Counter(pool.map(lambda _: asked(port, "GET", "/api/v1/tools"), range(150)))
    assert set(found) == {200, 429}
    # If each counted by itself, there would be three times as many. While the test runs, one comes back every three seconds.
    assert 17 <= found[200] < 50


@pytest.mark.slow
def test_a_killed_process_keeps_no_place_of_a_client(workers, worked) -> None:
    parent, port = workers("runs = 1", "-T", "work_tools.py", **worked)
    with ThreadPoolExecutor(1) as pool:
        doomed = pool.submit(asked, port, "POST", "/api/v1/chat", {"prompt": "pay 600"})
        until(lambda: "start pay" in noted(worked), "the start")
        assert {asked(port, "POST", "/api/v1/chat", {"prompt": "hello"}) for _ in range(9)} == {429}
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        with pytest.raises((OSError, http.client.HTTPException)):
            doomed.result(PATIENCE_S)
    assert asked(port, "POST", "/api/v1/chat", {"prompt": "hello"}) == 200
