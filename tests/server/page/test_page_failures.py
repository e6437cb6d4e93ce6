"""The page when a run fails, when others write to the same conversation, and when answers are wide or joined."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
expect.set_options(timeout=180_000)

pytestmark = pytest.mark.slow


def test_a_refused_key_is_shown_at_once_kept_and_undone_alone(person: Any, served: Any) -> None:
    notes = served.root / "notes.md"
    before = notes.read_text("utf-8")
    person.say("write that down")
    person.decide("yes")
    person.rest()
    written = notes.read_text("utf-8")
    requests: list[str] = []
    person.page.on("request", lambda request: requests.append(f"{request.method} {request.url.rpartition('/')[2]}"))
    person.ask("fail please")
    assert requests.count("POST chat") == 1
    for _ in range(2):
        failed = person.page.locator(".turn").last
        expect(failed.locator(".said")).to_have_text("fail please")
        expect(failed.locator(".notice")).to_have_count(2)
        expect(failed).to_contain_text("The key was refused")
        expect(failed).to_contain_text("GEMINI_API_KEY")
        expect(failed.locator("[data-do=retry]")).to_have_count(1)
        expect(person.page.locator("#banner")).to_be_hidden()
        person.page.reload()
        person.page.wait_for_selector("html[data-ready]")
    person.page.locator(".turn").last.locator("[data-do=undo]").click()
    person.page.click("#confirm >> text=Undo >> nth=-1")
    expect(person.page.locator(".said")).to_have_text(["write that down"])
    assert notes.read_text("utf-8") == written
    notes.write_text(before, "utf-8")


def test_a_failed_message_is_sent_again_in_its_place(person: Any, served: Any) -> None:
    person.ask("hello there")
    person.ask("fail again")
    (served.folder / "signals" / "well").touch()
    try:
        person.page.click("[data-do=retry]")
        expect(person.page.locator(".answer").last).to_have_text("You said: fail again")
        person.rest()
        expect(person.page.locator(".said")).to_have_text(["hello there", "fail again"])
        person.page.reload()
        expect(person.page.locator(".said")).to_have_text(["hello there", "fail again"])
    finally:
        (served.folder / "signals" / "well").unlink()


def test_a_second_tab_follows_what_is_said_and_answered_in_the_first(person: Any, visitor: Callable[..., Any]) -> None:
    person.ask("hello from one")
    other = visitor()
    other.open(person.session)
    expect(other.page.locator(".said")).to_have_text(["hello from one"])
    person.say("again, a file")
    expect(other.page.locator(".said")).to_have_text(["hello from one", "again, a file"])
    other.page.locator("[data-answer=no]").wait_for()
    person.decide("no")
    person.rest()
    expect(other.page.locator("[data-answer=no]")).to_have_count(0)
    expect(other.page.locator(".answer").last).to_have_text("The plan is there.")
    assert other.cards == person.cards == [("write_file", "Denied")]


def test_the_scope_of_always_stands_on_its_button_and_the_diff_stays_on_the_card(person: Any, served: Any) -> None:
    notes = served.root / "notes.md"
    before = notes.read_text("utf-8")
    person.say("write that down")
    always = person.page.locator("[data-answer=always]")
    expect(always).to_contain_text("Always in this session for any file directly in the top folder")
    expect(always.locator("kbd")).to_have_text("a")
    person.decide("yes")
    person.rest()
    person.page.locator(".call .head").click()
    expect(person.page.locator(".call .body .diff")).to_be_visible()
    notes.write_text(before, "utf-8")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_words_of_a_wide_table_stay_whole_and_the_page_does_not_scroll(visitor: Callable[..., Any], width: int) -> None:
    person = visitor(width=width)
    person.open()
    person.ask("table please")
    lines = person.page.locator(".answer td").first.evaluate("cell => cell.getClientRects().length && cell.scrollHeight")
    assert lines < 40
    assert person.page.locator(".answer .table").evaluate("box => box.scrollWidth > box.clientWidth") or width > 2000
    assert person.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_joiners_are_kept_where_a_script_needs_them_and_spelled_out_where_they_hide(person: Any) -> None:
    person.ask("joiners please")
    shown = person.page.locator(".answer").last.inner_text()
    assert shown == "\U0001f469\u200d\U0001f33e \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 pay<U+200C>me"


def test_the_timeline_of_an_exchange_is_its_own_after_an_undo(person: Any) -> None:
    for prompt in ("hello one", "hello two"):
        person.ask(prompt)
    spent = person.page.locator("#spent")
    expect(spent).to_contain_text("2,038 tokens")
    person.page.locator(".turn").last.locator("[data-do=undo]").click()
    person.page.click("#confirm >> text=Undo >> nth=-1")
    expect(person.page.locator(".said")).to_have_text(["hello one"])
    expect(spent).to_contain_text("1,019 tokens")
    first = person.page.evaluate(
        """async () => {
        const { api } = await import("/static/api.js");
        const id = decodeURIComponent(location.hash.slice(1));
        const [session, { spans }] = [await api.session(id), await api.trace(id)];
        const runs = spans.filter((span) => span.kind === "run");
        return [session.exchanges.map((each) => each.runs), runs.map((span) => span.name)];
    }"""
    )
    assert first == [[["run-1"]], ["hello one", "hello two"]]


def test_calls_that_ended_badly_are_told_apart_in_the_timeline_and_many_good_ones_fold(person: Any, served: Any) -> None:
    def shown() -> tuple[list[str], int, list[str]]:
        person.page.wait_for_selector(".timeline .label.bad")
        labels = person.page.locator(".timeline .label.bad").all_text_contents()
        names = person.page.locator(".timeline .label title").all_text_contents()
        return sorted(labels), person.page.locator(".timeline .bar.running.bad").count(), names

    person.say("mixed")
    person.decide("no")
    person.rest()
    labels, bars, names = shown()
    assert labels == ["✗ denied", "✗ failed"]
    assert bars == 1
    assert {f"echo the same beginning of each call, {number}" for number in range(8)} < set(names)
    fold = person.page.locator("details.calls")
    assert fold.locator("summary").inner_text().split("\n") == ["8 calls done", "echo × 8"]
    assert not fold.locator(".call").first.is_visible()
    assert person.page.locator(".call[data-state=failed]").is_visible()
    person.page.reload()
    person.page.wait_for_selector("details.calls")
    assert shown()[:2] == (labels, bars)
    person.page.locator(".turn").focus()
    person.page.keyboard.press("o")
    assert fold.locator(".call").first.is_visible()


def test_what_holds_words_of_a_script_from_right_to_left_stands_on_the_right(person: Any) -> None:
    person.ask("persian")
    sides = "nodes => nodes.map(node => getComputedStyle(node).direction)"
    assert person.page.locator(".answer :is(.table, ul, blockquote)").evaluate_all(sides) == ["rtl"] * 3
    assert person.page.locator(".answer td").last.inner_text() == "a\nb ©"


def test_changed_arguments_outlive_a_change_elsewhere_and_a_deleted_conversation_is_said_to_be_gone(
    person: Any, served: Any
) -> None:
    def request(method: str, **more: Any) -> None:
        headers = {"content-type": "application/json"}
        how = {"method": method, "headers": headers, "body": json.dumps(more) if more else None}
        person.page.evaluate("([id, how]) => fetch(`/api/v1/sessions/${id}`, how)", [person.session, how])

    person.say("write")
    person.page.wait_for_selector("[data-answer=yes]")
    served.kill()
    served.start()  # from here on the page reads the session, and draws it anew whenever somebody writes to it
    person.page.wait_for_selector("#stop", state="hidden")
    person.page.locator("[data-key=e]").click()
    person.page.locator(".editor textarea").last.fill("my own words")
    request("PATCH", title="Renamed elsewhere")
    expect(person.page.locator("#title")).to_have_text("Renamed elsewhere")
    assert person.page.locator(".editor textarea").last.input_value() == "my own words"
    assert person.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    person.page.fill("#prompt", "a draft")
    request("DELETE")
    person.page.get_by_text("That conversation was deleted.").wait_for()
    assert (person.session, person.page.input_value("#prompt")) == ("", "a draft")


def test_a_conversation_that_a_newer_version_has_written_to_is_named_so_and_the_others_go_on(
    person: Any, served: Any, visitor: Callable[..., Any]
) -> None:
    person.ask("hello there")
    session = person.session
    with closing(sqlite3.connect(served.folder / "sessions.db")) as connection:
        [(count,)] = connection.execute("SELECT facts FROM callgate_sessions WHERE id = ?", (session,)).fetchall()
        fact = b'{"v":1,"kind":"weather_changed","to":"rain"}'
        connection.execute("INSERT INTO callgate_facts VALUES (?, ?, ?)", (session, count, fact))
        connection.execute("UPDATE callgate_sessions SET facts = ? WHERE id = ?", (count + 1, session))
        connection.commit()
    other = visitor()
    other.open(session)
    expect(other.page.locator("body")).to_contain_text("a newer version wrote it, and can continue the session")
    expect(other.page.locator("body")).not_to_contain_text("sessions.db")
    expect(other.page.locator(f"a[data-id='{session}']")).to_contain_text("hello there")
    other.open()
    other.ask("hello from a new one")
    expect(other.page.locator(".said")).to_have_text(["hello from a new one"])


def test_a_message_sent_beside_one_of_another_tab_leaves_no_hole(person: Any, visitor: Callable[..., Any]) -> None:
    person.ask("first")
    other = visitor()
    other.open(person.session)
    expect(other.page.locator(".turn")).to_have_count(1)

    def unchanged(route: Any) -> None:
        """The other tab does not look again before it sends."""
        route.fulfill(status=304) if "if-none-match" in route.request.headers else route.continue_()

    other.page.route("**/api/v1/sessions/*", unchanged)
    person.ask("second")
    other.ask("third")
    headings = ["You asked: first", "You asked: second", "You asked: third"]
    expect(other.page.locator(".turn h2")).to_have_text(headings)
    expect(person.page.locator(".turn h2")).to_have_text(headings)


def test_an_answer_that_breaks_off_in_its_body_is_a_service_that_is_away(person: Any) -> None:
    told = person.page.evaluate(
        """async () => {
        const { Unreachable, api, forgetEarly } = await import("/static/api.js");
        const [real, errors] = [window.fetch, []];
        forgetEarly();
        window.fetch = async () => new Response(new ReadableStream({ start: (body) => body.error(new TypeError("cut")) }));
        for (const ask of [api.models, () => api.session("some")]) {
            await ask().catch((error) => errors.push([error instanceof Unreachable, error.message]));
        }
        window.fetch = real;
        return errors;
    }"""
    )
    assert told == [[True, "The service cannot be reached."]] * 2


def test_a_call_whose_service_was_killed_is_interrupted_and_not_running(person: Any, served: Any) -> None:
    served.hold("count")
    person.say("count the lines")
    expect(person.page.locator(".call .statebox")).to_have_text("Running")
    served.kill()
    served.start()
    for _ in range(2):
        expect(person.page.locator("#banner")).to_contain_text("was interrupted")
        expect(person.page.locator(".call .statebox")).to_have_text("Interrupted")
        person.page.reload()
    served.let("count")
    person.page.click("#banner >> text=Continue")
    expect(person.page.locator(".call .statebox")).to_have_text("Done")
    person.rest()


def test_edited_arguments_outlive_the_service_and_an_answer_elsewhere_is_said(
    visitor: Callable[..., Any], served: Any
) -> None:
    person, other = visitor(), visitor()
    person.open()
    person.say("write that down")
    person.page.locator(".ask [data-key=e]").click()
    person.page.get_by_label("content", exact=True).fill("mine")
    served.kill()
    served.start()
    person.page.wait_for_selector(".turn:not(.live) .ask")
    expect(person.page.get_by_label("content", exact=True)).to_have_value("mine")
    other.open(person.session)
    other.decide("no")
    expect(person.page.locator("#main")).to_contain_text("The call was answered elsewhere")
