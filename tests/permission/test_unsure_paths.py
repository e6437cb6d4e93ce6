"""A path that a server may expand is one that a rule means if it may be; a rule that allows is never about "may be"."""

from __future__ import annotations

import asyncio
import random
import threading
from fnmatch import fnmatchcase
from typing import Any

import pytest

from callgate import FunctionCall, Gate, Policy, ScriptedModel, ToolDefinition, tool
from callgate.permission import Rule
from callgate.permission import call_paths as reading
from callgate.permission.call_paths import paths_of
from callgate.permission.patterns import AnyPath
from callgate.permission.unsure_paths import PossiblePaths, is_unsure
from callgate.testing import call

SERVER = ToolDefinition(name="fetch", kind="mcp", server="fs", read_only=True)
WORKER = ToolDefinition(name="fetch", kind="worker", server="pool", read_only=True)
FUNCTION = ToolDefinition(name="fetch")
READ = ToolDefinition(name="read_file", kind="file", read_only=True)
SHELL = ToolDefinition(name="run_command", kind="command")
EXACT = Rule(verdict="deny", paths=["//srv/plan.txt"])


def verdict(definition: ToolDefinition, args: dict[str, Any], *rules: Rule, mode: Any = "yolo", default: Any = None) -> str:
    policy = Policy(rules=rules, mode=mode, default=default)
    return policy.decide(definition, FunctionCall(name=definition.name, args=args)).verdict


MAY_BE = [
    "/srv/PLAN~1.TXT", "/srv/PL1A2B~1.TXT", "/srv/p%u006can.txt", "/srv%u002fplan.txt", "/srv%c0%afplan.txt",
    "/srv\u2044plan.txt", "/srv\u2215plan.txt", "/srv\uff0fplan.txt", "$HOME/../srv/plan.txt", "${PWD}/srv/plan.txt",
    "${X:-/srv}/plan.txt", "$X", "~/plan.txt", "~root/../srv/plan.txt", "~+/srv/plan.txt", "/srv/{plan.txt}",
    "/srv/{plan,x}.txt", "/srv/plan.{a..z}xt", "/srv/pl[a]n.txt", "/srv/[!x]lan.txt", "/srv/*.txt", "/srv/pla?.txt",
    "/srv/*", "/srv/{a,{c,plan}}.txt", "/srv/{" + "a,{b,c}," * 40 + "}.txt",
    "/s*/plan.txt", "/**/plan.txt", "**", "%APPDATA%/plan.txt", "`pwd`/plan.txt", "$(pwd)/plan.txt", "file:///srv/pl*n.txt",
    "/srv/pl%2an.txt", "/srv/pl%252an.txt", "/srv/x*/../plan.txt", "/srv/" + "p*" * 40, "C:/srv/PLAN~1.TXT", "../*/plan.txt",
    # Signs that a shell, a decoder or another system reads in a way of its own.
    "/srv/pl''an.txt", '/srv/"plan".txt', "/srv/pl\\an.txt", "/srv/pl\\x61n.txt", "/srv/pl\\u0061n.txt", "/srv/plan&#46;txt",
    "/srv/p\\u006can.txt", "/srv/p\\U0000006can.txt", "/srv/p\\u{00006c}an.txt", "/srv/plan\\Uffffffff.txt",
    "/srv&#x2f;plan.txt", "/srv:plan.txt", "::srv::plan.txt", "/srv\u00a5plan.txt", "/srv\u20a9plan.txt", "/srv|plan.txt",
    "/srv;v=1/plan.txt", "/srv/+(plan).txt", "/srv/@(plan|x).txt", "/srv/!(x).txt", "(/srv)/plan.txt", "/srv/pl!an.txt",
    "/srv/pl^an.txt", "x;cat /srv/plan.txt", "x&cat /srv/plan.txt", "a.md,/srv/plan.txt", "a.md /srv/plan.txt",
    "a.md:/srv/plan.txt",
    "/srv/x/${A:-..}/plan.txt", "/srv/x/$(echo ..)/plan.txt", "/srv/x/(..)/plan.txt",
    "/srv/x/'..'/plan.txt", "/srv/pl\u3001an.txt", "x-y:/srv:plan.txt",
]  # fmt: skip
IS_NOT = [
    "/srv/other.txt", "HEAD~1", "main~12", "src/*.py", "app/[slug]/page.tsx", "app/routes/$slug.tsx", "api/{id}/x.ts",
    "What is this? *really*", "file:///srv/x.txt?v=1", "/srv/PLAN~1.DOC", "/srv/QLAN~1.TXT", "~/x.txt", "/srv/plan.txt~",
    "https://example.org/srv/*", "/srv/p?.txt", "/opt/{plan,x}.txt", "notes~draft-of-may.txt", "100%e4%bd%a0", "[",
    "docs/R&D plan.md", "it's.md", "Report (1).pdf",
    "\u5831\u544a\uff08\u6700\u7d42\uff09\u3001.pdf", "it\u2019s \u201cx\u201d.md",
    "\U0001f4c4 notes!.md", "c++/x.cpp",
    "app/(group)/page.tsx", "C&A.md", "x@2x.png", "@types/node/x.d.ts", "2024-01-01T10:00:00.log", "git@host.org:o/r.git",
    "urn:isbn:1", "C:\\Users\\x.md", "#1.md", "50% off.md", "a;b.md", "srv+plan.md", "a=b,c.md", "/srv/plan+txt",
]  # fmt: skip


