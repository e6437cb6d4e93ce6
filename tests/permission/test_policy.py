"""Rules for which calls run, are asked about, or are refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.errors import UsageError
from callgate.permission import SENSITIVE, Policy, Rule
from callgate.permission.rules import rule_from
from callgate.permission.session_rules import covers, scope_of, session_rule
from callgate.types import Decision, FunctionCall, ToolDefinition

CALL = FunctionCall(name="f")
TABLE = json.loads(Path(__file__).with_name("policy_cases.json").read_text("utf-8"))
TOOLS = {name: ToolDefinition(name=name, **fields) for name, fields in TABLE["tools"].items()}
CASES = [[*row, 0][:6] for row in TABLE["cases"]]


def verdict(policy: Policy, tool: ToolDefinition, args: Any) -> str:
    return policy.decide(tool, FunctionCall(name=tool.name, args=args)).verdict


# --- the table -----------------------------------------------------------------------------------------------------------


def test_the_table_has_its_hundred_rows_and_no_two_say_the_same():
    assert len(CASES) >= 100
    assert len({row[0] for row in CASES}) == len(CASES)
    assert {row[4] for row in CASES} == {"allow", "ask", "deny"}


@pytest.mark.rows("row", CASES, ids=[row[0] for row in CASES])
def test_a_row_of_the_table_holds(row: list[Any]):
    _, table, tool, args, expected, problems = row
    policy = Policy.from_table(table)
    assert (verdict(policy, TOOLS[tool], args), len(policy.problems)) == (expected, problems)
    if expected != "deny":
        assert policy.may_declare(TOOLS[tool]), "what may run is declared"


@pytest.mark.rows("row", CASES, ids=[row[0] for row in CASES])
def test_the_rules_about_a_tool_decide_about_it_as_all_rules_do(row: list[Any]):
    call = FunctionCall(name=row[2], args=row[3])
    other = Policy(rules=["ask *", Rule(verdict="deny", tool="nothing_*")], default="allow")
    for policy in (Policy.from_table(row[1]), Policy.from_table(row[1]).strictest(other)):
        assert policy.about(TOOLS[row[2]]).decide(TOOLS[row[2]], call) == policy.decide(TOOLS[row[2]], call)


@pytest.mark.rows("row", CASES, ids=[row[0] for row in CASES])
def test_what_is_explained_is_what_is_decided_where_no_condition_fits(row: list[Any]):
    policy, tool = Policy.from_table(row[1]), TOOLS[row[2]]
    explained = policy.explain(tool)
    assert explained.verdict == verdict(policy, tool, {})
    if not explained.declared:
        assert verdict(policy, tool, row[3]) == "deny", "what is not declared never runs"
    if not explained.conditions and tool.kind not in ("mcp", "worker"):
        assert explained.verdict == row[4] or policy.mode == "auto_edit"


def test_a_walk_does_not_show_what_a_call_that_reads_it_would_be_denied():
    read = ToolDefinition(name="read_file", kind="file", read_only=True, input_schema={"type": "object"})
    rules = ["allow search", Rule(verdict="allow", tool="read_file", paths=["src/**"])]
    hides = Policy(rules=rules, default="deny").hides(replace(read, name="search"))
    assert [hides(path, ".") for path in ("src/a.py", "docs/a.md")] == [False, True]


# --- properties ----------------------------------------------------------------------------------------------------------

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
WORDS = st.sampled_from(["*", "add", "read_*", "write_file", "*_file", "@github", "@*/get_*", "[a-f]*", "ADD"])
PATHS = st.lists(st.sampled_from(["src/**", "*.py", "/a/*", ".env", "docs/", "**", "//etc/**"]), max_size=2)
ARGS = st.dictionaries(
    st.sampled_from(["path", "a", "command", "content"]),
    st.sampled_from(["src/a.py", "../x", ".env", "docs/x", "/etc/passwd", "1", "", "A\u202e"]),
    max_size=3,
)


@st.composite
def rules(draw: st.DrawFn, verdicts: tuple[str, ...] = ("allow", "ask", "deny")) -> Rule:
    return Rule(
        verdict=draw(st.sampled_from(verdicts)),  # pyright: ignore
        tool=draw(WORDS),
        kind=draw(st.sampled_from([None, None, "file", "mcp"])),  # pyright: ignore
        read_only=draw(st.sampled_from([None, None, True, False])),
        paths=tuple(draw(PATHS)),
        args=draw(st.dictionaries(st.just("path"), st.sampled_from(["src*", "*", "x"]), max_size=1)),
    )


POLICIES = st.builds(
    Policy,
    default=st.sampled_from([None, "allow", "ask", "deny"]),
    mode=st.sampled_from(["default", "auto_edit", "yolo", "plan"]),
    rules=st.lists(rules(), max_size=4),
)
SOME_TOOL = st.sampled_from(list(TOOLS.values()))


@given(POLICIES, rules(("deny",)), SOME_TOOL, ARGS, st.integers(0, 4))
def test_adding_a_deny_rule_never_allows_more(policy: Policy, rule: Rule, tool: ToolDefinition, args: Any, place: int):
    # A rule that speaks silences the default, but a deny that speaks denies: nothing becomes laxer.
    more = replace(policy, rules=[*policy.rules[:place], rule, *policy.rules[place:]])
    assert STRICTNESS[verdict(more, tool, args)] >= STRICTNESS[verdict(policy, tool, args)]
    assert policy.may_declare(tool) or not more.may_declare(tool)


@given(POLICIES, rules(("ask",)), SOME_TOOL, ARGS)
def test_adding_an_ask_rule_allows_nothing_that_was_asked_or_denied(
    policy: Policy, rule: Rule, tool: ToolDefinition, args: Any
):
    before, after = verdict(policy, tool, args), verdict(replace(policy, rules=[*policy.rules, rule]), tool, args)
    if after == "allow" and before != "allow":
        # The one way: where everything is denied unless a rule speaks, this one does, and yolo answers what it asks.
        assert (policy.mode, policy.default, before) == ("yolo", "deny", "deny")


@given(POLICIES, SOME_TOOL, ARGS)
def test_no_mode_touches_a_deny_and_only_modes_that_say_so_loosen(policy: Policy, tool: ToolDefinition, args: Any):
    in_default = verdict(replace(policy, mode="default"), tool, args)
    for mode in ("auto_edit", "yolo", "plan"):
        other = verdict(replace(policy, mode=mode), tool, args)  # pyright: ignore
        assert in_default != "deny" or other == "deny"
        if mode == "plan":
            assert STRICTNESS[other] >= STRICTNESS[in_default]


@given(st.lists(rules(), max_size=5), st.randoms(use_true_random=False), SOME_TOOL, ARGS)
def test_the_order_of_rules_does_not_matter(some: list[Rule], dice: Any, tool: ToolDefinition, args: Any):
    mixed = dice.sample(some, len(some))
    assert verdict(Policy(rules=some), tool, args) == verdict(Policy(rules=mixed), tool, args)


# --- words ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "read_only", "decision"),
    [
        ("function", False, Decision(verdict="allow", reason="Functions run without approval by default.")),
        ("function", True, Decision(verdict="allow", reason="Functions run without approval by default.")),
        ("file", True, Decision(verdict="allow", reason="The tool is read-only.")),
        ("mcp", True, Decision(verdict="allow", reason="The tool is read-only.")),
        ("file", False, Decision(verdict="ask", reason="'f' may change something.", rule="default")),
        ("command", False, Decision(verdict="ask", reason="'f' may change something.", rule="default")),
    ],
)
def test_where_no_rule_speaks_the_kind_of_tool_decides(kind: Any, read_only: bool, decision: Decision):
    definition = ToolDefinition(name="f", kind=kind, read_only=read_only)
    assert Policy().decide(definition, CALL) == decision
    assert Policy().may_declare(definition)


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
@pytest.mark.parametrize("kind", ["function", "file", "mcp"])
def test_a_default_holds_for_every_tool(verdict: Any, kind: Any):
    definition = ToolDefinition(name="f", kind=kind, read_only=True)
    decision = Policy(default=verdict).decide(definition, CALL)
    assert (decision.verdict, decision.reason) == (verdict, f"The policy's default is {verdict!r}.")
    assert Policy(default=verdict).may_declare(definition) is (verdict != "deny")


@pytest.mark.parametrize("default", ["yes", "ALLOW", "", 0, True, [], {}])
def test_a_default_that_is_no_verdict_fails_closed(default: Any):
    with pytest.raises(UsageError, match="Policy"):
        Policy(default=default)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mode": "wild"}, "Policy(mode='wild'): use 'default', 'auto_edit', 'yolo', 'plan'"),
        ({"rules": "deny x"}, "Policy(rules='deny x'): expected a list of rules"),
        ({"rules": {"deny": "x"}}, "expected a list of rules"),
        ({"rules": ["deny"]}, "the rule 'deny' cannot be read: write a verdict and one tool"),
        ({"rules": ["refuse x"]}, "a rule says 'refuse': use 'allow', 'ask' or 'deny'"),
        ({"rules": [{"verdict": "deny", "tools": "x"}]}, "a rule has no field 'tools': known are verdict, tool, server"),
        ({"rules": [{"tool": "x"}]}, "a rule has no verdict"),
        ({"rules": [{"verdict": "deny", "paths": ["a" * 1001]}]}, "is no pattern: expected a text of 1 to 1000 characters"),
        ({"rules": [{"verdict": "deny", "args": {"a": ""}}]}, "'' is no pattern"),
        ({"rules": [{"verdict": "deny", "tool": ["x"]}]}, "a rule is about the tool ['x']"),
        ({"sensitive": ["[x"]}, "has a '[' without its ']'"),
    ],
)
def test_in_code_a_rule_that_cannot_be_read_is_an_error_in_a_sentence(fields: Any, said: str):
    with pytest.raises(UsageError) as raised:
        Policy(**fields)
    assert said in str(raised.value)


def test_a_refusal_names_the_rule_or_gives_its_reason():
    tool = TOOLS["delete_repo"]
    assert Policy(rules=["deny @github/delete_*"]).decide(tool, CALL).reason == (
        "The policy has a rule against it: deny 'delete_*' of server 'github'."
    )
    with_reason = Rule(verdict="deny", tool="delete_*", reason="Repositories are forever.")
    assert Policy(rules=[with_reason]).decide(tool, CALL).reason == "Repositories are forever."
    everything = Rule(
        verdict="ask", tool="x", kind="file", read_only=True, paths=("a", "b"), args={"c": "d"}, patterns={"e": "f"}
    )
    assert everything.sentence == (
        "ask 'x' of kind 'file', read-only where a path matches 'a' or 'b' and c matches 'd' and e matches 'f'"
    )
    assert Rule(verdict="allow", read_only=False).sentence == "allow '*', not read-only"


def test_a_tool_that_only_some_arguments_are_denied_of_is_declared_and_its_conditions_are_told():
    policy = Policy(rules=[Rule(verdict="deny", tool="write_file", paths=("vendor/",))])
    explained = policy.explain(TOOLS["write_file"])
    assert (explained.verdict, explained.declared) == ("ask", True)
    assert explained.conditions == (
        "deny 'write_file' where a path matches 'vendor/'",
        "ask where a path is a sensitive file",
    )
    allowing = Policy(default="deny", rules=[Rule(verdict="allow", tool="write_file", paths=("docs/",))])
    assert (allowing.explain(TOOLS["write_file"]).verdict, allowing.may_declare(TOOLS["write_file"])) == ("deny", True)
    assert not allowing.may_declare(TOOLS["add"])
    assert not Policy(mode="plan", rules=["allow *"]).may_declare(TOOLS["write_file"])


def test_every_sensitive_pattern_is_one_and_names_something():
    for pattern in SENSITIVE:
        name = pattern.removeprefix("//").replace("?*", "1").replace("*", "x")
        path = f"/{name}" if pattern.startswith("//") else f"deep/down/{name}" if "/" not in name else name
        assert verdict(Policy(), TOOLS["read_file"], {"path": path}) == "ask", pattern


def test_one_path_may_be_a_text():
    assert Rule(verdict="deny", paths="a/**").paths == ("a/**",)  # pyright: ignore


def test_half_a_surrogate_pair_hides_nothing_from_a_deny():
    policy = Policy(rules=[Rule(verdict="deny", tool="add", args={"a": "x*"})])
    assert verdict(policy, TOOLS["add"], {"a": "x\ud800"}) == "deny"


# --- lasting answers -----------------------------------------------------------------------------------------------------


def lasting(policy: Policy, tool: ToolDefinition, args: Any, *, digest: str = "d") -> Any:
    call = FunctionCall(name=tool.name, args=args, id="c1")
    asked = policy.decide(tool, call)
    assert asked.verdict == "ask"
    return session_rule(tool, call, digest=digest, raised_by=asked.rule)


def allows(policy: Policy, rule: Any, tool: ToolDefinition, args: Any, digest: str = "d") -> bool:
    decision = policy.decide(tool, FunctionCall(name=tool.name, args=args), always=[rule], digest=digest)
    assert decision.verdict != "allow" or decision.by == "user"
    return decision.verdict == "allow"


def test_always_covers_the_folder_of_a_file_the_arguments_of_a_command_and_all_of_another_tool():
    policy = Policy()
    write = lasting(policy, TOOLS["write_file"], {"path": "src/a.py", "content": "x"})
    assert (write.id, write.paths, write.exact) == ("always-c1", ("/src/**",), None)
    assert allows(policy, write, TOOLS["write_file"], {"path": "src/deep/b.py", "content": "y"})
    assert not allows(policy, write, TOOLS["write_file"], {"path": "docs/b.md", "content": "y"})
    assert not allows(policy, write, TOOLS["write_file"], {"path": "src/../docs/b.md", "content": "y"})
    assert not allows(policy, write, TOOLS["write_file"], {"path": "src/.env", "content": "y"})
    assert not allows(policy, write, TOOLS["move_file"], {"path": "src/a.py"})
    top = lasting(policy, TOOLS["write_file"], {"path": "a[1]*.py", "content": "x"})
    assert allows(policy, top, TOOLS["write_file"], {"path": "b.py"})
    assert not allows(policy, top, TOOLS["write_file"], {"path": "src/b.py"})
    odd = lasting(policy, TOOLS["write_file"], {"path": "o*d/a.py"})
    assert allows(policy, odd, TOOLS["write_file"], {"path": "o*d/b.py"})
    assert not allows(policy, odd, TOOLS["write_file"], {"path": "oxd/b.py"})
    out = lasting(policy, TOOLS["write_file"], {"path": "/tmp/a"})
    assert not allows(policy, out, TOOLS["write_file"], {"path": "/tmp/b"})
    command = lasting(policy, TOOLS["run_command"], {"command": "ls"})
    assert allows(policy, command, TOOLS["run_command"], {"command": "ls"})
    assert not allows(policy, command, TOOLS["run_command"], {"command": "ls; rm"})
    assert allows(policy, lasting(policy, TOOLS["create_issue"], {"a": 1}), TOOLS["create_issue"], {"a": 2})


def test_always_beats_only_the_rule_that_asked():
    policy = Policy(rules=["ask create_*", Rule(verdict="ask", tool="create_*", args={"title": "!*"})])
    rule = lasting(policy, TOOLS["create_issue"], {"title": "a"})
    assert allows(policy, rule, TOOLS["create_issue"], {"title": "b"})
    assert not allows(policy, rule, TOOLS["create_issue"], {"title": "!b"})
    denying = replace(policy, rules=[*policy.rules, "deny create_*"])
    assert not allows(denying, rule, TOOLS["create_issue"], {"title": "b"})
    default = lasting(Policy(), TOOLS["create_issue"], {})
    assert not allows(policy, default, TOOLS["create_issue"], {"title": "b"})


def test_a_tool_that_has_changed_is_asked_about_again():
    rule = lasting(Policy(), TOOLS["create_issue"], {})
    assert allows(Policy(), rule, TOOLS["create_issue"], {})
    assert not allows(Policy(), rule, TOOLS["create_issue"], {}, digest="other")
    assert not allows(Policy(), rule, replace(TOOLS["create_issue"], server="evil"), {})


def test_always_never_covers_a_sensitive_file():
    rule = lasting(Policy(), TOOLS["read_file"], {"path": ".env"})
    assert not allows(Policy(), rule, TOOLS["read_file"], {"path": ".env"})


# --- files ---------------------------------------------------------------------------------------------------------------

GOOD = """
default = "ask"
mode = "auto_edit"
sensitive_also = ["*.sqlite"]

