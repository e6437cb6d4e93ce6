"""`callgate trace`: the timeline of a stored session as lines, as JSON and as a picture."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, ScriptedModel, tool
from callgate.cli import main
from callgate.cli.trace_lines import MARKS_ASCII, timeline_lines
from callgate.store import open_store
from callgate.testing import call
from callgate.timeline import spans_of


@tool(read_only=True)
async def look(city: str) -> str:
    """Looks out of the window."""
    return f"sun in {city}"


@pytest.fixture
def place(tmp_path: Path) -> str:
    store = str(tmp_path / "sessions.db")

    async def story() -> None:
        model = ScriptedModel([[call("look", city="Oslo"), call("nope")], "Sunny.\x1b[2J"])
        await Gate(model, [look], store=store).run("How is \x1b[31mOslo?", session="demo-1")

    asyncio.run(story())
    return store


def test_the_lines_show_turns_requests_and_calls(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "demo", "--store", place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "\x1b" not in "".join(lines)
    assert lines[0].startswith("How is ")
    assert [line.split()[0] for line in lines[1:]] == ["turn", "scripted", "look", "nope", "turn", "scripted"]
    assert lines[4].endswith(", failed")
    assert "█" in lines[2]


def test_the_json_holds_the_spans(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "latest", "--store", place, "-o", "json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["session"] == "demo-1"
    assert [span["kind"] for span in told["spans"]][:3] == ["run", "turn", "request"]
    assert all(
        set(span) == {"id", "parent", "name", "kind", "start_s", "end_s", "state", "call_id"} for span in told["spans"]
    )
    assert all(1.7e9 < span["start_s"] <= span["end_s"] for span in told["spans"])


def test_the_picture_goes_to_a_file_or_to_stdout(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "demo-1", "--store", place, "--svg", str(tmp_path / "t.svg")]) == 0
    assert capsys.readouterr().out == ""
    assert main(["trace", "demo-1", "--store", place, "--svg", "-"]) == 0
    assert capsys.readouterr().out == (tmp_path / "t.svg").read_text("utf-8")


def test_what_cannot_be_read_or_written_is_one_sentence(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "nobody", "--store", place]) == 42
    assert "there is no session 'nobody'" in capsys.readouterr().err
    assert main(["trace", "demo-1", "--store", place, "--svg", str(tmp_path / "no" / "t.svg")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_a_session_without_times_is_shown_with_a_word_about_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from callgate.sessions import facts_of, import_session

    old = json.loads((Path(__file__).parent.parent / "store" / "fixtures" / "sessions-v1.json").read_text("utf-8"))

    async def story() -> None:
        store = open_store(str(tmp_path / "old.db"))
        await import_session(store, "old", facts_of(old))
        await store.aclose()

    asyncio.run(story())
    assert main(["trace", "old", "--store", str(tmp_path / "old.db")]) == 0
    assert "before times were stored" in capsys.readouterr().err


def test_lines_fit_the_width_and_can_be_plain_or_in_colour(place: str) -> None:
    async def load() -> Any:
        store = open_store(place)
        facts = await store.load("demo-1")
        await store.aclose()
        return facts

    spans = spans_of(asyncio.run(load()))
    plain = list(timeline_lines(spans, width=80, marks=MARKS_ASCII))
    assert "".join(plain).isascii() or "\x1b" not in "".join(plain)
    assert max(map(len, plain)) <= 100
    colored = list(timeline_lines(spans, width=80, marks=MARKS_ASCII, color=True))
    assert "\x1b[34m#" in "".join(colored)
    assert list(timeline_lines([], width=80)) == ["Nothing was asked in this session."]


@pytest.mark.slow
def test_a_browser_shows_the_picture(place: str, tmp_path: Path, needs: Any) -> None:
    chromium = needs("chromium")
    assert main(["trace", "demo-1", "--store", place, "--svg", str(tmp_path / "t.svg")]) == 0
    command = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        f"--screenshot={tmp_path / 't.png'}", "--window-size=1220,400", f"file://{tmp_path / 't.svg'}",
    ]  # fmt: skip
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    picture = (tmp_path / "t.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 5_000, "an empty page is smaller"
