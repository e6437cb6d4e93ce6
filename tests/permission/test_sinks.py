"""Known secrets in twenty encodings through every sink: logs, spans, exports and errors have none of them in clear."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, ScriptedModel, cli, sessions, telemetry
from callgate.cli.logs import log_handler
from callgate.config import known_secrets
from callgate.config.known_secrets import redact_known, redact_known_in, remember_secrets
from callgate.errors import InvalidRequestError
from callgate.machine import facts as words
from callgate.mcp.tokens import TokenFile
from callgate.permission.redact import Redactor
from callgate.server.errors import problem_of
from callgate.store.memory import MemoryStore
from callgate.testing import call
from callgate.wire.credentials import checked_headers, redact

from .test_redact import ENCODINGS

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed; no span was looked at")
LETTERS = string.ascii_letters + string.digits + "+/=&<\"'\\% _-.:~"


@pytest.fixture(autouse=True)
def own_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A list of known secrets for one test alone."""
    with monkeypatch.context() as patch:
        patch.setattr(known_secrets, "_known", {})
        known_secrets._version[0] += 1
        yield
    known_secrets._version[0] += 1


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Everything that was exported of spans, content included, as one text."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    telemetry.record_content(True)

    def exported() -> str:
        found = [
            [span.name, dict(span.attributes), span.status.description, [dict(event.attributes) for event in span.events]]
            for span in exporter.get_finished_spans()
        ]
        exporter.clear()
        return json.dumps(found, ensure_ascii=False, default=str)

    yield exported
    telemetry.record_content(None)
    provider.shutdown()


def strings_of(text: str) -> Iterator[str]:
    """A text, the strings of the JSON that it is or that its lines are, and those of the JSON inside of these."""
    yield text
    for line in (text, *text.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, dict):
                waiting += [*item, *item.values()]
            elif isinstance(item, list):
                waiting += item
            elif isinstance(item, str):
                yield from strings_of(item) if item[:1] in "[{" and item != text else [item]


def in_clear(sinks: dict[str, str], secret: str) -> set[tuple[str, str]]:
    forms = {name: encode(secret) for name, encode in ENCODINGS.items()}
    held = {sink: "\0".join(strings_of(text)) for sink, text in sinks.items()}
    return {(sink, name) for sink, text in held.items() for name, form in forms.items() if form in text}


async def conversation(texts: list[str], audit: Path) -> str:
    """A run whose prompt, arguments, results, errors and answer hold these texts; the export of its session."""

    def note(texts: list[str]) -> list[str]:
        """Notes texts."""
        return [f"noted {text}" for text in texts]

    def fail(text: str) -> None:
        """Fails."""
        raise ValueError(f"cannot use {text}".replace("\n", " "))

    store = MemoryStore()
    script = [[call("note", texts=texts), *(call("fail", text=text) for text in texts[:3])], f"done: {texts}"]
    async with Gate(ScriptedModel(script), [note, fail], store=store, audit=audit) as gate:
        await gate.run(f"say {texts}", session="s")
        found = await store.load("s")
    return json.dumps(sessions.export_session({"id": "s"}, list(found)))


