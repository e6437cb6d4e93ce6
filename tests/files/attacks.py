"""Attacks on file tools: one table, for any implementation and any user, with or without pytest.

A case lays something out, makes calls and says what must come of them. Whatever the case says, three things always hold: the
secret outside is in no answer, nothing outside the root has changed, and no temporary file is left in the root.

    python attacks.py BACKEND [--user UID] [CASE...]      runs the table and prints one line for each case that fails
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SECRET = "TOP-SECRET-8c1f"
CASE_S_MAX = 60.0
MIB = 1024 * 1024


class Place:
    """A root with a secret beside it, and the tools that are attacked."""

    def __init__(self, base: Path, make: Callable[..., Any]) -> None:
        self.base, self.root, self.outside, self.state = base, base / "root", base / "outside", base / "state"
        for folder in (self.root, self.outside):
            folder.mkdir()
        (self.outside / "secret.txt").write_text(SECRET)
        (self.outside / "folder").mkdir()
        (base / "root-evil").mkdir()
        (base / "root-evil" / "secret.txt").write_text(SECRET)
        (self.root / "a.txt").write_text("inside\n")
        (self.root / "sub").mkdir()
        (self.root / "sub" / "b.txt").write_text("inside b\n")
        self._make, self._files = make, None
        self.answers: list[Any] = []

    def use(self, **options: Any) -> None:
        """Makes the tools now, with options; otherwise they are made at the first call."""
        self._files = self._make(self.root, state_dir=self.state, **options)

    @property
    def files(self) -> Any:
        if self._files is None:
            self.use()
        return self._files

    def call(self, name: str, **args: Any) -> Any:
        result = self.files.call_sync(name, args)
        self.answers.append((result.value, result.error, result.notes))
        assert result.is_error == (result.status != "finished")
        return result

    def read(self, path: str, **args: Any) -> Any:
        return self.call("read_file", path=path, **args)

    def write(self, path: str, content: str = "written\n", **args: Any) -> Any:
        return self.call("write_file", path=path, content=content, **args)

    def ls(self, path: str = ".", **args: Any) -> Any:
        return self.call("list_files", path=path, **args)

    def refused(self, result: Any, *words: str) -> None:
        assert result.is_error, f"not refused: {result.value!r}"
        assert result.error, "refused without a sentence"
        assert "Traceback" not in result.error
        for word in words:
            assert word in result.error, f"{word!r} is not in {result.error!r}"

    def all_refused(self, path: str, *words: str) -> None:
        """No tool takes the path."""
        for result in (
            self.read(path),
            self.write(path),
            self.write(path, mode="append"),
            self.call("edit_file", path=path, old_string="inside", new_string="x"),
            self.ls(path),
            self.call("search_files", path=path, pattern="."),
        ):
            self.refused(result, *words)


Case = Callable[[Place], None]
CASES: dict[str, Case] = {}


def attack(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


# What always holds -------------------------------------------------------------------------------------------------------


def snapshot(folder: Path) -> dict[str, Any]:
    """Everything that can be seen of a folder, without following links."""
    seen: dict[str, Any] = {}
    for top, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = os.path.join(top, name)
            known = os.lstat(path)
            data: Any = None
            if stat.S_ISREG(known.st_mode):
                with contextlib.suppress(PermissionError), open(path, "rb") as file:
                    data = file.read()
            elif stat.S_ISLNK(known.st_mode):
                data = os.readlink(path)
            seen[path] = (stat.S_IMODE(known.st_mode), stat.S_IFMT(known.st_mode), known.st_uid, data)
    return seen


class TooLong(BaseException):
    """The case took too long: something blocks. Nothing that takes errors for answers may catch it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(signum: int, frame: Any) -> None:
        raise TooLong(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_case(name: str, base: Path, make: Callable[..., Any]) -> None:
    place = Place(base, make)
    outside = [place.outside, base / "root-evil"]
    before = [snapshot(folder) for folder in outside]
    with time_limit(CASE_S_MAX):
        CASES[name](place)
    # The case may have put something outside itself; it says so by calling `outside_changed`.
    if not getattr(place, "outside_changed", False):
        assert [snapshot(folder) for folder in outside] == before, "something outside the root has changed"
    assert SECRET not in repr(place.answers), "the secret is in an answer"
    if place.root.is_dir() and not place.root.is_symlink():
        left = [name for _, _, names in os.walk(place.root) for name in names if name.endswith(".tmp")]
        assert left == [], f"temporary files are left: {left}"


# Lexical -----------------------------------------------------------------------------------------------------------------


def lexical(name: str, path: str, *words: str) -> None:
    def case(place: Place) -> None:
        # What lies outside is a file of the test's own, never one of the system: see `LINKS`.
        place.all_refused(path.replace("<outside>", str(place.outside)), *words)

    case.__name__ = f"lexical_{name}"
    attack(case)


lexical("parent", "..", "'..'")
lexical("parent_file", "../outside/secret.txt", "'..'")
lexical("parent_inside", "sub/../a.txt", "'..'")
lexical("parent_deep", "sub/../../outside/secret.txt", "'..'")
lexical("parent_many", "../" * 40 + "<outside>/secret.txt", "'..'")
lexical("parent_at_end", "sub/..", "'..'")
lexical("parent_after_dots", "./././../outside/secret.txt", "'..'")
lexical("parent_after_slashes", "sub//..//../outside/secret.txt", "'..'")
lexical("absolute", "<outside>/secret.txt", "absolute")
lexical("absolute_double", "/<outside>/secret.txt", "absolute")
lexical("absolute_proc", "/proc/self/root<outside>/secret.txt", "absolute")
lexical("absolute_cwd", "/proc/self/cwd", "absolute")
lexical("home", "~", "'~'")
lexical("home_file", "~/.ssh/id_rsa", "'~'")
lexical("home_user", "~root/x", "'~'")
lexical("home_after_dot", "./~/x", "'~'")
lexical("nul", "a.txt\0", "NUL")
lexical("nul_cut", "a.txt\0/../../outside/secret.txt", "NUL")
lexical("backslash", "..\\outside\\secret.txt", "backslash")
lexical("backslash_inside", "sub\\b.txt", "backslash")
lexical("unc", "\\\\server\\share\\x", "backslash")
lexical("unc_slashes", "//server/share/x", "absolute")
lexical("drive", "C:/Windows/win.ini", "drive")
lexical("drive_relative", "c:x", "drive")
lexical("url", "file://<outside>/secret.txt", "URL")
lexical("newline", "a\nb.txt", "control")
lexical("escape", "a\x1b[2Jb.txt", "control")
lexical("delete", "a\x7fb.txt", "control")
lexical("c1", "a\x9bb.txt", "control")
lexical("carriage_return", "a\r.txt", "control")
lexical("bidi", "a\u202etxt.exe", "direction")
lexical("long_name", "x" * 256, "255")
lexical("long_name_bytes", "é" * 128, "255")
lexical("long_path", "/".join(["d" * 100] * 50), "4096")
lexical("deep_path", "/".join(["d"] * 129), "levels")


@attack
def lexical_empty(place: Place) -> None:
    for result in (place.read(""), place.write(""), place.call("edit_file", path="", old_string="a", new_string="b")):
        place.refused(result, "empty")


@attack
def lexical_half_a_surrogate(place: Place) -> None:
    place.all_refused("a\ud800.txt")


@attack
def lexical_half_a_surrogate_in_the_content(place: Place) -> None:
    place.refused(place.write("new.txt", "a\ud800"))
    assert not (place.root / "new.txt").exists()


@attack
def lexical_absolute_inside_says_the_relative_form(place: Place) -> None:
    place.refused(place.read(str(place.root / "sub" / "b.txt")), "'sub/b.txt'")
    place.refused(place.read(f"{place.root}/../outside/secret.txt"), "absolute")
    os.symlink(place.root, place.base / "named")
    files = place._make(place.base / "named", state_dir=place.state)
    for root in (place.root, place.base / "named"):
        place.refused(files.call_sync("read_file", {"path": f"{root}/sub/b.txt"}), "'sub/b.txt'")


@attack
def lexical_sibling_with_the_same_prefix(place: Place) -> None:
    place.refused(place.read("../root-evil/secret.txt"))
    place.refused(place.read(f"{place.root}-evil/secret.txt"), "absolute and does not lie in the root")


@attack
def lexical_names_that_only_look_like_parents(place: Place) -> None:
    for name in ("...", "..a", "a..", "‥", "．．", "%2e%2e", "..%2f", "....", " .."):
        assert not place.write(f"{name}/x.txt").is_error, name
        assert (place.root / name / "x.txt").read_text() == "written\n"
        assert place.read(f"{name}/x.txt").value == "written\n"


@attack
def lexical_dots_and_slashes_are_stripped(place: Place) -> None:
    for path in ("./a.txt", ".//a.txt", "././a.txt", "sub/./b.txt", "sub//b.txt"):
        assert not place.read(path).is_error, path


@attack
def lexical_other_scripts(place: Place) -> None:
    for name in (
        "日本語.txt",
        "naïve.txt",
        "e\u0301.txt",
        "👩‍👩‍👧.txt",
        "ملف.txt",
        "a b.txt",
        "-rf",
        "$(id)",
        "`id`",
        "a;b",
        "*",
        "x'y\"z",
    ):
        assert not place.write(name, name).is_error, name
        assert place.read(name).value == name
        assert name in place.ls().value


@attack
def lexical_composed_and_decomposed_letters_are_two_names(place: Place) -> None:
    place.write("\u00e9.txt", "one")
    result = place.read("e\u0301.txt")
    if result.is_error:  # On a file system that takes them for one name it is read.
        place.refused(result, "There is")


@attack
def lexical_another_case_is_another_name_and_is_hinted_at(place: Place) -> None:
    if not (place.root / "A.TXT").exists():
        place.refused(place.read("A.TXT"), "There is 'a.txt'")


@attack
def lexical_trailing_slash_on_a_file(place: Place) -> None:
    for path in ("a.txt/", "a.txt/.", "a.txt//"):
        place.refused(place.read(path))
        place.refused(place.write(path))
    place.refused(place.write("new/"))
    place.refused(place.write("."))
    assert not (place.root / "new").exists()


@attack
def lexical_a_file_as_a_folder(place: Place) -> None:
    place.refused(place.read("a.txt/b"), "not a folder")
    place.refused(place.write("a.txt/b"), "not a folder")
    place.refused(place.ls("a.txt"), "not a folder")


@attack
def lexical_a_folder_as_a_file(place: Place) -> None:
    place.refused(place.read("sub"), "folder")
    place.refused(place.write("sub"), "folder")
    assert (place.root / "sub" / "b.txt").read_text() == "inside b\n"


# Symbolic links ----------------------------------------------------------------------------------------------------------

LINKS: dict[str, tuple[str, str, str]] = {
    # name: (link, target, path that is asked for)
    "file_outside": ("link", "{outside}/secret.txt", "link"),
    "file_outside_relative": ("link", "../outside/secret.txt", "link"),
    "folder_outside": ("link", "{outside}", "link/secret.txt"),
    "folder_outside_relative": ("link", "../outside", "link/secret.txt"),
    "folder_outside_with_slash": ("link", "{outside}/", "link/secret.txt"),
    "deep_parent": ("sub/link", "../../outside", "sub/link/secret.txt"),
    # Never a file of the system: the attacks also run against tools whose guards were taken out, and perhaps as root.
    "root_of_the_system": ("link", "/", "link{outside}/secret.txt"),
    "root_of_the_process": ("link", "/proc/self/root", "link{outside}/secret.txt"),
    "folder_of_the_process": ("link", "/proc/self/cwd", "link/x"),
    "descriptor_of_the_process": ("link", "/proc/self/fd/0", "link"),
    "device": ("link", "/dev/zero", "link"),
    "dangling": ("link", "{outside}/new.txt", "link"),
    "dangling_relative": ("link", "../outside/new.txt", "link"),
    "itself": ("link", "link", "link"),
    "file_inside": ("link", "a.txt", "link"),
    "folder_inside": ("link", "sub", "link/b.txt"),
    "sibling_prefix": ("link", "../root-evil", "link/secret.txt"),
}


def link_case(name: str, link: str, target: str, path: str) -> None:
    def case(place: Place) -> None:
        asked = path.format(outside=place.outside)
        os.symlink(target.format(outside=place.outside), place.root / link)
        for result in (
            place.read(asked),
            place.write(asked),
            place.write(asked, mode="append"),
            place.call("edit_file", path=asked, old_string=SECRET, new_string="x"),
        ):
            place.refused(result, "link")
        place.refused(place.ls(link))
        place.refused(place.call("search_files", path=link, pattern="."))
        assert place.call("search_files", pattern=SECRET).value == []
        assert not any(found.startswith(link) for found in place.ls().value)
        assert os.readlink(place.root / link) == target.format(outside=place.outside)

    case.__name__ = f"link_{name}"
    attack(case)


for _name, _row in LINKS.items():
    link_case(_name, *_row)


@attack
def link_trailing_slash_does_not_follow(place: Place) -> None:
    os.symlink(place.outside, place.root / "link")
    for path in ("link/", "link/.", "link//", "./link/"):
        place.refused(place.ls(path))
        place.refused(place.read(path))
        place.refused(place.write(path))
        place.refused(place.write(f"{path}/new.txt"))
    assert not (place.outside / "new.txt").exists()


@attack
def link_parent_that_must_be_made(place: Place) -> None:
    os.symlink("../outside/folder", place.root / "sub" / "link")
    place.refused(place.write("sub/link/one/two/x.txt"), "link")


@attack
def link_as_ignore_file_is_not_read(place: Place) -> None:
    os.symlink(place.outside / "secret.txt", place.root / ".gitignore")
    assert place.ls().value == ["a.txt", "sub/b.txt"]


@attack
def link_inside_is_followed_where_allowed(place: Place) -> None:
    os.symlink("sub", place.root / "folder-link")
    os.symlink("../a.txt", place.root / "sub" / "file-link")
    place.use(symlinks=True)
    assert place.read("folder-link/b.txt").value == "inside b\n"
    assert place.read("sub/file-link").value == "inside\n"
    assert place.read("folder-link/file-link").value == "inside\n"
    assert not place.write("sub/file-link", "changed\n").is_error
    assert (place.root / "a.txt").read_text() == "changed\n"
    assert (place.root / "sub" / "file-link").is_symlink()


@attack
def link_out_is_refused_where_inside_is_allowed(place: Place) -> None:
    place.use(symlinks=True)
    for number, target in enumerate([
        place.outside / "secret.txt", "../outside/secret.txt", "sub/../../outside/secret.txt",
        f"/proc/self/root{place.outside}/secret.txt", place.root / "a.txt",
    ]):  # fmt: skip
        os.symlink(target, place.root / f"link{number}")
        place.refused(place.read(f"link{number}"))
        place.refused(place.write(f"link{number}"))
    os.symlink("loop-b", place.root / "loop-a")
    os.symlink("loop-a", place.root / "loop-b")
    place.refused(place.read("loop-a"))
    os.symlink("../outside", place.root / "out")
    place.refused(place.write("out/new.txt"))
    place.refused(place.ls("out"))
    assert place.call("search_files", pattern=SECRET).value == []


@attack
def link_as_root_is_where_it_led_at_the_start(place: Place) -> None:
    link = place.base / "root-link"
    os.symlink(place.root, link)
    files = place._make(link, state_dir=place.state)
    link.unlink()
    os.symlink(place.outside, link)
    result = files.call_sync("list_files", {})
    place.answers.append(result)
    assert result.value == ["a.txt", "sub/b.txt"]


# Hard links --------------------------------------------------------------------------------------------------------------


def hard_link(place: Place) -> Path:
    os.link(place.outside / "secret.txt", place.root / "hard.txt")
    return place.root / "hard.txt"


@attack
def hard_link_is_not_read(place: Place) -> None:
    hard_link(place)
    place.refused(place.read("hard.txt"), "hard links")
    place.refused(place.call("edit_file", path="hard.txt", old_string="TOP", new_string="x"), "hard links")
    place.refused(place.call("search_files", path="hard.txt", pattern="."))
    assert place.call("search_files", pattern="TOP").value == []


@attack
def hard_link_is_broken_by_a_write(place: Place) -> None:
    path = hard_link(place)
    assert not place.write("hard.txt").is_error
    assert path.read_text() == "written\n"
    assert (place.outside / "secret.txt").read_text() == SECRET


@attack
def hard_link_cannot_be_laundered_by_appending(place: Place) -> None:
    hard_link(place)
    place.refused(place.write("hard.txt", "x", mode="append"), "hard links")
    place.refused(place.read("hard.txt"))


@attack
def hard_link_is_read_where_allowed(place: Place) -> None:
    os.link(place.root / "a.txt", place.root / "twin.txt")
    place.use(hard_links=True)
    assert place.read("twin.txt").value == "inside\n"
    assert not place.write("twin.txt", "+", mode="append").is_error
    assert (place.root / "a.txt").read_text() == "inside\n"
    assert [match["path"] for match in place.call("search_files", pattern="inside$").value] == ["a.txt", "twin.txt"]


# Special files -----------------------------------------------------------------------------------------------------------


def special_case(name: str, make: Callable[[Path], None]) -> None:
    def case(place: Place) -> None:
        path = place.root / "special"
        try:
            make(path)
        except PermissionError:  # Only the superuser makes devices.
            return
        mode = os.lstat(path).st_mode
        place.all_refused("special")
        place.refused(place.write("special/below.txt"))
        assert "special" not in place.ls().value
        assert place.call("search_files", pattern=".", include="special").value == []
        assert os.lstat(path).st_mode == mode

    case.__name__ = f"special_{name}"
    attack(case)


def _socket(path: Path) -> None:
    # The name of a socket may be no longer than about 100 bytes.
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


special_case("pipe", os.mkfifo)
special_case("socket", _socket)
special_case("zero", lambda path: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)))
special_case("terminal", lambda path: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(5, 0)))
special_case("disk", lambda path: os.mknod(path, 0o666 | stat.S_IFBLK, os.makedev(7, 0)))