[[rules]]
verdict = "allow"
tool = "read_*"

[[rules]]
verdict = "deny"
paths = ["vendor/"]

[[hooks]]
when = "before"
command = ["./check"]
"""


def test_a_file_is_read_as_code_would_say_it(tmp_path: Path):
    path = tmp_path / "policy.toml"
    path.write_text(GOOD)
    read = Policy.from_file(path)
    rules = (Rule(verdict="allow", tool="read_*"), Rule(verdict="deny", paths=("vendor/",)))
    assert (read.default, read.mode, read.rules, read.problems) == ("ask", "auto_edit", rules, ())
    assert read.sensitive == (*SENSITIVE, "*.sqlite")
    assert [hook.command for hook in read.hooks] == [("./check",)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"rules = [", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        (b"#" * (1024 * 1024 + 1), "has 1048577 bytes; at most 1048576 are read"),
    ],
)
def test_a_file_that_is_no_policy_is_an_error(tmp_path: Path, content: bytes | None, said: str):
    path = tmp_path / "policy.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        Policy.from_file(path)
    assert said in str(raised.value)


def test_what_cannot_be_read_is_told_with_what_is_done_instead():
    known = [item.name for item in fields(Rule) if item.init]
    policy = Policy.from_table({"rules": ["permit @github/get_*", {"verdict": "allow", "tol": "x"}], "colour": 1})
    assert policy.problems == (
        "'colour' is not known here; known are default, mode, rules, hooks, sensitive, sensitive_also; until it is fixed, "
        "everything is denied",
        "rule 1 cannot be read: a rule says 'permit': use 'allow', 'ask' or 'deny'; until it is fixed, everything is denied",
        f"rule 2 cannot be read: a rule has no field 'tol': known are {', '.join(known)}; until it is fixed, everything is "
        "denied",
    )


def test_builtin_names_the_tools_that_live_on_no_server() -> None:
    own, theirs = ToolDefinition(name="f"), ToolDefinition(name="f", server="git", kind="mcp")
    assert [rule_from("deny @builtin").selects(tool) for tool in (own, theirs)] == [True, False]
    assert [rule_from("allow @builtin/g*").selects(tool) for tool in (own, ToolDefinition(name="get"))] == [False, True]


# --- servers that the provider calls -------------------------------------------------------------------------------------


@pytest.mark.rows(
    ("policy", "expected"),
    [
        (Policy(), False),
        (Policy(default="allow"), False),
        (Policy(rules=["allow *"]), False),
        (Policy(rules=["allow @gi*"]), False),
        (Policy(rules=["allow @git/get_*"]), False),
        (Policy(rules=[Rule(verdict="allow", tool="@git", paths=["docs/**"])]), False),
        (Policy(rules=[Rule(verdict="allow", tool="@git", read_only=False)]), False),
        (Policy(rules=["allow @git"]), True),
        (Policy(rules=["allow @git/*"]), True),
        (Policy(default="deny", rules=["allow @git"]), True),
        (Policy(rules=["allow @git"], mode="plan"), False),
        (Policy(rules=["allow @git", "deny @git"]), False),
        (Policy(rules=["allow @git", "deny @git/delete_*"]), False),
        (Policy(rules=["allow @git", "ask @GIT/delete_*"]), False),
        (Policy(rules=["allow @git", "deny delete_*"]), False),
        (Policy(rules=["allow @git", Rule(verdict="deny", read_only=True)]), False),
        (Policy(rules=["allow @git", Rule(verdict="deny", paths=["vendor/"])]), False),
        (Policy(rules=["allow @git", Rule(verdict="deny", tool="write_*", kind="file")]), True),
        (Policy(rules=["allow @git", "deny @hub/delete_*", "deny @builtin"]), True),
        (Policy(rules=["allow @git"]).strictest(Policy()), False),
        (Policy(rules=["allow @git"]).strictest(Policy(rules=["allow @git"])), True),
        (Policy(rules=["allow @git"]).strictest(Policy(rules=["allow @git", "ask delete_*"])), False),
    ],
)
def test_a_server_that_others_call_is_allowed_by_its_name_and_if_no_rule_may_be_about_its_tools(
    policy: Policy, expected: bool
) -> None:
    assert policy.allows_server("git") is expected


# --- lasting answers in words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "args", "expected"),
    [
        (ToolDefinition(name="run", kind="command"), {"command": ["make"]}, "for exactly this"),
        (ToolDefinition(name="save", kind="file"), {"path": "src/a"}, "for everything below src"),
        (
            ToolDefinition(name="save", kind="file"),
            {"path": "a", "to": "src/b"},
            "for any file directly in the top folder and everything below src",
        ),
        (ToolDefinition(name="save", kind="file"), {}, "with any arguments"),
        (ToolDefinition(name="pay", kind="mcp", server="bank"), {"to": "x"}, "with any arguments"),
    ],
)
def test_the_scope_of_always_is_said_in_words(tool: ToolDefinition, args: Any, expected: str) -> None:
    assert scope_of(tool, FunctionCall(name=tool.name, args=args, id="a")) == expected


def test_a_rule_that_wants_no_confirmation_has_no_text_to_repeat() -> None:
    assert Rule(verdict="ask", tool="drop").confirmation(ToolDefinition(name="drop"), {"name": "orders"}) == ""


def test_a_command_that_is_allowed_for_good_is_allowed_with_the_same_json_alone() -> None:
    tool = ToolDefinition(name="run", kind="command")
    rule = session_rule(tool, FunctionCall(name="run", args={"n": 1, "m": [0]}, id="a"), digest="d", raised_by="default")
    given = [{"n": 1, "m": [0]}, {"m": [0], "n": 1}, {"n": True, "m": [0]}, {"n": 1, "m": [False]}, {"n": 1}]
    assert [covers(rule, tool, args, "d") for args in given] == [True, True, False, False, False]


@pytest.mark.parametrize("path", ["src/x", "./src/x", "src//x", "SRC/x", "src\\x", "a/../src/x", ".\\src\\x"])
@pytest.mark.parametrize("test", [{"args": {"path": "src/*"}}, {"patterns": {"path": "src/.*"}}], ids=["glob", "regex"])
def test_a_rule_about_an_argument_holds_under_every_spelling_of_a_path(path: str, test: Any) -> None:
    tool = ToolDefinition(name="read", kind="mcp", server="s", read_only=True)
    assert verdict(Policy(rules=[Rule(verdict="deny", tool="read", **test)]), tool, {"path": path}) == "deny"


@pytest.mark.parametrize("text", ["docs/x", "x" * 5_000 + "/src/y", "src"])
def test_a_rule_about_an_argument_is_about_nothing_else(text: str) -> None:
    tool = ToolDefinition(name="read", kind="mcp", server="s", read_only=True)
    assert (
        verdict(Policy(rules=[Rule(verdict="deny", tool="read", args={"path": "src/*"})]), tool, {"path": text}) == "allow"
    )


def test_an_absolute_path_stays_one_in_every_spelling() -> None:
    tool = ToolDefinition(name="read", kind="mcp", server="s", read_only=True)
    policy = Policy(rules=[Rule(verdict="deny", tool="read", args={"path": "/etc/*"})])
    assert [verdict(policy, tool, {"path": path}) for path in ("//etc/./x", "etc/x")] == ["deny", "allow"]
