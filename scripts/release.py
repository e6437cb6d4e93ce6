"""Builds what a release consists of, and checks it: python scripts/release.py [--quick]

Into dist/: the sdist, the wheel, an SBOM (CycloneDX) of the wheel with all extras, and SHA256SUMS. Two builds must be equal
byte by byte, and so must be the wheel that is built from the sdist. The wheel is then installed in an environment of its own
for each extra, and used. Publishing is left to a person; the last lines say how. `--quick` leaves the environments out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
NOT_IN_ALL = ("postgres", "ray")
"""Extras that `all` leaves out, and the SBOM does not."""


class ReleaseError(Exception):
    """Why there is no release, in a sentence."""


def output_of(*command: str, cwd: Path = ROOT, **more: str) -> str:
    """What a command prints; its failure is ours."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """The version of the tree, if it is one that can be released from here."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/callgate/__init__.py").read_text("utf-8"), re.MULTILINE)
    if found is None or not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", found[1]):
        raise ReleaseError(f"{found and found[1]} is no version to release; set __version__ in src/callgate/__init__.py.")
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    if heading is None or heading[1] != found[1]:
        raise ReleaseError(f"The newest heading of CHANGELOG.md is {heading and heading[1]}, and the version is {found[1]}.")
    if changed := output_of("git", "status", "--porcelain"):
        raise ReleaseError(f"Commit or remove these first, so that the release is a commit:\n{changed}")
    return found[1]


def build(source: Path, target: Path, epoch: str, *kinds: str) -> dict[str, bytes]:
    """Name -> bytes of the files that are built from a folder."""
    for kind in kinds:
        command = (sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target))
        output_of(*command, cwd=source, SOURCE_DATE_EPOCH=epoch)
    return {path.name: path.read_bytes() for path in sorted(target.iterdir())}


def built(folder: Path) -> dict[str, bytes]:
    """The sdist and the wheel, the same from every build."""
    epoch = output_of("git", "log", "-1", "--format=%ct").strip()
    first = build(ROOT, folder / "first", epoch, "sdist", "wheel")
    again = build(ROOT, folder / "again", epoch, "sdist", "wheel")
    if first != again:
        raise ReleaseError(f"Two builds differ: {[name for name in first if first[name] != again.get(name)]}.")
    (sdist,) = (folder / "first").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    from_sdist = build(unpacked, folder / "from_sdist", epoch, "wheel")
    if any(first[name] != data for name, data in from_sdist.items()):
        raise ReleaseError("The wheel that is built from the sdist is another one.")
    return first


def sbom(wheel: Path, name_and_version: str) -> dict[str, Any]:
    """The packages that the wheel with all extras brings, as pip would install them here (CycloneDX 1.6)."""
    extras = ",".join(("all", *NOT_IN_ALL))
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--ignore-installed", "--dry-run", "--report", "-")
    report = json.loads(output_of(*command, f"{wheel}[{extras}]"))
    found = [(each["metadata"], each.get("download_info", {})) for each in report["install"]]
    packages = sorted(found, key=lambda each: each[0]["name"].lower())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name_and_version)}",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "callgate", "version": name_and_version.partition(" ")[2]}},
        "components": [component(metadata, source) for metadata, source in packages if metadata["name"] != "callgate"],
    }


def component(metadata: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    """A package in the SBOM."""
    name = re.sub(r"[-_.]+", "-", metadata["name"]).lower()
    found: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": metadata["version"],
        "purl": f"pkg:pypi/{name}@{metadata['version']}",
    }
    if words := metadata.get("license_expression"):
        found["licenses"] = [{"expression": words}]
    if sha256 := source.get("archive_info", {}).get("hashes", {}).get("sha256"):
        found["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    return found


def left_to_a_person(wheel: Path) -> list[str]:
    """What no program can know, and must be filled in before anything is published."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode("utf-8")
    left: list[str] = []
    if not re.search(r"^Project-URL: ", metadata.partition("\n\n")[0], re.MULTILINE):
        left.append("[project.urls] in pyproject.toml: where the repository, the documentation and the issues are")
    if re.search(r"^## \S+ \(unreleased\)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        left.append("the date of this version in CHANGELOG.md, instead of (unreleased)")
    return left


def main(arguments: list[str]) -> int:
    """Build, check, and say what is left to do."""
    try:
        number = version()
        with tempfile.TemporaryDirectory() as folder:
            files = built(Path(folder))
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for name, data in files.items():
            (DIST / name).write_bytes(data)
        (wheel,) = DIST.glob("*.whl")
        bom = sbom(wheel, f"callgate {number}")
        (DIST / f"callgate-{number}.cdx.json").write_text(json.dumps(bom, indent=2) + "\n", "utf-8")
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(DIST.iterdir())]
        (DIST / "SHA256SUMS").write_text("".join(sums), "utf-8")
        if "--quick" not in arguments:
            print("release: using the wheel in an environment of its own for each extra; this takes minutes")
            output_of(sys.executable, "-m", "pytest", "-q", "-m", "slow", "tests/test_package.py", "tests/test_extras.py")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("".join(sums), end="")
    print(f"release: {len(bom['components'])} packages in the SBOM.")
    for task in left_to_a_person(wheel):
        print(f"release: fill in first: {task}")
    print("release: to publish:")
    print(f"  git tag v{number} && git push origin v{number}")
    print("  python -m twine upload dist/*.whl dist/*.tar.gz")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
