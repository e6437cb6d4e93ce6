"""Daily work on the page: settings of messages, the palette, search in what was said, pins, diffs that stay, pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PATIENCE_MS = 180_000
NOTES = "# Notes\n\n- buy bread\n- call Ada\n"


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as playwright_expect

    playwright_expect.set_options(timeout=PATIENCE_MS)
    return playwright_expect(locator)


def palette(person: Any, words: str) -> Any:
    """Opens the palette and types; its rows."""
    person.page.keyboard.press("Control+k")
    person.page.fill("#palette-input", words)
    return person.page.locator("#palette li")


def mine(person: Any) -> Any:
    """The row of the conversation that is open."""
    return person.page.locator(".sessions li", has=person.page.locator("[aria-current]"))


def reopened(person: Any) -> None:
    person.page.reload()
    person.page.wait_for_selector("html[data-ready]")


@pytest.mark.parametrize("answer", ["yes", "always"])
def test_the_diff_of_an_approved_edit_stays_on_its_card_after_a_reload(person: Any, served: Any, answer: str) -> None:
    (served.root / "notes.md").write_text(NOTES, "utf-8")
    person.say("amend the notes")
    person.decide(answer)
    person.rest()
    for _ in range(2):
        expect(person.page.locator(".call .statebox")).to_have_text("Done")
        person.page.locator(".call .head").click()
        diff = person.page.locator(".call .body .diff")
        expect(diff.locator("tr.del .line")).to_have_text("removed: - buy bread")
        expect(diff.locator("tr.add .line")).to_have_text("added: - buy toast")
        reopened(person)
    (served.root / "notes.md").write_text(NOTES, "utf-8")


def test_the_diff_of_a_call_with_edited_arguments_is_that_of_what_ran(person: Any, served: Any) -> None:
    (served.root / "notes.md").write_text(NOTES, "utf-8")
    person.say("amend the notes")
    person.page.locator(".ask [data-key=e]").click()
    person.page.get_by_label("new_string", exact=True).fill("butter")
    person.page.wait_for_timeout(650)  # buttons take no press before
    person.page.click("text=Approve with changes")
    person.rest()
    for _ in range(2):
        expect(person.page.locator(".call .statebox")).to_have_text("Done")
        person.page.locator(".call .head").click()
        expect(person.page.locator(".call .body .diff tr.add .line")).to_have_text("added: - buy butter")
        reopened(person)
    (served.root / "notes.md").write_text(NOTES, "utf-8")


def test_an_edit_that_cannot_apply_says_so_before_it_is_approved(person: Any, served: Any) -> None:
    (served.root / "notes.md").write_text(NOTES, "utf-8")
    person.say("misfit")
    expect(person.page.locator(".ask .preview")).to_contain_text(
        "this call would fail: old_string was found 0 times in 'notes.md'"
    )
    person.decide("no")
    person.rest()


def test_a_diff_is_read_once_and_its_keys_are_seen_on_the_buttons(person: Any, served: Any) -> None:
    (served.root / "notes.md").write_text(NOTES, "utf-8")
    person.say("amend the notes")
    expect(person.page.locator(".ask .diff")).to_be_visible()
    expect(person.page.locator(".ask .asked-args")).to_have_count(0)
    key = person.page.locator("[data-answer=yes] kbd")
    expect(key).to_have_text("y")
    assert key.evaluate("key => getComputedStyle(key).color !== getComputedStyle(key).backgroundColor")
    person.decide("no")
    person.rest()


def test_two_calls_that_look_the_same_keep_their_own_outcomes_after_a_reload(person: Any, served: Any) -> None:
    (served.root / "notes.md").write_text(NOTES, "utf-8")
    person.say("write that down")
    person.decide("no")
    person.rest()
    person.say("write it now")
    person.page.locator(".ask [data-key=e]").click()
    person.page.get_by_label("content", exact=True).fill("# Notes\n")
    person.page.wait_for_timeout(650)  # buttons take no press before
    person.page.click("text=Approve with changes")
    person.rest()
    reopened(person)
    expect(person.page.locator(".call .statebox")).to_have_text(["Denied", "Done"])
    (served.root / "notes.md").write_text(NOTES, "utf-8")


def test_conversations_are_found_by_words_of_their_answers_and_show_them(person: Any) -> None:
    person.ask("hello there")
    person.page.fill("#find", "none of them trusts")
    expect(person.page.locator(".sessions a .match").first).to_contain_text("none of them trusts the others")
    person.page.fill("#find", "words that nobody said")
    expect(person.page.locator("#sessions-status")).to_have_text("Nothing found.")


def test_settings_go_with_the_next_message_and_the_approval_mode_only_until_the_page_is_left(
    person: Any, served: Any
) -> None:
    (served.root / "plan.md").unlink(missing_ok=True)
    person.page.click("#params-open")
    person.page.select_option("#approval-mode", "auto_edit")
    person.page.fill("#system", "Be brief.")
    person.page.fill("#temperature", "0.2")
    person.page.select_option("#thinking", "low")
    person.page.click("#params >> text=Done")
    expect(person.page.locator("#params-open")).to_have_attribute(
        "title", "Settings: approval auto_edit, system text, temperature 0.2, thinking low"
    )
    with person.page.expect_request("**/api/v1/chat") as sent:
        person.ask("again, a file")
    body = sent.value.post_data_json
    assert {key: body.get(key) for key in ("approval_mode", "system", "settings")} == {
        "approval_mode": "auto_edit", "system": "Be brief.", "settings": {"temperature": 0.2, "thinking": "low"},
    }  # fmt: skip
    assert person.cards == [("write_file", "Done")]  # nobody was asked
    reopened(person)
    with person.page.expect_request("**/api/v1/chat") as later:
        person.ask("hello")
    assert "approval_mode" not in later.value.post_data_json
    assert later.value.post_data_json["system"] == "Be brief."
    person.page.click("#params-open")
    person.page.click("#params-reset")
    person.page.click("#params >> text=Done")
    with person.page.expect_request("**/api/v1/chat") as usual:
        person.ask("hello")
    assert set(usual.value.post_data_json) == {"prompt", "session", "stream"}


def test_the_palette_does_what_is_typed_and_finds_conversations(person: Any) -> None:
    person.ask("hello quagga")
    first = person.session
    rows = palette(person, "new conv")
    expect(rows.first).to_contain_text("New conversation")
    person.page.keyboard.press("Enter")
    expect(person.page.locator("#title")).to_have_text("New conversation")
    rows = palette(person, "quagga")
    expect(rows.first).to_contain_text("hello quagga")
    person.page.keyboard.press("Enter")
    expect(person.page.locator(".said")).to_have_text(["hello quagga"])
    assert person.session == first
    palette(person, "zzzz")
    expect(person.page.locator("#palette")).to_contain_text("No matches.")
    person.page.keyboard.press("Escape")
    expect(person.page.locator("#palette")).to_be_hidden()


def test_conversations_are_pinned_and_archived_in_this_browser(person: Any) -> None:
    person.ask("hello tapir")
    mine(person).hover()
    mine(person).locator(".pin").click()
    expect(person.page.locator(".sessions h2").first).to_have_text("Pinned")
    reopened(person)
    expect(person.page.locator(".sessions h2").first).to_have_text("Pinned")
    expect(person.page.locator(".sessions ul").first.locator(".name")).to_have_text(["hello tapir"])
    mine(person).hover()
    mine(person).locator(".archive").click()
    expect(person.page.locator("details.archive summary")).to_have_text("Archived (1)")
    assert not person.page.locator("details.archive").evaluate("box => box.open")
    person.page.fill("#find", "tapir")
    expect(person.page.locator(".sessions .name", has_text="tapir")).to_be_visible()
    person.page.fill("#find", "")
    person.page.click("details.archive summary")
    mine(person).hover()
    mine(person).locator("button.archive").click()
    expect(person.page.locator("details.archive")).to_have_count(0)


def test_a_picture_is_shown_larger_and_closed_again(person: Any) -> None:
    person.ask("chart please")
    small = person.page.locator(".call .medium img")
    before = small.bounding_box()["width"]
    person.page.click(".call .enlarge")
    large = person.page.locator("#picture img")
    expect(large).to_be_visible()
    assert large.bounding_box()["width"] > before
    person.page.keyboard.press("Escape")
    expect(large).to_be_hidden()


def test_a_message_is_drawn_as_markdown_and_keeps_its_lines(person: Any) -> None:
    person.ask("say **two** lines\nand `code`")
    expect(person.page.locator(".said strong")).to_have_text("two")
    expect(person.page.locator(".said code")).to_have_text("code")
    assert person.page.locator(".said").inner_text() == "say two lines\nand code"


def test_reference_links_and_footnotes_are_drawn_live_and_after_a_reload(person: Any) -> None:
    person.ask("notes please")
    for _ in range(2):
        answer = person.page.locator(".answer")
        links = answer.locator("p:visible a").all()
        assert [(link.inner_text(), link.get_attribute("href")) for link in links] == [
            ("the docs", "https://example.org/docs"),
            ("d", "https://example.org/docs"),
            ("[2]", "https://example.org/two"),
            ("https://example.org/unnamed", "https://example.org/unnamed"),
        ]
        expect(answer.locator("a strong")).to_have_text("docs")
        expect(answer.locator("p").first).to_have_text(
            "See the docs, d and [a trap][bad]; it is so.1 It is [2]. The class [^abc] and a[0][1] stay."
        )
        expect(answer.locator(".footnote")).to_have_text("1 As they say.")
        expect(answer.locator(".definition:visible")).to_have_text(
            ["[bad]: javascript:alert(1)", "[more]: https://example.org/unnamed"]
        )
        reopened(person)


def test_addresses_in_a_paragraph_are_text_and_other_signs_begin_other_lists(person: Any) -> None:
    drawn = person.page.evaluate(
        """async (texts) => {
          const { markdown, MarkdownStream } = await import("/static/markdown.js");
          const resolved = (nodes) => { const box = document.createElement("div"); box.append(...nodes); return box; };
          const streamed = (text) => { const box = document.createElement("div"); const one = new MarkdownStream(box);
            for (const letter of text) one.add(letter); one.end(); return box; };
          const read = (box) => [...box.children].filter((node) => !node.hidden)
            .map((node) => `${node.localName} ${node.textContent.trim()}`);
          return texts.map((text) => [read(resolved(markdown(text))), read(streamed(text))]);
        }""",
        [
            "It is so [1].\n\nSources:\n[1]: https://a.example\n[2]: https://b.example",
            'Text before\n[ref]: https://r.example "x"\n\nand [ref].',
            "See [ref].\n\n[ref]: https://r.example",
            "1) one\n7. seven\n8. eight\n\n- a\n* b\n* c",
        ],
    )
    wanted = [
        ["p It is so [1].", "p Sources:\n[1]: https://a.example\n[2]: https://b.example"],
        ['p Text before\n[ref]: https://r.example "x"', "p and [ref]."],
        ["p See ref."],
        ["ol one", "ol seveneight", "ul a", "ul bc"],
    ]
    assert drawn == [[each, each] for each in wanted]


def test_somebody_who_looks_elsewhere_is_notified_if_they_want(visitor: Callable[..., Any], served: Any) -> None:
    person = visitor(permissions=["notifications"])
    person.page.add_init_script(
        """window.notes = [];
           window.Notification = class extends EventTarget {
             constructor(title, { body }) { super(); window.notes.push(body); }
             static permission = "granted";
             static async requestPermission() { return "granted"; }
           };
           Object.defineProperty(document, "hidden", { get: () => Boolean(window.isAway) });"""
    )
    person.open()
    person.page.evaluate("window.isAway = true")
    person.ask("hello")
    assert person.page.evaluate("window.notes") == []  # nobody asked for it
    person.page.click("#params-open")
    person.page.check("#notify")
    person.page.click("#params >> text=Done")
    person.say("again, a file")
    person.decide("no")
    person.rest()
    person.page.wait_for_function("document.querySelectorAll('.call[data-state=denied]').length === 1")
    person.page.wait_for_function("window.notes.length === 2")
    assert person.page.evaluate("window.notes") == ["A call needs your approval.", "The answer is there."]


def test_every_key_of_the_page_is_in_its_help_and_in_the_docs(person: Any, request: pytest.FixtureRequest) -> None:
    person.page.click("#help-open")
    keys = {
        key.strip()
        for words in person.page.locator("#help dt").all_inner_texts()
        for key in re.split(r"\s+or\s+|\s+", words)
    }
    docs = (request.config.rootpath / "docs" / "page.md").read_text("utf-8")
    assert [key for key in sorted(keys - {""}) if f"`{key}`" not in docs and len(key) > 1] == []
