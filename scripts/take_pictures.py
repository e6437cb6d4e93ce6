"""Takes the pictures of docs/img from the real thing: python scripts/take_pictures.py

A service is started as a process of its own, with a fake Gemini server on this machine in place of Google's; Chromium looks
at the page. Nothing else is changed or made up. The pictures of the terminal are those of scripts/terminal_story.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from callgate.testing.fake_gemini import FakeGemini, call, calls

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "img"
PATIENCE_S = 60
NOTES = "# Notes\n\n- buy bread\n- call Ada\n"
NEW_NOTES = "# Notes\n\n- buy bread and butter\n- call Ada\n- book the train to Graz\n"
TOOLS = '''
import time

from callgate import tool


@tool(read_only=True)
def get_weather(city: str) -> dict:
    """Get the current weather in a city."""
    time.sleep({"Oslo": 0.9, "Rome": 0.4, "Graz": 0.6}.get(city, 0.2))
    return {"city": city, "celsius": -3, "sky": "snow"}


@tool(read_only=True)
def get_trains(start: str, end: str) -> list:
    """List the trains between two cities."""
    time.sleep(0.7)
    return [f"{start} 08:12 - {end} 11:40"]
'''
WRITE = call("write_file", path="notes.md", content=NEW_NOTES)
DONE = "I added the train to Graz to your notes, and butter to the bread."
PLAN = [
    calls(
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Rome"}),
        ("get_weather", {"city": "Graz"}),
        ("get_trains", {"start": "Graz", "end": "Rome"}),
    ),
    "It snows in **Oslo**; in *Graz* and *Rome* too. There is one train from Graz to Rome, at 08:12.",
]


@contextlib.contextmanager
def surroundings(script: list[Any]) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with notes and tools, and an environment in which Gemini is the fake server."""
    with tempfile.TemporaryDirectory() as name, FakeGemini.in_thread(script) as fake:
        folder = Path(name)
        (folder / "notes").mkdir()
        (folder / "notes/notes.md").write_text(NOTES, "utf-8")
        (folder / "tools.py").write_text(TOOLS, "utf-8")
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        yield folder, {**env, "GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}


@contextlib.contextmanager
def service(script: list[Any]) -> Iterator[str]:
    """The address of a service at work."""
    with surroundings(script) as (folder, env):
        command = [sys.executable, "-m", "callgate", "serve", "--port", "0", "-m", "gemini-3.8-flash"]
        command += ["--root", "notes", "-T", "tools.py", "--no-token"]
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield found[0] + "/"
                    break
            else:
                raise SystemExit("take_pictures: the service did not start")
        finally:
            process.terminate()
            process.wait()


def look(browser: Any, url: str, width: int, height: int, scheme: str) -> Any:
    """A page in a window of this size."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(url)
    page.wait_for_selector("html[data-ready]", timeout=PATIENCE_S * 1000)
    return page


def say(page: Any, prompt: str) -> None:
    """Send a message."""
    page.fill("#prompt", prompt)
    page.press("#prompt", "Enter")


def settled(page: Any) -> None:
    """Wait until nothing runs and everything is drawn."""
    page.wait_for_selector("#send:not([hidden])", timeout=PATIENCE_S * 1000)
    page.wait_for_selector(".turn.live", state="detached", timeout=PATIENCE_S * 1000)
    page.wait_for_selector("#scroll:not([data-settling])", timeout=PATIENCE_S * 1000)


def pictures_of_the_page() -> None:
    """An approval on a desktop and on a phone, and a timeline in the dark."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("take_pictures: there is no Chromium; scripts/system-packages installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        for name, width, height in (("page-approval", 1280, 1000), ("page-phone", 390, 844)):
            with service([WRITE, DONE]) as url:
                page = look(browser, url, width, height, "light")
                say(page, "Put the train to Graz on my notes, and butter with the bread.")
                page.locator("[data-answer=yes]").last.wait_for(timeout=PATIENCE_S * 1000)
                page.get_by_text("needs approval").first.wait_for(state="attached", timeout=PATIENCE_S * 1000)
                page.screenshot(path=str(IMAGES / f"{name}.png"))
        with service(PLAN) as url:
            page = look(browser, url, 1280, 800, "dark")
            say(page, "How is the weather in Oslo, Rome and Graz, and is there a train from Graz to Rome?")
            settled(page)
            page.screenshot(path=str(IMAGES / "page-timeline-dark.png"))
        browser.close()


def main() -> int:
    """Take all pictures."""
    pictures_of_the_page()
    print("\n".join(str(path.relative_to(ROOT)) for path in sorted(IMAGES.glob("page-*.png"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
