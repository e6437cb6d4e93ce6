"""Brings JSON Schema's own test suite into .venv, from the source distribution of `jsonschema` that carries it.

Nothing comes in; a folder of cases goes out, where `tests/schema/test_suite.py` looks for it. Does nothing where it is there
already. Where it cannot be had (no network), a sentence says so and the status is 0, as the test then skips with the same
words; CALLGATE_REQUIRE_ALL=1 makes it 1.

    python scripts/json_schema_suite.py [FOLDER]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.26.0"
FOLDER = Path(__file__).resolve().parent.parent / ".venv" / "json-schema-suite"
DRAFTS = ("draft4", "draft6", "draft7", "draft2019-09", "draft2020-12")


def download(into: Path) -> Path:
    """The source distribution, fetched by pip from wherever pip fetches things here."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        subprocess.run([sys.executable, "-m", "ensurepip"], capture_output=True, check=True)
    fetch = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps"]
    wanted = ["--no-binary", "jsonschema", f"jsonschema=={VERSION}", "--dest", str(into)]
    subprocess.run([*fetch, *wanted], check=True, capture_output=True, text=True)
    return next(into.glob("*.tar.gz"))


def unpack(archive: Path, folder: Path) -> int:
    """Writes the cases of the drafts into the folder, one folder a draft; how many files there are."""
    count = 0
    with tarfile.open(archive) as files:
        for member in files.getmembers():
            path = Path(member.name)
            if (
                member.isfile()
                and path.suffix == ".json"
                and path.parts[1:3] == ("json", "tests")
                and path.parts[3] in DRAFTS
            ):
                target = folder.joinpath(*path.parts[3:])
                target.parent.mkdir(parents=True, exist_ok=True)
                data = files.extractfile(member)
                if data is not None:
                    target.write_bytes(data.read())
                    count += 1
    return count


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else FOLDER
    stamp = folder / f"jsonschema-{VERSION}-{len(DRAFTS)}"
    if stamp.exists():
        return 0
    try:
        with tempfile.TemporaryDirectory() as place:
            count = unpack(download(Path(place)), folder)
    except (OSError, StopIteration, subprocess.CalledProcessError, tarfile.TarError) as error:
        lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
        print(f"json_schema_suite: could not be fetched, so it is not run: {lines[-1] if lines else error}", file=sys.stderr)
        return 1 if os.environ.get("CALLGATE_REQUIRE_ALL") == "1" else 0
    if not count:
        print(f"json_schema_suite: jsonschema {VERSION} carries no cases any more; name another version", file=sys.stderr)
        return 1
    stamp.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
