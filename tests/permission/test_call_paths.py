"""The files of a call follow from the tool's definition; the looks of a value say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import FunctionCall, Policy, ToolDefinition
from callgate.permission import Rule
from callgate.permission.call_paths import LARGE_CHARS, LARGE_VALUES, is_large, paths_in
from callgate.permission.session_rules import covers, session_rule

READ = ToolDefinition(name="read_file", kind="file", read_only=True)
WRITE = ToolDefinition(name="write_file", kind="file")
SERVER = ToolDefinition(name="fetch", kind="mcp", server="fs", read_only=True)
SHELL = ToolDefinition(name="run_command", kind="command")


def verdict(policy: Policy, definition: ToolDefinition, args: dict[str, Any]) -> str:
    return policy.decide(definition, FunctionCall(name=definition.name, args=args)).verdict


@pytest.mark.parametrize("name", ["2024", "1.5", "-7", "true", "null", "²", "false", "1e9"])
def test_a_file_may_be_called_like_a_number(name: str):
    for pattern in ("**", name):
        assert verdict(Policy(rules=[Rule(verdict="deny", paths=(pattern,))]), READ, {"path": name}) == "deny"
    asked = FunctionCall(name="write_file", args={"path": "docs/a.md", "content": "x"}, id="c")
    rule = session_rule(WRITE, asked, digest="d", raised_by="default")
    assert covers(rule, WRITE, {"path": "docs/b.md"}, "d")
    assert not covers(rule, WRITE, {"path": name}, "d")
    assert not covers(rule, WRITE, {}, "d"), "a call that names no file works in the root"


def test_a_lasting_answer_about_the_root_covers_a_call_that_names_no_file_and_no_other():
    definition = ToolDefinition(name="tidy", kind="file")
    rule = session_rule(definition, FunctionCall(name="tidy", id="c"), digest="d", raised_by="default")
    assert covers(rule, definition, {}, "d")
    assert not covers(rule, definition, {"path": "docs/a"}, "d")


@pytest.mark.rows(
    "args",
    [
        {"path": ".env"}, {"src": ".env"}, {"name": ".env"}, {"from": ".env"}, {"document": ".env"}, {"text": ".env"},
        {"location": "/home/u/.ssh/id_rsa"}, {"url": "file:///home/u/.ssh/id_rsa"}, {"uri": "file:///p/%2eenv"},
        {"uri": "FILE:/p/.env"}, {"uri": "file://localhost/p/.env"}, {"uri": "file:///p/%252eenv"}, {"a": "x%2F.env"},
        {"a": "'p/.env'"}, {"a": "`.env`"},
        {"list": [["a", ".env"]]}, {"deep": {"er": [{"x": ".env"}]}}, {"files": {".env": "content"}}, {"a": "x\n.env\ny"},
    ],
)  # fmt: skip
@pytest.mark.rows("kind", ["mcp", "worker"])
def test_a_sensitive_file_of_another_program_is_found_under_any_name_and_in_any_place(kind: Any, args: dict[str, Any]):
    definition = ToolDefinition(name="fetch", kind=kind, server="fs")
    assert verdict(Policy(mode="yolo"), definition, args) == "ask"


@pytest.mark.parametrize(
    "args", [{"url": "https://example.org/.env"}, {"body": "A=1\n.env\n"}, {"n": 5}, {"flag": True}, {"a": "x" * 5_000}]
)
def test_what_is_certainly_no_file_is_not_asked_about(args: dict[str, Any]):
    assert verdict(Policy(mode="yolo"), SERVER, args) == "allow"


def test_a_number_under_a_name_for_files_is_one_and_a_switch_is_none():
    assert paths_in(SERVER, {"path": 2024, "count": 7, "file": None, "is_dir": True}) == ["2024"]
    schema = {
        "type": "object",
        "properties": {
            "how": {"enum": ["fast", "slow"]}, "what": {"enum": ["a.txt"]}, "doc": {"type": "string", "format": "uri"},
            "text": {"format": "path"}, "odd": True, "many": {"type": "array", "items": [{"properties": {"how": {}}}]},
        },
    }  # fmt: skip
    tool = ToolDefinition(name="t", kind="file", input_schema=schema)
    args = {"how": "fast", "what": "a.txt", "doc": "d", "text": "t", "odd": "o"}
    assert paths_in(tool, args) == ["fast", "a.txt", "d", "t", "o"]
    plain = {"type": "object", "properties": {"how": {"enum": ["fast", "slow"]}}}
    assert paths_in(ToolDefinition(name="t", kind="file", input_schema=plain), {"how": "fast"}) == []


def test_a_schema_of_any_depth_is_read_in_bounded_time():
    schema: dict[str, Any] = {}
    for _ in range(10_000):
        schema = {"type": "object", "properties": {"a": schema}}
    assert paths_in(ToolDefinition(name="t", kind="file", input_schema=schema), {"a": "x"}) == ["x"]


def test_the_words_of_a_command_may_be_files():
    policy = Policy(rules=[Rule(verdict="deny", paths=("vendor/",))])
    for args in ({"argv": ["cat", "vendor/a"]}, {"command": "cat 'vendor/a' | wc"}, {"command": "tar --file=vendor/x"}):
        assert verdict(policy, SHELL, args) == "deny"
    assert verdict(policy, SHELL, {"command": "ls src"}) == "ask"


def test_an_allowing_rule_wants_every_possible_file_to_fit():
    policy = Policy(rules=[Rule(verdict="allow", tool="@fs", paths=("docs/**",))], default="ask")
    assert verdict(policy, SERVER, {"path": "docs/a"}) == "allow"
    assert verdict(policy, SERVER, {"path": "docs/a", "content": "hello"}) == "allow"
    for args in ({"path": "docs/a", "other": "/etc/passwd"}, {"path": "docs/%2e%2e/x"}, {"path": "file:///etc/passwd"}, {}):
        assert verdict(policy, SERVER, args) == "ask"


@pytest.mark.parametrize("pattern", ["./vendor", "vendor/./x", "//./etc"])
def test_a_pattern_is_normalised_like_the_paths(pattern: str):
    path = {"./vendor": "vendor/a", "vendor/./x": "vendor/x", "//./etc": "/etc/passwd"}[pattern]
    assert verdict(Policy(rules=[Rule(verdict="deny", paths=(pattern,))]), READ, {"path": path}) == "deny"


def test_a_dot_is_the_whole_root():
    assert verdict(Policy(rules=[Rule(verdict="deny", paths=(".",))]), READ, {"path": "a/b"}) == "deny"


@pytest.mark.parametrize("pattern", ["../x", "a/../b", " vendor", "vendor ", "\tx", ".\\vendor", "a\\b"])
def test_a_pattern_that_no_path_fits_is_refused(pattern: str):
    with pytest.raises(Exception, match=r"leads upwards|white space|write folders with '/'"):
        Rule(verdict="deny", paths=(pattern,))


def test_a_pattern_of_slashes_alone_is_everything():
    assert verdict(Policy(rules=[Rule(verdict="deny", paths=("/",))]), READ, {"path": "a/b"}) == "deny"


SPELLINGS = [
    "/srv/plan.txt", "file:///srv/plan.txt", "file:///srv/plan.txt?x=1", "file:///srv/plan.txt#a", "file:///srv/plan.txt;v=1",
    "file://localhost/srv/plan.txt", "file:%2f%2f/srv/plan.txt", "file%3a///srv/plan.txt", "/srv/plan.txt\0",
    "/srv/plan.txt%00", "/srv/plan.txt%00.md", "/srv/plan.txt%2500.md", "resource:///srv/plan.txt",
    "git+file:///srv/plan.txt", "HTTP:/srv/plan.txt", "http:///srv/plan.txt", "https:/srv/plan.txt", "ftp:///srv/plan.txt",
    "urn:/srv/plan.txt", "aa:bb:cc:dd:/srv/plan.txt", "C:/srv/plan.txt", "c:\\srv\\plan.txt",
    "C:srv/plan.txt", "d:srv\\plan.txt",
    "jar:file:/srv/plan.txt!/x", " file:///srv/plan.txt", "'/srv/plan.txt'", "/srv/plan.txt?raw",
    "/srv/plan.txt\0" + "x" * 5_000, "file:///srv/plan.txt?" + "x" * 5_000, "/srv/" + "%2e/" * 1_500 + "plan.txt",
]  # fmt: skip


@pytest.mark.rows("path", SPELLINGS)
def test_no_spelling_of_a_uri_leads_around_a_rule_or_the_sensitive_list(path: str):
    assert (
        verdict(Policy(rules=[Rule(verdict="deny", paths=("//srv/plan.txt",))], mode="yolo"), SERVER, {"path": path})
        == "deny"
    )
    secret = path.replace("plan.txt", "key.pem")
    assert verdict(Policy(mode="yolo"), SERVER, {"path": secret}) == "ask"


@pytest.mark.parametrize("path", ["https://example.com/srv/plan.txt", "http://h/.env"])
def test_an_address_on_the_network_is_no_file(path: str):
    policy = Policy(rules=[Rule(verdict="deny", paths=("//srv/plan.txt", "x*"))], mode="yolo")
    assert verdict(policy, SERVER, {"path": path}) == "allow"


@pytest.mark.parametrize("path", ["x" * 5_000, "x" * 50_000 + "%"])
def test_a_text_of_any_length_is_compared_with_the_patterns(path: str):
    assert verdict(Policy(rules=[Rule(verdict="deny", paths=("x*",))], mode="yolo"), SERVER, {"path": path}) == "deny"
    assert verdict(Policy(rules=[Rule(verdict="deny", paths=("y*",))], mode="yolo"), SERVER, {"path": path}) == "allow"


@pytest.mark.parametrize("depth", [2, 255, 256, 1_000])
@pytest.mark.parametrize("pattern", ["/vault/x", "vault/*", "a/vault"])
def test_the_end_of_a_path_of_any_depth_may_be_below_the_root(depth: int, pattern: str):
    policy = Policy(rules=[Rule(verdict="deny", paths=(pattern,))], mode="yolo")
    for tool in (SERVER, READ):
        assert verdict(policy, tool, {"path": "/a" * depth + "/vault/x"}) == "deny"
        assert verdict(policy, tool, {"path": "../" * depth + "a/vault/x"}) == "deny"


@pytest.mark.parametrize("path", ["C:vault/x", "c:vault\\x", "C:../vault/x", "C:vault/*", "C:va?lt/x", "Z:a/../vault/x"])
def test_a_path_from_the_folder_of_a_drive_may_be_any_with_this_end(path: str):
    rules = [Rule(verdict="deny", paths=("vault/x",))]
    assert verdict(Policy(rules=rules, mode="yolo"), SERVER, {"path": path}) == "deny"
    rules = [Rule(verdict="allow", paths=("vault/**",))]
    assert verdict(Policy(rules=rules, default="ask"), SERVER, {"path": path}) == "ask"


PADDED = {
    "dots": "./" * 2_100 + "{}", "slashes": "a" + "/" * 5_000 + "../{}", "up": "a/../" * 1_000 + "{}",
    "encoded": "%2e%2f" * 9_000 + "{}", "blanks": " " * 5_000 + "{}", "lines": "{}\n" + "a\n" * 3_000,
}  # fmt: skip


@pytest.mark.parametrize("name", PADDED)
def test_no_padding_of_a_path_leads_to_a_laxer_verdict(name: str):
    def padded(path: str) -> dict[str, str]:
        return {"path": PADDED[name].format(path)}

    deny = Policy(rules=[Rule(verdict="deny", paths=("secret/**",))], default="allow")
    assert verdict(deny, SERVER, padded("secret/x")) == "deny"
    assert verdict(deny, SERVER, padded("docs/x")) == "allow"
    assert verdict(deny, SERVER, padded("s*/x")) == "deny", "it may be the folder"
    assert verdict(Policy(mode="yolo"), SERVER, padded(".env")) == "ask"
    allow = Policy(rules=[Rule(verdict="allow", paths=("docs/**",))], default="deny")
    assert verdict(allow, SERVER, {"path": "docs/a", "other": padded("secret/x")["path"]}) == "deny"


def test_a_rule_about_an_argument_holds_for_the_shortest_spelling_of_a_long_path():
    rule = Rule(verdict="deny", tool="fetch", args={"path": "secret/x"})
    assert verdict(Policy(rules=[rule], default="allow"), SERVER, {"path": "./" * 2_100 + "secret/x"}) == "deny"


def test_a_path_with_wildcards_that_is_too_long_to_be_compared_may_be_any():
    rule = Rule(verdict="deny", paths=("secret/**",))
    assert verdict(Policy(rules=[rule], default="allow"), SERVER, {"path": "{" + "a" * 5_000 + ",secret}/x"}) == "deny"


@pytest.mark.rows("word", ["secret/x", "se''cret/x", 'se"cre"t/x', "sec\\ret/x", "\\x73ecret/x", "\\163ecret/x", "s*/x"])
@pytest.mark.rows("end", ["; : " + "a " * 2_500, "; : " + "a" * 5_000, " " * 5_000, "\n" + "echo a\n" * 700])
def test_no_padding_of_a_command_leads_to_a_laxer_verdict(word: str, end: str):
    policy = Policy(rules=[Rule(verdict="deny", paths=("secret/**",))], default="allow")
    many = [f"p{number}" for number in range(100)]
    for args in (
        {"command": f"cat {word}{end}"},
        {"argv": ["sh", "-c", f"cat {word}{end}"]},
        {"argv": ["cat", word, *many]},
    ):
        assert verdict(policy, SHELL, args) == "deny"
    assert verdict(policy, SHELL, {"command": f"cat docs/x{end}"}) == "allow"


def test_the_words_of_a_command_are_looked_for_in_its_folder():
    denied = Policy(rules=[Rule(verdict="deny", paths=("sub/x",))], mode="yolo")
    args = [{"argv": ["cat", "x"], "cwd": folder} for folder in ("sub", "./sub/", "sub/../sub", "other", None)]
    assert [verdict(denied, SHELL, each) for each in args] == ["deny", "deny", "deny", "allow", "allow"]
    assert verdict(denied, SHELL, {"argv": ["cat", "/y"], "cwd": "sub"}) == "allow"
    allowed = Policy(default="deny", rules=[Rule(verdict="allow", paths=("docs/**", "docs"))])
    assert verdict(allowed, SHELL, {"argv": ["docs/run"]}) == "allow"
    assert verdict(allowed, SHELL, {"argv": ["docs/run"], "cwd": "other"}) == "deny"
    assert verdict(allowed, SHELL, {"argv": ["run"], "cwd": "docs"}) == "allow"


def test_an_absolute_pattern_holds_for_the_relative_words_of_a_command():
    command = ToolDefinition(name="run_command", kind="command", roots=("/home/u/p", "/data/p"))
    for pattern in ("//home/u/p/plan.txt", "//data/p/plan.txt", "//home/u"):
        policy = Policy(rules=[Rule(verdict="deny", paths=(pattern,))], mode="yolo")
        assert verdict(policy, command, {"argv": ["cat", "plan.txt"]}) == "deny"
        assert verdict(policy, command, {"argv": ["cat", "../plan.txt"], "cwd": "sub"}) == "deny"
    policy = Policy(rules=[Rule(verdict="deny", paths=("//home/u/p/plan.txt",))], mode="yolo")
    assert verdict(policy, command, {"argv": ["cat", "other.txt"]}) == "allow"


def test_the_name_of_the_root_is_no_part_of_the_paths_below_it():
    definition = ToolDefinition(name="read_file", kind="file", read_only=True, roots=("/home/u/build",))
    assert verdict(Policy(rules=[Rule(verdict="deny", paths=("build/", "home"))]), definition, {"path": "a"}) == "allow"


def test_a_call_with_very_many_values_is_read_value_by_value_once():
    policy = Policy(rules=[Rule(verdict="deny", paths=("etc/x",))])
    values = ["a"] * 25_000 + [f"w/{place}.x" for place in range(2_000)]
    assert verdict(policy, SERVER, {"x": values}) == "allow"
    assert verdict(policy, SERVER, {"x": [*values, "./etc/x"]}) == "deny"
    assert paths_in(SERVER, {"x": values, "y": ["a", ["a"]]}).count("a") == 1, "once for all arguments"


@pytest.mark.parametrize("path", ["Cargo.toml", "flake.nix", "Procfile", "bunfig.toml", "deploy/x.service"])
def test_a_write_to_a_file_that_makes_programs_run_code_is_asked_about(path: str):
    assert verdict(Policy(mode="yolo"), WRITE, {"path": path}) == "ask"
    assert verdict(Policy(mode="yolo"), READ, {"path": path}) == "allow"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({}, False),
        ({"x": "a", "y": [1, {"z": None}]}, False),
        ({"x": ["a"] * (LARGE_VALUES + 1)}, True),
        ({"x": [["a"] * 50] * 50}, True),
        ({"x": ({"y": ("a",) * 1_000},) * 3}, True),
        ({"x": "a" * LARGE_CHARS}, True),
        ({"x": [{"y": "a" * 1_000}] * 201}, True),
        ({"x": [{"y": "a" * 900}] * 201}, False),
    ],
)
def test_arguments_of_many_values_or_characters_at_any_depth_are_large(args: dict[str, Any], expected: bool):
    assert is_large(args) is expected
