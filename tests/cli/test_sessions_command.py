"""`callgate sessions`, and the sessions of `callgate chat`, as a shell sees them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import FileTools, Gate, GeminiModel, Media, Policy, ScriptedModel
from callgate.cli import main
from callgate.cli.file_undo import file_undo
from callgate.machine.facts import Fact
from callgate.store import open_store
from callgate.store.dialect import DamagedStoreError
from callgate.store.principals import keeps_principals
from callgate.store.sql import SqlStore
from callgate.testing import FakeGemini, call, text

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is kept, of each test its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "callgate"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    def run(*words: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main([*map(str, words)])
        return code, *capsys.readouterr()

    return run


def listed(shell: Shell) -> list[dict[str, Any]]:
    return json.loads(shell("sessions", "list", "--all", "-o", "json")[1])


def note(word: str) -> str:
    """Notes a word."""
    return f"noted {word}"


def kept(state: Path, session: str, *script: Any, said: tuple[str, ...] = ("first",)) -> None:
    """A conversation in the usual place."""
    state.mkdir(parents=True, exist_ok=True)
    with Gate(ScriptedModel(list(script)), [note], store=str(state / "sessions.db")) as gate:
        for prompt in said:
            gate.run_sync(prompt, session=session)


def three_turns(state: Path, session: str = "talk") -> None:
    script = [call("note", word="a"), text("One."), text("Two."), call("note", word="c"), text("Three.")]
    kept(state, session, *script, said=("first", "second", "third"))


# chat --------------------------------------------------------------------------------------------------------------------


def test_a_chat_is_kept_and_goes_on(shell: Shell, state: Path) -> None:
    assert shell("chat", "2 + 2")[:2] == (0, "2 + 2 = 4.\n")
    [first] = listed(shell)
    assert (first["exchanges"], first["state"], first["title"]) == (1, "idle", "2 + 2")
    assert stat.S_IMODE((state / "sessions.db").stat().st_mode) == 0o600
    assert shell("chat", "-c", "3 + 3")[0] == 0
    assert shell("chat", "-r", first["id"].removeprefix("chat-")[:6], "4 + 4")[0] == 0
    assert shell("chat", "--resume", "latest", "5 + 5")[0] == 0
    assert [(row["id"], row["exchanges"]) for row in listed(shell)] == [(first["id"], 4)]
    shell("chat", "6 + 6")
    assert [row["exchanges"] for row in listed(shell)] == [1, 4]


def test_an_ephemeral_chat_and_the_example_leave_nothing_behind(shell: Shell, state: Path) -> None:
    assert shell("chat", "--ephemeral", "2 + 2")[0] == 0
    assert shell("chat", "--example")[0] == 0
    assert not state.exists()


def test_a_store_can_be_named(shell: Shell, state: Path, tmp_path: Path) -> None:
    assert shell("chat", "--store", tmp_path / "mine.db", "2 + 2")[0] == 0
    assert not state.exists()
    assert json.loads(shell("sessions", "list", "-o", "json", "--store", tmp_path / "mine.db")[1])[0]["exchanges"] == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["chat", "-c", "hi"], 42, "there is no session yet"),
        (["chat", "-r", "nobody", "hi"], 42, "there is no session 'nobody'; `callgate sessions list` shows them"),
        (["chat", "-r", "x", "-c", "hi"], 2, "-r and -c both name a session"),
        (["chat", "--ephemeral", "-c", "hi"], 2, "--ephemeral keeps nothing"),
        (["chat", "--store", "http://x", "hi"], 42, "use a path for SQLite"),
        (["sessions", "show", "x"], 42, "there is no session 'x'"),
        (["sessions", "export"], 2, "name a session to export"),
        (["sessions", "export", "--salvage", "gone.db"], 1, "nothing of gone.db can be read"),
        (["sessions", "delete", "x"], 2, "use --yes"),
        (["sessions", "delete", "x", "--yes"], 42, "there is no session 'x'"),
        (["sessions", "rewind", "x"], 42, "there is no session 'x'"),
        (["sessions", "import", "gone.json"], 42, "there is no file 'gone.json'"),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(words: list[str], code: int, said: str, shell: Shell) -> None:
    done, out, err = shell(*words)
    assert (done, out) == (code, "")
    (line,) = err.splitlines()
    assert line.startswith("callgate: ")
    assert said in line


@pytest.mark.parametrize("words", [["chat", "hi"], ["sessions", "list"]])
def test_a_store_that_cannot_be_opened_is_a_sentence_and_exit_code_1(words: list[str], shell: Shell, state: Path) -> None:
    state.mkdir(parents=True)
    (state / "sessions.db").write_bytes(b"my notes\n" * 300)
    code, out, err = shell(*words)
    assert (code, out) == (1, "")
    assert "sessions.db is damaged" in err
    assert "callgate sessions export --salvage" in err


def test_a_list_of_sessions_whose_tables_are_locked_says_so_and_fails(
    shell: Shell, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr("callgate.store.database.LOCKED_S", 0.2)
    place = f"{postgres_url}?options=-c%20lock_timeout%3D50ms"
    with Gate(ScriptedModel([text("Hi."), text("Hi.")]), store=place) as gate:
        for session in ("a", "b"):
            gate.run_sync("hello", session=session)
    with psycopg.connect(postgres_url) as stray:
        stray.execute("LOCK TABLE callgate_facts IN ACCESS EXCLUSIVE MODE")
        for words in (["-o", "json"], []):
            code, out, err = shell("sessions", "list", *words, "--store", place)
            assert (code, out) == (1, "")
            assert "has been locked by another transaction" in err
            assert "see which process has it, and try again" in err
    assert "idle" in shell("sessions", "list", "--store", place)[1]


def test_a_list_leaves_out_a_session_that_was_deleted_meanwhile_and_says_which_cannot_be_read(
    shell: Shell, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session in ("whole", "damaged", "deleted"):
        kept(state, session, text("Hi."))
    read = SqlStore.load

    async def load(store: SqlStore, session: str, *, start: int = 0) -> list[Fact]:
        if session == "damaged":
            raise DamagedStoreError("the session file is damaged")
        return [] if session == "deleted" else await read(store, session, start=start)

    monkeypatch.setattr(SqlStore, "load", load)
    code, out, err = shell("sessions", "list", "-o", "json")
    assert {row["id"]: row["state"] for row in json.loads(out)} == {"whole": "idle", "damaged": "cannot be read"}
    assert (code, "the session file is damaged" in err) == (1, True)


# looking -----------------------------------------------------------------------------------------------------------------


def test_the_list_is_a_table_with_the_newest_first(shell: Shell, state: Path) -> None:
    assert shell("sessions", "list")[1] == "There are no stored sessions.\n"
    three_turns(state, "talk")
    kept(state, "other", text("Hi."), said=("hello\x1b[31m there",))
    rows = [line.split("  ") for line in shell("sessions", "list")[1].splitlines()]
    assert [row[0].strip() for row in rows] == ["other", "talk"]
    assert [row[-1] for row in rows] == ["hello<U+001B>[31m there", "first"]
    assert "idle" in rows[0]


def test_a_conversation_is_shown_readable_and_cannot_steer_the_terminal(shell: Shell, state: Path) -> None:
    kept(state, "talk", call("note", word="\x1b[2J"), text("Done \x1b]0;owned\x07."), said=("first\nline",))
    code, out, _ = shell("sessions", "show", "talk")
    assert code == 0
    assert out.splitlines()[1:] == [
        "",
        "> first",
        "line",
        '-> note(word="\\u001b[2J")',
        '<- note: result="noted \\u001b[2J"',
        "Done <U+001B>]0;owned<U+0007>.",
    ]


def test_a_conversation_is_shown_with_sources_suggestions_code_and_media(shell: Shell, state: Path) -> None:
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "print(6 * 7)\x1b[2J"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42\n"}},
        {"text": "It is 42."},
        {"inlineData": {"mimeType": "image/png", "data": "AP8="}},
    ]
    grounding = {
        "searchEntryPoint": {"renderedContent": "<a href='https://www.google.com/search?q=42'>42</a>"},
        "groundingChunks": [{"web": {"uri": "https://a.example/", "title": "a"}}],
    }
    answer = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "groundingMetadata": grounding}
    kept(state, "talk", {"candidates": [answer]}, text("Bye."), said=("How much?", "Bye."))
    code, out, _ = shell("sessions", "show", "talk")
    assert (code, out.splitlines()[1:]) == (0, [
        "", "> How much?", "  | print(6 * 7)<U+001B>[2J", "  | 42", "It is 42.", "+ image/png, 0.0 KiB",
        "[1] a: https://a.example/", "Google Search: 42: https://www.google.com/search?q=42", "", "> Bye.", "Bye.",
    ])  # fmt: skip


# out and in --------------------------------------------------------------------------------------------------------------


def test_an_export_comes_back_as_the_same_session(shell: Shell, state: Path, tmp_path: Path) -> None:
    three_turns(state)
    written = shell("sessions", "export", "talk")[1]
    value = json.loads(written)
    assert list(value) == ["callgate", "session", "facts", "contents"]
    assert (value["callgate"], value["session"]["id"], value["session"]["title"]) == (1, "talk", "first")
    (tmp_path / "talk.json").write_text(written)
    code, made, _ = shell("sessions", "import", tmp_path / "talk.json")
    assert (code, made.startswith("import-")) == (0, True)
    again = json.loads(shell("sessions", "export", made.strip())[1])
    assert again["contents"] == value["contents"]
    shell("sessions", "delete", "talk", "--yes")
    assert shell("sessions", "import", "-", stdin="")[0] == 42
    assert shell("sessions", "import", tmp_path / "talk.json")[1] == "talk\n"


@pytest.mark.parametrize("name", ["gemini", "openai", "anthropic", "amazon_q", "bedrock"])
def test_a_history_goes_to_another_system_and_comes_back(name: str, shell: Shell, state: Path, tmp_path: Path) -> None:
    three_turns(state)
    code, out, _ = shell("sessions", "export", "talk", "--format", name)
    assert code == 0
    (tmp_path / "history.json").write_text(out)
    code, made, _ = shell("sessions", "import", tmp_path / "history.json", "--from", name)
    assert code == 0
    shown = shell("sessions", "show", made.strip())[1]
    assert [line for line in shown.splitlines() if line[:2] in ("> ", "->")] == [
        "> first", '-> note(word="a")', "> second", "> third", '-> note(word="c")',
    ]  # fmt: skip
    assert {row["title"] for row in listed(shell)} == {"first"}


def test_a_history_whose_format_is_not_named_is_detected(shell: Shell, tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."}]  # fmt: skip
    (tmp_path / "history.json").write_text(json.dumps({"messages": messages, "model": "gpt-9"}))
    code, made, err = shell("sessions", "import", tmp_path / "history.json", "--from", "openai")
    assert (code, made.startswith("import-")) == (0, True)
    assert err != ""  # The system text has no place in a session, and that is told.


@pytest.mark.parametrize(
    "value", [{"callgate": 9, "session": {}}, {"callgate": 1}, {"callgate": 1, "session": {}, "facts": [{"v": 1}]}, 7, []]
)
def test_a_file_that_is_no_session_is_bad_input(value: Any, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(value))
    code, out, err = shell("sessions", "import", tmp_path / "x.json")
    assert (code, out, len(err.splitlines())) == (42, "", 1)
    assert listed(shell) == []


def test_what_can_be_read_of_a_damaged_file_is_exported_and_imported(shell: Shell, state: Path, tmp_path: Path) -> None:
    three_turns(state)
    kept(state, "other", text("Hi."))
    with sqlite3.connect(state / "sessions.db") as connection:
        connection.execute("UPDATE callgate_facts SET body = 'spoiled' WHERE session = 'talk' AND position = 9")
    connection.close()
    code, out, err = shell("sessions", "export", "--salvage", state / "sessions.db")
    assert code == 0
    assert "session talk: fact 9 is damaged" in err
    assert [one["session"]["id"] for one in json.loads(out)["sessions"]] == ["other", "talk"]
    (tmp_path / "saved.json").write_text(out)
    assert shell("sessions", "import", tmp_path / "saved.json", "--store", tmp_path / "new.db")[1] == "other\ntalk\n"
    assert [row["exchanges"] for row in listed(shell) if row["id"] == "talk"] != []


def test_commands_work_on_a_session_whose_journal_is_damaged_anywhere(shell: Shell, state: Path, tmp_path: Path) -> None:
    three_turns(state)
    path = state / "sessions.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        [(count,)] = connection.execute("SELECT facts FROM callgate_sessions WHERE id = 'talk'")
    for position in range(count):
        session = f"damaged-{position}"
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "INSERT INTO callgate_sessions SELECT ?, title, facts, 0, NULL, 0, created_s, updated_s "
                "FROM callgate_sessions WHERE id = 'talk'", (session,),
            )  # fmt: skip
            connection.execute(
                "INSERT INTO callgate_facts SELECT ?, position, CASE WHEN position = ? THEN X'FF00' ELSE body END "
                "FROM callgate_facts WHERE session = 'talk'", (session, position),
            )  # fmt: skip
        for words in (["sessions", "show"], ["trace"], ["sessions", "fork"]):
            code, out, err = shell(*words, session)
            assert (code, bool(out)) == (0, True), (position, words, err)
        code, out, err = shell("sessions", "export", session)
        assert code == 0
        assert f"session {session}: fact {position} is damaged: not valid JSON" in err
        exported = json.loads(out)["facts"][position]
        assert (exported["kind"], exported["body"]) == ("unreadable", "/wA=")
        (tmp_path / "saved.json").write_text(out)
        new = ("--store", tmp_path / f"{position}.db")
        assert shell("sessions", "import", tmp_path / "saved.json", *new)[0] == 0
        assert json.loads(shell("sessions", "export", session, *new)[1])["facts"][:count] == json.loads(out)["facts"]
    assert shell("sessions", "rewind", f"damaged-{count - 1}")[0] == 0
    assert shell("chat", "-r", f"damaged-{count - 1}", "2 + 2")[:2] == (0, "2 + 2 = 4.\n")
    assert len(listed(shell)) == 1 + 2 * count


# changing ----------------------------------------------------------------------------------------------------------------


def test_a_fork_and_a_rewind(shell: Shell, state: Path) -> None:
    three_turns(state)
    code, made, _ = shell("sessions", "fork", "talk", "--exchanges", "1")
    assert (code, made.startswith("fork-")) == (0, True)
    code, out, _ = shell("sessions", "rewind", "talk", "--exchanges", "2")
    assert (code, out.splitlines()) == (
        0, ["removed: second", "removed: third", "To resume: callgate chat -r talk"],
    )  # fmt: skip
    assert {row["id"]: row["exchanges"] for row in listed(shell)} == {"talk": 1, made.strip(): 1}
    code, _, err = shell("sessions", "rewind", "talk", "--exchanges", "2")
    assert (code, "has 1 exchanges" in err) == (42, True)


def test_a_session_is_deleted_after_a_yes(shell: Shell, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_turns(state)
    monkeypatch.setattr("callgate.cli.sessions.is_terminal", lambda _: True)
    assert shell("sessions", "delete", "talk", stdin="n\n")[0] == 130
    assert [row["id"] for row in listed(shell)] == ["talk"]
    assert shell("sessions", "delete", "talk", stdin="y\n")[0] == 0
    assert listed(shell) == []


def test_a_rewind_puts_back_the_files_that_were_written_in_those_turns(shell: Shell, state: Path, tmp_path: Path) -> None:
    files = pytest.importorskip("callgate.files", reason="this callgate has no file tools")
    assert file_undo() is not None
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("old")
    script = [
        text("Nothing yet."),
        call("write_file", path="a.txt", content="new"),
        call("write_file", path="b.txt", content="made"),
        call("write_file", path="a.txt", content="newer"),
        text("Written."),
    ]
    state.mkdir(parents=True)
    with Gate(
        ScriptedModel(script), [files.FileTools(str(root))], store=str(state / "sessions.db"), policy=Policy(default="allow")
    ) as gate:
        gate.run_sync("first", session="talk")
        gate.run_sync("write", session="talk")
    assert ((root / "a.txt").read_text(), (root / "b.txt").read_text()) == ("newer", "made")
    code, out, _ = shell("sessions", "rewind", "talk")
    assert code == 0, out
    assert ((root / "a.txt").read_text(), (root / "b.txt").exists()) == ("old", False)


def test_sessions_are_deleted_by_their_age_and_newer_ones_stay(shell: Shell, state: Path) -> None:
    for session in ("old", "older", "new"):
        kept(state, session, text("Hi."))
    with contextlib.closing(sqlite3.connect(state / "sessions.db")) as connection, connection:
        connection.execute("UPDATE callgate_sessions SET updated_s = updated_s - 31 * 86400 WHERE id <> 'new'")
    assert shell("sessions", "delete", "--older-than", "40d", "--yes")[0] == 0
    assert len(listed(shell)) == 3
    assert shell("sessions", "delete", "--older-than", "30d", "--yes")[0] == 0
    assert [row["id"] for row in listed(shell)] == ["new"]
    for wrong in (
        ["--older-than", "30"],
        ["--older-than", "30d", "new"],
        [],
        ["--older-than", "-1d"],
        ["--older-than", "d"],
    ):
        assert shell("sessions", "delete", *wrong, "--yes")[0] == 2
    assert len(listed(shell)) == 1


@pytest.mark.parametrize("words", [("film",), ("--older-than", "0d")])
def test_a_deleted_session_takes_its_uploads_at_google_with_it(
    shell: Shell, state: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("callgate.media_files.INLINE_BYTES_MAX", 1_000)
    state.mkdir(parents=True)
    film = Media(data=b"\x00\x00\x00\x18ftypmp42" + bytes(2_000), mime_type="video/mp4")
    with FakeGemini.in_thread(["A film."]) as fake:
        monkeypatch.setenv("GEMINI_API_KEY", "k")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
        with Gate("gemini-3.8-flash", store=str(state / "sessions.db")) as gate:
            gate.run_sync(["What?", film], session="film")
        assert len(fake.resources.files) == 1
        assert shell("sessions", "delete", *words, "--yes")[0] == 0
        assert fake.resources.files == {}
    assert listed(shell) == []


def test_the_uploads_of_a_deleted_session_stay_until_they_expire_where_google_cannot_be_asked(
    shell: Shell, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.media_files.INLINE_BYTES_MAX", 1_000)
    state.mkdir(parents=True)
    film = Media(data=b"\x00\x00\x00\x18ftypmp42" + bytes(2_000), mime_type="video/mp4")
    with FakeGemini.in_thread(["A film."]) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        with Gate(model, store=str(state / "sessions.db")) as gate:
            gate.run_sync(["What?", film], session="film")
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    code, _, said = shell("sessions", "delete", "film", "--yes")
    assert (code, "uploaded files of session film stay at Google until they expire" in said) == (0, True)
    assert listed(shell) == []


def test_a_deleted_session_takes_its_backups_of_files_and_its_prompts_with_it(
    shell: Shell, state: Path, tmp_path: Path
) -> None:
    root = tmp_path / "work"
    root.mkdir()
    state.mkdir(parents=True)
    (root / "a.txt").write_text("a secret of mine")
    script = [call("write_file", path="a.txt", content="new"), text("Done.")]
    with Gate(
        ScriptedModel([*script, call("write_file", path="b.txt", content="x"), text("Done.")]),
        [FileTools(root)],
        store=str(state / "sessions.db"),
        policy=Policy(default="allow"),
    ) as gate:
        gate.run_sync("write my secret", session="mine")
        gate.run_sync("write theirs", session="theirs")
    (state / "history").write_text('"write my secret"\n"another"\nhalf a li')
    assert any(b"a secret of mine" in file.read_bytes() for file in (state / "backups").iterdir())
    assert "a.txt" in shell("undo", "--list", "--root", root)[1]
    assert shell("sessions", "delete", "mine", "--yes")[0] == 0
    assert not any(b"a secret of mine" in file.read_bytes() for file in (state / "backups").iterdir())
    left = shell("undo", "--list", "--root", root)[1]
    assert ("a.txt" in left, "b.txt" in left) == (False, True)
    assert (state / "history").read_text() == '"another"\nhalf a li'
    assert shell("sessions", "delete", "theirs", "--yes")[0] == 0


@pytest.mark.parametrize("words", [("other",), ("--owner", "nobody")])
def test_backups_of_files_of_a_session_that_was_deleted_elsewhere_go_with_the_next_deletion_here(
    shell: Shell, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    root = tmp_path / "work"
    root.mkdir()
    state.mkdir(parents=True)
    place = str(state / "sessions.db")
    script = [call("write_file", path="a.txt", content="new"), text("Done."), text("Hi.")]
    with Gate(ScriptedModel(script), [FileTools(root)], store=place, policy=Policy(default="allow")) as gate:
        gate.run_sync("write", session="mine")
        gate.run_sync("hello", session="other")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        assert shell("sessions", "delete", "mine", "--yes", "--store", place)[0] == 0
    assert "a.txt" in shell("undo", "--list", "--root", root)[1]
    assert shell("sessions", "delete", *words, "--yes")[0] == 0
    assert "a.txt" not in shell("undo", "--list", "--root", root)[1]


def test_the_sessions_of_one_owner_are_deleted_and_nobody_elses(shell: Shell, state: Path) -> None:
    async def assign() -> None:
        store = open_store(state / "sessions.db")
        assert keeps_principals(store)
        await store.assign("hers", "ann")
        await store.assign("his", "bob")
        await store.aclose()

    state.mkdir(parents=True)
    asyncio.run(assign())
    for session in ("hers", "his", "nobodys"):
        kept(state, session, text("Hi."))
    assert shell("sessions", "delete", "--owner", "ann", "--older-than", "1d", "--yes")[0] == 0
    assert len(listed(shell)) == 3
    assert shell("sessions", "delete", "--owner", "ann", "--yes")[0] == 0
    assert {row["id"] for row in listed(shell)} == {"his", "nobodys"}
    assert shell("sessions", "delete", "his", "--owner", "bob", "--yes")[0] == 2