@pytest.mark.rows("definition", [SERVER, WORKER, FUNCTION], ids=["mcp", "worker", "function"])
@pytest.mark.rows("path", MAY_BE)
def test_a_rule_that_denies_holds_for_a_path_that_may_be_the_file(definition: ToolDefinition, path: str):
    assert verdict(definition, {"path": path}, EXACT) == "deny"


@pytest.mark.rows(
    ("short", "name", "is_meant"),
    [
        ("PLANOF~1.TXT", "plan of record.txt", True), ("PLANOF~1.TXT", "plan  of.old.txt", True),
        ("AB~1.TXT", "a. b.txt", True),
        ("PL12AB~1.TXT", "p.l an.txt", True), ("PLANOF~1.TXT", "plan or.txt", False),
        ("PLANOF~1.DOC", "plan of record.txt", False),
    ],
)  # fmt: skip
def test_a_short_name_leaves_blanks_and_dots_out(short: str, name: str, *, is_meant: bool):
    rule = Rule(verdict="deny", paths=[f"//srv/{name}"])
    assert verdict(SERVER, {"path": f"/srv/{short}"}, rule) == ("deny" if is_meant else "allow")


@pytest.mark.rows("key", ["src", "dst", "dest", "imageSrc"])
def test_arguments_named_for_where_something_is_copied_are_there_for_paths(key: str):
    assert verdict(SERVER, {key: "/srv/{plan,x}.txt"}, EXACT) == "deny"
    assert verdict(SERVER, {key: ".e*"}) == "ask"


@pytest.mark.rows("path", IS_NOT)
def test_a_path_that_cannot_be_the_file_is_none_that_the_rule_is_about(path: str):
    assert verdict(SERVER, {"path": path}, EXACT) == "allow"
    assert verdict(SERVER, {"path": path}) == "allow", "nor is it sensitive"


@pytest.mark.rows("path", [path for path in MAY_BE if is_unsure(path)])
def test_a_rule_that_allows_is_never_about_a_path_that_is_not_known(path: str):
    allow = Rule(verdict="allow", paths=["**", "//**"])
    assert verdict(SERVER, {"path": path}, allow, mode="default", default="ask") == "ask"
    assert verdict(SERVER, {"path": "srv/plan.txt"}, allow, mode="default", default="ask") == "allow"


def test_a_slash_of_another_script_is_allowed_by_no_pattern():
    allow = Rule(verdict="allow", paths=["*.txt"])
    assert verdict(SERVER, {"path": "a.txt"}, allow, mode="default", default="ask") == "allow"
    assert verdict(SERVER, {"path": "a\u2215..\u2215..\u2215b.txt"}, allow, mode="default", default="ask") == "ask"


@pytest.mark.parametrize("path", ["src/*.env", "i?_rsa", "src/*", "$X", ".ss*/x", ".[e]nv", "SECRET~1.TXT", "{a,.env}",
                                  "src/**", "src/**/", "src/$X", "src/**/..", "C:src/**"])  # fmt: skip
def test_a_path_that_may_have_the_name_of_a_sensitive_file_is_asked_about(path: str):
    assert verdict(SERVER, {"path": path}) == "ask"


def test_a_pattern_of_wildcards_alone_and_one_with_an_escaped_wildcard_are_read_as_such():
    listed = PossiblePaths(["/*/?x"], literal=True)
    assert [listed.may_be(path, leads_out=False) for path in ("[b]x", "[b]y")] == [True, False]
    rule = Rule(verdict="deny", paths=["/a\\*b"])
    assert [verdict(SERVER, {"path": path}, rule) for path in ("a?b", "acb", "[x]cb")] == ["deny", "allow", "allow"]


def test_prose_and_the_tools_of_callgate_itself_are_taken_as_they_stand():
    assert verdict(SERVER, {"title": "What? *plan.txt* $X", "n": 5}, EXACT) == "allow"
    assert verdict(READ, {"path": "/srv/pl*n.txt"}, Rule(verdict="deny", paths=["/srv/plan.txt"])) == "allow"


def test_a_plus_sign_may_be_a_blank_and_content_is_no_list_of_paths():
    assert verdict(SERVER, {"path": "a+b.md"}, Rule(verdict="deny", paths=["a b.md"])) == "deny"
    assert verdict(SERVER, {"path": "x\n", "file_text": "cat .env secrets\n" * 500, "sourceCode": "f(*a); x"}) == "allow"
    assert verdict(SERVER, {"file": "a.md .env"}) == "ask"


def test_a_path_below_a_known_root_may_be_an_absolute_one():
    definition = ToolDefinition(name="fetch", kind="mcp", server="fs", roots=("/srv",))
    assert verdict(definition, {"path": "pl*n.txt"}, EXACT) == "deny"
    assert verdict(definition, {"path": "q*n.txt"}, EXACT) == "allow"


