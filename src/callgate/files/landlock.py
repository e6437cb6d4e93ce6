"""Landlock: access rules that the kernel enforces on a process for as long as it lives.

Folders come in; from then on this process and its children can write below some of them, read below others, and reach no
other file, connect to no TCP port and signal no other process, whatever their code does. `Enforced` says what holds, because
an older kernel enforces less. Nothing but the standard library is imported: worker processes load this file by itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["SYSTEM_PATHS", "Enforced", "abi", "not_enforced", "restrict"]

SYSTEM_PATHS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/sys", "/nix", "/proc/self", "/proc/cpuinfo",
    "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/sys", "/proc/version", "/proc/loadavg", "/proc/uptime",
)  # fmt: skip
"""Folders and files that programs read in order to run. Of `/proc` a command sees itself and no other process."""
SECRET_NAMES = frozenset({"shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "ssh", "krb5.keytab"})
"""Entries of `/etc` that no command needs."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/full")
"""Devices that programs also write to."""

NEVER_RESTRICTED = (
    "UDP is not restricted",
    "unix sockets with a path are not restricted",
    "modes, owners and times of files are not restricted",
)
"""Access that no version of Landlock restricts."""

LATE = (
    (2, "moving files between folders is refused altogether"),
    (3, "truncating is not restricted"),
    (4, "TCP is not restricted"),
    (6, "signals and abstract unix sockets are not restricted"),
)
"""Restrictions with the version of Landlock since which they are enforced."""

_SYS_CREATE, _SYS_ADD, _SYS_RESTRICT = 444, 445, 446
_CREATE_VERSION = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGES = 0b1_1111_1111_0000  # Removing and making of every kind: bits 4 to 12.
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
"""Rights that a single file can have; all others belong to folders."""


_NET = 0b11  # Binding and connecting of TCP.
_SCOPES = 0b11  # Abstract unix sockets, and signals.
_NET_SINCE, _SCOPES_SINCE = 4, 6


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64), ("handled_access_net", ctypes.c_uint64), ("scoped", ctypes.c_uint64),
    )  # fmt: skip


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """The access that a sandbox enforces."""

    abi: int
    """The kernel's version of Landlock; 0 where there is none, and then nothing is enforced."""
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Restrictions that this kernel cannot enforce, in words."""

    @property
    def ok(self) -> bool:
        """True if anything is enforced at all."""
        return self.abi > 0


def _syscall(number: int, *args: object) -> int:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return int(function(ctypes.c_long(number), *args))


def abi() -> int:
    """The kernel's version of Landlock; 0 where there is none or it is switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(_syscall(_SYS_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_VERSION)), 0)


def restrict(*, writable: Iterable[str | int] = (), readable: Iterable[str | int] = SYSTEM_PATHS) -> Enforced:
    """Restrict this process for good. Folders are paths, or descriptors that are open.

    A path that does not exist is passed over. Call it while the process has one thread: others are not restricted.

    Raises:
        OSError: the kernel has Landlock and refused.
    """
    version = abi()
    if version < 1:
        return Enforced(abi=0, missing=("everything: this kernel has no Landlock",))
    handled = _READ | _WRITE_FILE | _CHANGES
    handled |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0) | (_IOCTL if version >= 5 else 0)
    attr = _RulesetAttr(handled, _NET if version >= _NET_SINCE else 0, _SCOPES if version >= _SCOPES_SINCE else 0)
    # An older kernel knows a shorter structure.
    size = 8 * (1 + (version >= _NET_SINCE) + (version >= _SCOPES_SINCE))
    ruleset = _checked(_syscall(_SYS_CREATE, ctypes.byref(attr), ctypes.c_size_t(size), ctypes.c_uint32(0)))
    try:
        wrote = [str(place) for place in writable if _allow(ruleset, place, handled)]
        read = [str(place) for place in _without_secrets(readable) if _allow(ruleset, place, handled & _READ)]
        for device in DEVICES:
            _allow(ruleset, device, handled & (_READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL))
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        _checked(prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))
        _checked(_syscall(_SYS_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)
    return Enforced(abi=version, writable=tuple(wrote), readable=tuple(read), missing=not_enforced(version))


def not_enforced(version: int | None = None) -> tuple[str, ...]:
    """Restrictions that this kernel, or that version of Landlock, cannot enforce, in words."""
    known = abi() if version is None else version
    return (*(words for since, words in LATE if known < since), *NEVER_RESTRICTED)


def _without_secrets(places: Iterable[str | int]) -> Iterable[str | int]:
    """The places, with the entries of `/etc` instead of it where there are secrets among them."""
    for place in places:
        if place != "/etc":
            yield place
            continue
        try:
            yield from (f"/etc/{name}" for name in os.listdir(place) if name not in SECRET_NAMES)
        except OSError:
            continue


def _allow(ruleset: int, place: str | int, rights: int) -> bool:
    """Allow rights below a place; False if there is no such place."""
    if isinstance(place, int):
        descriptor, own = place, False
    else:
        try:
            descriptor, own = os.open(place, os.O_PATH | os.O_CLOEXEC), True
        except OSError:
            return False
    try:
        is_folder = os.fstat(descriptor).st_mode & 0o170000 == 0o040000
        attr = _PathBeneathAttr(rights if is_folder else rights & _OF_FILES, descriptor)
        _checked(
            _syscall(
                _SYS_ADD, ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), ctypes.byref(attr), ctypes.c_uint32(0)
            )
        )
    finally:
        if own:
            os.close(descriptor)
    return True


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result