@attack
def special_pipe_as_ignore_file_does_not_hang(place: Place) -> None:
    os.mkfifo(place.root / ".gitignore")
    assert place.ls().value == ["a.txt", "sub/b.txt"]


@attack
def special_a_file_that_lies_about_its_size(place: Place) -> None:
    files = place._make("/proc/self", state_dir=place.state)
    result = files.call_sync("read_file", {"path": "status"})
    assert "Pid:" in result.value
    result = files.call_sync("read_file", {"path": "cwd/x"})
    assert result.is_error
    result = files.call_sync("list_files", {"path": "fd"})
    assert result.value == [], "links of the process are links, too"


# The root itself ---------------------------------------------------------------------------------------------------------


@attack
def root_moved_while_running(place: Place) -> None:
    place.use()
    place.root.rename(place.base / "moved")
    place.root.symlink_to(place.outside)
    place.refused(place.read("secret.txt"))
    assert place.read("a.txt").value == "inside\n"
    assert place.write("new.txt").is_error or (place.base / "moved" / "new.txt").exists()
    assert not (place.outside / "new.txt").exists()


@attack
def root_moved_and_nothing_in_its_place(place: Place) -> None:
    place.write("a.txt", "changed\n")
    place.root.rename(place.base / "moved")
    assert not place.write("new.txt").is_error
    assert not place.write("a.txt", "again\n").is_error
    assert (place.base / "moved" / "a.txt").read_text() == "again\n"
    assert place.ls().value == ["a.txt", "new.txt", "sub/b.txt"]


