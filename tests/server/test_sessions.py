"""`/api/v1/sessions`: what is kept, and what can be done with it; and the other things that a client can look at."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from callgate import FileTools, Gate, Policy, ScriptedModel, WorkerPool, tool
from callgate.cli.file_undo import file_undo
from callgate.errors import AuthError
from callgate.machine import facts
from callgate.machine.machine import RunMachine
from callgate.mcp import McpServer
from callgate.models.choice import MODEL_DEFAULT
from callgate.server.providers import Providers, usual_providers
from callgate.sessions import leased
from callgate.store import MemoryStore
from callgate.testing import FakeGemini, call
from callgate.types import CallRecord
from callgate.wire.endpoint_health import health_for

from .conftest import Answer, add


def test_sessions_are_listed_newest_first_by_pages_and_by_words(serve) -> None:
    site = serve(Gate(ScriptedModel(["ok"], repeat_last=True)))
    for name in ("red", "green", "blue"):
        site.chat({"prompt": f"Paint it {name}.", "session": name})
    rows = site.get("/api/v1/sessions").json
    assert [row["id"] for row in rows["sessions"]] == ["blue", "green", "red"]
    assert {key: rows["sessions"][0][key] for key in ("title", "exchange_count", "state", "running")} == {
        "title": "Paint it blue.", "exchange_count": 1, "state": "idle", "running": False,
    }  # fmt: skip
    first = site.get("/api/v1/sessions?limit=2").json
    second = site.get(f"/api/v1/sessions?limit=2&cursor={first['next']}").json
    assert [row["id"] for row in first["sessions"] + second["sessions"]] == ["blue", "green", "red"]
    assert second["next"] is None
    assert [row["id"] for row in site.get("/api/v1/sessions?query=GREEN").json["sessions"]] == ["green"]
    for query in ("limit=0", "limit=x", "limit=201", "limit=-1", "limit=%D9%A3", "cursor=x", "cursor=eA=="):
        assert site.get(f"/api/v1/sessions?{query}").error == (422, "invalid_request")


def test_sessions_are_found_by_what_was_said_in_them_with_the_words_around_it(serve) -> None:
    store = MemoryStore()
    long = "Sow them in rows. " * 10 + "Carrots **need** a\nspacing of 4 cm. " + "Water them. " * 10
    model = ScriptedModel([long, "Beans are quickest.", "Taken back.", AuthError("wrong key")])
    site = serve(Gate(model, store=store))
    for session, prompt in (("a", "Where?"), ("b", "Which?"), ("b", "Really?"), ("c", "Strasse or Stra\u00dfe?")):
        site.chat({"prompt": prompt, "session": session})

    def found(query: str, **more: Any) -> list[tuple[str, str]]:
        words = "&".join(f"{key}={value}" for key, value in {"query": quote(query), **more}.items())
        return [(row["id"], row.get("match", "")) for row in site.get(f"/api/v1/sessions?{words}").json["sessions"]]

    around = "…ws. Sow them in rows. Sow them in rows. Carrots need a spacing of 4 cm. Water them. Water them. Water…"
    assert found("carrots NEED a spacing") == [("a", around)]
    assert (found("quickest"), found("taken back"), found("nobody said this")) == (
        [("b", "Which? Beans are quickest. Really? Taken back.")],
        [("b", "Which? Beans are quickest. Really? Taken back.")],
        [],
    )
    site.post("/api/v1/sessions/b/undo")
    assert (found("quickest"), found("taken back")) == ([("b", "Which? Beans are quickest.")], [])
    assert found("stra\u00dfe") == [("c", "")]  # of a message that failed; the title has it
    assert found("e", limit=1) != []


def test_a_search_looks_through_so_many_sessions_at_a_time_and_goes_on(serve, monkeypatch) -> None:
    monkeypatch.setattr("callgate.server.search.READ_MAX", 2)
    monkeypatch.setattr("callgate.server.search.KEPT_CHARS", 5)
    site = serve(Gate(ScriptedModel(["zebra", *["ok"] * 4])))
    for number in range(5):
        site.chat({"prompt": "Next.", "session": f"s{number}"})
    first = site.get("/api/v1/sessions?query=zebra").json
    assert first["sessions"] == []
    second = site.get(f"/api/v1/sessions?query=zebra&cursor={first['next']}").json
    third = site.get(f"/api/v1/sessions?query=zebra&cursor={second['next']}").json
    assert ([row["id"] for row in third["sessions"]], second["sessions"], third["next"]) == (["s0"], [], None)


def test_a_session_with_a_fact_that_cannot_be_applied_is_shown_without_it(serve) -> None:
    store = MemoryStore()
    odd = facts.ModelAnswered(content={"role": "model", "parts": 7}, finish_reason="STOP")  # type: ignore[typeddict-item]
    site = serve(Gate(ScriptedModel(["ok"], repeat_last=True), store=store))
    site.chat({"prompt": "Before.", "session": "s"})

    async def damage() -> None:
        async with leased(store, "s") as lease:
            await store.append(lease, [odd], position=lease.position)

    asyncio.run(damage())
    site.chat({"prompt": "After.", "session": "s"})
    assert [row["id"] for row in site.get("/api/v1/sessions?query=ok").json["sessions"]] == ["s"]
    shown = site.get("/api/v1/sessions/s").json
    assert [one["said"] for one in shown["exchanges"]] == ["Before.", "After."]
    assert (shown["state"], len(shown["contents"]), shown["calls"]) == ("idle", 4, [])


def test_a_long_session_is_read_listed_forked_and_undone_without_the_loop(serve, monkeypatch, tmp_path) -> None:
    site = serve(Gate(ScriptedModel(["ok"], repeat_last=True), store=str(tmp_path / "s.db")))
    site.chat({"prompt": "x" * 1_000_000, "session": "s"})
    threads: set[threading.Thread] = set()
    apply = RunMachine.apply

    def noted(machine: RunMachine, fact: facts.Fact) -> list[CallRecord]:
        threads.add(threading.current_thread())
        return apply(machine, fact)

    monkeypatch.setattr(RunMachine, "apply", noted)
    answers = [site.get(f"/api/v1/sessions{rest}") for rest in ("/s", "/s/trace", "")]
    answers += [site.request("POST", f"/api/v1/sessions/s/{deed}") for deed in ("fork", "undo")]
    assert [answer.status for answer in answers] == [200, 200, 200, 201, 200]
    assert threads
    assert not [thread for thread in threads if thread.name == "service"]


def test_a_session_shows_its_history_its_calls_and_what_it_used(serve) -> None:
    site = serve(Gate(ScriptedModel([call("add", a=1, b=2), "Three.", "Bye."]), [add]))
    site.chat({"prompt": "Add.", "session": "s"})
    site.chat({"prompt": "Bye.", "session": "s"})
    shown = site.get("/api/v1/sessions/s").json
    assert (shown["title"], shown["state"], shown["exchange_count"]) == ("Add.", "idle", 2)
    assert [(one["said"], one["answered"], one["index"]) for one in shown["exchanges"]] == [
        ("Add.", True, 0),
        ("Bye.", True, 4),
    ]
    assert len(shown["contents"]) == 6
    (record,) = shown["calls"]
    assert (record["call"]["args"], record["state"], record["result"]["value"]) == ({"a": 1, "b": 2}, "finished", 3)
    assert record["duration_s"] == record["result"]["duration_s"] > 0
    assert (shown["run"], shown["approvals"], shown["rules"]) == (None, [], [])
    spans = site.get("/api/v1/sessions/s/trace").json["spans"]
    assert [(span["kind"], span["state"]) for span in spans] == [
        ("run", "STOP"), ("model", "STOP"), ("call", "finished"), ("model", "STOP"), ("run", "STOP"), ("model", "STOP"),
    ]  # fmt: skip
    assert all(span["end_s"] >= span["start_s"] for span in spans)
    assert [span["parent"] for span in spans] == [None, "run-1", "run-1", "run-1", None, "run-2"]
    assert spans[2]["id"] == record["call"]["id"]


def test_a_session_can_be_copied_taken_back_and_forgotten(serve, tmp_path) -> None:
    model = ScriptedModel([call("write_file", path="a.txt", content="new"), "Written.", "Again.", "Bye."])
    policy = Policy(mode="auto_edit")
    site = serve(Gate(model, [FileTools(tmp_path)], policy=policy), undo=file_undo())
    (tmp_path / "a.txt").write_text("old")
    site.chat({"prompt": "Write.", "session": "s"})
    (exchange,) = site.get("/api/v1/sessions/s").json["exchanges"]
    copy = site.post("/api/v1/sessions/s/fork", {"after": exchange["id"]})
    assert copy.status == 201
    assert (tmp_path / "a.txt").read_text() == "new"
    undone = site.post("/api/v1/sessions/s/undo").json
    assert undone["taken_back"] == ["Write."]
    assert "a.txt is as it was before" in undone["files"][0]
    assert (tmp_path / "a.txt").read_text() == "old"
    assert site.get("/api/v1/sessions/s").json["contents"] == []
    assert len(site.get(f"/api/v1/sessions/{copy.json['session']}").json["contents"]) == 4
    assert site.chat({"prompt": "And?", "session": "s"}).json["response"] == "Again."
    assert site.request("DELETE", "/api/v1/sessions/s").json == {"deleted": "s"}
    assert site.get("/api/v1/sessions/s").error == (404, "no_such_session")
    assert site.chat({"prompt": "New.", "session": "s"}).json["response"] == "Bye."
    for path, body in (("undo", {"exchanges": []}), ("undo", {"turns": 1}), ("fork", {"after": 1}), ("fork", {"turn": 1})):
        assert site.post(f"/api/v1/sessions/s/{path}", body).error == (422, "invalid_request")


def test_only_the_exchanges_that_were_shown_are_undone_or_forked(serve, tmp_path) -> None:
    model = ScriptedModel([call("write_file", path="a.txt", content="new"), "Written.", AuthError("wrong key"), "Fine."])
    site = serve(Gate(model, [FileTools(tmp_path)], policy=Policy(mode="auto_edit")), undo=file_undo())
    (tmp_path / "a.txt").write_text("old")
    site.chat({"prompt": "Write.", "session": "s"})
    assert site.chat({"prompt": "Fail.", "session": "s"}).error == (502, "model_auth")
    first, failed = site.get("/api/v1/sessions/s").json["exchanges"]
    assert first["duration_s"] > 0
    assert failed["duration_s"] >= 0
    assert failed == {
        "id": failed["id"], "said": "Fail.", "content": {"role": "user", "parts": [{"text": "Fail."}]}, "answered": False,
        "index": 4, "calls": [], "proposed": [], "runs": ["run-2"], "usage": failed["usage"], "cost": None,
        "duration_s": failed["duration_s"], "finish_reason": "error",
        "failure": {"error": "model_auth", "message": "wrong key", "partial": ""},
    }  # fmt: skip
    for body in ({"exchanges": [first["id"]]}, {"exchanges": ["x9"]}, {"exchanges": [failed["id"], first["id"]]}):
        assert site.post("/api/v1/sessions/s/undo", body).error == (409, "session_changed")
    assert site.post("/api/v1/sessions/s/fork", {"after": "x99"}).error == (409, "session_changed")
    undone = site.post("/api/v1/sessions/s/undo", {"exchanges": [failed["id"]]}).json
    assert undone == {"taken_back": ["Fail."], "exchanges": [failed["id"]], "files": []}
    assert (tmp_path / "a.txt").read_text() == "new"
    assert [one["said"] for one in site.get("/api/v1/sessions/s").json["exchanges"]] == ["Write."]
    site.chat({"prompt": "More.", "session": "s"})
    *_, last = site.get("/api/v1/sessions/s").json["exchanges"]
    for body, said in (({"after": last["id"]}, ["Write.", "More."]), ({"before": last["id"]}, ["Write."])):
        copy = site.post("/api/v1/sessions/s/fork", body).json["session"]
        assert [one["said"] for one in site.get(f"/api/v1/sessions/{copy}").json["exchanges"]] == said


def test_a_session_is_renamed_and_keeps_its_title(serve, slow, tmp_path) -> None:
    gate = Gate(ScriptedModel(["One.", call("slow"), "Two."]), [slow.tool], store=f"sqlite:///{tmp_path / 's.db'}")
    site = serve(gate)

    def rename(session: str, body: object) -> Answer:
        return site.request("PATCH", f"/api/v1/sessions/{session}", body)

    def titles(query: str = "") -> list[str]:
        return [row["title"] for row in site.get(f"/api/v1/sessions?query={query}").json["sessions"]]

    site.chat({"prompt": "Paint it.", "session": "s"})
    assert rename("s", {"title": "  The red\n house "}).json == {"id": "s", "title": "The red house"}
    assert (titles(), titles("RED"), titles("blue")) == (["The red house"], ["The red house"], [])
    with site.stream_chat({"prompt": "Wait.", "session": "s"}) as stream:
        stream.until("call_started")
        assert rename("s", {"title": "A run goes on"}).json["title"] == "A run goes on"
        slow.go.set()
        assert stream.until("run_ended")["reply"]["text"] == "Two."
    shown = site.get("/api/v1/sessions/s").json
    said = [exchange["said"] for exchange in shown["exchanges"]]
    assert (shown["title"], said, len(shown["contents"])) == ("A run goes on", ["Paint it.", "Wait."], 6)
    copy = site.post("/api/v1/sessions/s/fork", {"after": shown["exchanges"][0]["id"]}).json["session"]
    assert site.get(f"/api/v1/sessions/{copy}").json["title"] == "A run goes on"
    for body in ({}, {"title": ""}, {"title": " "}, {"title": "x" * 81}, {"title": 1}, {"title": "a", "more": 1}):
        assert rename("s", body).error == (422, "invalid_request")
    assert rename("none", {"title": "x"}).error == (404, "no_such_session")
    assert site.get("/openapi.json").json["paths"]["/api/v1/sessions/{id}"]["patch"]["requestBody"]["required"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("POST", "/fork"), ("POST", "/undo"), ("GET", "/events"),
        ("GET", "/trace"),
    ],
)  # fmt: skip
def test_a_session_that_is_not_there_is_not_found(serve, method, path) -> None:
    site = serve(Gate(ScriptedModel([])))
    assert site.request(method, f"/api/v1/sessions/none{path}").error == (404, "no_such_session")


def test_a_run_can_be_cancelled_and_its_session_goes_on(serve, slow) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "After."]), [slow.tool]))
    with site.stream_chat({"prompt": "Wait.", "session": "s"}) as stream:
        stream.until("call_started")
        row = site.get("/api/v1/sessions").json["sessions"][0]
        assert (row["running"], row["state"]) == (True, "running")
        assert site.get("/api/v1/sessions/s").json["run"] == stream.headers["callgate-run"]
        assert site.request("DELETE", "/api/v1/sessions/s").error == (409, "session_busy")
        assert site.post("/api/v1/sessions/s/undo").error == (409, "session_busy")
        assert site.post("/api/v1/sessions/s/cancel").json == {"cancelled": True, "run": stream.headers["callgate-run"]}
        assert stream.until("run_ended")["reply"]["finish_reason"] == "cancelled"
    assert slow.states == ["cancelled"]
    assert site.post("/api/v1/sessions/s/cancel").json == {"cancelled": False, "run": None}
    assert site.chat({"prompt": "And now?", "session": "s"}).json["response"] == "After."


def test_tools_are_shown_with_their_schema_permission_and_losses(serve, tmp_path) -> None:
    @tool
    def paint(color: str = "red") -> str:
        """Paints."""
        return color

    missing = McpServer("away", command=["/no/such/program"], start_s=0.5)
    site = serve(Gate(ScriptedModel(["ok"]), [paint, FileTools(tmp_path), missing]))
    shown = site.get("/api/v1/tools").json
    by_name = {item["name"]: item for item in shown["tools"]}
    assert by_name["paint"]["schema"]["properties"]["color"]["type"] == "string"
    assert by_name["paint"]["parameters"] == by_name["paint"]["schema"]
    assert [loss["keyword"] for loss in by_name["paint"]["losses"]] == ["default"]
    assert (by_name["paint"]["permission"], by_name["write_file"]["permission"]) == ("allow", "ask")
    assert (by_name["read_file"]["source"], by_name["read_file"]["read_only"]) == ("file", True)
    away = next(server for server in shown["servers"] if server["name"] == "away")
    assert (away["state"], away["tools"]) == ("unavailable", [])
    assert away["error"]
    health = site.get("/api/v1/health").json
    assert (health["status"], health["mcp_server_ready"], health["store"]["state"]) == ("degraded", False, "ok")


def test_health_is_down_when_the_store_is(serve, tmp_path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "sessions.db").write_text("this is no database, and it is long enough to be looked at as one" * 100)
    site = serve(Gate(ScriptedModel(["ok"]), store=str(folder / "sessions.db")))
    answer = site.get("/health")
    assert (answer.status, answer.json["status"], answer.json["store"]["state"]) == (503, "down", "down")
    assert site.chat({"prompt": "a"}).error == (503, "store_unavailable")


def test_models_say_who_can_be_asked(serve) -> None:
    site = serve(Gate(ScriptedModel(["ok"])))
    shown = site.get("/api/v1/models").json
    gemini = next(item for item in shown["providers"] if item["name"] == "gemini")
    assert (gemini["available"], gemini["why"]) == (False, "GEMINI_API_KEY is not set")
    assert shown["default"] == {"provider": "callgate", "model": "scripted", "mode": "auto"}


def listed(site: Any) -> list[str]:
    return next(item for item in site.get("/api/v1/models").json["providers"] if item["name"] == "gemini")["models"]


def test_models_are_those_that_the_provider_lists_once_for_many_requests(serve) -> None:
    with FakeGemini.in_thread([], api_key="k", models=("gemini-2.5-pro", "gemini-3.8-flash")) as fake:
        env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url, "GEMINI_MODEL": "gemini-3.8-flash"}
        site = serve(Gate(ScriptedModel(["ok"])), providers=Providers(usual_providers(env)))
        assert [listed(site) for _ in range(3)] == [["gemini-3.8-flash", "gemini-2.5-pro"]] * 3
        assert [request.path for request in fake.requests] == ["/v1beta/models"]
        few = serve(Gate(ScriptedModel(["ok"])), providers=Providers(usual_providers(env)), models=("gemini:*flash",))
        assert listed(few) == ["gemini-3.8-flash"]


def test_a_provider_that_does_not_list_its_models_has_its_usual_one(serve) -> None:
    with FakeGemini.in_thread([], api_key="another") as fake:
        env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
        assert listed(serve(Gate(ScriptedModel(["ok"])), providers=Providers(usual_providers(env)))) == [MODEL_DEFAULT]


def test_metrics_count_what_happened(serve) -> None:
    site = serve(Gate(ScriptedModel([call("add", a=1, b=2), "Three."]), [add]))
    site.chat({"prompt": "Add."})
    site.get("/nowhere")
    answer = site.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    for line in (
        'callgate_runs_total{outcome="STOP"} 1',
        'callgate_calls_total{tool="add",state="finished"} 1',
        'callgate_http_requests_total{method="POST",route="/api/v1/chat",status="200"} 1',
        'callgate_http_requests_total{method="GET",route="other",status="404"} 1',
        "callgate_run_seconds_count 1",
        "callgate_runs_live 0",
    ):
        assert line in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


def test_metrics_tell_of_the_store_the_endpoints_and_the_workers(serve, tmp_path) -> None:
    pool = WorkerPool([Path(__file__).parent.parent / "workers" / "toolbox.py"], size=1, name="tools")
    site = serve(Gate(ScriptedModel(["ok", "ok"]), [pool], store=str(tmp_path / "s.db")))
    health_for(("https://key@models.example/v1 secret", "m"))
    site.chat({"prompt": "a"})
    lines = site.get("/metrics").body.decode().splitlines()
    shown = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    assert shown["callgate_store_seconds_count"] >= 3
    assert shown["callgate_kept_bytes"] > 0
    assert shown['callgate_workers{pool="tools",state="ready"}'] == 1
    expected = {
        "callgate_store_failures_total": 0, "callgate_store_retries_total": 0, "callgate_store_connections_cut_total": 0,
        "callgate_store_connections": 1, "callgate_store_connections_opened_total": 1, "callgate_store_waiting": 0,
        "callgate_leases_lost_total": 0, "callgate_leases_busy_total": 0, "callgate_sessions_swept_total": 0,
        'callgate_worker_deaths_total{pool="tools"}': 0,
    }  # fmt: skip
    assert {name: shown[name] for name in expected} == expected
    endpoints = [name for name in shown if name.startswith("callgate_endpoint_down") and "models.example" in name]
    assert len(endpoints) == 1
    assert "secret" not in "".join(lines)
    os.kill(pool.pids[0], signal.SIGKILL)
    site.until(lambda: pool.health["died"] == 1)
    assert 'callgate_worker_deaths_total{pool="tools"} 1' in site.get("/metrics").body.decode()
    pool.close()


def test_the_document_has_every_operation_and_the_page_needs_nothing_from_elsewhere(serve) -> None:
    site = serve(Gate(ScriptedModel([])))
    document = site.get("/openapi.json").json
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]["/api/v1/sessions/{id}"]) == {"get", "patch", "delete"}
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))
    page = site.get("/docs").body.decode()
    assert "/api/v1/approvals/{session}/{call_id}" in page
    assert "://" not in page
    assert "<script" not in page


def test_times_of_a_session_are_told_by_another_process_too(serve, tmp_path) -> None:
    place = str(tmp_path / "sessions.db")
    serve(Gate(ScriptedModel([call("add", a=1, b=2), "Three."]), [add], store=place)).chat(
        {"prompt": "Add.", "session": "s"}
    )
    later = serve(Gate(ScriptedModel(["Hi."]), [add], store=place))
    spans = later.get("/api/v1/sessions/s/trace").json["spans"]
    assert [(span["kind"], span["name"]) for span in spans] == [
        ("run", "Add."), ("model", "scripted"), ("call", "add"), ("model", "scripted"),
    ]  # fmt: skip


def test_the_events_of_a_deleted_session_are_gone_also_for_who_knows_its_run(serve) -> None:
    site = serve(Gate(ScriptedModel(["A secret.", "Hello."])))
    run = site.chat({"prompt": "x", "session": "s"}).headers["callgate-run"]
    with site.stream("GET", f"/api/v1/sessions/s/events?after={run}:0") as stream:
        assert stream.until("text_delta")["text"].startswith("A secret")
    assert site.request("DELETE", "/api/v1/sessions/s").status == 200
    assert site.service.kept_bytes == 0
    assert site.chat({"prompt": "x", "session": "s"}).json["response"] == "Hello."
    assert site.get(f"/api/v1/sessions/s/events?after={run}:0").error == (410, "run_gone")
