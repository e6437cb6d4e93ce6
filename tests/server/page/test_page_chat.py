"""What people expect of a chat: send again, change a message, attach, queue, come back to a draft, print, save."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PATIENCE_MS = 180_000
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as playwright_expect

    playwright_expect.set_options(timeout=PATIENCE_MS)
    return playwright_expect(locator)


def said(person: Any) -> list[str]:
    return person.page.locator(".turn .said > p").all_inner_texts()


def again(person: Any) -> None:
    """Has the last answer generated again, and waits for it."""
    with person.page.expect_request(lambda request: request.url.endswith("/chat")):
        person.page.click("[data-do=retry]")
    person.rest()


def test_an_answer_is_generated_again_in_its_place(person: Any) -> None:
    person.ask("one thing")
    person.ask("another thing")
    assert person.page.locator("[data-do=retry]").all_inner_texts() == ["Regenerate"]
    again(person)
    expect(person.page.locator(".turn")).to_have_count(2)
    person.page.reload()
    expect(person.page.locator(".turn")).to_have_count(2)
    assert said(person) == ["one thing", "another thing"]


def test_generating_again_asks_first_where_calls_were_made(person: Any) -> None:
    person.ask("list the files")
    person.page.click("[data-do=retry]")
    expect(person.page.locator("#confirm")).to_contain_text("1 call of this exchange will be undone")
    person.page.click("#confirm >> text=Cancel")
    expect(person.page.locator(".turn")).to_have_count(1)


def test_any_message_is_changed_in_a_branch_and_the_conversation_stays(person: Any) -> None:
    person.ask("first message")
    person.ask("second message")
    person.ask("third message")
    before = person.session
    person.page.locator("[data-do=edit]").nth(1).click()
    field = person.page.locator(".said.editing textarea")
    assert field.input_value() == "second message"
    field.press("Escape")
    assert said(person) == ["first message", "second message", "third message"]
    person.page.locator("[data-do=edit]").nth(1).click()
    field.fill("another second message")
    field.press("Enter")
    expect(person.page.locator(".answer").last).to_have_text("You said: another second message")
    person.rest()
    assert said(person) == ["first message", "another second message"]
    assert person.session != before
    expect(person.page.locator("#title")).to_have_text("first message (branch)")
    expect(person.page.locator("#branches")).to_have_text("branch of first message")
    person.page.click("#branches a")
    expect(person.page.locator(".turn")).to_have_count(3)
    assert person.session == before
    expect(person.page.locator("#branches")).to_have_text("branches: first message (branch)")


def test_a_message_typed_during_a_run_is_sent_when_it_ends(person: Any, served: Any) -> None:
    served.hold("slow")
    person.say("slow answer, please")
    expect(person.page.locator(".answer")).to_contain_text("One two three")
    person.say("and then this")
    expect(person.page.locator(".queued-message")).to_contain_text("Sent when the run ends: and then this")
    served.let("slow")
    expect(person.page.locator(".answer").last).to_have_text("You said: and then this")
    person.rest()
    assert said(person) == ["slow answer, please", "and then this"]
    expect(person.page.locator("#tray")).to_be_hidden()


def test_a_queued_message_comes_back_to_the_field_when_the_run_is_stopped(person: Any, served: Any) -> None:
    served.hold("slow")
    person.say("slow answer, please")
    expect(person.page.locator(".answer")).to_contain_text("One two three")
    person.say("not yet")
    person.page.click(".queued-message >> text=Cancel")
    assert person.page.input_value("#prompt") == "not yet"
    person.page.press("#prompt", "Enter")
    person.page.click("#stop")
    person.rest()
    expect(person.page.locator("#prompt")).to_have_value("not yet")
    assert said(person) == ["slow answer, please"]
    served.let("slow")


def test_a_queued_message_outlives_a_reload_and_a_look_at_another_conversation(person: Any, served: Any) -> None:
    served.hold("slow")
    person.say("slow answer, please")
    expect(person.page.locator(".answer")).to_contain_text("One two three")
    first = person.session
    person.say("and then this")
    waits = person.page.locator(".queued-message")
    expect(waits).to_contain_text("and then this")
    person.page.reload()
    expect(waits).to_contain_text("and then this")
    person.page.click("#new")
    expect(waits).to_have_count(0)
    person.page.go_back()
    expect(waits).to_contain_text("and then this")
    assert person.session == first
    served.let("slow")
    expect(person.page.locator(".answer").last).to_have_text("You said: and then this")
    person.rest()
    assert said(person) == ["slow answer, please", "and then this"]


def test_attached_files_stay_with_their_conversation_and_a_reload_says_that_they_are_gone(person: Any) -> None:
    person.ask("hello, files")
    first = person.session
    one = {"name": "one.txt", "mimeType": "text/plain", "buffer": b"milk"}
    empty = {"name": "empty.txt", "mimeType": "text/plain", "buffer": b""}
    person.page.set_input_files("#files", [empty, one])
    expect(person.page.locator(".chip")).to_contain_text("one.txt")
    expect(person.page.locator("#banner")).to_contain_text("empty.txt is empty, or is a folder.")
    person.page.click("#new")
    expect(person.page.locator(".chip")).to_have_count(0)
    person.page.go_back()
    expect(person.page.locator(".chip")).to_contain_text("one.txt")
    assert person.session == first
    person.page.reload()
    expect(person.page.locator("#banner")).to_contain_text("Attach again: one.txt.")
    expect(person.page.locator(".chip")).to_have_count(0)


def test_drafts_outlive_a_reload_one_for_each_conversation(person: Any) -> None:
    person.page.fill("#prompt", "a new thought")
    person.page.reload()
    expect(person.page.locator("#prompt")).to_have_value("a new thought")
    person.ask("hello, draft")
    first = person.session
    person.page.fill("#prompt", "half a sent")
    person.page.click("#new")
    expect(person.page.locator("#prompt")).to_have_value("")
    person.open(first)
    person.page.reload()
    expect(person.page.locator("#prompt")).to_have_value("half a sent")


def test_files_are_attached_by_button_paste_and_drop_and_shown_after_a_reload(person: Any) -> None:
    page = person.page
    page.set_input_files("#files", [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"milk and honey"}])
    give = """([place, kind, bytes]) => {
        const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(bytes)], `${kind}.png`, { type: "image/png" }));
        const how = { bubbles: true, cancelable: true };
        const event = kind === "paste" ? new ClipboardEvent("paste", { clipboardData: data, ...how })
            : new DragEvent("drop", { dataTransfer: data, ...how });
        document.querySelector(place).dispatchEvent(event);
    }"""
    page.evaluate(give, ["#prompt", "paste", list(PNG)])
    page.evaluate(give, ["#scroll", "drop", list(PNG)])
    expect(page.locator(".chip img")).to_have_count(2)
    assert [text.split(",")[0] for text in page.locator(".chip").all_inner_texts()] == ["notes.txt", "paste.png", "drop.png"]
    page.click("[aria-label='Remove drop.png']")
    person.ask("look at these")
    expect(page.locator(".answer")).to_contain_text("milk and honey")
    for _ in range(2):
        expect(page.locator(".said > p").first).to_have_text("look at these")
        expect(page.locator(".said details.attached summary")).to_have_text('the file "notes.txt"')
        expect(page.locator(".said figure img")).to_have_count(1)
        page.reload()
    expect(page.locator("[data-do=retry]")).to_have_text("Regenerate")
    again(person)
    expect(page.locator(".said figure img")).to_have_count(1)
    expect(page.locator(".answer")).to_contain_text("milk and honey")


BIG = {"name": "big.pdf", "mimeType": "application/pdf", "buffer": b"%PDF" + bytes(range(250)) * 60_000}


def test_a_large_file_is_uploaded_in_pieces_and_goes_with_the_message_as_a_reference(person: Any, served: Any) -> None:
    page = person.page
    page.set_input_files("#files", [BIG])
    expect(page.locator(".chip")).to_have_text(re.compile(r"^big\.pdf, 14\.3 MB$"))
    assert (served.folder / "uploaded").read_bytes() == BIG["buffer"]
    person.ask("look at this")
    for _ in range(2):
        expect(page.locator(".said")).to_contain_text("https://files.test/one")
        page.reload()


def test_a_large_file_that_cannot_be_uploaded_says_why_and_is_not_sent(person: Any, served: Any) -> None:
    page = person.page
    served.let("no-uploads")
    page.set_input_files("#files", [BIG])
    expect(page.locator("#banner")).to_contain_text("big.pdf could not be uploaded: ")
    expect(page.locator("#banner")).to_contain_text("uploads are not allowed with this key")
    expect(page.locator(".chip")).to_have_count(0)
    served.hold("no-uploads")
    page.select_option("#provider", "parrot")
    page.set_input_files("#files", [BIG])
    expect(page.locator("#banner")).to_contain_text("big.pdf is too large: with another model than the service's own")
    expect(page.locator(".chip")).to_have_count(0)


def test_formulas_are_drawn_or_stay_as_written_and_code_is_coloured(person: Any) -> None:
    person.ask("formulas, please")
    answer = person.page.locator(".answer")
    expect(answer.locator("h3")).to_have_text("Size")
    assert answer.locator("p code.math").all_inner_texts() == [r"\(\unheard{x}\)"]
    drawn = answer.locator("math").evaluate_all("all => all.map((each) => [each.parentElement.title, each.textContent])")
    assert drawn == [[r"\(a^2 + b\,c\)", "a2+bc"], ["$x_1$", "x1"], ["$$\na * b * c\n- d\n$$", "a∗b∗c−d"]]
    raised, base = (answer.locator(f"math {tag}").first.bounding_box() for tag in ("msup > mn", "msup > mi"))
    assert raised["y"] < base["y"] + base["height"] / 2
    expect(answer.locator("p").first).to_contain_text("for $5 or $6.")
    kinds = answer.locator("figure.code span[class^=tok]").evaluate_all(
        "all => all.map((each) => [each.className, each.textContent])"
    )
    assert kinds == [
        ["tok-word", "def"],
        ["tok-comment", "# twice"],
        ["tok-word", "return"],
        ["tok-string", '"a"'],
        ["tok-number", "2"],
        ["tok-removed", "-old line"],
        ["tok-added", "+new line"],
    ]


def test_a_conversation_is_saved_as_a_file(person: Any) -> None:
    person.ask("list the files")
    with person.page.expect_download() as download:
        person.page.click("#export")
    assert download.value.suggested_filename == "list-the-files.md"
    text = download.value.path().read_text("utf-8")
    assert text.startswith(
        "# list the files\n\n## You\n\nlist the files\n\n## Answer\n\n**Call of list_files**\n\n```json\n"
    )
    assert text.endswith("That is all.\n")


def test_all_of_a_long_conversation_is_printed_without_the_frame(person: Any) -> None:
    for number in range(3):
        person.ask(f"hello {number}")
    person.page.emulate_media(media="print")
    for place in ("#sidebar", ".bottom", "#panel", ".foot .tools >> nth=0"):
        expect(person.page.locator(place)).to_be_hidden()
    assert person.page.evaluate("document.documentElement.scrollHeight > 1.5 * innerHeight")
    assert person.page.pdf().count(b"/Type /Page\n") > 1


def test_the_welcome_says_what_runs_unasked_and_offers_what_can_be_asked(visitor: Callable[..., Any]) -> None:
    person = visitor()
    person.open()
    told = person.page.locator(".welcome p").first.inner_text()
    tools = person.page.evaluate("fetch('/api/v1/tools').then((answer) => answer.json())")["tools"]
    asks = sum(tool["permission"] == "ask" for tool in tools)
    assert told == (
        f"The model may call {len(tools)} tools. {asks} wait here for your approval before they run; "
        f"{len(tools) - asks} run without asking."
    )
    starters = person.page.locator("[data-do=starter]")
    expect(starters).to_have_count(3)
    starters.first.click()
    expect(person.page.locator("#prompt")).to_have_value("Which files are here?")