@attack
def root_replaced_while_running(place: Place) -> None:
    place.use()
    place.root.rename(place.base / "moved")
    place.root.mkdir()
    (place.root / "other.txt").write_text(SECRET)
    place.refused(place.read("other.txt"))


@attack
def root_deleted_while_running(place: Place) -> None:
    place.use()
    (place.root / "a.txt").unlink()
    (place.root / "sub" / "b.txt").unlink()
    (place.root / "sub").rmdir()
    place.root.rmdir()
    place.refused(place.read("a.txt"), "deleted")
    place.refused(place.write("a.txt"), "deleted")
    place.refused(place.ls(), "deleted")


@attack
def root_that_holds_the_state(place: Place) -> None:
    place.state = place.root / ".state"
    assert not place.write("a.txt", "changed\n").is_error
    assert list((place.state / "backups").iterdir())
    before = snapshot(place.state)
    for path in (".state", ".state/backups", ".state/backups/x.txt", ".state/new.txt"):
        place.refused(place.read(path))
        place.refused(place.write(path))
        place.refused(place.ls(path))
        place.refused(place.call("search_files", path=path, pattern="."))
    for backup in (place.state / "backups").iterdir():
        place.refused(place.read(f".state/backups/{backup.name}"))
    assert not any("state" in path for path in place.ls().value)
    assert place.call("search_files", pattern="inside", path=".").value == [
        {"path": "sub/b.txt", "line": 1, "text": "inside b"}
    ]
    assert snapshot(place.state) == before


