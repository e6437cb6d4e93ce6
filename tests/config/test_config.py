"""Settings: the strongest source wins, each value knows where it came from, and a project cannot weaken the user's own."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.config import (
    SETTINGS,
    ConfigError,
    Settings,
    Value,
    is_trusted,
    load_settings,
    masked,
    parsed_text,
    project_file,
    setting_of,
    trust,
    trusted_folders,
    untrust,
    with_value,
    without_value,
    write_atomically,
)
from callgate.config.lines import entries_of, line_of
from callgate.config.places import config_file
from callgate.config.values import fitting
from callgate.errors import UsageError

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))


class Home:
    """A user with a file of their own, in a project with another one."""

    def __init__(self, folder: Path) -> None:
        self.env = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
        self.project = folder / "project"
        self.project.mkdir()
        self.user_file = folder / "config" / "callgate" / "config.toml"
        self.user_file.parent.mkdir(parents=True)

    def user(self, text: str) -> None:
        self.user_file.write_text(text, "utf-8")

    def theirs(self, text: str, *, name: str = ".callgate.toml", trusted: bool = True) -> None:
        (self.project / name).write_text(text, "utf-8")
        if trusted:
            trust(self.project, self.env)

    def load(self, flags: Any = None, **env: str) -> Settings:
        return load_settings({**self.env, **env}, folder=self.project, flags=flags)

    def problems(self, **env: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            self.load(**env)
        return [problem.replace(str(self.user_file), "FILE") for problem in caught.value.problems]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# Which one counts ---------------------------------------------------------------------------------------------------------


def test_a_flag_beats_the_environment_and_that_the_project_and_that_the_user(home: Home) -> None:
    assert home.load().values["model"] == Value(None)
    home.user('# mine\nmodel = "user"\n')
    assert home.load().values["model"] == Value("user", "user", f"{home.user_file}:2")
    home.theirs('model = "project"')
    assert home.load().values["model"] == Value("project", "project", f"{home.project / '.callgate.toml'}:1")
    assert home.load(CALLGATE_MODEL="env").values["model"] == Value("env", "environment", "CALLGATE_MODEL")
    flagged = home.load({"model": ("flag", "-m")}, CALLGATE_MODEL="env")
    assert flagged.values["model"] == Value("flag", "flag", "-m")


def test_every_setting_can_be_given_by_the_environment_and_by_a_flag(home: Home) -> None:
    words = {"whole": "7", "number": "7.5", "flag": "true", "texts": "a,b", "list": '["deny x"]', "table": '{"a": {"b": 1}}'}
    for key, setting in SETTINGS.items():
        text = setting.choices[0] if setting.choices else words.get(setting.kind, "text")
        text = '{"m": {"input": 1, "output": 2}}' if key == "prices" else "300" if setting.kind == "whole" else text
        value = parsed_text(setting, text)
        fitted, problem = fitting(setting, value)
        assert problem is None, (key, problem)
        for name in setting.variables:
            assert home.load(**{name: text}).values[key] == Value(fitted, "environment", name)
        if not setting.secret:
            assert home.load({key: (value, "--set")})[key] == fitted


def test_an_empty_variable_says_nothing(home: Home) -> None:
    assert home.load(CALLGATE_MODEL=" ").values["model"] == Value(None)


def test_keys_reach_models_under_their_usual_names(home: Home) -> None:
    home.user('[gemini]\napi_key = "from-file"\nvertex = true\n[openai]\nbase_url = "http://127.0.0.1:1/v1"\n')
    env = home.load().environment({"PATH": "/bin"})
    assert env == {
        "PATH": "/bin",
        "GOOGLE_API_KEY": "from-file",
        "GOOGLE_GENAI_USE_ENTERPRISE": "true",
        "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
    }
    assert home.load(GEMINI_API_KEY="from-env").environment({})["GOOGLE_API_KEY"] == "from-env"


def test_relative_paths_are_meant_from_the_folder_of_the_file(home: Home) -> None:
    home.user('tools = ["mine.py:fn", "a.module"]\naudit = "log/a.jsonl"\nstore = "s.db"\nmodel = "m.gguf"\n')
    folder = home.user_file.parent
    found = home.load()
    assert found["tools"] == (f"{folder}/mine.py:fn", "a.module")
    assert (found["audit"], found["store"], found["model"]) == (
        f"{folder}/log/a.jsonl",
        f"{folder}/s.db",
        f"{folder}/m.gguf",
    )


def test_tables_of_model_settings_are_put_together(home: Home) -> None:
    home.user("[settings]\ntemperature = 0.5\nseed = 1\n")
    home.theirs("[settings]\nseed = 2\n")
    assert home.load()["settings"] == {"temperature": 0.5, "seed": 2}


# What is wrong ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('# a\n\nmodle = "x"', "FILE:3: 'modle' is not a setting: did you mean 'model'?"),
        ("[limits]\nturn = 3", "FILE:2: 'limits.turn' is not a setting: did you mean 'limits.turns'?"),
        ("[limit]\nturns = 3", "FILE:1: 'limit' is not a setting"),
        ("turns = 3", "FILE:1: 'turns' is not a setting: did you mean 'limits.turns'?"),
        ("zzzzqq = 1", "FILE:1: 'zzzzqq' is not a setting; `callgate config show` lists all of them"),
        ('mode = "nativ"', "did you mean 'native'?"),
        ("model = 3", "FILE:1: model = 3: expected a text in quotes"),
        ("limits.turns = 0", "FILE:1: limits.turns = 0: expected a whole number of at least 1"),
        ("limits.turns = true", "expected a whole number"),
        ('limits.call_timeout_s = "5"', "expected a number"),
        ('tools = "one.py"', "expected a list of texts"),
        ("tools = [1]", "expected a list of texts"),
        ('[trace]\ncontent = "yes"', "expected true or false"),
        ("[prices]\nm = { in = 3 }", "expected a table with input, output"),
        ('[prices]\nm = { input = "a", output = 1 }', "expected numbers"),
        ("policy = 3", "'policy' is not a setting"),
        ("model = ", "cannot be read: Invalid value (at end of document)"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(home: Home, text: str, problem: str) -> None:
    home.user(text)
    (told,) = home.problems()
    assert problem in told


def test_all_problems_are_told_at_once(home: Home) -> None:
    home.user('modle = "x"\nmode = "y"\n')
    assert len(home.problems(CALLGATE_LIMITS_TURNS="many")) == 3


def test_a_file_that_cannot_be_read_is_a_problem_and_not_a_crash(home: Home) -> None:
    home.user_file.write_bytes(b"model = '\xff'")
    assert "cannot be read" in home.problems()[0]
    home.user_file.write_bytes(b"#" * (1024 * 1024 + 1))
    assert "at most" in home.problems()[0]


def test_wrong_flags_and_secrets_in_flags_are_refused(home: Home) -> None:
    for key, problem in (("modle", "did you mean 'model'?"), ("gemini.api_key", "others can see a command line")):
        with pytest.raises(ConfigError, match=problem.replace("?", r"\?")):
            home.load({key: ("x", f"--set {key}")})


def test_a_variable_that_looks_like_a_slip_is_noticed_and_others_are_not(home: Home) -> None:
    found = home.load(CALLGATE_MODLE="x", CALLGATE_SCALE="3")
    assert found.notices == ("the environment has CALLGATE_MODLE, which is no setting: did you mean CALLGATE_MODEL?",)


def test_a_key_in_a_file_that_others_can_read_is_noticed(home: Home) -> None:
    home.user('gemini.api_key = "k"')
    home.user_file.chmod(0o644)
    assert "can be read by others" in home.load().notices[0]
    home.user_file.chmod(0o600)
    assert home.load().notices == ()


# Projects -----------------------------------------------------------------------------------------------------------------


def test_a_project_file_counts_only_in_a_trusted_folder(home: Home) -> None:
    home.theirs('this is = "not even TOML', trusted=False)
    found = home.load()
    assert (found.is_trusted, found["model"]) == (False, None)
    assert "its folder is not trusted" in found.notices[0]
    home.theirs('model = "project"')
    assert home.load()["model"] == "project"
    assert untrust(home.project, home.env)
    assert home.load()["model"] is None
    assert not untrust(home.project, home.env)


def test_trust_is_for_the_folder_itself_by_whatever_name(home: Home, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(home.project)
    trust(link, home.env)
    assert is_trusted(home.project, home.env)
    (home.project / "inner").mkdir()
    assert not is_trusted(home.project / "inner", home.env)
    assert not is_trusted(tmp_path, home.env)
    trust(link, home.env)
    assert trusted_folders(home.env) == [os.path.realpath(home.project)]


@pytest.mark.parametrize("damage", ["[", "[]", '{"folders": 3}', '{"folders": [3]}'])
def test_a_damaged_list_of_trusted_folders_trusts_nobody(home: Home, damage: str) -> None:
    place = Path(home.env["XDG_STATE_HOME"]) / "callgate" / "trusted.json"
    place.parent.mkdir(parents=True)
    place.write_text(damage)
    assert trusted_folders(home.env) == []


def test_the_project_file_is_looked_for_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "callgate.toml").touch()
    assert project_file(inner) is None
    (tmp_path / "repo" / "callgate.toml").touch()
    assert project_file(inner) is None
    (tmp_path / "repo" / ".git").mkdir()
    assert project_file(inner) == tmp_path / "repo" / "callgate.toml"
    (inner / ".callgate.toml").touch()
    (inner / "callgate.toml").touch()
    assert project_file(inner) == inner / ".callgate.toml"


def test_rules_add_up_and_those_of_a_project_never_allow(home: Home) -> None:
    home.user('[policy]\nrules = ["allow read_*"]\nsensitive_also = ["*.sqlite"]\n')
    home.theirs(
        '[policy]\nrules = ["allow *", "deny delete_*", { verdict = "allow", tool = "x" }, '
        '{ verdict = "ask", tool = "y" }]\n'
        'sensitive_also = ["*.pem"]\n'
    )
    found = home.load(CALLGATE_POLICY_RULES='["deny run_*"]')
    assert found["policy.rules"] == ("allow read_*", "deny delete_*", {"verdict": "ask", "tool": "y"}, "deny run_*")
    assert found["policy.sensitive_also"] == ("*.sqlite", "*.pem")
    assert "those that allow do not count" in found.notices[0]


@pytest.mark.parametrize(
    ("user", "theirs", "key", "value"),
    [
        ("", 'approval_mode = "yolo"', "approval_mode", None),
        ("", 'approval_mode = "auto_edit"', "approval_mode", None),
        ("", 'approval_mode = "plan"', "approval_mode", "plan"),
        ('approval_mode = "yolo"', 'approval_mode = "default"', "approval_mode", "default"),
        ('approval_mode = "plan"', 'approval_mode = "default"', "approval_mode", "plan"),
        ("", 'policy.default = "allow"', "policy.default", None),
        ("", 'policy.default = "deny"', "policy.default", "deny"),
        ('policy.default = "deny"', 'policy.default = "ask"', "policy.default", "deny"),
        ("limits.run_cost = 1.0", "limits.run_cost = 9.0", "limits.run_cost", 1.0),
        ("limits.run_cost = 1.0", "limits.run_cost = 0.5", "limits.run_cost", 0.5),
        ("", "limits.turns = 50", "limits.turns", 25),
        ("", 'root = "../.."', "root", None),
        ("", 'store = "/tmp/x.db"', "store", None),
        ("", 'audit = "x"', "audit", None),
        ("", 'gemini.base_url = "http://evil.example"', "gemini.base_url", None),
        ("", 'openai.api_key = "k"', "openai.api_key", None),
        ("", "trace.content = true", "trace.content", False),
        ("", 'policy.file = "p.toml"', "policy.file", None),
        ("", 'mcp.files = ["m.json"]', "mcp.files", ()),
        ("", "prices = { m = { input = 0, output = 0 } }", "prices", None),
        ("", 'policy.hooks = [{ when = "before", command = ["x"] }]', "policy.hooks", ()),
    ],
)
def test_a_project_file_cannot_weaken_what_the_user_decided(
    home: Home, user: str, theirs: str, key: str, value: Any
) -> None:
    home.user(user)
    home.theirs(theirs)
    found = home.load()
    assert found[key] == value
    is_taken = found.values[key].source == "project"
    assert is_taken or "does not count" in found.notices[0]


def test_yolo_may_come_from_the_user_the_environment_and_a_flag(home: Home) -> None:
    home.user('approval_mode = "yolo"')
    assert home.load()["approval_mode"] == "yolo"
    home.user("")
    assert home.load(CALLGATE_APPROVAL_MODE="yolo")["approval_mode"] == "yolo"
    assert home.load({"approval_mode": ("yolo", "--approval-mode")})["approval_mode"] == "yolo"


def test_a_root_inside_the_project_counts(home: Home) -> None:
    home.theirs('root = "src"')
    assert home.load()["root"] == f"{home.project}/src"


def test_servers_of_a_project_stand_beside_those_of_the_user_and_are_not_trusted(home: Home) -> None:
    home.user('[mcp.servers.git]\ncommand = ["mine"]\n')
    home.theirs('[mcp.servers.git]\ncommand = ["theirs"]\n[mcp.servers.web]\nurl = "http://x"\ntrust = true\n')
    found = home.load()
    assert found["mcp.servers"] == {"git": {"command": ["mine"]}, "web": {"url": "http://x", "trust": False}}
    assert "'trust' of 'web' does not count" in found.notices[0]
    assert "you have one of that name" in found.notices[1]


# What is shown ------------------------------------------------------------------------------------------------------------


def test_secrets_are_masked() -> None:
    assert masked(setting_of("gemini.api_key"), "AIza-secret") == "********"
    assert masked(setting_of("gemini.api_key"), None) is None
    assert masked(setting_of("store"), "postgresql://me:secret@host/db") == "postgresql://me:********@host/db"
    server = {"command": ["x"], "env": {"TOKEN": "secret"}, "headers": {"Authorization": "Bearer secret"}}
    shown = masked(setting_of("mcp.servers"), {"a": server, "b": 3})
    assert "secret" not in str(shown)
    assert shown["a"]["command"] == ["x"]


# The text of a file -------------------------------------------------------------------------------------------------------

TEXT = '''# top
model = "a" # why
tools = [
  "one.py", # ]
  "two.py",
]
system = """
[limits]
turns = 1
"""

[limits]
turns = 5
"odd key" = 1

[[policy.rules]]
tool = "x"

[mcp.servers."my.server"]
command = ["x"]
'''


def test_lines_are_found_whatever_stands_in_between() -> None:
    assert [line_of(TEXT, key) for key in ("model", "tools", "system", "limits", "limits.turns", "policy.rules")] == [
        2, 3, 7, 12, 13, 16,
    ]  # fmt: skip
    assert line_of(TEXT, "mcp.servers") == 19
    assert line_of(TEXT, "nothing.here") == 0


@pytest.mark.parametrize(
    ("key", "value", "check"),
    [
        ("model", "b", lambda text: '"b"  # why' in text),
        ("tools", ("c.py",), lambda text: "two.py" not in text),
        ("limits.turns", 9, lambda text: "turns = 9" in text),
        ("limits.calls", 3, lambda text: text.index("calls = 3") < text.index("[[policy.rules]]")),
        ("provider", "demo", lambda text: text.index("provider") < text.index("[limits]\nturns = 5")),
        ("trace.content", True, lambda text: text.endswith("[trace]\ncontent = true\n")),
        ("system", 'with "quotes"\nand lines', lambda text: "turns = 1" not in text),
        ("settings", {"temperature": 0.5, "a b": [1, "x"]}, lambda text: "temperature = 0.5" in text),
    ],
)
def test_one_value_is_changed_and_everything_else_stays(key: str, value: Any, check: Callable[[str], bool]) -> None:
    changed = with_value(TEXT, key, value)
    assert check(changed)
    assert changed.startswith("# top\n")
    here: Any = tomllib.loads(changed)
    for part in key.split("."):
        here = here[part]
    assert here == (list(value) if isinstance(value, tuple) else value)


def test_a_value_is_taken_out_again() -> None:
    assert without_value('a = 1\nmodel = "x"\n[limits]\n', "model") == "a = 1\n[limits]\n"
    assert "tools" not in without_value(TEXT, "tools")
    with pytest.raises(UsageError, match="is not set there"):
        without_value(TEXT, "provider")


def test_what_only_a_person_can_change_is_left_alone() -> None:
    with pytest.raises(UsageError, match=r"only a person can change|by hand"):
        with_value("limits = { turns = 1 }\n", "limits.turns", 2)
    with pytest.raises(UsageError, match="is not TOML"):
        with_value("model = ", "provider", "x")


keys = st.sampled_from([key for key, setting in SETTINGS.items() if setting.kind == "text" and not setting.choices])


@settings(max_examples=100 * SCALE)
@given(st.lists(st.tuples(keys, st.text(max_size=20)), min_size=1, max_size=6))
def test_any_values_can_be_set_one_after_another_and_read_again(pairs: list[tuple[str, str]]) -> None:
    text = "# mine\n"
    for key, value in pairs:
        text = with_value(text, key, value)
    table = tomllib.loads(text)
    for key, value in dict(pairs).items():
        here: Any = table
        for part in key.split("."):
            here = here[part]
        assert here == value
    assert {".".join(entry.key) for entry in entries_of(text) if not entry.is_header} == set(dict(pairs))
    for key in dict(pairs):
        text = without_value(text, key)
    assert not any(not entry.is_header for entry in entries_of(text))


@settings(max_examples=200 * SCALE)
@given(st.text(alphabet="ab=\"'#[]{}.\n\\ 1,", max_size=60))
def test_no_text_breaks_the_reading_of_lines(text: str) -> None:
    for entry in entries_of(text):
        assert 0 <= entry.first <= entry.last < len(text.split("\n"))


def test_a_file_is_written_whole_for_its_owner_and_a_link_stays_a_link(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "config.toml"
    write_atomically(place, "a = 1\n")
    assert place.stat().st_mode & 0o777 == 0o600
    link = tmp_path / "link.toml"
    link.symlink_to(place)
    place.chmod(0o640)
    write_atomically(link, "a = 2\n")
    assert link.is_symlink()
    assert (place.read_text(), place.stat().st_mode & 0o777) == ("a = 2\n", 0o640)
    assert [one.name for one in place.parent.iterdir()] == ["config.toml"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder", "x")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["deep", "folder", "link.toml"]


@pytest.mark.parametrize("value", ["[" * 100_000, "{a=" * 50_000, "9" * 50_000, "1\n" + ".".join("a" * 50_000) + " = 1"])
def test_a_file_that_no_person_wrote_is_refused_in_a_sentence(value: str) -> None:
    with pytest.raises(UsageError, match="change it by hand"):
        with_value(f"x = {value}\n", "model", "a")


def test_a_file_with_many_unknown_keys_names_the_first_of_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    file = config_file({"HOME": str(home), "XDG_CONFIG_HOME": str(home)})
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"unknown{number} = 1\n" for number in range(20_000)))
    with pytest.raises(ConfigError) as raised:
        load_settings({"HOME": str(home), "XDG_CONFIG_HOME": str(home)}, folder=tmp_path)
    assert len(raised.value.problems) < 100
    assert f"{file}:1: 'unknown0' is not a setting" in raised.value.problems[0]
    assert "has more that is wrong" in raised.value.problems[-1]
