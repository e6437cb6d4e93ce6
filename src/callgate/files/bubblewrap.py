"""Bubblewrap: a command in namespaces of its own, with nothing in view but what it needs.

Folders come in, the command line of `bwrap` goes out. The command sees the system's folders, read-only, its own folder, an
empty /tmp and home, its own processes, and no network, not even loopback. Unix sockets outside cannot be reached, because
their paths are not there.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

__all__ = ["bwrap_args", "needed_by", "problem"]

SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix")
ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "fonts", "group", "host.conf", "hostname", "hosts",
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "passwd", "profile",
    "services", "ssl", "terminfo", "timezone", "bash.bashrc", "python3", "java", "gitconfig",
)  # fmt: skip
"""Entries of /etc that programs read in order to run."""
INSTALLED = ("bin", "lib", "lib64", "libexec")
"""Folders of an installation that programs need; beside them a home has other things."""
SHARED = (".local", ".config", ".cache")
"""Folders of a home that belong to no installation alone."""
TRY_S = 10.0


def problem() -> str | None:
    """Return why bubblewrap cannot be used here; None if it can. It is tried once, or again if the machine was too busy."""
    try:
        return _problem()
    except subprocess.TimeoutExpired as error:
        return f"bubblewrap cannot be run: {error}"


@functools.cache
def _problem() -> str | None:
    program = shutil.which("bwrap", path=os.defpath + os.pathsep + os.environ.get("PATH", ""))
    if program is None:
        return "bubblewrap is not installed (Debian: apt install bubblewrap)"
    argv = [*bwrap_args(program, "/usr"), "true"]
    try:
        tried = subprocess.run(argv, capture_output=True, timeout=TRY_S, check=False, env={"PATH": os.defpath})
    except OSError as error:
        return f"bubblewrap cannot be run: {error}"
    if tried.returncode != 0:
        return f"bubblewrap cannot make its namespaces here: {tried.stderr.decode(errors='replace').strip()[:200]}"
    return None


def needed_by(program: str) -> tuple[str, ...]:
    """The places that a program needs which was installed elsewhere, as in a virtual environment or below a home.

    They are the folder that it was installed in. Of a home, of what is above it, and of `~/.local`, only those parts are
    shown that hold programs and their libraries.
    """
    found: dict[str, None] = {}
    home = os.path.realpath(os.path.expanduser("~"))
    private = {home, *(os.path.join(home, name) for name in SHARED)}
    for path in (os.path.realpath(program), program):
        folder = os.path.dirname(os.path.dirname(path))
        if any(folder == known or folder.startswith(f"{known}/") for known in SYSTEM_PATHS):
            continue
        at = os.path.realpath(folder)
        if at in private or home.startswith(at.rstrip("/") + "/"):
            is_installed = os.path.basename(os.path.dirname(path)) in INSTALLED
            found |= dict.fromkeys([path, *(os.path.join(folder, name) for name in INSTALLED if is_installed)])
        else:
            found[folder] = None
    return tuple(found)


def bwrap_args(program: str, folder: str, *, readable: tuple[str, ...] = ()) -> list[str]:
    """The words before a command that runs in `folder`, the only place where it can write besides /tmp."""
    words = [
        program, "--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev",
        "--tmpfs", "/tmp", "--tmpfs", "/home", "--tmpfs", "/run",
    ]  # fmt: skip
    for path in (*SYSTEM_PATHS, *(f"/etc/{name}" for name in ETC), *readable):
        words += ["--symlink", os.readlink(path), path] if os.path.islink(path) and path.count("/") == 1 else [
            "--ro-bind-try", path, path,
        ]  # fmt: skip
    return [*words, "--bind", folder, folder, "--chdir", folder, "--"]
