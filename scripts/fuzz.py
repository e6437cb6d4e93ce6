"""Fuzz the parsers of foreign text, guided by coverage: `python scripts/fuzz.py --seconds 60 [PARSER ...]`.

The parsers are those of `tests/test_hostile_text.py`; each has a process of its own, and a corpus below `build/fuzz`. An
exception that is not one of ours, or an input that takes longer than ten seconds, is a failure: the input is left in that
folder. Needs atheris, which is not there for every version of Python; without it nothing is fuzzed, and that is said.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "build" / "fuzz"
INPUT_CHARS_MAX = 4_096
INPUT_TIMEOUT_S = 10


def main() -> int:
    """Fuzz the chosen parsers one after another; the exit code is 1 if one of them failed."""
    given = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    given.add_argument("parser", nargs="*", help="names of parsers; all without one")
    given.add_argument("--seconds", type=int, default=60, help="how long each parser is fuzzed")
    given.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = given.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: atheris is not installed (pip install atheris), so nothing was fuzzed", file=sys.stderr)
        return 0
    if options.inside:
        fuzz(options.parser[0], options.seconds)
        return 0
    names = options.parser or parser_names()
    failed = [name for name in names if not _succeeds(name, options.seconds)]
    print(f"fuzz: {len(names) - len(failed)} of {len(names)} parsers withstood {options.seconds} s each")
    for name in failed:
        print(f"fuzz: {name} failed; the input is in {CORPUS / name.replace(' ', '_')}", file=sys.stderr)
    return 1 if failed else 0


def parser_names() -> list[str]:
    """Return the names of the parsers."""
    sys.path.insert(0, str(ROOT))
    from tests.test_hostile_text import PARSERS

    return list(PARSERS)


def _succeeds(name: str, seconds: int) -> bool:
    command = [sys.executable, __file__, "--inside", "--seconds", str(seconds), name]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=seconds * 3 + 300).returncode == 0


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one parser; ends this process."""
    import atheris

    sys.path.insert(0, str(ROOT))
    with atheris.instrument_imports(include=["callgate"]):
        from tests.test_hostile_text import PARSERS

        from callgate.errors import CallgateError, ToolError
    parse = PARSERS[name]

    def one(data: bytes) -> None:
        text = atheris.FuzzedDataProvider(data).ConsumeUnicode(INPUT_CHARS_MAX)
        with contextlib.suppress(CallgateError, ToolError, tomllib.TOMLDecodeError):
            parse(text)

    folder = CORPUS / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    flags = [f"-max_total_time={seconds}", f"-timeout={INPUT_TIMEOUT_S}", f"-artifact_prefix={folder}/", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *flags, str(folder)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