@attack
def root_that_gets_the_state_later(place: Place) -> None:
    place.state = place.root / "later"
    place.use()  # There is nothing there yet.
    place.write("later/backups/planted.json", "{}")
    place.write("a.txt", "changed\n")
    for path in ("later/backups/planted.json", "later/x"):
        place.refused(place.read(path))
        place.refused(place.write(path))


@attack
def root_in_which_others_make_the_state(place: Place) -> None:
    place.state = place.root / "later"
    place.use()
    (place.state / "sessions").mkdir(parents=True)
    (place.state / "sessions" / "x.txt").write_text(SECRET)
    place.refused(place.read("later/sessions/x.txt"))
    place.refused(place.ls("later"))
    assert place.ls().value == ["a.txt", "sub/b.txt"]
    assert place.call("search_files", pattern=SECRET).value == []


# Reading -----------------------------------------------------------------------------------------------------------------


@attack
def read_limit_exactly(place: Place) -> None:
    (place.root / "big.txt").write_bytes(b"x" * MIB)
    result = place.read("big.txt")
    assert (len(result.value), result.notes) == (MIB, ())


@attack
def read_limit_one_more(place: Place) -> None:
    (place.root / "big.txt").write_bytes(b"x" * (MIB + 1))
    result = place.read("big.txt")
    assert len(result.value) == MIB
    assert "Cut" in result.notes[0]


