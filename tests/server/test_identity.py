"""Who may do what: named tokens, rights, owners and quotas, and every route tried with every wrong identity."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, GeminiModel, Policy, ScriptedModel, tool
from callgate.errors import UsageError
from callgate.server import Service, ServiceOptions
from callgate.server.access_file import AccessFile, new_token, token_hash
from callgate.server.app import create_app
from callgate.server.openapi import TableRoute
from callgate.testing import FakeGemini, answer, call

from .conftest import Site, serving

TOKENS = {
    name: f"cg_{name}-0123456789abcdef"
    for name in ("alice", "alice-phone", "bob", "bob-reader", "root", "expired", "metered")
}
FILE = """
[tokens.alice]
sha256 = "{alice}"
rights = ["chat"]

[tokens.alice-phone]
sha256 = "{alice-phone}"
rights = ["approve"]
owner = "alice"

[tokens.bob]
sha256 = "{bob}"
rights = ["chat", "approve"]
models = ["demo:*"]

[tokens.root]
sha256 = "{root}"
rights = ["admin"]

[tokens.expired]
sha256 = "{expired}"
rights = ["admin"]
expires = 2020-01-01

[tokens.metered]
sha256 = "{metered}"
rights = ["chat"]
tokens_per_day = 10
runs = 1
"""


@pytest.fixture
def access(tmp_path: Path) -> AccessFile:
    path = tmp_path / "access.toml"
    path.write_text(FILE.format(**{name: token_hash(token) for name, token in TOKENS.items()}))
    path.chmod(0o600)
    return AccessFile(path)


@pytest.fixture
def serve(access: AccessFile, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    @tool
    def pay(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    with contextlib.ExitStack() as stack:

        def start(*script: Any, **options: Any) -> Site:
            gate = Gate(
                ScriptedModel(script or [answer("Hello.")] * 1000),
                [pay],
                policy=Policy(default="ask"),
                audit=str(tmp_path / "audit.jsonl"),
                store=str(tmp_path / "sessions.db"),
            )
            service = Service(gate, options=ServiceOptions(identities=access, stop_s=2.0, **options))
            return stack.enter_context(serving(service))

        yield start


def by(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


# Every route ---------------------------------------------------------------------------------------------------------------

OPEN = {"/", "/docs", "/openapi.json", "/health", "/livez"}
EXAMPLES = {
    "/api/v1/chat": {"prompt": "x", "session": "alices"},
    "/api/v1/ui/chat": {"id": "x", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "x"}]}]},
    "/v1/chat/completions": {"model": "callgate", "messages": [{"role": "user", "content": "x"}]},
}


def operations(site: Site) -> list[tuple[str, str]]:
    """Every operation of the application: a route that is neither in a table nor named here fails the tests."""
    routes = create_app(site.service).routes
    found = [
        (operation.method, route.path) for route in routes if isinstance(route, TableRoute) for operation in route.operations
    ]
    assert {getattr(route, "path", route) for route in routes if not isinstance(route, TableRoute)} == {
        "/",
        "/static/{name}",
        "/mcp",
        # For clients that have no token yet: they name the service, and nothing that it has.
        "/mcp/server-card",
        "/.well-known/ai-catalog.json",
        "/.well-known/mcp/catalog.json",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
    }
    found += [(method, "/mcp") for method in ("POST", "GET", "DELETE")]
    return [(method, re.sub(r"{(model)(:path)?}", "callgate", path)) for method, path in found]


def test_no_route_but_the_public_ones_answers_strangers_and_expired_tokens(serve) -> None:
    site = serve()
    tried = 0
    for method, path in operations(site):
        path = path.replace("{id}", "alices").replace("{session}", "alices").replace("{call_id}", "c")
        if path in OPEN or path.startswith("/static"):
            continue
        body = EXAMPLES.get(path, {}) if method in ("POST", "PATCH") else None
        for wrong in (
            {},
            by("expired"),
            {"Authorization": "Bearer cg_none-0123456789abcdef"},
            {"Authorization": "Basic YTpi"},
        ):
            given = site.request(method, path, body, **wrong)
            assert given.status == 401, (method, path, wrong, given.body)
            tried += 1
    assert tried > 80


@pytest.mark.parametrize("place", ["/v1/responses", "/v1beta/interactions"])
def test_an_answer_is_found_by_its_id_by_its_owner_alone(serve, place: str) -> None:
    site = serve("Hello.", "Again.", "No.")
    made = site.post(place, {"model": "callgate", "input": "Hi."}, **by("alice")).json
    at = f"{place}/{made['id']}"
    assert site.get(at, **by("alice")).json["status"] == "completed"
    for method, path in (("GET", at), ("POST", f"{at}/cancel"), ("DELETE", at)):
        assert site.request(method, path, **by("bob")).status == 404, (method, path)
    name = "previous_response_id" if "responses" in place else "previous_interaction_id"
    goes_on = {"model": "callgate", "input": "And?", name: made["id"]}
    assert site.post(place, goes_on | {"model": "demo:small"}, **by("bob")).status == 404
    assert site.post(place, goes_on, **by("alice")).status == 200
    assert site.request("DELETE", at, **by("alice")).status == 200


def test_an_answer_to_the_clients_own_tools_belongs_to_the_client(serve) -> None:
    site = serve("Hello.", "Again.")
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    made = site.post("/v1/responses", {"model": "callgate", "input": "Hi.", "tools": tools}, **by("alice")).json
    at = f"/v1/responses/{made['id']}"
    assert [site.get(at, **by(name)).status for name in ("alice", "bob", "root")] == [200, 404, 200]


def test_sessions_of_others_do_not_exist_for_any_route(serve) -> None:
    site = serve(call("pay", amount=5), "Over.", *[answer("Hello.")] * 100)
    (waiting,) = site.chat({"prompt": "Pay.", "session": "alices"}, **by("alice")).json["approvals"]
    tried = 0
    for method, path in operations(site):
        if "{id}" not in path and "{session}" not in path:
            continue
        path = path.replace("{id}", "alices").replace("{session}", "alices").replace("{call_id}", waiting["call_id"])
        body = {"PATCH": {"title": "mine"}, "POST": {"answer": "yes"} if "approvals" in path else {}}.get(method)
        given = site.request(method, path, body, **by("bob"))
        assert given.error == (404, "no_such_session"), (method, path, given.body)
        tried += 1
    assert tried >= 9
    # Routes that name a session elsewhere than in the path.
    session = {"Callgate-Session": "alices"}
    completion = EXAMPLES["/v1/chat/completions"]
    for path, body, more in (
        ("/api/v1/chat", {"prompt": "x", "session": "alices"}, {}),
        ("/api/v1/chat", {"session": "alices"}, {}),
        ("/api/v1/chat", {"session": "alices", "answers": {waiting["call_id"]: "yes"}}, {}),
        ("/api/v1/chat", {"prompt": "x", "session": "alices"}, {"Idempotency-Key": "k"}),
        ("/v1/chat/completions", completion, session),
        ("/v1beta/models/callgate:generateContent", {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}, session),
    ):
        given = site.post(path, body, **by("bob"), **more)
        assert given.status == 404, (path, given.status, given.body)
    assert site.get("/api/v1/sessions", **by("bob")).json["sessions"] == []
    assert site.get("/api/v1/approvals", **by("bob")).json["approvals"] == []
    # Nothing of it has touched the session: its owner still finds it as it was.
    assert [one["id"] for one in site.get("/api/v1/sessions", **by("alice")).json["sessions"]] == ["alices"]
    assert len(site.get("/api/v1/approvals", **by("alice")).json["approvals"]) == 1
    assert site.get("/api/v1/sessions/alices", **by("alice")).json["state"] == "waiting"


def test_uploads_of_others_do_not_exist(access: AccessFile, tmp_path: Path) -> None:
    with FakeGemini.in_thread(["Seen."]) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        gate = Gate(model, store=str(tmp_path / "sessions.db"))
        with serving(Service(gate, options=ServiceOptions(identities=access, stop_s=2.0))) as site:
            made = site.post("/api/v1/files", {"name": "a.png", "size": 9}, **by("alice")).json["id"]
            for method, body in (("GET", None), ("POST", {"offset": 0, "data": "AAAA"}), ("DELETE", None)):
                other = site.request(method, f"/api/v1/files/{made}", body, **by("bob"))
                assert other.error == (404, "no_such_upload")
            assert site.get(f"/api/v1/files/{made}", **by("alice")).json["received"] == 0


def test_front_ends_of_others_do_not_reach_a_chat(serve) -> None:
    site = serve()
    body = EXAMPLES["/api/v1/ui/chat"]
    assert site.post("/api/v1/ui/chat", body, **by("alice")).status == 200
    assert site.post("/api/v1/ui/chat", body, **by("bob")).status == 404


def test_keys_and_streams_belong_to_their_owner(serve) -> None:
    site = serve()
    first = site.chat({"prompt": "x"}, **by("alice"), Idempotency_Key="k")
    again = site.chat({"prompt": "x"}, **by("alice"), Idempotency_Key="k")
    other = site.chat({"prompt": "x"}, **by("bob"), Idempotency_Key="k")
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json["session"] == first.json["session"] != other.json["session"]
    assert "idempotent-replayed" not in other.headers
    run = first.headers["callgate-run"]
    path = f"/api/v1/sessions/{first.json['session']}/events?after={run}:0"
    assert site.get(path, **by("bob")).error == (404, "no_such_session")
    assert site.get(path.replace(first.json["session"], other.json["session"]), **by("bob")).error[0] == 410
    assert site.get(path, **by("alice")).status == 200


# Rights --------------------------------------------------------------------------------------------------------------------


def test_who_may_chat_may_not_approve_and_the_other_way_round(serve, tmp_path) -> None:
    site = serve(call("pay", amount=5), "Over.")
    (waiting,) = site.chat({"prompt": "Pay.", "session": "s"}, **by("alice")).json["approvals"]
    path = f"/api/v1/approvals/s/{waiting['call_id']}"
    assert site.post(path, {"answer": "yes"}, **by("alice")).error == (403, "forbidden")
    answers = {"session": "s", "answers": {waiting["call_id"]: "yes"}}
    assert site.chat(answers, **by("alice")).error == (403, "forbidden")
    assert site.post("/mcp", {}, **by("alice")).error == (403, "forbidden")
    assert site.chat({"prompt": "x"}, **by("alice-phone")).error == (403, "forbidden")
    assert len(site.get("/api/v1/approvals", **by("alice-phone")).json["approvals"]) == 1
    assert site.post(path, {"answer": "yes"}, **by("alice-phone")).status == 200
    site.until(lambda: not site.service.live)
    records = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    decisions = [found for record in records if (found := _find(record, "decision"))]
    assert {(one["verdict"], one["by"], one["approver"]) for one in decisions} == {("allow", "user", "alice-phone")}


def test_who_may_not_approve_may_not_ask_for_less_approval(serve) -> None:
    site = serve(call("pay", amount=5), "Over.", "Planned.")
    assert site.chat({"prompt": "Pay.", "approval_mode": "yolo"}, **by("alice")).error == (403, "forbidden")
    paid = site.chat({"prompt": "Pay.", "approval_mode": "yolo"}, **by("bob")).json
    assert [result["content"] for result in paid["tool_results"]] == ["paid 5"]
    assert site.chat({"prompt": "Plan.", "approval_mode": "plan"}, **by("alice")).json["response"] == "Planned."


def _find(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value[key] if key in value else next((found for one in value.values() if (found := _find(one, key))), None)
    return None


def test_operators_alone_see_metrics_health_and_the_sessions_of_all(serve) -> None:
    site = serve()
    site.chat({"prompt": "x", "session": "s"}, **by("alice"))
    for path in ("/metrics", "/api/v1/health"):
        assert site.get(path, **by("bob")).error == (403, "forbidden")
        assert site.get(path, **by("root")).status == 200
    assert site.get("/health", **by("bob")).json == {"status": "healthy"}
    assert [one["id"] for one in site.get("/api/v1/sessions", **by("root")).json["sessions"]] == ["s"]
    assert site.get("/api/v1/sessions/s", **by("root")).status == 200


def test_a_fork_belongs_to_the_owner_of_its_origin(serve) -> None:
    site = serve()
    site.chat({"prompt": "x", "session": "s"}, **by("alice"))
    fork = site.post("/api/v1/sessions/s/fork", {}, **by("root")).json["session"]
    assert site.get(f"/api/v1/sessions/{fork}", **by("alice")).status == 200
    assert site.get(f"/api/v1/sessions/{fork}", **by("bob")).status == 404


# Limits --------------------------------------------------------------------------------------------------------------------


def test_tokens_of_the_day_run_out(serve) -> None:
    counted = answer("Hello.", usage={"promptTokenCount": 8, "candidatesTokenCount": 4, "totalTokenCount": 12})
    site = serve(counted, counted)
    assert site.chat({"prompt": "x"}, **by("metered")).status == 200
    site.until(lambda: not site.service.admissions.writing)
    used = site.chat({"prompt": "x"}, **by("metered"))
    assert used.error == (429, "quota_exceeded")
    assert int(used.headers["retry-after"]) > 0


def test_requests_per_minute_run_out(serve, access) -> None:
    limited = FILE.format(**{name: token_hash(token) for name, token in TOKENS.items()})
    limited = limited.replace('owner = "alice"', 'owner = "alice"\nrequests_per_minute = 3')
    Path(access.path).write_text(limited)
    _reread(access)
    site = serve()
    statuses = [site.get("/api/v1/approvals", **by("alice-phone")).status for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    assert site.get("/api/v1/approvals", **by("alice")).status == 200


def test_models_are_limited_by_name_for_the_service_and_for_a_token(serve) -> None:
    site = serve(models=("demo:*", "openai:small"))
    assert site.chat({"prompt": "x", "provider": "gemini", "model": "m"}, **by("alice")).status == 422
    for named in ({"model": "google:m"}, {"provider": "google", "model": "m"}):  # another name of the same
        assert "the model 'gemini:m' may not be used" in site.chat({"prompt": "x", **named}, **by("alice")).json["message"]
    assert site.chat({"prompt": "x", "model": "openai:large"}, **by("alice")).status == 422
    assert "may not be used" in site.chat({"prompt": "x", "model": "openai:large"}, **by("alice")).json["message"]
    assert "may not" not in site.chat({"prompt": "x", "model": "openai:small"}, **by("alice")).json.get("message", "")
    assert "may not" in site.chat({"prompt": "x", "model": "openai:small"}, **by("bob")).json["message"]
    assert site.get("/v1/models/openai:large", **by("alice")).status == 404
    assert site.chat({"prompt": "x"}, **by("bob")).status == 200  # The usual one is always there.


def test_endpoints_can_be_left_out(serve) -> None:
    site = serve(endpoints=())
    for path in ("/v1/chat/completions", "/v1beta/models/callgate:generateContent", "/api/v1/ui/chat", "/mcp", "/"):
        assert site.post(path, {}, **by("root")).status == 404, path
    assert site.get("/v1/models", **by("root")).status == 404
    assert site.chat({"prompt": "x"}, **by("alice")).status == 200
    with pytest.raises(UsageError, match="no endpoints 'soap'"):
        ServiceOptions(endpoints=("soap",))


# The file ------------------------------------------------------------------------------------------------------------------


def _reread(access: AccessFile) -> None:
    access._looked_s = 0.0
    access._seen = None


def test_tokens_change_without_a_restart(serve, access) -> None:
    site = serve()
    assert site.get("/api/v1/tools", **by("bob")).status == 200
    text = Path(access.path).read_text()
    changed = text.replace("[tokens.bob]", "[tokens.robert]").replace(token_hash(TOKENS["bob"]), token_hash("cg_new" * 4))
    Path(access.path).write_text(changed)
    deadline = time.monotonic() + 60
    while site.get("/api/v1/tools", **by("bob")).status != 401:
        assert time.monotonic() < deadline
    assert site.get("/api/v1/tools", Authorization=f"Bearer {'cg_new' * 4}").status == 200


def _trouble(site: Site) -> str | None:
    """What `/api/v1/health` says of the access file, after a look at the rest of what it and the metrics say."""
    health = site.get("/api/v1/health", **by("root")).json
    said = health["access"]["error"]
    assert health["access"]["state"] == ("ok" if said is None else "failing")
    site.service.probe = None  # What strangers are shown is computed now and then.
    assert {health["status"], site.get("/health").json["status"]} == {"healthy" if said is None else "degraded"}
    assert f"callgate_access_file_invalid {int(said is not None)}\n" in site.get("/metrics", **by("root")).body.decode()
    return said


def test_a_broken_file_is_reported_and_changes_nothing_and_a_missing_one_lets_nobody_in(serve, access, caplog) -> None:
    site = serve()
    assert _trouble(site) is None
    before = Path(access.path).read_text()
    Path(access.path).write_text("[tokens.")
    _reread(access)
    assert site.get("/api/v1/tools", **by("bob")).status == 200
    told = _trouble(site)
    assert told is not None
    assert told.startswith("the access file was not read again, and what it said before still holds, revoked tokens too")
    _reread(access)
    assert _trouble(site) == told
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [told]
    Path(access.path).write_text(before)
    _reread(access)
    assert _trouble(site) is None
    Path(access.path).unlink()
    access._looked_s = 0.0
    assert site.get("/api/v1/tools", **by("bob")).status == 401


def test_an_invalid_entry_revokes_itself_and_keeps_no_revoked_token_alive(serve, access, caplog) -> None:
    site = serve()
    assert [site.get("/api/v1/approvals", **by(name)).status for name in ("alice", "bob", "root")] == [200, 200, 200]
    text = Path(access.path).read_text()
    bob = text[text.index("[tokens.bob]") : text.index("[tokens.root]")]
    Path(access.path).write_text(text.replace(bob, "").replace('rights = ["chat"]', 'rights = ["fly"]', 1))
    _reread(access)
    assert [site.get("/api/v1/approvals", **by(name)).status for name in ("alice", "bob", "root")] == [401, 401, 200]
    told = _trouble(site)
    assert told is not None
    assert "without its invalid entries, which are refused" in told
    assert "[tokens.alice]: rights must be a list" in told
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [told]


def test_a_file_that_others_could_change_is_read_again_as_soon_as_they_cannot(serve, access) -> None:
    site = serve()
    path = Path(access.path)
    text = path.read_text()
    path.chmod(0o664)
    path.write_text(text.replace(token_hash(TOKENS["bob"]), "0" * 64))
    access._looked_s = 0.0
    assert site.get("/api/v1/tools", **by("bob")).status == 200
    assert "can be changed by others" in str(_trouble(site))
    path.chmod(0o600)  # Neither its content nor the time of it changes.
    access._looked_s = 0.0
    assert site.get("/api/v1/tools", **by("bob")).status == 401
    assert _trouble(site) is None


def test_a_file_that_others_may_change_from_now_on_is_reported(serve, access) -> None:
    site = serve()
    Path(access.path).chmod(0o666)
    access._looked_s = 0.0
    assert "can be changed by others" in str(_trouble(site))


@pytest.mark.parametrize("kind", ["folder", "loop", "gone"])
def test_a_file_that_cannot_be_opened_lets_nobody_in_until_it_can(access, kind) -> None:
    path = Path(access.path)
    path.rename(moved := path.with_name("moved"))
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    access._looked_s = 0.0
    assert asyncio.run(access.principal(TOKENS["root"])) is None
    assert "every request is refused" in str(access.trouble)
    if kind != "gone":
        path.rename(path.with_name("away"))
    moved.rename(path)
    access._looked_s = 0.0
    assert asyncio.run(access.principal(TOKENS["root"])) is not None
    assert access.trouble is None


def test_without_free_descriptors_what_the_file_said_holds_and_it_is_read_as_soon_as_there_are(access, monkeypatch) -> None:
    path = Path(access.path)
    path.write_text(path.read_text().replace(token_hash(TOKENS["bob"]), "0" * 64))
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", _no_descriptors)
        access._looked_s = 0.0
        assert asyncio.run(access.principal(TOKENS["bob"])) is not None
    access._looked_s = 0.0
    assert asyncio.run(access.principal(TOKENS["bob"])) is None


def _no_descriptors(*args: object, **kwargs: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_token_that_two_entries_claim_is_refused(access) -> None:
    text = Path(access.path).read_text()
    Path(access.path).write_text(text.replace(token_hash(TOKENS["bob"]), token_hash(TOKENS["root"])))
    _reread(access)
    assert asyncio.run(access.principal(TOKENS["root"])) is None
    assert asyncio.run(access.principal(TOKENS["alice"])) is not None
    assert "have the same token" in str(access.trouble)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tokens.a]\nsha256 = 'short'", "64 hexadecimal digits"),
        ("[tokens.a]\nrights = ['chat']", "64 hexadecimal digits"),
        ("[tokens.a]\nsha256 = 'HASH'\nrights = ['fly']", "rights must be a list"),
        ("[tokens.a]\nsha256 = 'HASH'\nrights = []", "rights must be a list"),
        ("[tokens.a]\nsha256 = 'HASH'\nright = ['chat']", "no key 'right'"),
        ("[tokens.a]\nsha256 = 'HASH'\nruns = -1", "runs must be a number"),
        ("[tokens.a]\nsha256 = 'HASH'\nruns = true", "runs must be a number"),
        ("[tokens.a]\nsha256 = 'HASH'\nmodels = 'x'", "models must be a list"),
        ("[tokens.a]\nsha256 = 'HASH'\nexpires = 'soon'", "expires must be a date"),
        ("[tokens.'a b']\nsha256 = 'HASH'", "a name has letters"),
        ("[tokens.a]\nsha256 = 'HASH'\n[tokens.b]\nsha256 = 'HASH'", "have the same token"),
        ("[token.a]\nsha256 = 'HASH'", "no table 'token'"),
        ("[oidc]\nissuer = 'http://login.example'\naudience = 'a'", "https address"),
        ("[oidc]\nissuer = 'https://login.example'", "audience must be a text"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, text, said) -> None:
    path = tmp_path / "access.toml"
    path.write_text(text.replace("HASH", "0" * 64))
    path.chmod(0o600)
    with pytest.raises(UsageError, match=re.escape(said)):
        AccessFile(path)


def test_a_file_that_others_can_change_is_refused(tmp_path) -> None:
    path = tmp_path / "access.toml"
    path.write_text("")
    path.chmod(0o666)
    with pytest.raises(UsageError, match="can be changed by others"):
        AccessFile(path)
    assert os.stat(path).st_mode & 0o022


def test_new_tokens_are_long_and_kept_as_hashes() -> None:
    (token, digest), (other, _) = new_token(), new_token()
    assert token != other
    assert len(token) >= 32
    assert digest == token_hash(token)
    assert token not in digest