def test_a_home_folder_is_compared_by_its_own_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/users/me")
    assert verdict(SERVER, {"path": "~/x.txt"}, Rule(verdict="deny", paths=["//users/me"])) == "deny"
    assert verdict(SERVER, {"path": "~/x.txt"}, Rule(verdict="deny", paths=["//users/you"])) == "allow"


def test_a_call_with_very_many_wildcards_may_name_any_file():
    few, many = [f"src/*{n}.py" for n in range(40)], [f"src/*{n}.py" for n in range(80)]
    assert verdict(SERVER, {"paths": few}, EXACT) == "allow"
    assert verdict(SERVER, {"paths": many}, EXACT) == "deny"
    assert verdict(SERVER, {"paths": many}) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        'cat sec""ret/x', "cat secr\\et/x", "cat secr\\\net/x", "cat $'sec\\x72et/x'", "cat $'sec\\162et/x'", "cat secre?/x",
        "cat {secret,}/x", "cat $PWD/secret/x", "tar -Tsecret/x", "grep -fsecret/x", "cat @secret/x", "scp h:secret/x .",
        "cat secre[t]/x", "tar -xzfsecret/x",
    ],
)  # fmt: skip
def test_a_word_of_a_command_is_read_as_its_shell_or_program_may_read_it(command: str):
    rule = Rule(verdict="deny", paths=["secret/**"])
    assert verdict(SHELL, {"command": command}, rule) == "deny"
    assert verdict(SHELL, {"argv": command.split(" ")}, rule) == "deny"
    expected = "deny" if "$" in command else "allow"
    assert verdict(SHELL, {"command": command}, Rule(verdict="deny", paths=["/other/**"])) == expected


# Wildcards on both sides ---------------------------------------------------------------------------------------------------


def test_two_patterns_overlap_exactly_where_a_name_fits_both(scale: int):
    dice = random.Random(5)
    names = ["".join(dice.choices("ab", k=dice.randint(1, 4))) for _ in range(60)]
    for _ in range(400 * scale):
        one, other = ("".join(dice.choices("ab?*", k=dice.randint(1, 4))) for _ in range(2))
        meets = any(fnmatchcase(name, one) and fnmatchcase(name, other) for name in names)
        found = PossiblePaths([f"/{one}"]).may_be(other, leads_out=False)
        assert found or not meets, (one, other)
    assert not PossiblePaths(["/a*b"]).may_be("b*a", leads_out=False)
    assert not PossiblePaths(["/?"]).may_be("??", leads_out=False)


# Very many values ----------------------------------------------------------------------------------------------------------

PIECES = (
    "etc",
    "x",
    "ETC",
    "%65tc",
    "%2565tc",
    "%u0065tc",
    "a",
    "..",
    "file:",
    "b c",
    "?q",
    "é",
    "ｅtc",
    "\u200b",
    "\\",
    "//",
)


def test_values_that_are_looked_at_together_give_what_each_of_them_gives(scale: int):
    dice = random.Random(3)
    known = AnyPath(["etc/x", "*.key", "b c"])
    for _ in range(20 * scale):
        values = ["/".join(dice.choices(PIECES, k=dice.randint(1, 4))) for _ in range(dice.randint(1, 300))]
        args = {"paths": values, "cwd": dice.choice(["/etc", "w", None])}
        alone = set(filter(known.wide, paths_of(SERVER, args)))
        assert set(filter(known.wide, paths_of(SERVER, args, may_match=known.may_match_in))) == alone


def test_a_pattern_without_a_name_of_its_own_is_looked_for_in_every_value():
    values = [f"a/{n}" for n in range(200)]
    for pattern in ("**", "*", "?", "//srv/a/199"):
        definition = ToolDefinition(name="fetch", kind="mcp", server="fs", roots=("/srv",))
        assert verdict(definition, {"paths": [*values, "b"]}, Rule(verdict="deny", paths=[pattern])) == "deny"


def test_the_event_loop_goes_on_while_a_call_with_very_many_values_is_decided_about(monkeypatch: pytest.MonkeyPatch):
    seen: set[str] = set()
    asked = reading.paths_in

    def watched(*args: Any, **more: Any) -> list[str]:
        seen.add(threading.current_thread().name)
        return asked(*args, **more)

    monkeypatch.setattr(reading, "paths_in", watched)

    @tool
    def take(values: list[str]) -> int:
        """Take values."""
        return len(values)

    def run(values: list[str]) -> set[str]:
        seen.clear()
        policy = Policy(rules=[Rule(verdict="deny", paths=["etc/x"])])
        reply = asyncio.run(Gate(ScriptedModel([call("take", values=values), "ok"]), [take], policy=policy).run("x"))
        assert reply.calls[0].state == "finished"
        return set(seen)

    assert run(["a"] * 10) == {threading.main_thread().name}
    assert threading.main_thread().name not in run([f"file:///srv/{n}" for n in range(3_000)])
    assert threading.main_thread().name not in run(["a" * 250_000])
