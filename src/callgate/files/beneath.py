"""Opening below a folder, and never anywhere else: two back ends with one promise.

The descriptor of a folder and names come in, a descriptor goes out. No link is followed, even if others change the tree
meanwhile. `openat2` lets the kernel keep the promise in one call; the walk keeps it name by name, on every system that can
open relative to a descriptor. Path strings are never compared.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import platform
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from callgate.errors import UsageError

__all__ = ["BackEnd", "Opener", "kernel_open", "let_go", "opener", "resolve_links", "walk_open", "weaknesses"]

BackEnd: TypeAlias = Literal["auto", "openat2", "walk"]

# Nothing that is opened may block, become the terminal of this process, or be inherited by a program it starts.
ALWAYS = os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) if os.name == "posix" else 0
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
DIRECTORY = getattr(os, "O_DIRECTORY", 0)
# A folder on the way need not be readable, only passable: O_PATH asks for no more.
_O_PATH: int = getattr(os, "O_PATH", 0)
PASSING = _O_PATH or os.O_RDONLY

_CAN_OPEN_BELOW = os.open in os.supports_dir_fd and bool(NOFOLLOW)

LINKS_MAX = 40
"""Links on the way of one path, where links are allowed at all; as many as the kernel follows."""

_SYS_OPENAT2 = 437
"""The same number on all architectures: it is younger than the common table."""
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_RESOLVE = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
_TRIES = 16


class Opener(Protocol):
    """Open names below the folder of a descriptor."""

    def __call__(self, folder: int, names: Sequence[str], flags: int, mode: int = 0) -> int:
        """The descriptor; raises `OSError`, with ELOOP or ENOTDIR where a link is in the way."""
        ...


def let_go(descriptor: int) -> None:
    """Close what was only read from: it is gone either way, and nothing is lost if the system complains."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


# The kernel --------------------------------------------------------------------------------------------------------------


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _syscall() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux") or platform.machine() == "alpha":
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_long
    function.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    return function


_call = _syscall()
_HOW_SIZE = ctypes.sizeof(_OpenHow)


@functools.lru_cache(maxsize=64)
def _how(flags: int, mode: int) -> tuple[_OpenHow, int]:
    """Parameters of an open and their address in memory; cached, because there are few and each is used often."""
    # openat2 refuses what openat ignores: flags that mean nothing beside O_PATH, and a mode where nothing is created.
    always = os.O_CLOEXEC if flags & _O_PATH else ALWAYS
    how = _OpenHow(flags | always | NOFOLLOW, mode if flags & os.O_CREAT else 0, _RESOLVE)
    return how, ctypes.addressof(how)


def kernel_open(folder: int, names: Sequence[str], flags: int, mode: int = 0) -> int:
    """Open with `openat2`, which resolves all names at once."""
    assert _call is not None, "openat2 is only used where it was found"
    path = "/".join(names) or "."
    # A program that watches what is opened shall see these too; the call itself would pass it by.
    sys.audit("open", path, None, flags)
    _, how = _how(flags, mode)
    encoded = path.encode("utf-8", "surrogateescape")
    code = 0
    for _ in range(_TRIES):
        descriptor = _call(_SYS_OPENAT2, folder, encoded, how, _HOW_SIZE)
        if descriptor >= 0:
            return descriptor
        code = ctypes.get_errno()
        # EAGAIN: something was renamed while the kernel was looking. EINTR: a signal came.
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)


def has_openat2() -> bool:
    """True if this kernel offers `openat2` to this process; a sandbox around us may refuse it."""
    if _call is None:
        return False
    folder = os.open("/", os.O_RDONLY | DIRECTORY | os.O_CLOEXEC)
    try:
        let_go(kernel_open(folder, (), os.O_RDONLY | DIRECTORY))
    except OSError:
        return False
    else:
        return True
    finally:
        let_go(folder)


# Name by name ------------------------------------------------------------------------------------------------------------


