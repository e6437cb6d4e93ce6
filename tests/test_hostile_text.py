"""Parsers of foreign text on hostile shapes: the work grows with the length, and nothing comes out but our own errors."""

from __future__ import annotations

import contextlib
import gc
import io
import math
import os
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import FunctionCall, Policy, ToolDefinition, strict_json
from callgate.cli.markdown import Markdown
from callgate.cli.style import folded
from callgate.config.edit import with_value
from callgate.config.encoded_secrets import SecretNeedles
from callgate.config.lines import KeyLines, toml_of
from callgate.content.partial_args import parse_path
from callgate.content.salvage import salvaged_calls
from callgate.definitions import convert
from callgate.embedded.gguf import BadFileError, read_head
from callgate.errors import CallgateError, ToolError
from callgate.files.globs import glob_of, ignore_rules
from callgate.mcp.edit import with_server
from callgate.permission import Rule
from callgate.permission.redact import Redactor
from callgate.prompted import CallParser, parse_text
from callgate.run.output import output_of
from callgate.wire.stream_framing import splitter_of

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
CHARS = 20_000 if SCALE == 1 else 1_000_000
"""How long the longest text is; a megabyte under `make soak`."""
SHORT_S = 0.01 * SCALE
"""What is over so soon is not measured: a quadratic parser takes far longer for the longest text."""
TIMES = 16
"""How much longer the long text is than the short one; the work may grow three times as fast, and would 16 times as fast."""
TRIES = 5

PARSERS: dict[str, Callable[[str], Any]] = {
    "arguments": lambda text: parse_text(f"TOOL_CALL: f({text})", tools=["f"]),
    "keyword arguments": lambda text: parse_text(f"TOOL_CALL: f(a={text})", tools=["f"]),
    "named calls": lambda text: parse_text(f'TOOL_CALL: {{"name": "f", "arguments": {text}}}', tools=["f"]),
    "prompted": lambda text: parse_text(text, tools=["f"]),
    "prompted lines": lambda text: _fed(CallParser(["f"]), text.replace(" ", "\n")),
    "thoughts": lambda text: parse_text(f"<think>{text}</think>\n{text}", tools=["f"]),
    "typed answers": lambda text: output_of(list[int]).read(text),
    "typed objects": lambda text: output_of(dict[str, int]).read(f"Here: {text}"),
    "markdown": lambda text: Markdown(lambda: 80).feed(text + "\n"),
    "markdown pieces": lambda text: _drawn(Markdown(lambda: 80), text),
    "salvage": salvaged_calls,
    "toml": lambda text: (KeyLines(text), toml_of(text)),
    "toml edit": lambda text: with_value(f"x = {text}", "a.b", 1),
    "servers file": lambda text: with_server(text, "a", {}),
    "ignore files": lambda text: ignore_rules(text, chars_max=1_000)[0].verdict("a", folder=False),
    "globs": lambda text: glob_of(text, chars_max=1_000),
    "events": lambda text: _split(b"data: " + text.encode("utf-8", "replace") + b"\n\n"),
    "json stream": lambda text: _split(b'[{"a": "' + text.encode("utf-8", "replace") + b'"}]'),
    "json": strict_json.parse_isolating,
    "redaction": lambda text: NEEDLES.redact(text),
    "redaction of a find": lambda text: NEEDLES.redact(f"{text[: len(text) // 8]} made%2Dup-secret"),
    "redaction by shape": lambda text: SHAPED.text(text),
    "paths of streamed arguments": lambda text: _refused(parse_path, f"$.{text}"),
    "rules": lambda text: Policy.from_table({"rules": [text, f"deny {text}"]}).problems,
    "paths of a call": lambda text: Policy(rules=[Rule(verdict="deny", paths=("a/*",))]).decide(
        ToolDefinition(name="t", kind="mcp", server="s"), FunctionCall(name="t", args={"path": text, "x": [text]})
    ),
    "types": lambda text: convert(
        {"name": "f", "parameters": [{"name": "a", "type": text}]}, source="snakepit", target="mcp", kind="tool"
    ),
    "results": lambda text: convert({"role": "tool", "tool_call_id": "a", "content": text}, source="openai", target="mcp"),
}

NEEDLES = SecretNeedles(["made-up-secret", "aaaaaaaaaaaa", "\\\\\\\\\\", "%%%%25%25", "0000000000"])
SHAPED = Redactor(["made-up-secret"])

