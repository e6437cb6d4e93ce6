"""`@file` and `-a FILE`: what is attached, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate.cli.attachments import FILES_MAX, MEDIA_BYTES_MAX, TEXT_BYTES_MAX, AttachError, Attachments, mentions
from callgate.cli.stdin import labelled
from callgate.types import Media


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("look at @a.txt please", ["a.txt"]),
        ("@a.txt @b/c.txt @a.txt", ["a.txt", "b/c.txt"]),
        ('@"two words.txt" and @two\\ words.txt', ["two words.txt"]),
        ("mail me@example.org", []),
        ("a lone @ and @", []),
        ("(@a.txt)", []),
        ("line\n@b.txt", ["b.txt"]),
    ],
)
def test_a_file_is_mentioned_at_the_beginning_of_a_word(text: str, names: list[str]) -> None:
    assert mentions(text) == names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("alpha")
    (root / "sub" / "b.txt").write_bytes(b"\xef\xbb\xbfbeta")
    (root / "pic.jpg").write_bytes(b"\xff\xd8\xff\xe0rest")
    (root / ".env").write_text("KEY=1")
    (root / "link.txt").symlink_to(root / "a.txt")
    (root / "bytes.bin").write_bytes(b"\x01\x02\xff\xfe")
    (root / "nul.bin").write_bytes(b"a\x00b")
    (root / "long.txt").write_bytes(b"x" * (TEXT_BYTES_MAX + 1))
    (root / "huge.bin").write_bytes(b"x" * (MEDIA_BYTES_MAX + 1))
    (tmp_path / "outside.txt").write_text("secret")
    return root


def test_texts_are_labelled_and_pictures_are_media(folder: Path) -> None:
    with Attachments(str(folder)) as files:
        prompt, words = files.mentioned(f"see @a.txt, @sub/b.txt. and @pic.jpg or @{folder}/a.txt of @someone")
    assert words == ["someone"]
    assert prompt[1:] == [
        labelled("alpha", "the file 'a.txt'"),
        labelled("beta", "the file 'sub/b.txt'"),
        Media(data=b"\xff\xd8\xff\xe0rest", mime_type="image/jpeg", name="pic.jpg"),
        labelled("alpha", f"the file {str(folder / 'a.txt')!r}"),
    ]


def test_a_text_without_files_stays_a_text(folder: Path) -> None:
    with Attachments(str(folder)) as files:
        assert files.mentioned("just words @nobody") == ("just words @nobody", ["nobody"])
        assert files.mentioned("see @gone.txt") == ("see @gone.txt", ["gone.txt"])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../outside.txt", "'../outside.txt' is not attached: "),
        ("sub/../../outside.txt", "is not attached: "),
        ("link.txt", "'link.txt' is not attached: "),
        ("sub", "'sub' is not attached: "),
        ("bytes.bin", "neither text in UTF-8 (byte 2 is not) nor an image"),
        ("nul.bin", "'nul.bin' is not text: it has NUL bytes in it"),
        ("long.txt", "of a text at most 1.0 MiB can be attached"),
        ("huge.bin", "'huge.bin' has 10.0 MiB, and at most 10.0 MiB can be attached"),
        (".env", "'.env' may hold secrets, and there is no terminal to confirm it"),
        ("a\x00b.txt", "is not attached: "),
    ],
)
def test_what_cannot_be_attached_is_one_sentence(folder: Path, name: str, why: str) -> None:
    with Attachments(str(folder)) as files, pytest.raises(AttachError) as raised:
        files.mentioned(f"@{name}") if "\x00" not in name else files.prompt("x", [name])
    assert why in str(raised.value)
    assert "secret" not in str(raised.value).replace("hold secrets", "")


def test_a_sensitive_file_is_asked_about_each_time(folder: Path) -> None:
    asked: list[str] = []

    def confirm(name: str) -> bool:
        asked.append(name)
        return len(asked) > 1

    with Attachments(str(folder), confirm=confirm) as files:
        with pytest.raises(AttachError, match="you did not say yes"):
            files.mentioned("@.env")
        prompt, _ = files.mentioned("@.env")
    assert prompt[1] == labelled("KEY=1", "the file '.env'")
    assert asked == [".env", ".env"]


def test_too_many_and_too_much_together_are_refused(folder: Path) -> None:
    for n in range(FILES_MAX + 1):
        (folder / f"f{n}.txt").write_text("x")
    for n in range(2):
        (folder / f"big{n}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(MEDIA_BYTES_MAX - 8))
    with Attachments(str(folder)) as files:
        with pytest.raises(AttachError, match="51 files are more than the 50"):
            files.prompt("x", [f"f{n}.txt" for n in range(FILES_MAX + 1)])
        with pytest.raises(AttachError, match=r"more than 15\.0 MiB together"):
            files.prompt("x", ["big0.png", "big1.png"])


def test_a_film_that_is_too_large_for_a_request_is_attached_by_its_path(folder: Path) -> None:
    film = folder / "film.mp4"
    with film.open("wb") as file:
        file.write(b"\x00\x00\x00\x18ftypmp42")
        file.truncate(MEDIA_BYTES_MAX + 1)
    with Attachments(str(folder)) as attachments:
        prompt = attachments.prompt("What is this?", ["film.mp4"])
    assert prompt == ["What is this?", Media(path=str(film), mime_type="video/mp4", name="film.mp4")]
