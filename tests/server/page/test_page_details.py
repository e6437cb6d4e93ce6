"""Details of the page: what an exchange keeps, what is said once, and what a phone leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PATIENCE_MS = 180_000


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as playwright_expect

    playwright_expect.set_options(timeout=PATIENCE_MS)
    return playwright_expect(locator)


def reopened(person: Any) -> None:
    person.page.reload()
    person.page.wait_for_selector("html[data-ready]")


def test_an_exchange_keeps_its_time_and_its_bad_end_after_a_reload(person: Any) -> None:
    person.ask("weather in Graz")
    person.ask("fail, please")
    for _ in range(2):
        first, second = person.page.locator(".foot .sum").all()
        assert [words.split(" ")[-1] for words in first.inner_text().split(" · ")[:2]] == ["calls", "ms"]
        assert second.inner_text().endswith("ms")
        expect(person.page.locator(".timeline text.bad")).to_have_text("✗ failed")
        expect(person.page.locator(".timeline rect.model.bad")).to_have_count(1)
        reopened(person)


def test_an_error_is_said_once_on_its_card(person: Any) -> None:
    person.say("mixed")
    person.decide("no")
    person.rest()
    card = person.page.locator(".call[data-state=failed]")
    expect(card.locator(".line")).to_have_text("no such page")
    card.locator(".head").click()
    expect(card.get_by_text("no such page").locator("visible=true")).to_have_count(3)  # the head, the argument, the error
    card.locator(".head").click()
    expect(card.locator(".line")).to_be_visible()


def test_attempts_take_one_line(person: Any) -> None:
    lines = person.page.evaluate(
        """async () => {
          const { TurnView } = await import("/static/turn.js");
          const view = new TurnView({ grew() {} }, { said: "x" });
          view.begin();
          const notice = (code, message) => view.take({ type: "notice", code, message, level: "warning" });
          for (const number of [2, 3, 4]) notice("waiting", `attempt ${number} of 5`);
          notice("repaired", "one");
          notice("repaired", "two");
          notice("waiting", "attempt 5 of 5");
          return [...view.node.querySelectorAll(".notice")].map((node) => node.textContent);
        }"""
    )
    assert lines == ["attempt 4 of 5", "one", "two", "attempt 5 of 5"]


def test_an_answer_of_the_service_that_breaks_off_is_a_lost_connection(person: Any) -> None:
    broken = person.page.evaluate(
        """async () => {
          const { api, Unreachable } = await import("/static/api.js");
          globalThis.fetch = async () =>
            new Response(new ReadableStream({ pull: (sink) => sink.error(new TypeError("Failed to fetch")) }));
          const ask = (work) => work().then(() => "answered", (error) => error instanceof Unreachable);
          return [await ask(() => api.health()), await ask(() => api.session("s"))];
        }"""
    )
    assert broken == [True, True]


def test_a_default_that_is_not_declared_is_no_loss(person: Any) -> None:
    person.page.click("#tab-tools")
    tool = person.page.locator(".toollist li", has_text="list_files").first
    expect(tool.locator("summary")).not_to_contain_text("loss")
    tool.locator("summary").click()
    expect(tool).to_contain_text("Not in the declaration, and not needed there: default.")


def test_a_branch_is_told_by_a_picture_where_titles_are_cut(person: Any) -> None:
    person.ask("say something that has no room in the list")
    person.page.locator("[data-do=fork]").click()
    current = person.page.locator("#sessions a[aria-current] .name")
    expect(current).to_have_text("branch: say something that has no room in the list")
    expect(current.locator("svg")).to_be_visible()
    expect(person.page.locator("#sessions a:not([aria-current]) .name svg")).to_have_count(0)


def test_a_phone_is_not_told_of_keys(visitor: Callable[..., Any]) -> None:
    phone = visitor(width=390, height=844, has_touch=True, is_mobile=True)
    phone.open()
    expect(phone.page.locator(".starters button").first).to_be_visible()
    expect(phone.page.locator(".welcome .keyed")).to_be_hidden()
    phone.say("write that I need butter")
    expect(phone.page.locator("[data-answer=yes]")).to_be_visible()
    expect(phone.page.locator("[data-answer=yes] kbd")).to_be_hidden()
    phone.decide("no")
    phone.rest()
