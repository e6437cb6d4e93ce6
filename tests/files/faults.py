"""Faults in the middle of writes: every system call of a write fails once, or is the last one that the process makes.

    python faults.py BACKEND errors              each call fails with ENOSPC, EIO and EINTR in turn
    python faults.py BACKEND crashes             the process ends just before and just after each call
    python faults.py BACKEND kills COUNT SEED    the process is killed from outside at any moment, COUNT times

Prints what went wrong as JSON. It forks, so it is a program of its own.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from callgate import FileTools

OLD, NEW = b"old " * 5_000 + b"end\n", "new " * 7_000 + "end\n"
STEPS_MAX = 500
# What the module asks of the system, beside openat2, which goes another way.
SEAM = (
    "open", "close", "read", "write", "pread", "lseek", "fsync", "rename", "unlink", "mkdir", "rmdir", "stat", "fstat",
    "fchmod", "fchown", "scandir", "listdir", "dup", "listxattr", "makedirs",
)  # fmt: skip

CALLS: dict[str, tuple[str, dict[str, Any], bytes | None, bytes]] = {
    # name: (tool, arguments, what is there before, what is there after)
    "overwrite": ("write_file", {"path": "sub/f", "content": NEW}, OLD, NEW.encode()),
    "append": ("write_file", {"path": "sub/f", "content": NEW, "mode": "append"}, OLD, OLD + NEW.encode()),
    "create": ("write_file", {"path": "sub/f", "content": NEW}, None, NEW.encode()),
    "create_below": ("write_file", {"path": "sub/x/y/f", "content": NEW}, None, NEW.encode()),
    "edit": ("edit_file", {"path": "sub/f", "old_string": "end\n", "new_string": "END\n"}, OLD, OLD[:-4] + b"END\n"),
}


class Seam:
    """Counts the calls of a write, and lets the k-th one go wrong."""

    def __init__(self) -> None:
        self.count, self.at, self.deed = 0, -1, None
        for name in SEAM:
            setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            if self.deed is None:
                return function(*args, **named)
            here, self.count = self.count, self.count + 1
            if here != self.at:
                return function(*args, **named)
            return self.deed(name, lambda: function(*args, **named))

        return called

    def arm(self, at: int, deed: Callable[[str, Callable[[], Any]], Any]) -> None:
        self.count, self.at, self.deed = 0, at, deed

    def disarm(self) -> None:
        self.deed = None


def lay_out(base: Path, before: bytes | None, back_end: str) -> FileTools:
    (base / "root" / "sub").mkdir(parents=True)
    if before is not None:
        (base / "root" / "sub" / "f").write_bytes(before)
        (base / "root" / "sub" / "f").chmod(0o640)
    return FileTools(base / "root", state_dir=base / "state", backend=back_end)


def wrong(base: Path, row: tuple[str, dict[str, Any], bytes | None, bytes], *, told: bool | None) -> list[str]:
    """What is wrong after a fault: `told` is whether the call said that it failed, None if it could say nothing."""
    _, args, before, after = row
    path = base / "root" / args["path"]
    now = path.read_bytes() if path.exists() else None
    found = []
    if now not in (before, after):
        found.append("the file is neither the old nor the new one")
    if told is True and now != before:
        found.append("it said that it failed, and the file is the new one")
    if told is False and now != after:
        found.append("it said that it was done, and the file is the old one")
    if now == after and before is not None:
        backups = base / "state" / "backups"
        kept = [file.read_bytes() for file in backups.iterdir()] if backups.exists() else []
        if before not in kept:
            found.append("there is no exact backup of the old file")
        if path.stat().st_mode & 0o777 != 0o640:
            found.append("the mode was not kept")
    if told is not None:
        left = [name for _, _, names in os.walk(base / "root") for name in names if name != path.name]
        if left:
            found.append(f"left behind: {left}")
        if told and before is None and sorted(os.listdir(base / "root" / "sub")):
            found.append("folders that were made in vain are left")
    return found


def errors(back_end: str) -> list[str]:
    seam, found = Seam(), []
    with tempfile.TemporaryDirectory() as top:
        for name, row in CALLS.items():
            for code in (errno.ENOSPC, errno.EIO, errno.EACCES):
                for at in range(STEPS_MAX):
                    base = Path(top) / "case"
                    tools = lay_out(base, row[2], back_end)
                    broken: list[str] = []

                    def fail(call: str, go_on: Callable[[], Any], code: int = code, broken: list[str] = broken) -> Any:
                        broken.append(call)
                        if call == "close":
                            go_on()  # The descriptor is gone either way.
                        raise OSError(code, os.strerror(code))

                    descriptors = len(os.listdir("/proc/self/fd"))
                    seam.arm(at, fail)
                    try:
                        result = tools.call_sync(row[0], row[1])
                    except BaseException as error:
                        result = None
                        found.append(f"{name}, {broken} {errno.errorcode[code]}: raised {error!r}")
                    seam.disarm()
                    if result is not None:
                        says = wrong(base, row, told=result.is_error)
                        found += [f"{name}, step {at} {broken} {errno.errorcode[code]}: {what}" for what in says]
                    if len(os.listdir("/proc/self/fd")) != descriptors:
                        found.append(f"{name}, step {at} {broken} {errno.errorcode[code]}: a descriptor is left open")
                    tools.close()
                    shutil.rmtree(base)
                    if not broken:
                        break
    return found


def crashes(back_end: str) -> list[str]:
    seam, found = Seam(), []

    def end_before(call: str, go_on: Callable[[], Any]) -> Any:
        os._exit(9)

    def end_after(call: str, go_on: Callable[[], Any]) -> Any:
        go_on()
        os._exit(9)

    with tempfile.TemporaryDirectory() as top:
        for name, row in CALLS.items():
            for deed in (end_before, end_after):
                for at in range(STEPS_MAX):
                    base = Path(top) / "case"
                    tools = lay_out(base, row[2], back_end)
                    child = os.fork()
                    if child == 0:
                        seam.arm(at, deed)
                        tools.call_sync(row[0], row[1])
                        os._exit(0)
                    status = os.waitpid(child, 0)[1]
                    found += [f"{name}, {deed.__name__} step {at}: {what}" for what in wrong(base, row, told=None)]
                    # The next writer after a crash can write, and cleans up.
                    again = tools.call_sync("write_file", {"path": row[1]["path"], "content": "again"})
                    if again.is_error:
                        found.append(f"{name}, {deed.__name__} step {at}: nothing can be written afterwards: {again.error}")
                    left = [file for _, _, names in os.walk(base / "root") for file in names if file != "f"]
                    if left:
                        found.append(f"{name}, {deed.__name__} step {at}: left behind: {left}")
                    tools.close()
                    shutil.rmtree(base)
                    if status == 0:
                        break
    return found


def kills(back_end: str, count: int, seed: int) -> list[str]:
    dice, found, torn = random.Random(seed), [], 0
    with tempfile.TemporaryDirectory() as top:
        base = Path(top)
        tools = lay_out(base, b"0" * 50_000, back_end)
        path = base / "root" / "sub" / "f"
        for turn in range(count):
            before = path.read_bytes()
            child = os.fork()
            if child == 0:
                number = 0
                while True:
                    number += 1
                    tools.call_sync("write_file", {"path": "sub/f", "content": f"{turn} {number} " * 5_000})
            time.sleep(dice.uniform(0.0, 0.02))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            now = path.read_bytes()
            words = now.split()
            whole = now == before or (len(words) == 10_000 and len(set(zip(words[::2], words[1::2], strict=True))) == 1)
            if not whole:
                torn += 1
                found.append(f"kill {turn}: the file is torn")
            if now != before:
                number = int(words[1])
                expected = before if number == 1 else f"{turn} {number - 1} ".encode() * 5_000
                kept = [file.read_bytes() for file in (base / "state" / "backups").iterdir() if file.suffix == ".bytes"]
                if expected not in kept:
                    found.append(f"kill {turn}: there is no exact backup of what was replaced")
                shutil.rmtree(base / "state")
        again = tools.call_sync("write_file", {"path": "sub/f", "content": "again"})
        left = [file for _, _, names in os.walk(base / "root") for file in names if file != "f"]
        if again.is_error or left:
            found.append(f"after the kills: {again.error}, left behind: {left}")
    return found


if __name__ == "__main__":
    back_end, what, *numbers = sys.argv[1:]
    deeds: dict[str, Callable[..., list[str]]] = {"errors": errors, "crashes": crashes, "kills": kills}
    print(json.dumps(deeds[what](back_end, *map(int, numbers))))