@pytest.mark.parametrize("count", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_no_sink_shows_a_known_secret_in_any_encoding(
    count: int, tmp_path: Path, spans: Callable[[], str], capsys: pytest.CaptureFixture[str]
):
    dice = random.Random(11)
    secrets = ["k" + "".join(dice.choices(LETTERS, k=dice.randint(14, 40))) + "z" for _ in range(count)]
    log = io.StringIO()
    handler = log_handler()
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(log)
    left: set[tuple[str, str]] = set()
    shown = 0
    remember_secrets(*secrets)
    for number, secret in enumerate(secrets):
        texts = [encode(secret) for encode in ENCODINGS.values()]
        audit = tmp_path / f"{number}.jsonl"
        before = log.tell()
        export = asyncio.run(conversation(texts, audit))
        for text in texts:
            handler.handle(logging.LogRecord("callgate.wire", logging.DEBUG, "", 0, "sent %s end", (text,), None))
            cli._failed(f"it said {text} end", 1)
        errors = [problem_of(InvalidRequestError(f"it said {text} end"))["message"] for text in texts]
        sinks = {
            "audit": audit.read_text(),
            "debug": log.getvalue()[before:],
            "spans": spans(),
            "export": export,
            "error of the service": json.dumps(errors),
            "error of the command": capsys.readouterr().err,
            "request in the log": "\n".join(redact(text, []) for text in texts),
        }
        shown += sum(bool(text) for text in sinks.values())
        left |= in_clear(sinks, secret)
    assert len(ENCODINGS) >= 20
    assert shown == 7 * count
    assert left == set()


SPREAD_SECRET = "Zq7xKp29LmVtRw4s"
_BYTES = SPREAD_SECRET.encode()
SPREAD: dict[str, object] = {
    "numbers": [*_BYTES],
    "floats": [float(one) for one in _BYTES],
    "texts of numbers": [str(one) for one in _BYTES],
    "characters": [*SPREAD_SECRET],
    "lists of one character": [[one] for one in SPREAD_SECRET],
    "halves": [SPREAD_SECRET[:8], SPREAD_SECRET[8:]],
    "pieces": [SPREAD_SECRET[at : at + 4] for at in range(0, 16, 4)],
    "hexadecimal bytes": [f"{one:02x}" for one in _BYTES],
    "chunks of base64": [base64.b64encode(_BYTES).decode()[at : at + 8] for at in range(0, 24, 8)],
    "table of numbers": {str(place): one for place, one in enumerate(_BYTES)},
    "table of characters": {str(place): one for place, one in enumerate(SPREAD_SECRET)},
    "keys": {f"{SPREAD_SECRET[at : at + 4]}": at for at in range(0, 16, 4)},
    "deep": {"a": [{"b": [1, 2, {"c": [*SPREAD_SECRET]}]}]},
}


@pytest.mark.parametrize("form", SPREAD)
def test_a_known_secret_that_is_spread_over_a_list_or_table_is_in_no_record_and_no_export(form: str, tmp_path: Path):
    remember_secrets(SPREAD_SECRET)
    value = {"before": ["a", 1], "x": SPREAD[form], "after": [None, True, 2.5, float("inf")]}

    def note(x: Any) -> Any:
        """Notes it."""
        return x

    async def story() -> str:
        store = MemoryStore()
        async with Gate(ScriptedModel([call("note", x=value), "ok"]), [note], store=store, audit=tmp_path / "log") as gate:
            await gate.run("x", session="s")
            found = await store.load("s")
        return json.dumps(sessions.export_session({"id": "s"}, list(found)))

    clear = json.dumps(SPREAD[form])
    exported, record = asyncio.run(story()), json.loads((tmp_path / "log").read_text().splitlines()[0])
    for shown in (exported, json.dumps(record["args"]["x"]), json.dumps(redact_known_in(value))):
        assert "[redacted: known secret]" in shown
        assert clear not in shown
        assert clear.strip("[]{}") not in shown
    assert (record["args"]["x"]["before"], redact_known_in(value)["before"]) == (["a", 1], ["a", 1])


def test_tokens_of_logins_and_secret_headers_are_known(tmp_path: Path):
    tokens = TokenFile(tmp_path / "tokens.json")
    login = {"access_token": "made-up-access-1", "refresh_token": "made-up-refresh-1", "scope": "read-everything"}
    tokens.update(
        "https://mcp.example/", tokens=login, client={"client_secret": "made-up-client-1", "client_id": "public-one"}
    )
    checked_headers({"x-api-key": "made-up-header-1", "x-team": "blue-and-green"})
    text = " ".join([*login.values(), "made-up-client-1", "public-one", "made-up-header-1", "blue-and-green"])
    gone = "[redacted: known secret]"
    assert redact_known(text) == f"{gone} {gone} read-everything {gone} public-one {gone} blue-and-green"
    assert Redactor().text("made-up-refresh-1") == gone


def test_tokens_that_another_process_wrote_are_known_once_they_are_read(tmp_path: Path):
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"servers": {"https://a.example/": {"tokens": {"access_token": "made-up-elsewhere"}}}}))
    TokenFile(path).read("https://a.example/")
    assert redact_known("made-up-elsewhere") == "[redacted: known secret]"


def test_values_without_secrets_are_exported_as_they_are():
    remember_secrets("made-up-and-known")
    value = {"a": [1, 2.5, None, True, {"b": "text"}], "c": ""}
    assert redact_known_in(value) == value
    assert redact_known_in({"made-up-and-known": ["made-up-and-known"]}) == {
        "[redacted: known secret]": ["[redacted: known secret]"]
    }
    assert redact_known_in("made-up-and-known") == "[redacted: known secret]"


def test_an_unreadable_fact_is_exported_without_secrets_and_read_again():
    remember_secrets("made-up-and-known")
    fact = words.Unreadable(problem="odd", body=b'{"kind":"new","text":"made-up-and-known \xff"}')
    document = json.loads(json.dumps(sessions.export_session({"id": "s"}, [fact])))
    (again,) = sessions.facts_of(document)
    assert isinstance(again, words.Unreadable)
    assert again.body == b'{"kind":"new","text":"[redacted: known secret] \xff"}'