@attack
def read_limit_says_how_to_go_on(place: Place) -> None:
    lines = [f"line {number} {'.' * 80}\n" for number in range(1, 40_000)]
    (place.root / "big.txt").write_text("".join(lines))
    text, start = "", 1
    while True:
        result = place.read("big.txt", start_line=start) if start > 1 else place.read("big.txt")
        assert len(result.value) <= MIB
        text += result.value
        notes = [note for note in result.notes if "start_line=" in note]
        if not notes:
            break
        start = int(notes[0].rpartition("start_line=")[2].rstrip("."))
    assert text == "".join(lines)


@attack
def read_limit_does_not_cut_a_character(place: Place) -> None:
    (place.root / "big.txt").write_text("é" * MIB)
    result = place.read("big.txt")
    assert set(result.value) == {"é"}
    assert len(result.value.encode()) <= MIB


@attack
def read_sparse_file_of_a_terabyte(place: Place) -> None:
    with open(place.root / "sparse", "wb") as file, contextlib.suppress(OSError):
        file.truncate(1 << 40)
    place.refused(place.read("sparse"), "binary")
    place.refused(place.read("sparse", start_line=5))
    assert place.call("search_files", pattern="x", path="sparse").value == []
    place.refused(place.write("sparse", "x", mode="append"))


BINARIES = {
    "nul": b"abc\0def",
    "late_nul": b"a" * 100_000 + b"\0",
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "elf": b"\x7fELF\x02\x01\x01\x00",
    "random": bytes(range(256)) * 10,
    "gzip": b"\x1f\x8b\x08\x08abc\xff\xfe",
    "controls": b"\x01\x02\x03\x04" * 20 + b"text",
    "pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n\x01\x02",
}


@attack
def read_binary_is_refused(place: Place) -> None:
    for name, data in BINARIES.items():
        (place.root / name).write_bytes(data)
        place.refused(place.read(name), "binary")
        place.refused(place.call("edit_file", path=name, old_string="a", new_string="b"))
        place.refused(place.write(name, "text", mode="append"))
        assert (place.root / name).read_bytes() == data


@attack
def read_encodings(place: Place) -> None:
    text = "Grüße, «monde»\nzwei\n"
    for codec in ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "cp1252"):
        mark = {"utf-16-be": b"\xfe\xff", "utf-16-le": b"\xff\xfe"}.get(codec, b"")
        (place.root / "f").write_bytes(mark + text.encode(codec))
        result = place.read("f")
        assert result.value == text, codec
        assert bool(result.notes) == (codec != "utf-8"), codec
        assert place.read("f", start_line=2).value == "zwei\n"


@attack
def read_line_ranges(place: Place) -> None:
    (place.root / "f").write_text("1\n2\r\n3\n4\n5")
    rows: list[tuple[int | None, int | None, str | None]] = [
        (1, 1, "1\n"), (2, 3, "2\r\n3\n"), (5, None, "5"), (None, 2, "1\n2\r\n"), (-1, None, "5"), (-2, -2, "4\n"),
        (4, 100, "4\n5"), (-100, 1, "1\n"), (6, None, None), (0, None, None), (None, 0, None), (3, 2, None), (-1, -2, None),
        (5, -3, None),
    ]  # fmt: skip
    for start, end, expected in rows:
        result = place.read("f", start_line=start, end_line=end)
        if expected is None:
            place.refused(result)
        else:
            assert result.value == expected, (start, end)
    (place.root / "empty").write_bytes(b"")
    assert place.read("empty").value == ""
    assert place.read("empty", start_line=1).value == ""


@attack
def read_what_may_not_be_read(place: Place) -> None:
    (place.root / "a.txt").chmod(0)
    result = place.read("a.txt")
    if os.geteuid() != 0:
        place.refused(result, "permission")


# Listing and patterns ----------------------------------------------------------------------------------------------------


@attack
def list_names_at_any_depth(place: Place) -> None:
    (place.root / "sub" / "deep").mkdir()
    (place.root / "sub" / "deep" / "c.rs").touch()
    (place.root / "d.rs").touch()
    assert place.ls(pattern="*.rs").value == ["d.rs", "sub/deep/c.rs"]
    assert place.ls("sub", pattern="*.rs").value == ["sub/deep/c.rs"]
    assert place.ls(pattern="sub/*.rs").value == []
    assert place.ls(pattern="sub/**/*.rs").value == ["sub/deep/c.rs"]
    assert place.ls(pattern="*.{rs,txt}").value == ["a.txt", "d.rs", "sub/b.txt", "sub/deep/c.rs"]