def walk_open(folder: int, names: Sequence[str], flags: int, mode: int = 0) -> int:
    """Open one name after another, each relative to the descriptor before it and none through a link."""
    if not names:
        return os.open(".", flags | ALWAYS | NOFOLLOW, mode, dir_fd=folder)
    held = folder
    try:
        for name in names[:-1]:
            below = os.open(name, PASSING | DIRECTORY | NOFOLLOW | ALWAYS, dir_fd=held)
            if held != folder:
                let_go(held)
            held = below
        return os.open(names[-1], flags | ALWAYS | NOFOLLOW, mode, dir_fd=held)
    finally:
        if held != folder:
            let_go(held)


class GuardedWalk:
    """The walk, which also refuses to enter certain folders, known by device and number and not by name."""

    def __init__(self, closed: frozenset[tuple[int, int]]) -> None:
        self._closed = closed

    def __call__(self, folder: int, names: Sequence[str], flags: int, mode: int = 0) -> int:
        """Variant of `walk_open` that fails with EACCES at a closed folder."""
        held = os.dup(folder)
        try:
            for name in names[:-1]:
                below = os.open(name, PASSING | DIRECTORY | NOFOLLOW | ALWAYS, dir_fd=held)
                let_go(held)
                held = below
                self._refuse_closed(held)
            found = walk_open(held, names[-1:], flags, mode)
        finally:
            let_go(held)
        try:
            self._refuse_closed(found)
        except OSError:
            let_go(found)
            raise
        return found

    def _refuse_closed(self, descriptor: int) -> None:
        known = os.fstat(descriptor)
        if (known.st_dev, known.st_ino) in self._closed:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def opener(back_end: BackEnd = "auto") -> Opener:
    """The back end of that name; `auto` is the kernel's where there is one.

    Raises:
        UsageError: this system cannot open relative to a descriptor, or has no such back end.
    """
    if back_end not in ("auto", "openat2", "walk"):
        raise UsageError(f"backend={back_end!r}: use 'auto', 'openat2' or 'walk'")
    if not _CAN_OPEN_BELOW:
        raise UsageError(
            "the file tools need a system that opens files relative to a folder's descriptor (Linux, macOS, BSD); "
            "on Windows run them in WSL"
        )
    if back_end == "walk":
        return walk_open
    if has_openat2():
        return kernel_open
    if back_end == "openat2":
        raise UsageError("this system does not offer openat2 (Linux 5.6 or newer, not forbidden by a sandbox); use 'auto'")
    return walk_open


def weaknesses() -> list[str]:
    """Protections that this system lacks, as sentences; empty means that all are there."""
    if not _CAN_OPEN_BELOW:
        return ["This system cannot open files relative to a folder's descriptor, so there are no file tools; use WSL."]
    found: list[str] = []
    if not has_openat2():
        found.append("There is no openat2: paths are opened name by name, which is as safe and a little slower.")
    if not hasattr(os, "O_PATH"):
        found.append("There is no O_PATH: folders on the way of a path must be readable, not only passable.")
    if sys.platform == "darwin":
        found.append("Names do not differ by case here: 'A.txt' and 'a.txt' are one file, whatever a rule says of one.")
    from callgate.files import bubblewrap, landlock

    if landlock.abi() < 1:
        found.append("There is no Landlock: commands and workers cannot be locked into the root by the kernel.")
    else:
        found += [f"Landlock (sandbox=True): {words}." for words in landlock.not_enforced()]
    if sys.platform.startswith("linux") and (why := bubblewrap.problem()) is not None:
        found.append(f"sandbox='bwrap' is refused here: {why}.")
    return found


# Links inside the root, where they are allowed -----------------------------------------------------------------------------


def resolve_links(folder: int, names: Sequence[str]) -> tuple[str, ...]:
    """The way to the same place without links; a link that leads out of the root raises EXDEV.

    What comes back is opened without following anything, so a tree that changes meanwhile leads to an error, not astray.
    """
    todo, way, links = list(reversed(names)), list[str](), 0
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not way:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            way.pop()
            continue
        target = _link_target(folder, way, name)
        if target is None:
            way.append(name)
            continue
        links += 1
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        todo.extend(reversed(target.split("/")))
    return tuple(way)


def _link_target(folder: int, way: Sequence[str], name: str) -> str | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        above = walk_open(folder, way, PASSING | DIRECTORY)
        try:
            if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                return os.readlink(name, dir_fd=above)
        finally:
            let_go(above)
    return None
