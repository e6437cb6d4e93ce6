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

from callgate.config import SETTINGS

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
# Participles that stood as names for a function or a class. A question (`is_held`) may end with one.
_NO_NAMES = frozenset({
    "asked", "began", "begun", "given", "gone", "hear", "heard", "held", "kept", "meant", "said", "spoken", "standing",
    "told", "wanted",
})  # fmt: skip
_QUESTION = re.compile(r"_*(?:is|has|had|can|was|never|keeps)_")
# The names of facts in journals and of events, which other programs read.
_ON_THE_WIRE = frozenset({"HistoryGiven", "InteractionsKept", "QuestionAsked", "RunBegan", "_history_given"})
_NOUNS = frozenset({"string", "thing", "feed", "seed", "speed", "need", "thread", "embed", "setting", "landing"})

# Openings of a docstring that is neither imperative nor a noun phrase: question words, pronouns, verbs in the third person.
_OPENING = re.compile(
    r"(?:What|Whoever|As|Whether|How|Who|Whose|Where|When|Why|Which|That|Those|They|It|Not|Neither|So|And|But|Then|If|Since"
    r"|Because|(?:No|Some|Any|Every)body|Nothing|Everything|All that|Is|Are|Was|Has|Can|May|Does|Goes|Says|Tells|Gives|Takes"
    r"|Makes|Lets)\b"
)
# A verb in the third person: one that is no plural as well, or a word in -s with its object.
_THIRD_PERSON = re.compile(
    r"(?:Accepts|Adds|Admits|Allows|Announces|Asks|Begins|Brings|Builds|Carries|Collects|Converts|Creates|Decides|Declares"
    r"|Deletes|Dispatches|Does|Embeds|Follows|Forgets|Gets|Grows|Issues|Joins|Keeps|Knows|Lowers|Merges|Observes|Opens"
    r"|Picks|Reads|Receives|Refuses|Remembers|Removes|Renders|Renews|Replaces|Represents|Restores|Returns|Sends"
    r"|Serves|Shows|Spreads|Stands|Starts|Tries|Waits|Wakes)\b"
    r"|[A-Z][a-z]*[a-rt-z]s (?:a|an|the|its|it|them|what|whether|another|this|every|nothing) "
)
# Their docstrings are descriptions of tools, which a model reads.
_TOOLS = ("cli/demo_tools.py",)
BANNED = ("mend", "mended", "mends", "mending", "heed", "heeded", "heeds", "behind it", "whoever", "in good order")
# Titles of sections that say nothing of what is in them.
_EMPTY_TITLE = re.compile(r"^\s*(?:#|//) (?:Behind it|Small things|Others|And then)(?: -+)?\s*$")


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


def odd_names(path: str, source: str) -> list[str]:
    """Functions and classes that are named by a participle alone, or end with one."""
    return [
        f"{path}:{node.lineno}: {node.name}; name a function after what it does, and a class after what it is"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and re.split(r"_|(?<=[a-z])(?=[A-Z])", node.name)[-1].lower() in _NO_NAMES
        and not _QUESTION.match(node.name)
        and node.name not in _ON_THE_WIRE
    ]


def odd_openings(path: str, source: str) -> list[str]:
    """Docstrings that open with a question word, a pronoun or a verb in the third person."""
    return [
        f"{path}:{line}: {text.splitlines()[0]!r} is neither imperative nor a noun phrase"
        for line, text in docstrings(source)
        if _OPENING.match(text) or (_THIRD_PERSON.match(text) and path not in _TOOLS)
    ]


