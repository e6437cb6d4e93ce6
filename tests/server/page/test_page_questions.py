"""Questions of MCP servers on the page: a real server asks, a person fills the form in, declines, or leaves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ASKING = True
PATIENCE_MS = 60_000


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as playwright_expect

    playwright_expect.set_options(timeout=PATIENCE_MS)
    return playwright_expect(locator)


def asked(person: Any) -> Any:
    """Has the server ask, and allows the call; the form, once it takes a press."""
    person.say("book a table")
    person.decide("yes")
    form = person.page.locator(".question")
    form.wait_for()
    person.page.wait_for_timeout(650)  # buttons take no press before
    return form


def test_a_question_of_a_server_is_a_form_whose_answer_it_gets(person: Any) -> None:
    form = asked(person)
    expect(form).to_contain_text("The server asking asks you: never give a password or a key here.")
    expect(form.locator("blockquote")).to_have_text("For how many?")
    expect(person.page.locator(".busy")).to_contain_text("Waiting for your answer")
    form.locator("[data-reply=accept]").click()
    expect(form.locator("[role=alert]")).to_contain_text("this is needed")
    form.get_by_label("Guests").fill("4")
    form.get_by_label("Outside").select_option("yes")
    form.locator("[data-reply=accept]").click()
    expect(person.page.locator(".notice", has_text="The question was answered.")).to_be_visible()
    person.rest()
    person.page.locator(".call .head").click()
    expect(person.page.locator(".call .result")).to_contain_text("4 outside=True")


def test_a_question_is_declined_and_the_server_gets_that(person: Any) -> None:
    asked(person).locator("[data-reply=decline]").click()
    person.rest()
    person.page.locator(".call .head").click()
    expect(person.page.locator(".call .result")).to_contain_text("decline")


def test_a_question_is_still_there_after_a_reload_and_in_a_second_tab(person: Any, visitor: Callable[..., Any]) -> None:
    asked(person)
    person.page.reload()
    expect(person.page.locator(".question blockquote")).to_have_text("For how many?")
    other = visitor()
    other.open(person.session)
    other.page.locator(".question").wait_for()
    other.page.wait_for_timeout(650)  # buttons take no press before
    other.page.locator(".question [data-reply=cancel]").click()
    expect(person.page.locator(".question")).to_have_count(0)
    person.rest()


def test_a_server_borrows_the_model_when_the_person_lends_it(person: Any) -> None:
    person.say("borrow it")
    person.decide("yes")
    form = person.page.locator(".question")
    expect(form).to_contain_text("The server asking wants the model to answer this: its answer goes to the server.")
    expect(form.locator("blockquote")).to_have_text("user: Say it.\nat most 10 tokens")
    person.page.wait_for_timeout(650)  # buttons take no press before
    form.get_by_role("button", name="Lend the model").click()
    person.rest()
    person.page.locator(".call .head").click()
    expect(person.page.locator(".call .result")).to_contain_text("You said: Say it.")
