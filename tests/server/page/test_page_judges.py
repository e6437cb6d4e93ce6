"""Whether everybody can use the page: the judgement of other people's programs, light and dark, on a desktop and a phone."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PATIENCE_MS = 180_000
SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]

# All that another theme can change is judged again in the dark.
AXE = """async (scheme) => (await axe.run(document, { resultTypes: ["violations"],
    ...(scheme === "dark" ? { runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } } : {}) }))
  .violations
  .map(({ id, nodes }) => [id, nodes.map((node) => node.html.slice(0, 120) + " " + node.failureSummary)])"""
# As pa11y asks its judge: every error of WCAG 2, level AA.
PA11Y = """() => new Promise((resolve) => HTMLCS.process("WCAG2AA", document, () => resolve(HTMLCS.getMessages()
  .filter(({ type }) => type === HTMLCS.ERROR)
  .map(({ code, msg, element }) => [code, msg, element.outerHTML?.slice(0, 120)]))))"""
JUDGES = {
    "axe": ("axe-core/axe.min.js", "axe", AXE),
    "pa11y": ("@pa11y/html_codesniffer/build/HTMLCS.js", "HTMLCS", PA11Y),
}


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as playwright_expect

    playwright_expect.set_options(timeout=PATIENCE_MS)
    return playwright_expect(locator)


@pytest.fixture
def judge(request: pytest.FixtureRequest, home: ModuleType) -> Callable[[Any, str], Any]:
    """What a judge finds on the page of somebody."""
    file, name, question = JUDGES[request.param]
    path = home.NPM_FOLDER / file
    if not path.exists():
        home._missing(f"{file} is not installed (scripts/npm-packages does it); this part was not tested", os.environ)

    def judged(person: Any, scheme: str) -> Any:
        if not person.page.evaluate("(name) => name in window", name):
            person.page.evaluate(path.read_text("utf-8"))
        return person.page.evaluate(question, scheme)

    return judged


@pytest.mark.parametrize(("width", "scheme"), SIZES)
@pytest.mark.parametrize("judge", [pytest.param(name, marks=pytest.mark.judge(name)) for name in JUDGES], indirect=True)
def test_a_judge_finds_nothing_wrong(
    visitor: Callable[..., Any], judge: Callable[..., Any], width: int, scheme: str
) -> None:
    person = visitor(width=width, height=844 if width == 390 else 860, scheme=scheme, bypass_csp=True)
    page = person.page
    person.open()
    person.shot(f"{width}-{scheme}-new")
    assert judge(person, scheme) == []
    for prompt in (
        "hello, what is the gate made of?",
        "weather in Graz, Ljubljana and Wien",
        "formulas",
        "sources",
        "notes",
    ):
        person.ask(prompt)
    person.ask("table")
    person.say("write that I need butter and a train")
    page.wait_for_selector(".ask")
    expect(page.locator(".ask [data-answer=yes]")).to_be_enabled()
    person.shot(f"{width}-{scheme}-approval")
    page.locator(".ask [data-key=e]").click()
    page.get_by_label("content", exact=True).fill("other\n")
    assert judge(person, scheme) == []
    page.keyboard.press("Escape")
    person.decide("no")
    person.rest()
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    expect(page.locator(".call .body h3").last).to_be_visible()
    if width == 390:
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.click("#panel-open")
    page.wait_for_selector(".timeline")
    person.shot(f"{width}-{scheme}-timeline")
    assert judge(person, scheme) == []
    page.click("#tab-tools")
    page.locator(".toollist summary").first.click()
    person.shot(f"{width}-{scheme}-tools")
    assert judge(person, scheme) == []
    if width == 390:
        page.click("#panel-close")
        page.click("#sidebar-open")
        person.shot(f"{width}-{scheme}-conversations")
        assert judge(person, scheme) == []
        page.keyboard.press("Escape")
    page.click("#help-open")
    assert judge(person, scheme) == []
    page.keyboard.press("Escape")
    page.click("#params-open")
    person.shot(f"{width}-{scheme}-settings")
    assert judge(person, scheme) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette li").first).to_be_visible()
    person.shot(f"{width}-{scheme}-palette")
    assert judge(person, scheme) == []
