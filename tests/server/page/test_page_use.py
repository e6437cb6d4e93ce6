"""The page as people use it: they ask, watch, decide, stop, come back, take back; with a mouse, with keys, on a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PATIENCE_MS = 180_000
NOTES = "# Notes\n\n- buy bread\n- call Ada\n"
SIDE_BY_SIDE = re.compile("up to [34] calls ran at the same time")
NEW_NOTES = "# Notes\n\n- buy bread and butter\n- call Ada\n- book the train to Graz\n"


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as playwright_expect

    playwright_expect.set_options(timeout=PATIENCE_MS)
    return playwright_expect(locator)


def test_an_answer_shows_while_it_arrives_and_is_stopped_by_the_button(person: Any, served: Any) -> None:
    served.hold("slow")
    person.say("slow answer, please")
    answer = person.page.locator(".answer")
    expect(answer).to_contain_text("One two three")
    assert "ten. One two three four five six seven eight nine ten." not in answer.inner_text()
    expect(person.page.locator(".turn.live .busy")).to_be_visible()
    person.page.click("#stop")
    person.rest()
    expect(person.page.locator(".notice")).to_contain_text("Cancelled")
    served.let("slow")
    person.ask("hello again")
    expect(person.page.locator(".answer h3")).to_have_text("What I found")


def test_markdown_is_rendered_and_pictures_of_others_are_not_loaded(person: Any) -> None:
    person.ask("hello")
    answer = person.page.locator(".answer")
    assert answer.locator("table td").all_inner_texts() == ["turn", "618", "pure", "execute", "402", "edge"]
    assert answer.locator("ol > li").count() == 3
    assert answer.locator("ol ul > li").all_inner_texts() == ["in threads", "or in processes"]
    expect(answer.locator("figure.code code")).to_contain_text("async for event in gate.stream")
    expect(answer.locator("blockquote")).to_have_text("A call that was not allowed does not run.")
    assert answer.locator("img").count() == 0
    links = answer.locator("a").evaluate_all("links => links.map((a) => [a.href, a.rel, a.textContent])")
    assert links == [
        ["https://example.org/docs", "noopener noreferrer nofollow", "the documentation"],
        ["https://example.org/chart.png", "noopener noreferrer nofollow", "picture, not loaded: a chart"],
    ]
    expect(person.page.locator(".thought summary")).to_have_text("Thoughts")
    person.shot("1280-light-answer")


def test_sources_suggestions_code_pictures_and_sounds_of_an_answer_are_shown_live_and_after_a_reload(person: Any) -> None:
    person.ask("sources, please")
    for _ in range(2):
        sources = person.page.locator(".sources")
        expect(sources.locator("ol li")).to_have_count(2)
        links = sources.locator("a").evaluate_all("links => links.map((a) => [a.href, a.rel, a.textContent])")
        assert links == [
            ["https://weather.example/oslo", "noopener noreferrer nofollow", "weather.example"],
            ["https://www.google.com/search?q=weather+oslo", "noopener noreferrer nofollow", "weather oslo"],
        ]
        expect(sources.locator(".suggestions")).to_contain_text("Google Search suggestions")
        expect(sources.locator(".rating")).to_have_text(
            ["Safety rating: harassment: medium", "Average log probability: -0.25"]
        )
        expect(person.page.locator(".step").first).to_contain_text("print(6 * 7)")
        expect(person.page.locator(".step").last).to_contain_text("42")
        expect(person.page.locator("figure.medium img")).to_have_count(1)
        assert person.page.locator("figure.medium img").evaluate("image => image.naturalWidth") > 0
        expect(person.page.locator("figure.medium audio")).to_have_js_property("duration", 0.5)
        expect(person.page.locator("figure.medium blockquote")).to_have_text("It is dry. <img src=x onerror=alert(7)>")
        expect(person.page.locator("figure.medium:has(audio) figcaption a")).to_have_attribute(
            "download", re.compile(r"\.wav$")
        )
        assert person.page.evaluate("window.__xss || 0") == 0
        person.page.reload()
    person.shot("1280-light-sources")


def test_a_write_is_approved_with_its_diff_and_undone(person: Any, served: Any) -> None:
    notes = served.root / "notes.md"
    notes.write_text(NOTES, "utf-8")
    person.say("write that down")
    diff = person.page.locator(".ask .diff")
    diff.wait_for()
    rows = diff.locator("tbody tr").evaluate_all(
        "rows => rows.map((tr) => [tr.className, tr.querySelector('.line').textContent])"
    )
    assert [row for row in rows if row[0] in ("add", "del")] == [
        ["del", "removed: - buy bread"],
        ["add", "added: - buy bread and butter"],
        ["add", "added: - book the train to Graz"],
    ]
    assert notes.read_text("utf-8") == NOTES
    person.page.wait_for_timeout(400)
    person.shot("1280-light-approval")
    person.decide("yes")
    person.rest()
    assert notes.read_text("utf-8") == NEW_NOTES
    assert person.cards == [("write_file", "Done")]
    person.page.click("[data-do=undo]")
    person.page.click("#confirm >> text=Undo >> nth=-1")
    expect(person.page.locator("#banner")).to_contain_text("Undone.")
    assert notes.read_text("utf-8") == NOTES
    assert person.page.locator(".turn").count() == 0
    assert person.page.input_value("#prompt") == "write that down"


def test_a_write_is_denied_with_a_note_and_another_one_edited(person: Any, served: Any) -> None:
    notes = served.root / "notes.md"
    notes.write_text(NOTES, "utf-8")
    person.say("write that down")
    person.page.fill(".why-not input", "Not before Monday.")
    person.decide("no")
    person.rest()
    assert person.cards == [("write_file", "Denied")]
    expect(person.page.locator(".call .line")).to_contain_text("Not before Monday.")
    assert notes.read_text("utf-8") == NOTES

    person.say("write it now")
    person.page.locator(".ask [data-key=e]").click()
    person.page.get_by_label("content", exact=True).fill("# Notes\n\n- buy butter\n")
    expect(person.page.locator(".field .diffbox")).to_contain_text("What you changed")
    person.page.wait_for_timeout(650)
    person.page.click("text=Approve with changes")
    person.rest()
    assert notes.read_text("utf-8") == "# Notes\n\n- buy butter\n"
    assert person.cards == [("write_file", "Denied"), ("write_file", "Done")]
    expect(person.page.locator(".call .tag").last).to_be_visible()
    notes.write_text(NOTES, "utf-8")


def test_the_note_of_an_approval_stays_on_the_card(person: Any, served: Any) -> None:
    (served.root / "plan.md").unlink(missing_ok=True)
    person.say("again, please")
    person.page.fill(".why-not input", "Only this once.")
    person.decide("yes")
    person.rest()
    for _ in range(2):
        person.page.click(".call .head")
        expect(person.page.locator(".call .result")).to_contain_text("allowed this call with a note: Only this once.")
        person.page.reload()


def test_regenerating_says_what_became_of_the_files(person: Any, served: Any) -> None:
    (served.root / "plan.md").unlink(missing_ok=True)
    person.say("again, please")
    person.decide("yes")
    person.rest()
    (served.root / "plan.md").write_text("by another hand")
    person.page.click("[data-do=retry]")
    person.page.click("#confirm >> text=Send again")
    person.decide("no")
    person.rest()
    expect(person.page.locator("#banner")).to_contain_text("Sent again.")
    expect(person.page.locator("#banner")).to_contain_text("plan.md")
    (served.root / "plan.md").unlink()


def test_always_is_not_asked_again_in_the_same_conversation(person: Any, served: Any) -> None:
    (served.root / "plan.md").unlink(missing_ok=True)
    person.say("again, please")
    person.decide("always")
    person.rest()
    (served.root / "plan.md").unlink()
    person.ask("again, please")
    assert person.cards == [("write_file", "Done"), ("write_file", "Done")]
    assert (served.root / "plan.md").exists()


def test_a_press_that_comes_too_early_decides_nothing(person: Any) -> None:
    # As the form appears a click is on its way: it was meant for something else.
    person.page.evaluate(
        """() => new MutationObserver((_, self) => {
             const button = document.querySelector("[data-answer=yes]");
             if (button) { self.disconnect(); button.click(); window.pressed = true; }
           }).observe(document.getElementById("talk"), {subtree: true, childList: true})"""
    )
    person.say("write that down")
    person.page.wait_for_function("() => window.pressed")
    expect(person.page.locator(".ask")).to_be_visible()
    assert person.cards == [("write_file", "Needs approval")]
    person.decide("no")
    person.rest()


def test_calls_that_ran_side_by_side_are_seen_in_the_timeline(person: Any) -> None:
    person.ask("weather in three cities")
    assert person.cards == [("weather", "Done")] * 3 + [("list_files", "Done")]
    assert person.page.locator(".timeline .bar.running").count() == 4
    expect(person.page.locator("#pane-run .sum")).to_have_text(SIDE_BY_SIDE)
    widths = "bars => bars.map((bar) => Number(bar.getAttribute('width')))"
    bars = person.page.locator(".timeline .bar.running").evaluate_all(widths)
    assert bars[1] > bars[0] > bars[2]  # they took 0.45 s, 0.25 s and 0.15 s
    person.page.click(".astable summary")
    assert person.page.locator(".astable tbody tr").count() == 5
    calls = person.page.locator(".call .head").all_inner_texts()
    # What the service kept says the same to somebody who comes later.
    person.page.reload()
    person.page.wait_for_selector(".timeline .bar.running")
    assert person.page.locator(".call .head").all_inner_texts() == calls
    expect(person.page.locator("#pane-run .sum")).to_have_text(SIDE_BY_SIDE)


def test_progress_and_pictures_of_a_tool_show_on_its_card(person: Any, served: Any) -> None:
    served.hold("count")
    person.say("count the lines")
    expect(person.page.locator(".call .line")).to_have_text("src: file 3 of 4")
    assert person.page.locator(".call progress").evaluate("bar => bar.value") == 0.75
    served.let("count")
    person.rest()
    person.page.locator(".call .head").click()
    expect(person.page.locator(".call .result pre")).to_contain_text('"lines": 1234')
    person.ask("chart")
    image = person.page.locator(".medium img")
    image.wait_for()
    assert image.evaluate("img => [img.naturalWidth, img.naturalHeight, img.src.slice(0, 5)]") == [48, 32, "blob:"]


def test_a_reload_in_the_middle_goes_on_where_it_was(person: Any, served: Any) -> None:
    notes = served.root / "notes.md"
    notes.write_text(NOTES, "utf-8")
    person.ask("hello")
    person.say("write that down")
    person.page.wait_for_selector(".ask")
    person.page.reload()
    expect(person.page.locator(".ask .diff")).to_contain_text("book the train to Graz")
    assert person.page.locator(".turn").count() == 2
    assert person.page.locator(".said").all_inner_texts() == ["hello", "write that down"]
    person.decide("yes")
    person.rest()
    expect(person.page.locator(".answer").last).to_have_text("I have added it to notes.md.")
    assert notes.read_text("utf-8") == NEW_NOTES
    notes.write_text(NOTES, "utf-8")


def test_a_lost_connection_is_shown_and_restored_without_losing_a_word(
    visitor: Callable[..., Any], served: Any, cable: Any
) -> None:
    served.hold("slow")
    person = visitor(service=cable)
    person.open()
    person.say("slow answer, please")
    expect(person.page.locator(".answer")).to_contain_text("One two three")
    cable.unplug()
    expect(person.page.locator("#banner")).to_contain_text("Connection lost")
    served.let("slow")
    cable.plug_in()
    person.rest()
    expect(person.page.locator("#banner")).to_be_hidden()
    said = person.page.locator(".answer").inner_text().strip()
    assert said == ("One two three four five six seven eight nine ten. " * 4).strip()


def test_a_conversation_goes_on_after_the_service_was_killed(person: Any, served: Any) -> None:
    served.hold("count")
    person.say("count the lines of everything")
    expect(person.page.locator(".call .statebox")).to_contain_text("Running")
    served.kill()
    expect(person.page.locator("#banner")).to_contain_text("Connection lost")
    expect(person.page.locator("#link")).to_contain_text("No connection")
    person.shot("1280-light-lost")
    served.let("count")
    served.start()
    person.page.click("#banner >> text=Continue")
    person.rest()
    expect(person.page.locator(".answer").last).to_have_text("There are 1,234 lines.")
    assert person.cards == [("count_lines", "Done")]
    assert person.page.locator("#banner").is_hidden(), person.page.locator("#banner").inner_text()


def test_a_call_that_waits_can_be_answered_after_the_service_was_killed(person: Any, served: Any) -> None:
    notes = served.root / "notes.md"
    notes.write_text(NOTES, "utf-8")
    person.say("write that down")
    person.page.wait_for_selector(".ask")
    served.kill()
    expect(person.page.locator("#banner")).to_contain_text("Connection lost")
    served.start()
    expect(person.page.locator("#banner")).to_be_hidden()
    expect(person.page.locator(".ask .diff")).to_contain_text("book the train to Graz")
    person.decide("yes")
    person.rest()
    expect(person.page.locator(".answer").last).to_have_text("I have added it to notes.md.")
    assert notes.read_text("utf-8") == NEW_NOTES
    notes.write_text(NOTES, "utf-8")


def test_conversations_are_found_resumed_forked_and_deleted(person: Any) -> None:
    person.ask("hello zebra")
    person.ask("list the files")
    first = person.session
    person.page.click("#new")
    person.ask("hello giraffe")
    person.page.fill("#find", "zebra")
    expect(person.page.locator(".sessions a .name")).to_have_text(["hello zebra"])
    person.page.click(".sessions a")
    expect(person.page.locator(".said")).to_have_text(["hello zebra", "list the files"])
    assert person.session == first
    person.page.locator(".turn").first.locator("[data-do=fork]").click()
    person.page.wait_for_function("first => location.hash.slice(1) !== first", arg=first)
    expect(person.page.locator(".said")).to_have_text(["hello zebra"])
    expect(person.page.locator(".sessions li")).to_have_count(2)
    person.page.locator(".sessions li", has=person.page.locator("[aria-current]")).hover()
    person.page.locator(".sessions li", has=person.page.locator("[aria-current]")).locator(".remove").click()
    person.page.click("#confirm >> text=Delete >> nth=-1")
    expect(person.page.locator(".sessions li")).to_have_count(1)
    expect(person.page.locator("#title")).to_have_text("New conversation")


def test_a_conversation_that_was_renamed_keeps_its_title(person: Any) -> None:
    person.ask("hello okapi")
    mine = person.page.locator(".sessions li", has=person.page.locator("[aria-current]"))
    mine.hover()
    mine.locator(".rename").click()
    expect(person.page.locator("#text-input")).to_have_value("hello okapi")
    person.page.fill("#text-input", "Stripes & <b>hooves</b>")
    person.page.keyboard.press("Enter")
    expect(mine.locator(".name")).to_have_text("Stripes & <b>hooves</b>")
    expect(person.page.locator("#title")).to_have_text("Stripes & <b>hooves</b>")
    person.ask("list the files")
    person.page.reload()
    expect(person.page.locator("#title")).to_have_text("Stripes & <b>hooves</b>")
    mine.hover()
    mine.locator(".rename").click()
    person.page.click("#confirm >> text=Cancel")
    expect(mine.locator(".name")).to_have_text("Stripes & <b>hooves</b>")


def test_another_provider_model_and_mode_answer_when_they_are_chosen(person: Any) -> None:
    assert person.page.locator("#provider option[disabled]").all_inner_texts() == ["away (not set up)"]
    with person.page.expect_request("**/api/v1/chat") as usual:
        person.ask("hello")
    assert set(usual.value.post_data_json) == {"prompt", "session", "stream"}  # the service's own choice
    person.page.select_option("#provider", "parrot")
    person.page.select_option("#model", "green")
    person.page.click("#params-open")
    person.page.select_option("#mode", "prompted")
    person.page.click("#params >> text=Done")
    with person.page.expect_request("**/api/v1/chat") as chosen:
        person.ask("who are you?")
    named = chosen.value.post_data_json
    assert (named["provider"], named["model"], named["mode"]) == ("parrot", "green", "prompted")
    expect(person.page.locator(".answer").last).to_have_text("I am the green parrot.")
    person.page.reload()
    person.page.wait_for_selector("html[data-ready]")
    kept = "['provider', 'model', 'mode'].map((id) => document.getElementById(id).value)"
    assert person.page.evaluate(kept) == ["parrot", "green", "prompted"]
    person.page.select_option("#model", label="another…")
    person.page.fill("#text-input", "blue")
    person.page.press("#text-input", "Enter")
    person.say("who are you?")
    expect(person.page.locator("#banner")).to_contain_text("has no model 'blue' here")
    assert person.page.input_value("#prompt") == "who are you?"


def test_a_run_in_another_process_is_watched_too(person: Any, served: Any, visitor: Callable[..., Any]) -> None:
    served.hold("count")
    other = type(served)(served.folder, served.free_port())
    other.start()
    try:
        there = visitor(service=other)
        there.open()
        there.say("count the lines elsewhere")
        expect(there.page.locator(".call .statebox")).to_contain_text("Running")
        person.open(there.session)
        expect(person.page.locator("#banner")).to_contain_text("Another process is running")
        served.let("count")
        there.rest()
        expect(person.page.locator(".answer").last).to_have_text("There are 1,234 lines.")
        expect(person.page.locator("#banner")).to_be_hidden()
    finally:
        other.kill()


def test_tools_say_where_they_come_from_what_they_lost_and_who_is_asked(person: Any) -> None:
    person.page.click("#tab-tools")
    tools = person.page.locator(".toollist > li")
    tools.first.wait_for()
    shown = {one.locator(".name").inner_text(): one.locator(".state").last.inner_text().strip() for one in tools.all()}
    assert shown["write_file"] == "asks"
    assert shown["weather"] == shown["read_file"] == "runs"
    write = tools.filter(has_text="write_file").first
    write.locator("summary").click()
    expect(write).to_contain_text("May have side effects.")
    expect(person.page.locator(".servers")).to_contain_text("unavailable")


def test_everything_can_be_done_with_the_keyboard_alone(person: Any, served: Any) -> None:
    notes = served.root / "notes.md"
    notes.write_text(NOTES, "utf-8")
    keys = person.page.keyboard
    keys.type("write that down")
    keys.press("Enter")
    person.page.wait_for_selector(".ask")
    keys.press("Escape")
    keys.press("n")
    expect(person.page.locator(".ask")).to_be_focused()
    keys.press("Enter")  # decides nothing
    person.page.wait_for_timeout(650)
    keys.press("y")
    person.rest()
    assert notes.read_text("utf-8") == NEW_NOTES
    keys.press("o")
    expect(person.page.locator(".call .body")).to_be_visible()
    keys.press("u")
    expect(person.page.locator("#confirm")).to_be_visible()
    keys.press("Tab")
    keys.press("Enter")
    expect(person.page.locator("#banner")).to_contain_text("Undone.")
    assert notes.read_text("utf-8") == NOTES
    keys.press("Escape")
    keys.press("f")
    keys.press("ArrowDown")
    assert person.page.evaluate("document.activeElement.closest('.sessions') !== null")
    keys.press("Escape")
    keys.press("?")
    expect(person.page.locator("#help")).to_contain_text("to the next call that needs approval")
    keys.press("Escape")
    keys.press("c")
    expect(person.page.locator("#prompt")).to_be_focused()
    for _ in range(60):  # every stop of the Tab key can be seen to be one
        keys.press("Tab")
        is_seen = """() => {
          const node = document.activeElement;
          const { outlineStyle, boxShadow } = getComputedStyle(node.id === "prompt" ? node.closest("form") : node);
          return node === document.body || outlineStyle !== "none" || boxShadow !== "none";
        }"""
        assert person.page.evaluate(is_seen), person.page.evaluate("document.activeElement.outerHTML")


def test_an_exchange_can_be_undone_before_the_page_knows_how_it_ended(person: Any) -> None:
    held: list[Any] = []
    person.page.route("**/api/v1/sessions/web-*", lambda route: held.append(route), times=1)
    with person.page.expect_request("**/api/v1/sessions/web-*"):
        person.say("hello")
        person.drawn()
    person.page.keyboard.press("Escape")
    person.page.keyboard.press("u")
    person.page.keyboard.press("u")
    assert not person.page.locator("#confirm").is_visible()
    held.pop().abort()
    expect(person.page.locator("#confirm")).to_be_visible()
    person.page.click("#confirm >> text=Undo >> nth=-1")
    expect(person.page.locator("#banner")).to_contain_text("Undone")
    assert person.page.locator(".turn").count() == 0
    expect(person.page.locator("#confirm")).to_be_hidden()


def test_a_service_with_a_token_asks_for_it_once_a_tab(visitor: Callable[..., Any], served: Any, tmp_path: Any) -> None:
    locked = type(served)(tmp_path, type(served).free_port(), token="open sesame")
    locked.start()
    try:
        person = visitor(service=locked)
        person.page.goto(locked.url)
        person.page.fill("#token-input", "wrong")
        person.page.press("#token-input", "Enter")
        expect(person.page.locator("#token-why")).to_contain_text("is wrong")
        person.page.fill("#token-input", "open sesame")
        person.page.press("#token-input", "Enter")
        person.page.wait_for_selector("html[data-ready]")
        person.ask("hello")
        person.page.reload()
        person.page.wait_for_selector(".answer")
        assert not person.page.locator("#token").is_visible()
        kept = person.page.evaluate("[JSON.stringify({...localStorage}), document.cookie, location.href]")
        assert "sesame" not in json.dumps(kept)
    finally:
        locked.kill()


def test_a_request_that_is_refused_late_does_not_ask_for_the_token_again(
    visitor: Callable[..., Any], served: Any, tmp_path: Any
) -> None:
    locked = type(served)(tmp_path, type(served).free_port(), token="open sesame")
    locked.start()
    held: list[Any] = []

    def hold(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer wrong":
            held.append(route)
        else:
            route.continue_()

    try:
        person = visitor(service=locked)
        person.page.route("**/api/v1/tools", hold)
        person.page.goto(locked.url)
        person.page.fill("#token-input", "wrong")
        person.page.press("#token-input", "Enter")
        expect(person.page.locator("#token-why")).to_contain_text("is wrong")
        person.page.fill("#token-input", "open sesame")
        person.page.press("#token-input", "Enter")
        expect(person.page.locator("#token")).to_be_hidden()
        held.pop().continue_()
        person.page.wait_for_selector("html[data-ready]")
        assert not person.page.locator("#token").is_visible()
    finally:
        locked.kill()


# --- everybody -----------------------------------------------------------------------------------------------------------


def test_what_happens_is_said_to_those_who_cannot_see_it(person: Any) -> None:
    person.ask("hello")
    assert person.page.locator("#say").inner_text().startswith("Answer: ")
    person.say("write that down")
    person.page.wait_for_selector(".ask")
    expect(person.page.locator("#say-now")).to_contain_text("write_file needs approval")
    names = person.page.locator(".turn h2").all_inner_texts()
    assert [name.strip() for name in names] == ["You asked: hello", "You asked: write that down"]
    person.decide("no")
    person.rest()
    assert person.page.evaluate("document.activeElement.classList.contains('head')")  # the focus did not fall off the page


def test_bars_of_the_timeline_are_as_wide_as_they_say(person: Any) -> None:
    person.open()
    person.ask("sum 1 2")
    person.page.wait_for_selector("svg.timeline rect.bar")
    wrong = person.page.evaluate(
        """() => [...document.querySelectorAll("svg.timeline rect.bar")]
            .map((bar) => [Number(bar.getAttribute("width")), parseFloat(getComputedStyle(bar).width)])
            .filter(([said, drawn]) => Math.abs(said - drawn) > 0.1)"""
    )
    assert wrong == []
    # Whatever its class: no rule for something else may reach into the picture.
    drawn = person.page.evaluate(
        """() => { const bar = document.querySelector("svg.timeline rect.bar").cloneNode(); bar.setAttribute("width", 7);
            return ["queued", "running", "approval", "model"].map((kind) => { bar.setAttribute("class", `bar ${kind}`);
            document.querySelector("svg.timeline").append(bar); return getComputedStyle(bar).width; }); }"""
    )
    assert drawn == ["7px"] * 4
