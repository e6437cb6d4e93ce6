"""Titles out of prompts."""

from __future__ import annotations

import pytest

from callgate.cli.stdin import labelled, with_context
from callgate.content.title import TITLE_CHARS_MAX, title_from
from callgate.server.chat import CONTEXT


def title(*texts: str) -> str:
    return title_from({"role": "user", "parts": [{"text": text} for text in texts]})


@pytest.mark.rows(
    ("prompt", "wanted"),
    [
        ("  What is\nthe weather?  ", "What is the weather?"),
        ("# Plan\n\n- [ ] buy **bread**\n- call *Ada*", "Plan buy bread call Ada"),
        ("Why does this fail?\n```python\nprint(1)\n```\nIt worked.", "Why does this fail? It worked."),
        ("Look:\n~~~\n```\n~~~\nafter", "Look: after"),
        ("```sh\nls -l\n```", "ls -l"),
        ("Read [the docs](https://example.org/a) and ![a chart](c.png)", "Read the docs and a chart"),
        ("Use `f(*args, **kwargs)` in __init__", "Use f(*args, **kwargs) in __init__"),
        ("2 * 3 * 4, 2*3*4", "2 * 3 * 4, 2*3*4"),
        ("Hello!\n\nCan you sort this?", "Can you sort this?"),
        ("Good morning, what is new?", "what is new?"),
        ("Dear assistant,\nplease sort this", "please sort this"),
        ("Hello, world!", "Hello, world!"),
        ("Hello world in C", "Hello world in C"),
        ("hi", "hi"),
        ("> quoted\n---\n> > twice", "quoted twice"),
        ("-5 + 3", "-5 + 3"),
        ("#", "#"),
        ("", ""),
    ],
)
def test_a_title_is_the_plain_text_of_the_prompt(prompt: str, wanted: str) -> None:
    assert title(prompt) == wanted


def test_what_went_with_a_prompt_is_no_part_of_its_title() -> None:
    assert title(labelled("secret", "the file 'a.txt'"), "Sum it up.") == "Sum it up."
    assert title("Sum it up.", "\n\n" + labelled("secret", "the file 'a.txt'")) == "Sum it up."
    assert title(with_context("Sum it up.", "secret")) == "Sum it up."
    assert title("Sum it up.", CONTEXT + '{"user": "ada"}') == "Sum it up."
    assert title(labelled("secret", "the file 'a.txt'")) == ""


def test_a_long_title_is_cut_after_a_word() -> None:
    assert title("word " * 100) == "word " * 15 + "word…"
    assert title("words " * 100) == "words " * 12 + "words…"
    assert title("x" * 100) == "x" * (TITLE_CHARS_MAX - 1) + "…"
    assert title("x" * TITLE_CHARS_MAX) == "x" * TITLE_CHARS_MAX
    assert len(title("so many " * 50)) <= TITLE_CHARS_MAX


def test_thoughts_and_media_give_no_title() -> None:
    parts = [{"text": "hm", "thought": True}, {"inlineData": {"mimeType": "image/png", "data": "", "displayName": "a.png"}}]
    assert title_from({"role": "user", "parts": parts}) == ""
