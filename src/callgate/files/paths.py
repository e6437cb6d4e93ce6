"""A path as a model wrote it -> the names it is made of, or a sentence that says why it is not taken.

Text in, names out. Nothing here touches a file system, and nothing here keeps a path inside the root: that is done by
descriptors (`beneath.py`). What is refused here could not be meant, or means something else on another system.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from callgate.errors import ToolError

__all__ = ["NAME_BYTES_MAX", "Names", "PathRefusedError", "is_speakable", "names_of", "shown"]

NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4096
DEPTH_MAX = 128

_DRIVE = re.compile(r"[A-Za-z]:")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Marks that turn the direction of text, so that a name is shown as another one than it is.
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)


# Most names, so that most need no closer look.
_PLAIN = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.+@ -]{0,200}")


class PathRefusedError(ToolError):
    """A path that is not taken; the sentence says why and what to write instead."""


@dataclass(frozen=True, slots=True)
class Names:
    """A path below the root: the names on the way, and whether it was written as that of a folder."""

    names: tuple[str, ...]
    folder: bool = False

    @property
    def text(self) -> str:
        """The path as it is shown, with `/` between the names."""
        return "/".join(self.names) or "."


def names_of(path: str, *, roots: Sequence[str] = (), windows: bool = False) -> Names:
    """The names that a path is made of.

    `roots`, the names of the root, only serve to say how an absolute path inside it is written; `windows` adds what that
    system reads into names.

    Raises:
        PathRefusedError: the path is not one that lies below the root by its very form.
    """
    for is_wrong, sentence in _WHOLE:
        if is_wrong(path):
            raise PathRefusedError(f"The path {shown(path)} {sentence}")
    if path.startswith("/"):
        raise PathRefusedError(_absolute_sentence(path, roots))
    pieces = path.split("/")
    names = tuple(piece for piece in pieces if piece not in ("", "."))
    if len(names) > DEPTH_MAX:
        raise PathRefusedError(f"The path {shown(path)} has {len(names)} levels; at most {DEPTH_MAX} are possible.")
    for name in names:
        for is_wrong, sentence in (*_EACH, *(_EACH_WINDOWS if windows else ())):
            if is_wrong(name):
                raise PathRefusedError(f"The path {shown(path)} {sentence}")
    if names and names[0].startswith("~"):
        raise PathRefusedError(f"The path {shown(path)} begins with '~', which stands for nothing here; {_RELATIVE}")
    return Names(names, folder=pieces[-1] in ("", "."))


def shown(path: str) -> str:
    """A path for a sentence: quoted, bounded, and with everything escaped that could steer a terminal or a reader."""
    return ascii_controls(path if len(path) <= 200 else f"{path[:150]}…{path[-40:]}")


def ascii_controls(text: str) -> str:
    """`repr` that also escapes what has no shape of its own."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in repr(text))


def is_speakable(name: str) -> bool:
    """True if a name that was found in a folder can be written in a path; a few cannot, and are told apart."""
    if _PLAIN.fullmatch(name):
        return True
    return not any(is_wrong(name) for is_wrong, _ in (*_WHOLE, *_EACH)) and not name.startswith("~")


_RELATIVE = "write it relative to the root, such as 'src/main.py'."


def _absolute_sentence(path: str, roots: Sequence[str]) -> str:
    for inside in (_below(path, root) for root in roots):
        if inside is None:
            continue
        return f"The path {shown(path)} is absolute; write it relative to the root: {shown(inside)}."
    return f"The path {shown(path)} is absolute and does not lie in the root; {_RELATIVE}"


def _below(path: str, root: str) -> str | None:
    """The relative form of an absolute path, by its text alone; it is only ever told, never used."""
    if ".." in path.split("/"):
        return None
    above = [piece for piece in root.split("/") if piece]
    names = [piece for piece in path.split("/") if piece not in ("", ".")]
    return ("/".join(names[len(above) :]) or ".") if names[: len(above)] == above else None


def _has_control(text: str) -> bool:
    return any(unicodedata.category(character) == "Cc" for character in text)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _name_too_long(name: str) -> bool:
    return len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX


Check = tuple[Callable[[str], object], str]

_WHOLE: Sequence[Check] = (
    (lambda path: not path, f"is empty; {_RELATIVE}"),
    (lambda path: "\0" in path, "holds a NUL character, which no file name can hold."),
    (_has_surrogate, "holds half a surrogate pair, which is no text."),
    (_has_control, "holds a control character; such names are not opened."),
    (_TURNING.search, "holds a mark that turns the direction of text; such names are not opened."),
    (lambda path: len(path.encode()) > PATH_BYTES_MAX, f"is longer than {PATH_BYTES_MAX} bytes."),
    (lambda path: "\\" in path, "holds a backslash; write '/' between folders."),
    (_SCHEME.match, f"is a URL; {_RELATIVE}"),
    (_DRIVE.match, f"begins with a drive letter; {_RELATIVE}"),
)
_EACH: Sequence[Check] = (
    (lambda name: name == "..", "holds '..', which may lead out of the root; write the path without it."),
    (_name_too_long, f"holds a name of more than {NAME_BYTES_MAX} bytes, which cannot exist."),
)
_EACH_WINDOWS: Sequence[Check] = (
    (_RESERVED.fullmatch, "holds a name that stands for a device."),
    (lambda name: ":" in name, "holds a colon, which names a hidden stream of a file."),
    (lambda name: name.endswith((".", " ")), "holds a name that ends with a dot or a space, which is dropped in silence."),
    (re.compile(r'[<>"|?*]').search, "holds a character that no file name can hold."),
)