@attack
def list_patterns_that_lead_out(place: Place) -> None:
    for pattern in ("../*", "/etc/*", "sub/../../*", "*/../../outside/*", "..", "a\0b", "..\\*", "{..,x}/*"):
        result = place.ls(pattern=pattern)
        assert result.is_error, pattern
    assert place.ls(pattern="~/*").value == []


@attack
def list_patterns_that_explode(place: Place) -> None:
    name = "a" * 250
    folder = place.root
    for _ in range(24):
        folder = folder / "a"
    folder.mkdir(parents=True)
    (folder / name).touch()
    for _ in range(200):
        (folder / (name + str(_))).touch()
    for pattern in (
        "**/" * 10 + "*", "**/**/**/*a*a*a", "*a" * 100 + "b", "[" * 500, "[a-a]" * 60 + "*", "**/a/" * 60 + "b", "?" * 500,
        "*" * 512, "{a,b}" * 6, "[!a]" * 100, "a*" * 120 + "x", "**/*" * 100,
    ):  # fmt: skip
        started = time.process_time()
        place.ls(pattern=pattern)
        assert time.process_time() - started < 3, pattern  # clock: the processor time of what would take years


@attack
def list_caps_refuse(place: Place) -> None:
    place.refused(place.ls(pattern="a" * 513), "512")
    place.refused(place.ls(pattern="[" * 20_000), "512")
    place.refused(place.ls(pattern="{a,b}" * 20), "64")
    place.refused(place.call("search_files", pattern="a" * 513), "512")


@attack
def list_is_cut_at_ten_thousand_and_goes_on(place: Place) -> None:
    many = place.root / "many"
    many.mkdir()
    for number in range(10_100):
        os.close(os.open(many / f"{number:05}", os.O_CREAT, 0o600))
    first = place.ls("many")
    assert len(first.value) == 10_000
    assert "Cut after 10000" in first.notes[0]
    rest = place.ls("many", after=first.value[-1])
    assert (len(rest.value), rest.notes) == (100, ())
    assert sorted(first.value + rest.value) == first.value + rest.value


@attack
def list_deep_tree_is_bounded(place: Place) -> None:
    descriptor = os.open(place.root, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("bottom", os.O_CREAT, 0o600, dir_fd=descriptor))
    os.close(descriptor)
    result = place.ls()
    assert result.value == ["a.txt", "sub/b.txt"]
    assert "128 levels" in result.notes[0]


@attack
def list_loop_of_links_ends(place: Place) -> None:
    os.symlink("..", place.root / "sub" / "up")
    os.symlink(".", place.root / "self")
    assert place.ls().value == ["a.txt", "sub/b.txt"]
    place.use(symlinks=True)
    assert place.ls().value == ["a.txt", "sub/b.txt"]


@attack
def list_respects_ignore_files(place: Place) -> None:
    for path in (
        "build/x.o",
        "keep/x.o",
        "keep/y.c",
        "node_modules/m/i.js",
        "sub/secret.log",
        "sub/important.log",
        ".git/config",
    ):
        (place.root / path).parent.mkdir(parents=True, exist_ok=True)
        (place.root / path).touch()
    (place.root / ".gitignore").write_text("*.o\nnode_modules/\n/build\n")
    (place.root / "keep" / ".gitignore").write_text("!x.o\n")
    (place.root / "sub" / ".geminiignore").write_text("*.log\n!important.log\n")
    shown = [
        ".gitignore",
        "a.txt",
        "keep/.gitignore",
        "keep/x.o",
        "keep/y.c",
        "sub/.geminiignore",
        "sub/b.txt",
        "sub/important.log",
    ]
    assert place.ls().value == shown
    assert place.ls("keep", pattern="*.o").value == ["keep/x.o"]
    assert place.ls("sub", pattern="*.log").value == ["sub/important.log"]
    assert place.ls("build").value == [], "the rule for *.o holds in there, too"
    place.use(ignore=False)
    assert {"build/x.o", ".git/config", "sub/secret.log"} <= set(place.ls().value)


@attack
def list_ignore_file_that_explodes(place: Place) -> None:
    (place.root / ".gitignore").write_text("\n".join(["*a" * 120 + "b"] * 500) + "\n" + "x" * 600 + "\n[\n\\\n!\n/\n//\n")
    for number in range(20):
        (place.root / ("a" * 240 + str(number))).touch()
    started = time.process_time()
    result = place.ls()
    assert time.process_time() - started < 10  # clock: the processor time of what would take years
    assert len(result.value) == 23


@attack
def list_names_that_cannot_be_written(place: Place) -> None:
    for name in (b"\xff\xfe.txt", b"new\nline", b"back\\slash", b"esc\x1b[2J"):
        os.close(os.open(os.path.join(os.fsencode(place.root), name), os.O_CREAT, 0o600))
    result = place.ls()
    assert result.value == ["a.txt", "sub/b.txt"]
    assert "cannot be written" in result.notes[0]
    assert result.notes[0].isprintable()


# Writing -----------------------------------------------------------------------------------------------------------------


@attack
def write_makes_parents(place: Place) -> None:
    assert not place.write("one/two/three/x.txt").is_error
    assert (place.root / "one/two/three/x.txt").read_text() == "written\n"


