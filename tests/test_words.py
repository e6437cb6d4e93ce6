"""The words of the code: module names, docstrings and user-facing text in the terms of the field.

Each check takes texts and returns its findings as sentences, and is run on a made-up example as well.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "callgate"

# Modules whose name looks like a participle, and why they keep it.
PARTICIPLES = {
    "calls/nested.py": "nested calls; the folder says the noun",
    "cli/escaping.py": "escaping is the field's name of the job",
    "definitions/json_decoding.py": "decoding is the field's name of the job",
    "embedded/spelling.py": "spelling is a noun",
    "gemini/incoming.py": "incoming requests; the folder says whose",
    "history/encoded.py": "contents as encoded bytes; there is no shorter noun",
    "models/embedded.py": "the embedded model; the folder says the noun",
    "models/prompted.py": "prompted models; the folder says the noun",
    "server/compat/streaming.py": "streaming is the field's name of the job",
    "store/listing.py": "a listing is a noun",
    "wire/stream_framing.py": "framing is the field's name of the job",
    "workers/isolated.py": "isolated functions, as in isolation='process'",
}
_PARTICIPLE = re.compile(r"(?:ing|ed)$")
_IRREGULAR = frozenset({
    "asked", "done", "given", "held", "kept", "known", "left", "lost", "made", "met", "said", "seen", "shown",
    "sound", "spoken", "taken", "told", "unread", "written",
})  # fmt: skip
_NOUNS = frozenset({"string", "thing", "feed", "seed", "speed", "need", "thread", "embed", "setting", "landing"})

_OPENING = re.compile(r"(?:What|Whoever|As|Whether)\b")
BANNED = ("mend", "mended", "mends", "mending", "heed", "heeded", "heeds", "behind it", "whoever", "in good order")


def participles(paths: Iterable[str], allowed: Iterable[str] = PARTICIPLES) -> list[str]:
    """Modules that are named by a participle alone, or end with one."""
    found: list[str] = []
    for path in paths:
        last = Path(path).stem.rpartition("_")[2]
        is_participle = last in _IRREGULAR or (_PARTICIPLE.search(last) is not None and last not in _NOUNS)
        if is_participle and path not in allowed:
            found.append(f"{path} is named by a participle; name it after what it holds")
    return found


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Every docstring of a module, those of attributes included, with its line."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for item in body if isinstance(body, list) else []:
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str):
                yield item.lineno, item.value.value.strip()


def odd_openings(path: str, source: str) -> list[str]:
    """Docstrings that open with What, Whoever, As or Whether."""
    return [
        f"{path}:{line}: {text.splitlines()[0]!r} is neither imperative nor a noun phrase"
        for line, text in docstrings(source)
        if _OPENING.match(text)
    ]


def banned_words(path: str, text: str) -> list[str]:
    """Words of the list in a text, in any case."""
    pattern = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
    return [
        f"{path}:{number}: {found[0]!r}; say it in a word that a stranger greps for"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := pattern.search(line)) is not None
    ]


def clean_files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def test_no_module_is_named_by_a_participle() -> None:
    names = [str(path.relative_to(SRC)) for path in clean_files()]
    assert participles(names) == []
    assert [name for name in PARTICIPLES if not (SRC / name).exists()] == []


def test_no_docstring_opens_with_what_whoever_as_or_whether() -> None:
    found = [odd_openings(str(path.relative_to(SRC)), path.read_text("utf-8")) for path in clean_files()]
    assert [sentence for sentences in found for sentence in sentences] == []


def test_no_banned_word_is_in_the_sources_or_the_docs() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found = [banned_words(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in (*clean_files(), *pages)]
    assert [sentence for sentences in found for sentence in sentences] == []


def test_each_check_finds_its_breach() -> None:
    assert len(participles(["a/held.py", "a/asking.py", "a/visited_page.py", "a/mapped.py"], ())) == 3
    assert len(odd_openings("a.py", '"""What it is."""\nx = 1\n"""Whether it is."""\ndef f():\n    """As f."""\n')) == 3
    assert len(banned_words("a.md", "Mend it.\nIt is fine.\nBehind it, whoever comes.")) == 2


# The newcomer's questions of CONTRIBUTING.md ------------------------------------------------------------------------------


def answers_of(page: str) -> list[tuple[str, str]]:
    """The word that is asked for, and the file that answers, of every row of the table."""
    section = page.partition("## Where is ...?")[2].partition("\n## ")[0]
    return re.findall(r"^\| \*\*([\w -]+)\*\*[^|]*\| `([\w/.-]+)` \|$", section, re.MULTILINE)


def test_a_newcomer_finds_what_he_asks_for_in_the_file_of_that_name() -> None:
    rows = answers_of((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert len(rows) >= 20
    for word, file in rows:
        assert (SRC / file).exists(), f"CONTRIBUTING.md: there is no {file}, which should answer {word!r}"
        name = f"{file} ".replace("_", " ").replace("-", " ").lower()
        assert word.lower().replace("-", " ") in name, f"CONTRIBUTING.md: {file} does not have {word!r} in its name"


# Commit subjects ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("wire: flush responses of one tick together\n\nWhy.\n", None),
        ("cli, run: name the session in errors", None),
        ("Merge branch 'x'", None),
        ("Tests of what leaves together", "no scope"),
        ("wire: Flush responses", "capital letter"),
        ("wire: flushed responses", "not imperative"),
        ("wire: flushing responses", "not imperative"),
        ("wire: flush responses.", "full stop"),
        ("wire: flush " + "x" * 61, "longer than 72"),
        ("wire: flush responses\nof one tick", "second line"),
    ],
)
def test_the_hook_accepts_a_scope_and_an_imperative_summary_only(tmp_path: Path, message: str, why: str | None) -> None:
    file = tmp_path / "message"
    file.write_text(message, "utf-8")
    hook = str(ROOT / "scripts" / "commit-msg")
    done = subprocess.run([hook, str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr if why is None else why in done.stderr) == ((0, "") if why is None else (1, True))