def odd_help(path: str, source: str) -> list[str]:
    """Help texts of options and descriptions in schemas that open like no docstring may."""
    found: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg in ("help", "short_help", "description"):
            found.append(node.value)
        elif isinstance(node, ast.Dict):
            found += [
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value == "description"
            ]
    return [
        f"{path}:{text.lineno}: {text.value!r} is neither imperative nor a noun phrase"
        for text in found
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and _OPENING.match(text.value)
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


def test_every_docstring_opens_with_an_imperative_or_a_noun_phrase() -> None:
    found = [odd_openings(str(path.relative_to(SRC)), path.read_text("utf-8")) for path in clean_files()]
    assert [sentence for sentences in found for sentence in sentences] == []


def test_help_texts_and_descriptions_open_with_an_imperative_or_a_noun_phrase() -> None:
    files = [path for part in ("cli", "server") for path in sorted((SRC / part).rglob("*.py"))]
    found = [odd_help(str(path.relative_to(SRC)), path.read_text("utf-8")) for path in files]
    assert [sentence for sentences in found for sentence in sentences] == []
    assert [setting.key for setting in SETTINGS.values() if _OPENING.match(setting.doc)] == []


def option_names(source: str) -> list[str]:
    """The names of the options that a module of the command declares."""
    return re.findall(r"""["']--([a-z][a-z-]*)""", source)


def field_names(source: str) -> Iterator[str]:
    """The names of the properties in the schemas of a module."""
    for node in ast.walk(ast.parse(source)):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value == "properties" and isinstance(value, ast.Dict):
                yield from (
                    name.value for name in value.keys if isinstance(name, ast.Constant) and isinstance(name.value, str)
                )


def test_options_and_fields_count_exchanges_and_no_turns() -> None:
    options = {name for path in (SRC / "cli").rglob("*.py") for name in option_names(path.read_text("utf-8"))}
    fields = {name for path in (SRC / "server").glob("*.py") for name in field_names(path.read_text("utf-8"))}
    assert "exchanges" in options & fields
    assert {name for name in options | fields if {"turn", "turns"} & set(re.split("[-_]", name))} == set()


def test_no_function_or_class_is_named_by_a_participle() -> None:
    found = [odd_names(str(path.relative_to(SRC)), path.read_text("utf-8")) for path in clean_files()]
    assert [sentence for sentences in found for sentence in sentences] == []


def test_no_banned_word_is_in_the_sources_or_the_docs() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = [path for kind in ("py", "js", "css", "html") for path in sorted(SRC.rglob(f"*.{kind}"))]
    found = [banned_words(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in (*texts, *pages)]
    assert [sentence for sentences in found for sentence in sentences] == []


def empty_titles(path: str, source: str) -> list[str]:
    """Sections of a file that are not called by their content."""
    lines = enumerate(source.splitlines(), 1)
    return [f"{path}:{number}: {line.strip()[:40]!r}" for number, line in lines if _EMPTY_TITLE.match(line)]


def test_every_section_is_called_by_its_content() -> None:
    files = [*clean_files(), *sorted(SRC.rglob("*.js"))]
    assert [title for path in files for title in empty_titles(str(path.relative_to(SRC)), path.read_text("utf-8"))] == []


def test_each_check_finds_its_breach() -> None:
    assert len(participles(["a/held.py", "a/asking.py", "a/visited_page.py", "a/mapped.py"], ())) == 3
    names = "def _said(): ...\nclass Kept: ...\nclass GoneError(Exception): ...\ndef is_held(): ...\ndef keep(): ..."
    assert [sentence.split()[1] for sentence in odd_names("a.py", names)] == ["_said;", "Kept;"]
    odd = '"""What it is."""\nx = 1\n"""How long it is."""\ndef f():\n    """Says f."""\ndef g():\n    """Say g."""\n'
    odd += 'def h():\n    """Counts the h."""\ndef i():\n    """Counts of i."""\n'
    assert len(odd_openings("a.py", odd)) == 4
    assert len(odd_help("a.py", "f(help='How long.')\nx = {'description': 'Whose it is.', 'help': 'What'}")) == 2
    assert len(empty_titles("a.py", "# Others ---\n    # Small things ---\n# Others may come.")) == 2
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
