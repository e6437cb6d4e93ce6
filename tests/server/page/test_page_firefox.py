"""The page in the other engine: what a first conversation needs works in Firefox as it does in Chromium.

Playwright does not drive the Firefox of the system, so the few commands that are needed are sent over WebDriver BiDi.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PATIENCE_S = 120
ENTER, ESCAPE = "\ue007", "\ue00c"

SHOWN = """(selector, words) => new Promise((resolve) => {
  const look = () => {
    const found = [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility());
    if (found.some((each) => (each.innerText ?? each.textContent).includes(words))) resolve(true);
    else setTimeout(look, 20);
  };
  look();
})"""


class Tab:
    """One tab: what is done in it is done with keys and a mouse, as by a person."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.faults: list[str] = []
        """Errors and warnings of the page's own code, and breaches of its policy."""
        self.command("session.new", capabilities={})
        self.command("session.subscribe", events=["log.entryAdded"])
        self._tab = self.command("browsingContext.create", type="tab")["context"]

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command, and note what the page logs until it is done."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            heard = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if heard.get("id") == number:
                assert heard["type"] == "success", heard
                return heard["result"]
            entry = heard.get("params", {})
            if heard.get("method") == "log.entryAdded" and entry["level"] in ("error", "warn"):
                self.faults.append(str(entry["text"]))

    def open(self, url: str) -> None:
        self.command("browsingContext.navigate", context=self._tab, url=url, wait="complete")
        self.wait_for("html[data-ready]")

    def reload(self) -> None:
        self.command("browsingContext.reload", context=self._tab, wait="complete")
        self.wait_for("html[data-ready]")

    def run(self, function: str, *given: Any) -> Any:
        """What a function of the page returns, once it does."""
        arguments = [{"type": "string", "value": each} for each in given]
        done = self.command(
            "script.callFunction",
            functionDeclaration=function,
            arguments=arguments,
            target={"context": self._tab},
            awaitPromise=True,
        )
        assert done["type"] == "success", done
        return done["result"].get("value")

    def wait_for(self, selector: str, words: str = "") -> None:
        """Wait until something of that kind, with these words in it, is on the screen."""
        self.run(SHOWN, selector, words)

    def texts(self, selector: str) -> str:
        """The words of all that match, a line for each."""
        return self.run(
            "(selector) => [...document.querySelectorAll(selector)].map((e) => e.textContent).join('\\n')", selector
        )

    def click(self, selector: str) -> None:
        self.wait_for(selector)
        found = self.command(
            "browsingContext.locateNodes", context=self._tab, locator={"type": "css", "value": selector}, maxNodeCount=1
        )
        origin = {"type": "element", "element": {"sharedId": found["nodes"][0]["sharedId"]}}
        self.run("(selector) => document.querySelector(selector).scrollIntoView({block: 'center'})", selector)
        moves = [
            {"type": "pointerMove", "x": 0, "y": 0, "origin": origin},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._act({"type": "pointer", "id": "mouse", "actions": moves})

    def type(self, text: str) -> None:
        keys = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._act({"type": "key", "id": "keys", "actions": keys})

    def _act(self, *actions: dict[str, Any]) -> None:
        self.command("input.performActions", context=self._tab, actions=list(actions))


@contextlib.contextmanager
def firefox(path: str, profile: Path) -> Iterator[Tab]:
    """A tab of a Firefox with a profile of its own."""
    from websockets.sync.client import connect

    command = [path, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"ws://\S+", line):
                break
        else:
            raise AssertionError("Firefox did not start:\n" + "".join(said))
        with connect(f"{found[0]}/session", max_size=None, open_timeout=PATIENCE_S) as socket:
            yield Tab(socket)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


BREACHES = """() => { globalThis.__breaches = [];
  addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
    globalThis.__breaches.push(`${violatedDirective} ${blockedURI}`)); }"""


@pytest.fixture
def tab(needs: Callable[[str], str], tmp_path: Path) -> Iterator[Tab]:
    path = needs("firefox")
    pytest.importorskip("websockets")
    with firefox(path, tmp_path) as opened:
        yield opened
        assert opened.faults == []


def say(tab: Tab, prompt: str) -> None:
    tab.click("#prompt")
    tab.type(prompt + ENTER)


def test_a_conversation_with_calls_an_approval_a_reload_and_an_undo_works_in_firefox(tab: Tab, served: Any) -> None:
    tab.open(served.url)
    tab.run(BREACHES)
    say(tab, "hello")
    tab.wait_for(".answer table td", "execute")
    tab.wait_for(".answer figure.code .token, .answer figure.code code", "async for event")
    say(tab, "weather in Graz, Ljubljana and Wien")
    tab.wait_for(".turn:last-of-type .answer")
    tab.wait_for("svg.timeline")

    say(tab, "write that I need butter and a train")
    tab.wait_for(".ask [data-answer=yes]")
    tab.wait_for(".ask .diff", "book the train to Graz")
    tab.run("() => new Promise((resolve) => setTimeout(resolve, 650))")  # buttons take no press before
    tab.click(".ask [data-answer=yes]")
    tab.wait_for("#send")
    tab.wait_for("#scroll:not([data-settling])")
    assert "book the train to Graz" in (served.root / "notes.md").read_text("utf-8")

    assert tab.run("() => globalThis.__breaches.join()") == ""
    tab.reload()
    tab.wait_for(".turn:last-of-type .call", "write_file")
    assert tab.texts(".turn h2").count("You asked:") == 3
    tab.type(ESCAPE + "u")
    tab.click("#confirm button.primary")
    tab.run("""() => new Promise((resolve) => { const look = () =>
        document.querySelectorAll(".turn").length === 2 ? resolve() : setTimeout(look, 20); look(); })""")
    assert "book the train to Graz" not in (served.root / "notes.md").read_text("utf-8")
