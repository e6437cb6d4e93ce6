"""Races against the file tools: something is swapped just before the k-th file event of a call, for every k.

    python races.py BACKEND|naive                 every event, every swap, every tool; prints what went wrong as JSON
    python races.py BACKEND|naive SECONDS         the same swaps from another process, as fast as they go

An audit hook can never be removed, so this is a program of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import attacks
import naive

from callgate import FileTools

SECRET = attacks.SECRET
EVENTS_MAX = 400
HANGS_NAIVELY_S = 1
"""When the usual way, which opens pipes and waits, is taken to hang."""
EVENTS = {
    "open", "os.chmod", "os.chown", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir",
    "os.symlink", "os.truncate", "os.utime", "os.setxattr", "os.listxattr", "shutil.copyfile", "glob.glob", "fcntl.flock",
}  # fmt: skip

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "read": ("read_file", {"path": "sub/b.txt"}),
    "overwrite": ("write_file", {"path": "sub/b.txt", "content": "new\n"}),
    "append": ("write_file", {"path": "sub/b.txt", "content": "new\n", "mode": "append"}),
    "create": ("write_file", {"path": "sub/new.txt", "content": "new\n"}),
    "create_below": ("write_file", {"path": "sub/x/y/new.txt", "content": "new\n"}),
    "edit": ("edit_file", {"path": "sub/b.txt", "old_string": "inside", "new_string": "new"}),
    "list": ("list_files", {"path": "sub"}),
    "list_all": ("list_files", {}),
    "search": ("search_files", {"pattern": "TOP|inside"}),
    "search_one": ("search_files", {"pattern": "TOP|inside", "path": "sub/b.txt"}),
}


def lay_out(base: Path) -> None:
    for folder in ("root/sub", "outside"):
        (base / folder).mkdir(parents=True)
    (base / "root" / "sub" / "b.txt").write_text("inside b\n")
    (base / "root" / "a.txt").write_text("inside\n")
    for name in ("b.txt", "secret.txt"):
        (base / "outside" / name).write_text(SECRET)
    (base / "outside" / f"{SECRET}.txt").touch()


def swap_folder(base: Path) -> None:
    os.rename(base / "root" / "sub", base / "root" / "sub.before")
    os.symlink(base / "outside", base / "root" / "sub")


def swap_folder_away(base: Path) -> None:
    os.rename(base / "root" / "sub", base / "moved")
    os.symlink("../outside", base / "root" / "sub")


def swap_file(base: Path) -> None:
    os.symlink(base / "outside" / "secret.txt", base / "root" / "link")
    os.rename(base / "root" / "link", base / "root" / "sub" / "b.txt")


def swap_new_file(base: Path) -> None:
    os.symlink(base / "outside" / "secret.txt", base / "root" / "sub" / "new.txt")


def swap_new_folder(base: Path) -> None:
    with contextlib.suppress(OSError):
        os.rename(base / "root" / "sub" / "x", base / "root" / "x.before")
    os.symlink(base / "outside", base / "root" / "sub" / "x")


def swap_hard_link(base: Path) -> None:
    os.link(base / "outside" / "secret.txt", base / "root" / "link")
    os.rename(base / "root" / "link", base / "root" / "sub" / "b.txt")


def swap_pipe(base: Path) -> None:
    os.unlink(base / "root" / "sub" / "b.txt")
    os.mkfifo(base / "root" / "sub" / "b.txt")


def swap_ignore_file(base: Path) -> None:
    os.symlink(base / "outside" / "secret.txt", base / "root" / "sub" / ".gitignore")


SWAPS: list[Callable[[Path], None]] = [
    swap_folder, swap_folder_away, swap_file, swap_new_file, swap_new_folder, swap_hard_link, swap_pipe, swap_ignore_file,
]  # fmt: skip


class Hook:
    """Does something just before the k-th file event, once."""

    def __init__(self) -> None:
        self.count, self.at, self.deed, self.armed = 0, -1, None, False
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.armed or event not in EVENTS:
            return
        if self.count == self.at and self.deed is not None:
            self.armed = False
            with contextlib.suppress(OSError):
                self.deed()
            self.armed = True
        self.count += 1

    def arm(self, at: int, deed: Callable[[], None]) -> None:
        self.count, self.at, self.deed, self.armed = 0, at, deed, True


def maker(word: str) -> Callable[[Path], Any]:
    if word == "naive":
        return lambda base: naive.NaiveFileTools(base / "root")
    return lambda base: FileTools(base / "root", state_dir=base / "state", backend=word)


def breach(base: Path, outside: Any, result: Any) -> str | None:
    """What went wrong, if something did."""
    if SECRET in repr((result.value, result.error, result.notes)):
        return "the secret is in the answer"
    if attacks.snapshot(base / "outside") != outside:
        return "something outside has changed"
    kept = base / "root"
    for folder, _, names in os.walk(kept):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and os.path.isfile(path) and os.stat(path).st_nlink == 1:
                with open(path) as file:
                    if SECRET in file.read():
                        return f"the secret was copied to {name}"
    return None


def sweep(word: str) -> list[str]:
    hook, make, found = Hook(), maker(word), []
    with tempfile.TemporaryDirectory() as top:
        for call, (name, args) in CALLS.items():
            for swap in SWAPS:
                at = 0
                while at < EVENTS_MAX:
                    base = Path(top) / "case"
                    lay_out(base)
                    outside = attacks.snapshot(base / "outside")
                    tools = make(base)
                    hook.arm(at, lambda swap=swap, base=base: swap(base))
                    try:
                        with attacks.time_limit(HANGS_NAIVELY_S if word == "naive" else attacks.CASE_S_MAX):
                            result = tools.call_sync(name, args)
                        hook.armed = False
                        wrong = breach(base, outside, result)
                    except attacks.TooLong:
                        wrong = "it hangs"
                    finally:
                        hook.armed = False
                    if wrong:
                        found.append(f"{call}, {swap.__name__} before event {at}: {wrong}")
                    done = hook.count <= at
                    shutil.rmtree(base)
                    if done:
                        break
                    at += 1
    return found


def storm(word: str, seconds: float) -> list[str]:
    """Another process swaps a folder and a file with links to and fro, without a pause."""
    found: list[str] = []
    with tempfile.TemporaryDirectory() as top:
        base = Path(top)
        lay_out(base)
        root = base / "root"
        os.symlink(base / "outside", root / "folder-link")
        os.symlink(base / "outside" / "secret.txt", root / "file-link")
        make = maker(word)
        tools = make(base)
        enemy = os.fork()
        if enemy == 0:
            try:
                while True:
                    for ours, link in (("sub", "folder-link"), ("sub/b.txt", "file-link")):
                        with contextlib.suppress(OSError):
                            os.rename(root / ours, root / "away")
                            os.rename(root / link, root / ours)
                            os.rename(root / ours, root / link)
                            os.rename(root / "away", root / ours)
            finally:
                os._exit(0)
        outside = attacks.snapshot(base / "outside")
        count = 0
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end and not found:
                for call, (name, args) in CALLS.items():
                    result = tools.call_sync(name, args)
                    count += 1
                    if SECRET in repr((result.value, result.error, result.notes)):
                        found.append(f"{call}: the secret is in the answer")
            if attacks.snapshot(base / "outside") != outside:
                found.append("something outside has changed")
        finally:
            os.kill(enemy, signal.SIGKILL)
            os.waitpid(enemy, 0)
    print(f"{count} calls", file=sys.stderr)
    return found


if __name__ == "__main__":
    print(json.dumps(storm(sys.argv[1], float(sys.argv[2])) if len(sys.argv) > 2 else sweep(sys.argv[1])))