@attack
def write_keeps_the_mode(place: Place) -> None:
    for mode in (0o600, 0o640, 0o644, 0o755, 0o700, 0o666):
        path = place.root / "m.sh"
        path.write_text("old")
        path.chmod(mode)
        for how in ("overwrite", "append"):
            assert not place.write("m.sh", mode=how).is_error
            assert stat.S_IMODE(path.stat().st_mode) == mode
        place.call("edit_file", path="m.sh", old_string="written", new_string="w", replace_all=True)
        assert stat.S_IMODE(path.stat().st_mode) == mode


@attack
def write_gives_new_files_the_usual_mode(place: Place) -> None:
    before = os.umask(0o027)
    try:
        place.write("new.txt")
    finally:
        os.umask(before)
    assert stat.S_IMODE((place.root / "new.txt").stat().st_mode) == 0o640


@attack
def write_drops_set_user_id(place: Place) -> None:
    (place.root / "a.txt").chmod(0o4755)
    assert not place.write("a.txt").is_error
    assert stat.S_IMODE((place.root / "a.txt").stat().st_mode) == 0o755


@attack
def write_to_a_read_only_file(place: Place) -> None:
    (place.root / "a.txt").chmod(0o444)
    result = place.write("a.txt")
    if os.geteuid() != 0:
        place.refused(result, "permission")
        assert (place.root / "a.txt").read_text() == "inside\n"


@attack
def write_is_trusted_to_the_letter(place: Place) -> None:
    for content in (
        "",
        "no end",
        "a\r\nb\r\n",
        "print('a\\nb')",
        "\\title{X}",
        "tab\tend\n\n\n",
        "\ufeffmark",
        "é𝄞\u2028",
        "nul\0",
    ):
        assert not place.write("exact", content).is_error
        assert (place.root / "exact").read_bytes() == content.encode()
        (place.root / "exact").unlink()


@attack
def write_limit(place: Place) -> None:
    assert not place.write("big", "x" * (10 * MIB)).is_error
    place.refused(place.write("big", "x" * (10 * MIB + 1)), "append")
    place.refused(place.write("other/big", "é" * (5 * MIB + 1)))
    assert (place.root / "big").stat().st_size == 10 * MIB
    assert not (place.root / "other").exists(), "folders that were made in vain are removed"


@attack
def write_append(place: Place) -> None:
    assert not place.write("log", "one\n", mode="append").is_error
    assert not place.write("log", "two", mode="append").is_error
    assert not place.write("log", "three\n", mode="append").is_error
    assert (place.root / "log").read_text() == "one\ntwothree\n"


