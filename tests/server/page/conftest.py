"""A service and a browser for the tests of the page: one of each for a module, a fresh page for every test.

Every page is watched while a test uses it: an error in its code, a breach of its own security policy, or a request to
another origin fails the test, whatever the test was about.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

HERE = Path(__file__).parent
SCREENSHOTS = HERE.parent.parent.parent / "build" / "screenshots"
MEASURES = HERE.parent.parent.parent / "build" / "page_measures.json"
PATIENCE_S = 180
START_S = 180
"""How long a service may take to come up beside busy processes."""

# Beside what a browser reports by itself: breaches of the policy, and whether anybody's script ran.
WATCHER = """
window.__breaches = [];
addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
  window.__breaches.push(`${violatedDirective} ${blockedURI}`));
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => { window.__xss = (window.__xss || 0) + 1; };
"""


@dataclass
class Served:
    """The service of page_app.py as a process that can be killed and started again."""

    folder: Path
    port: int
    token: str | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @staticmethod
    def free_port() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def start(self) -> None:
        command = [sys.executable, str(HERE / "page_app.py"), str(self.folder), str(self.port), *filter(None, [self.token])]
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end_s = time.monotonic() + START_S
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "service.log").read_text("utf-8", "replace")
            assert time.monotonic() < end_s, "the service did not come up"
            time.sleep(0.05)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """As the power would: nothing is put in order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def let(self, name: str) -> None:
        """What waits for this signal goes on."""
        (self.folder / "signals" / name).touch()

    def hold(self, name: str) -> None:
        (self.folder / "signals" / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Served]:
    service = Served(tmp_path_factory.mktemp("page"), Served.free_port())
    if getattr(request.module, "HOSTILE", False):
        (service.folder / "hostile").touch()
    if getattr(request.module, "ASKING", False):
        (service.folder / "asking").touch()
    service.start()
    yield service
    service.kill()


class Cable:
    """A way to the service that can be cut: every connection through it ends at once, and none begins."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.port = Served.free_port()
        self.open: set[socket.socket] = set()
        self.plug_in()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def plug_in(self) -> None:
        self.door = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self.door,), daemon=True).start()

    def unplug(self) -> None:
        with contextlib.suppress(OSError):
            self.door.shutdown(socket.SHUT_RDWR)
        self.door.close()
        for end in list(self.open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self, door: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = door.accept()
                far = socket.create_connection(("127.0.0.1", self.served.port))
                self.open |= {near, far}
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            self.open.discard(end)
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.fixture
def cable(served: Served) -> Iterator[Cable]:
    line = Cable(served)
    yield line
    line.unplug()


@pytest.fixture(scope="module")
def browser(needs: Callable[[str], str]) -> Iterator[Any]:
    path = needs("chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield chromium
        chromium.close()


@dataclass
class Person:
    """Somebody at a browser."""

    page: Any
    served: Any
    faults: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])

    def open(self, session: str = "") -> None:
        self.page.goto(self.served.url + (f"#{session}" if session else ""))
        self.page.wait_for_selector("html[data-ready]")

    def say(self, prompt: str) -> None:
        """Types a prompt and sends it."""
        self.page.fill("#prompt", prompt)
        self.page.press("#prompt", "Enter")

    def ask(self, prompt: str) -> None:
        """Sends a prompt, and waits for the end of what comes of it."""
        self.say(prompt)
        self.rest()

    def rest(self) -> None:
        """Waits until nothing runs, what ran is drawn, and the page knows what the service keeps of it."""
        self.drawn()
        self.page.wait_for_selector("#scroll:not([data-settling])", timeout=PATIENCE_S * 1000)

    def drawn(self) -> None:
        """Waits until nothing runs, and what ran is drawn."""
        self.page.wait_for_selector("#send:not([hidden])", timeout=PATIENCE_S * 1000)
        self.page.wait_for_selector(".turn.live", state="detached")

    def decide(self, answer: str) -> None:
        """Presses an answer, once it takes a press."""
        button = self.page.locator(f"[data-answer={answer}]").last
        button.wait_for()
        self.page.wait_for_timeout(650)  # buttons take no press before: that is what they promise, and is tested elsewhere
        button.click()

    def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"))

    def breaches(self) -> list[str]:
        return self.page.evaluate("window.__breaches ?? []")

    @property
    def session(self) -> str:
        return urlsplit(self.page.url).fragment

    @property
    def cards(self) -> list[tuple[str, str]]:
        """Name and state of every call on the page, in order."""
        found = self.page.locator(".call")
        return [
            (one.locator(".what .name").inner_text(), one.locator(".statebox").inner_text().strip()) for one in found.all()
        ]


@pytest.fixture
def visitor(browser: Any, served: Served, request: pytest.FixtureRequest) -> Iterator[Callable[..., Person]]:
    """Makes people with browsers of their own; what was wrong on their pages fails the test."""
    people: list[Person] = []

    def arrive(width: int = 1280, height: int = 860, scheme: str = "light", service: Any = served, **more: Any) -> Person:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        context.set_default_timeout(PATIENCE_S * 1000)
        context.add_init_script(WATCHER)
        person = Person(context.new_page(), service)
        own = urlsplit(service.url).netloc
        person.page.on("pageerror", lambda error: person.faults.append(str(error)))
        person.page.on("request", lambda sent: urlsplit(sent.url).netloc in (own, "") or person.foreign.append(sent.url))
        person.page.on("console", lambda said: _heard(said, person))
        people.append(person)
        return person

    yield arrive
    for number, person in enumerate(people):
        name = re.sub(r"\W+", "-", request.node.name)
        person.shot(f"{name}-{number}" if number else name)
        person.faults += person.breaches()
        person.page.context.close()
    assert [fault for person in people for fault in person.faults] == []
    assert [url for person in people for url in person.foreign] == []


def _heard(said: Any, person: Person) -> None:
    # A service that is away, or that refuses, is reported by the browser as an error of its own.
    if said.type in ("error", "warning") and "Failed to load resource" not in said.text:
        person.faults.append(said.text)


@pytest.fixture
def measures() -> Callable[[dict[str, float]], None]:
    """Notes figures beside those of the other tests, in build/page_measures.json."""

    def note(figures: dict[str, float]) -> None:
        MEASURES.parent.mkdir(exist_ok=True)
        known = json.loads(MEASURES.read_text("utf-8")) if MEASURES.exists() else {}
        MEASURES.write_text(json.dumps({**known, **figures}, indent=2) + "\n", "utf-8")

    return note


@pytest.fixture
def person(visitor: Callable[..., Person]) -> Person:
    """Somebody with a browser of the usual size, on a new conversation."""
    somebody = visitor()
    somebody.open()
    return somebody
