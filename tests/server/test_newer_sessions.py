"""A session in which a newer version has written: refused in a sentence, listed, left as it is, and the others go on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel
from callgate.testing import call

from .conftest import Site, add

NEWER = {
    "of a kind": b'{"v":1,"kind":"weather_changed","to":"rain"}',
    "of a version": b'{"v":2,"kind":"renamed","title":"x"}',
}
SENTENCES = {
    "of a kind": "cannot be read: the journal has a fact of the kind 'weather_changed', which this callgate does not know: "
    "a newer version wrote it, and can continue the session",
    "of a version": "cannot be read: the journal has schema version 2; this callgate reads version 1: a newer version wrote "
    "it, and can continue the session",
}
ROWS = ("SELECT id, title, facts, owner FROM callgate_sessions", "SELECT session, position, body FROM callgate_facts")
REFUSED: list[tuple[str, str, Any, dict[str, str]]] = [
    ("GET", "/api/v1/sessions/new", None, {}),
    ("GET", "/api/v1/sessions/new/trace", None, {}),
    ("POST", "/api/v1/chat", {"prompt": "go on", "session": "new"}, {}),
    ("POST", "/api/v1/chat", {"prompt": "go on", "session": "new"}, {"Accept": "text/event-stream"}),
    ("POST", "/api/v1/chat", {"prompt": "go on", "session": "new"}, {"Idempotency-Key": '"another"'}),
    ("POST", "/api/v1/chat", {"session": "new"}, {}),
    ("POST", "/api/v1/approvals/new/call", {"answer": "yes"}, {}),
    ("POST", "/api/v1/sessions/new/fork", {}, {}),
    ("POST", "/api/v1/sessions/new/undo", {}, {}),
    ("POST", "/api/v1/sessions/new/cancel", None, {}),
    ("PATCH", "/api/v1/sessions/new", {"title": "renamed"}, {}),
]


def written_by_a_newer_version(place: Path, session: str, fact: bytes) -> None:
    with closing(sqlite3.connect(place)) as connection:
        [(count,)] = connection.execute("SELECT facts FROM callgate_sessions WHERE id = ?", (session,)).fetchall()
        connection.execute("INSERT INTO callgate_facts VALUES (?, ?, ?)", (session, count, fact))
        connection.execute("UPDATE callgate_sessions SET facts = ? WHERE id = ?", (count + 1, session))
        connection.commit()


def rows(place: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(place)) as connection:
        return [row for sql in ROWS for row in sorted(connection.execute(sql).fetchall(), key=str)]


@pytest.fixture(params=NEWER)
def newer(request: pytest.FixtureRequest, serve: Any, tmp_path: Path) -> tuple[Site, Path, str]:
    """A service with three sessions: one that waits for an answer, one that is idle, and one of a newer version."""
    place = tmp_path / "s.db"
    script = [call("add", a=1, b=2), "one", "two", "three"]
    site = serve(Gate(ScriptedModel(script, repeat_last=True), [add], store=place, policy=Policy(default="ask")))
    for session in ("waiting", "old", "new"):
        site.chat({"prompt": f"Hello, {session}.", "session": session})
    written_by_a_newer_version(place, "new", NEWER[request.param])
    return site, place, SENTENCES[request.param]


def test_every_request_for_it_is_refused_in_a_sentence_and_changes_nothing(newer: tuple[Site, Path, str]) -> None:
    site, place, sentence = newer
    before = rows(place)
    for method, path, body, headers in REFUSED:
        answer = site.request(method, path, body, **headers)
        assert answer.error == (503, "session_newer"), (method, path, body, answer)
        assert answer.headers["retry-after"] == "1"
        assert answer.json["message"].startswith("session 'new' cannot be read: ")
        assert sentence in answer.json["message"]
        assert str(place) not in answer.json["message"], "where the store is concerns nobody outside"
    assert rows(place) == before


def test_lists_and_health_go_on_and_so_do_the_other_sessions(newer: tuple[Site, Path, str]) -> None:
    site, _, _ = newer
    listed = {row["id"]: (row["state"], row["title"]) for row in site.get("/api/v1/sessions").json["sessions"]}
    assert listed == {
        "new": ("interrupted", "Hello, new."), "old": ("idle", "Hello, old."), "waiting": ("waiting", "Hello, waiting."),
    }  # fmt: skip
    assert [row["id"] for row in site.get("/api/v1/sessions?query=NEW").json["sessions"]] == ["new"]
    [waiting] = site.get("/api/v1/approvals").json["approvals"]
    assert waiting["session"] == "waiting"
    assert site.get("/health").json["store"]["state"] == "ok"
    assert site.chat({"prompt": "More.", "session": "old"}).json["response"] == "three"
    answered = site.post(f"/api/v1/approvals/waiting/{waiting['call_id']}", {"answer": "yes"})
    assert (answered.status, answered.json["answer"]) == (200, "yes"), answered


def test_a_newer_process_goes_on_with_it_and_it_can_be_deleted(newer: tuple[Site, Path, str]) -> None:
    site, place, _ = newer
    site.chat({"prompt": "go on", "session": "new"})
    with closing(sqlite3.connect(place)) as connection:  # Nobody holds it: a newer process can take it at once.
        assert connection.execute("SELECT owner FROM callgate_sessions WHERE id = 'new'").fetchall() == [(None,)]
    assert site.request("DELETE", "/api/v1/sessions/new").status == 200
    assert site.get("/api/v1/sessions/new").error == (404, "no_such_session")