@attack
def write_keeps_encodings(place: Place) -> None:
    for codec, mark in (("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        path = place.root / "f"
        path.write_bytes(mark + "alt é\r\n".encode(codec))
        assert not place.write("f", "neu ü\n").is_error
        assert path.read_bytes() == mark + "neu ü\n".encode(codec)
        assert not place.write("f", "+\n", mode="append").is_error
        assert not place.call("edit_file", path="f", old_string="neu", new_string="new").is_error
        assert path.read_bytes() == mark + "new ü\n+\n".encode(codec)


@attack
def write_never_loses_letters(place: Place) -> None:
    path = place.root / "f"
    path.write_bytes("Grüße\n".encode("cp1252"))
    place.refused(place.call("edit_file", path="f", old_string="Gr", new_string="日本"), "no sign")
    place.refused(place.write("f", "日本", mode="append"), "no sign")
    assert path.read_bytes() == "Grüße\n".encode("cp1252")
    assert not place.call("edit_file", path="f", old_string="Gr", new_string="gr").is_error
    assert path.read_bytes() == "grüße\n".encode("cp1252")


@attack
def write_is_backed_up_to_the_byte(place: Place) -> None:
    contents = [b"", b"plain\n", b"\r\n\r\n", bytes(range(256)) * 100, b"\xff\xfe\x00", b"x" * (2 * MIB)]
    for data in contents:
        (place.root / "f").write_bytes(data)
        (place.root / "f").chmod(0o644)
        assert not place.write("f", "new").is_error
        kept = [path.read_bytes() for path in (place.state / "backups").iterdir()]
        assert data in kept
    assert stat.S_IMODE((place.state / "backups").stat().st_mode) == 0o700
    for path in (place.state / "backups").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@attack
def write_stops_if_it_cannot_be_backed_up(place: Place) -> None:
    place.state = place.base / "file-in-the-way"
    place.state.write_text("")
    place.refused(place.write("a.txt"), "backed up")
    assert (place.root / "a.txt").read_text() == "inside\n"
    place.refused(place.write("new/new.txt"), "backed up")
    assert not (place.root / "new").exists()


@attack
def write_backups_in_a_linked_folder_are_refused(place: Place) -> None:
    place.state.mkdir()
    os.symlink(place.outside / "folder", place.state / "backups")
    place.refused(place.write("a.txt"), "backed up")


@attack
def write_stand_ins_are_refused(place: Place) -> None:
    (place.root / "long.py").write_text("x = 1\n" * 100)
    place.refused(place.write("long.py", "x = 2\n# ... rest of the code unchanged\n"), "edit_file")
    assert (place.root / "long.py").read_text() == "x = 1\n" * 100


@attack
def write_wrong_arguments(place: Place) -> None:
    for args in (
        {}, {"path": "x"}, {"path": 1, "content": "a"}, {"path": "x", "content": None}, {"path": ["x"], "content": ""},
        {"path": "x", "content": "a", "mode": "delete"}, {"path": "x", "content": "a", "other": 1},
    ):  # fmt: skip
        place.refused(place.files.call_sync("write_file", args), "not valid")
    place.refused(place.files.call_sync("no_such_tool", {}), "no tool")
    place.refused(place.files.call_sync("read_file", []))
    assert not (place.root / "x").exists()


# Editing and searching ---------------------------------------------------------------------------------------------------


@attack
def edit_keeps_line_ends(place: Place) -> None:
    rows = [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\nb\nc", "b", "x\ny", b"a\nx\ny\nc"),
        (b"a\r\nb\nc\r\n", "b\nc", "B\nC", b"a\r\nB\nC\r\n"),
        (b"a\nb", "b", "", b"a\n"),
        (b"a\r\nb", "b", "c\nd", b"a\r\nc\r\nd"),
        (b"one\r\n", "one\r\n", "two\r\n", b"two\r\n"),
        (b"\n\n\n", "\n\n\n", "\n", b"\n"),
        (b"x\ry\n", "x", "z", b"z\ry\n"),
    ]
    for before, old, new, after in rows:
        (place.root / "f").write_bytes(before)
        result = place.call("edit_file", path="f", old_string=old, new_string=new)
        assert not result.is_error, (before, result.error)
        assert (place.root / "f").read_bytes() == after, before


@attack
def edit_counts(place: Place) -> None:
    (place.root / "f").write_text("x = 1\ny = x\nx\n")
    place.refused(place.call("edit_file", path="f", old_string="x", new_string="z"), "3 times", "1, 2, 3")
    place.refused(place.call("edit_file", path="f", old_string="q", new_string="z"), "0 times")
    place.refused(
        place.call("edit_file", path="f", old_string="x  =  1", new_string="z"), "0 times", "white space", "line 1"
    )
    place.refused(place.call("edit_file", path="f", old_string="", new_string="z"), "empty")
    place.refused(place.call("edit_file", path="f", old_string="x", new_string="x"), "same")
    place.refused(place.call("edit_file", path="none", old_string="x", new_string="y"), "no file")
    place.refused(place.call("edit_file", path="no/file", old_string="x", new_string="y"), "no folder")
    assert not (place.root / "no").exists()
    assert not place.call("edit_file", path="f", old_string="x", new_string="z", replace_all=True).is_error
    assert (place.root / "f").read_text() == "z = 1\ny = z\nz\n"


@attack
def search_expressions_that_explode(place: Place) -> None:
    (place.root / "f").write_text(("a" * 5_000 + "!\n") * 100)
    for pattern in ("(a+)+$", "(a|a)*b", "(a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "a{1,1000}b", "(.*)(.*)(.*)(.*)x"):
        started = time.process_time()
        place.call("search_files", pattern=pattern)
        assert time.process_time() - started < 5, pattern  # clock: the processor time of what would take years


@attack
def search_expressions_that_are_refused(place: Place) -> None:
    place.refused(place.call("search_files", pattern="(?=a)"), "look-around")
    place.refused(place.call("search_files", pattern=r"(a)\1"), "backreferences")
    place.refused(place.call("search_files", pattern="("), "regular expression")
    place.refused(place.call("search_files", pattern=""), "empty")
    place.refused(place.call("search_files", pattern="((a{100}){100}){100}"), "repeats")


@attack
def search_is_capped_and_shows_context(place: Place) -> None:
    (place.root / "f").write_text("".join(f"line {number}\n" for number in range(500)) + "x" * 10_000 + "\n")
    result = place.call("search_files", pattern="line", path="f")
    assert len(result.value) == 100
    assert "Cut after 100" in result.notes[0]
    (found,) = place.call("search_files", pattern="^line 7$", context=2).value
    assert found == {"path": "f", "line": 8, "text": "line 7", "before": ["line 5", "line 6"], "after": ["line 8", "line 9"]}
    (found,) = place.call("search_files", pattern="xxx").value
    assert len(found["text"]) < 600


@attack
def search_does_not_look_into_secrets_unasked(place: Place) -> None:
    (place.root / ".env").write_text("KEY=hidden-value\n")
    (place.root / ".ssh").mkdir()
    (place.root / ".ssh" / "config").write_text("hidden-value\n")
    result = place.call("search_files", pattern="hidden")
    assert result.value == []
    assert "secrets" in result.notes[0]
    assert len(place.call("search_files", pattern="hidden", path=".env").value) == 1


# Without pytest ----------------------------------------------------------------------------------------------------------


def become(user: int) -> None:
    """Goes on as another user, who may not even be able to read this file: everything is imported first."""
    import uuid  # noqa: F401 - the encoder of JSON imports it with the first value that it does not know

    from callgate import FileTools

    with tempfile.TemporaryDirectory() as base:
        warm_up = ("edit_counts", "read_encodings", "search_is_capped_and_shows_context", "root_that_holds_the_state")
        for number, name in enumerate(warm_up):
            (Path(base) / str(number)).mkdir()
            run_case(name, Path(base) / str(number), FileTools)
    os.chdir("/")
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def main(arguments: list[str]) -> int:
    from callgate import FileTools

    back_end, *names = arguments
    if names[:1] == ["--user"]:
        become(int(names[1]))
        names = names[2:]

    def make(root: Any, **options: Any) -> Any:
        return FileTools(root, backend=back_end, **options)

    failed = 0
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as base:
            try:
                run_case(name, Path(base), make)
            except (Exception, TooLong) as error:
                failed += 1
                print(f"{name}: {type(error).__name__}: {error}"[:500])
    print(f"{len(names or CASES)} cases as user {os.geteuid()}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
