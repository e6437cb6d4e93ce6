"""The line on which an approval is answered: keys in, the answer out."""

from __future__ import annotations

import pytest

from callgate.cli.answer_line import AnswerLine

CHOICES = ("yes", "no", "always", "edit", "later")


def pressed(*keys: bytes) -> tuple[str | None, str]:
    drawn: list[str] = []
    line = AnswerLine(CHOICES, drawn.append)
    answers = [line.press(each) for each in keys]
    assert answers[:-1] == [None] * (len(keys) - 1)
    return answers[-1], "".join(drawn)


@pytest.mark.rows(
    ("keys", "answer"),
    [
        ((b"\r",), ""),
        ((b"\x04",), ""),
        ((b"y\n",), "y"),
        ((b"ye", b"s", b"\r"), "yes"),
        ((b"\x1b[B", b"\r"), "yes"),
        ((b"\x1b[B\x1b[B\r",), "no"),
        ((b"\x1bOC\x1bOD\r",), "later"),
        ((b"\x1b[A\r",), "later"),
        ((b"\x1b", b"[", b"A", b"\r"), "later"),
        ((b"\x1b[Bn\r",), "n"),
        ((b"n\x1b[B\r",), "yes"),
        ((b"no\x7f\x7fy\r",), "y"),
        ((b"\x1b[B\x7f\r",), ""),
        ((b"abc\x15\r",), ""),
        ((b"\x1b[5~\x1b[200~\x01\r",), ""),
        (("\u00e9".encode()[:1], "\u00e9".encode()[1:], b"\r"), "\u00e9"),
        ((b"x" * 500 + b"\r",), "x" * 200),
    ],
)
def test_keys_make_an_answer(keys: tuple[bytes, ...], answer: str) -> None:
    assert pressed(*keys)[0] == answer


def test_what_is_chosen_is_drawn_in_the_last_row_and_what_is_typed_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    row = "  [yes]  no   always   edit   later   Enter takes it "
    assert pressed(b"\x1b[B")[1] == f"\r\x1b[2K{row}"
    assert pressed(b"ye\r")[1] == "ye\n"
    monkeypatch.setenv("COLUMNS", "30")
    assert pressed(b"\x1b[B")[1] == f"\r\x1b[2K{row[:29]}"
