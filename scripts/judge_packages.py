"""Brings test material of other projects into .venv: JSON Schema's test suite, BFCL's programs, gunicorn's requests.

Each comes out of a package of the index, at the version that stands here, and is no part of this repository. Does nothing
where it is there already. Where it cannot be had (no network), a sentence says so and the status is 0, as the tests then
skip with the same words; CALLGATE_REQUIRE_ALL=1 makes it 1.

    python scripts/judge_packages.py [FOLDER]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

FOLDER = Path(__file__).resolve().parent.parent / ".venv"
DRAFTS = ("draft4", "draft6", "draft7", "draft2019-09", "draft2020-12")


@dataclass(frozen=True)
class Material:
    """The files of one package that tests need: those below one of the `parts`."""

    folder: str
    package: str
    version: str
    parts: tuple[str, ...]
    inner: int
    """How many folders of the archive are left out of the path."""
    is_source: bool = True
    """True for a source distribution, False for a wheel."""

    @property
    def stamp(self) -> str:
        """The name of the file that says that all of it is there."""
        return f".{self.package}-{self.version}-{len(self.parts)}"


MATERIALS = (
    Material("json-schema-suite", "jsonschema", "4.26.0", tuple(f"json/tests/{draft}/" for draft in DRAFTS), 3),
    Material("bfcl", "bfcl-eval", "2026.3.23", ("bfcl_eval/",), 0, is_source=False),
    Material("gunicorn-requests", "gunicorn", "27.0.1", ("tests/requests/",), 3),
)


def download(material: Material, into: Path) -> Path:
    """The package, fetched by pip from wherever pip fetches things here."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        subprocess.run([sys.executable, "-m", "ensurepip"], capture_output=True, check=True)
    fetch = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps"]
    kind = "--no-binary" if material.is_source else "--only-binary"
    wanted = [kind, material.package, f"{material.package}=={material.version}", "--dest", str(into)]
    subprocess.run([*fetch, *wanted], check=True, capture_output=True, text=True)
    return next(path for path in into.iterdir() if path.name.endswith((".tar.gz", ".whl")))


def files_in(archive: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Every file of an archive; the folder that a source distribution consists of stays the first part of its path."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            yield from ((PurePosixPath(name), wheel.read(name)) for name in wheel.namelist() if not name.endswith("/"))
        return
    with tarfile.open(archive) as files:
        for member in files.getmembers():
            if member.isfile() and (data := files.extractfile(member)) is not None:
                yield PurePosixPath(member.name), data.read()


def unpack(material: Material, archive: Path, folder: Path) -> int:
    """Writes the files that are needed into the folder; how many there are."""
    count = 0
    for path, data in files_in(archive):
        inside = path.relative_to(path.parts[0]) if material.is_source else path
        if ".." not in path.parts and str(inside).startswith(material.parts):
            target = folder.joinpath(*path.parts[material.inner :])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            count += 1
    return count


def fetch(material: Material, folder: Path) -> str | None:
    """Brings one material; a sentence if that cannot be done."""
    if (folder / material.stamp).exists():
        return None
    try:
        with tempfile.TemporaryDirectory() as place:
            count = unpack(material, download(material, Path(place)), folder)
    except (OSError, StopIteration, subprocess.CalledProcessError, tarfile.TarError, zipfile.BadZipFile) as error:
        lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
        return f"{material.package} could not be fetched, so it judges nothing: {lines[-1] if lines else error}"
    if not count:
        return f"{material.package} {material.version} carries no such files any more; name another version"
    (folder / material.stamp).touch()
    return None


def main(arguments: list[str]) -> int:
    """Brings everything that is not there yet."""
    base = Path(arguments[0]) if arguments else FOLDER
    problems = [problem for one in MATERIALS if (problem := fetch(one, base / one.folder)) is not None]
    for problem in problems:
        print(f"judge_packages: {problem}", file=sys.stderr)
    return 1 if problems and os.environ.get("CALLGATE_REQUIRE_ALL") == "1" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