UNITS = (
    " ", "\n", "\t", "\r\n", "a", "0", "9", "-", ".", ",", ":", ";", "=", "\\", "/", "//", "/*", "#", "# x\n", '"', "'",
    '"""', "'''", "(", ")", "[", "]", "{", "}", "[]", "{}", "[[", '{"a":', '["a",', "{a:", "(a,", "`", "```", "```\n",
    "~~~\n", "*", "**a ", "_a_", "[a](", "| a |\n", "> ", "<think>", "</think>", "<!--", "TOOL_CALL: f(",
    "TOOL_CALL: f({})\n", 'TOOL_CALL: {"name": "f', f"TOOL_CALL: a{'.' * 999}!\n", f"TOOL_CALL:{' ' * 999}!\n",
    f"- TOOL_CALL: a{' .;' * 300}!\n",
    f"TOOL_CALL: f({{}}){'*' * 999}\n", f"a.{')' * 999} TOOL_CALL\n", "a.", "a = 1\n", "[a]\n", "a=1,", "\\u00e9", "\\ud800",
    "é", "“", "!a/**/b*\n", "data: {}\n\n", "\ufeff", "\x00",
    "%25", "%41", "%", "&#92;", "&amp;", "&", "\\u005c", "made-up-", "key=", "://a:", "eyJ", "sk-",
)  # fmt: skip
ENDS = ("", 'x"')
UNITS_AFTER_A_RUN = [unit for unit in UNITS if SCALE > 1 or unit == "." or len(unit) > 99]
RUN = "a"
"""A long run of it stands before a shape once more: what searches from each character on goes over all of it again."""


def _fed(parser: CallParser, text: str) -> None:
    for place in range(0, len(text), 1_000):
        parser.feed(text[place : place + 1_000])
    parser.close()


def _refused(parse: Callable[[str], Any], text: str) -> None:
    with contextlib.suppress(ValueError):
        parse(text)


def _drawn(markdown: Markdown, text: str) -> None:
    for place in range(0, len(text), 100):
        markdown.feed(text[place : place + 100])
    markdown.close()


def _split(data: bytes) -> None:
    splitter = splitter_of(data[:64], 1 << 24)
    texts: list[bytes] = []
    if splitter is not None:
        for place in range(0, len(data), 4_096):
            splitter.feed(data[place : place + 4_096], texts)
        splitter.close(texts)


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """A collection looks at what all the tests before have left, and would be counted as work of the parser."""
    gc.disable()
    yield
    gc.enable()


def _seconds(parse: Callable[[str], Any], text: str) -> float:
    """The processor time of this thread alone, so that what else is running does not count."""
    begin = time.thread_time()
    # The last one is turned into one of ours by whoever reads a file.
    with contextlib.suppress(CallgateError, ToolError, tomllib.TOMLDecodeError):
        parse(text)
    return time.thread_time() - begin


def _is_linear(parse: Callable[[str], Any], unit: str, end: str, start: str = "") -> bool:
    """Whether the work grows with the text: the best of a few tries, of a long text and of a short one."""

    def shape(chars: int) -> str:
        half = chars // 2 if start else 0
        return start * half + unit * ((chars - half) // len(unit)) + end

    long = short = math.inf
    for _ in range(TRIES):
        long = min(long, _seconds(parse, shape(CHARS)))
        if long < SHORT_S:
            return True
        short = min(short, _seconds(parse, shape(CHARS // TIMES)))
        if long < 3 * TIMES * short:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS)
def test_a_parser_takes_hostile_shapes_in_linear_time_and_raises_nothing_else(parser: str) -> None:
    shapes = [(unit, end, "") for unit in UNITS for end in ENDS] + [(unit, "", RUN) for unit in UNITS_AFTER_A_RUN]
    assert [shape for shape in shapes if not _is_linear(PARSERS[parser], *shape)] == []


@pytest.mark.parametrize(
    ("work", "is_linear"),
    [
        (lambda text: [text.count("b", place) for place in range(len(text))], False),
        (lambda text: [character.upper() for character in text * 10], True),
    ],
    ids=["a search at each place", "one look"],
)
def test_quadratic_work_is_found_out_even_where_it_is_quick(work: Callable[[str], Any], *, is_linear: bool) -> None:
    assert _is_linear(work, "a", "") is is_linear


def test_there_are_enough_shapes() -> None:
    assert len(set(UNITS)) >= 60


@pytest.mark.parametrize(
    "tail",
    [
        b"", b"\0" * 64, b"\xff" * 64, b"\x01" + b"\0" * 63, b"a" * 64, (b"\x01" + b"\0" * 7) * 8,
        b"\x08\0\0\0" * 16, b"\x09\0\0\0" * 16, (b"\x09\0\0\0\x04\0\0\0" + b"\xff" * 8) * 8,
    ],
)  # fmt: skip
def test_the_head_of_a_model_file_is_read_or_refused(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "model.gguf"
    for head in (
        b"GGUF",
        b"GGUF\x03\0\0\0",
        b"GGUF\x03\0\0\0" + b"\x01" + b"\0" * 15,
        b"GGUF\x02\0\0\0" + b"\xff\x0f\0\0\0\0\0\0" * 2,
    ):
        data = io.BytesIO(head)
        data.seek(0, os.SEEK_END)
        while data.tell() < CHARS and tail:
            data.write(tail)
        path.write_bytes(data.getvalue())
        begin = time.thread_time()
        with contextlib.suppress(BadFileError):
            read_head(str(path))
        assert time.thread_time() - begin < 20  # clock: processor time; without bounds it is for ever


@pytest.mark.slow
@pytest.mark.parametrize("parser", ["markdown", "folded lines"])
def test_a_million_letters_without_width_are_drawn_in_linear_time(parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.CHARS", 1_000_000)
    draw = {"folded lines": lambda text: list(folded([(text, None)], 80))}.get(parser) or PARSERS[parser]
    assert _is_linear(draw, "\u0301", "", "a")
