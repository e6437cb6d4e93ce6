"""One rule of a policy: what it is about, and what it says.

A text, a table or a `Rule` comes in; a rule that can be asked about a call goes out. A rule that cannot be read raises: what
is done then is up to the caller.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from callgate.errors import UsageError
from callgate.permission.patterns import Glob, PathGlob, Regex
from callgate.permission.sensitive import leaves, paths_in
from callgate.types import ToolDefinition, ToolKind, Verdict

__all__ = ["KINDS", "MODES", "VERDICTS", "Mode", "Rule", "rule_from"]

Mode: TypeAlias = Literal["default", "auto_edit", "yolo", "plan"]
MODES: tuple[Mode, ...] = ("default", "auto_edit", "yolo", "plan")
VERDICTS = ("allow", "ask", "deny")
KINDS = ("function", "file", "command", "mcp", "worker")

BUILT_IN = "builtin"
"""The reserved server name for all tools without a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Say allow, ask or deny of the calls that it is about; every field that is set must fit.

    A rule that asks or denies reads its patterns widely: it is enough that one of several values fits, and case does not
    matter. A rule that allows reads them narrowly, and all values must fit.
    """

    verdict: Verdict
    tool: str = "*"
    """A glob for the tool's own name; `@server` and `@server/tool` name tools of servers, `@builtin` those of none."""
    server: str | None = None
    """A glob for the name of the server or worker pool that the tool lives on."""
    kind: ToolKind | None = None
    """Where the tool comes from: `function`, `file`, `command`, `mcp` or `worker`."""
    read_only: bool | None = None
    """Only tools that say so, or only those that do not."""
    paths: tuple[str, ...] = ()
    """Patterns as in `.gitignore`, one of which must fit the files that the call names."""
    args: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of an argument -> a glob for its whole text."""
    patterns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of an argument -> a regular expression for its whole text, without look-around and back-references."""
    reason: str = ""
    """A sentence for the approver and the model."""
    _tests: tuple[Any, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise UsageError(f"a rule says {self.verdict!r}: use 'allow', 'ask' or 'deny'")
        if self.kind is not None and self.kind not in KINDS:
            raise UsageError(f"a rule is for the kind {self.kind!r}: use {', '.join(map(repr, KINDS))}")
        if self.read_only not in (None, True, False):
            raise UsageError(f"a rule has read_only={self.read_only!r}: use true or false")
        if not isinstance(self.reason, str):  # pyright: ignore[reportUnnecessaryIsInstance] - files hold anything
            raise UsageError(f"a rule has the reason {self.reason!r}: use a sentence")
        tool, server = _subject(self.tool, self.server)
        object.__setattr__(self, "tool", tool)
        object.__setattr__(self, "server", server)
        object.__setattr__(self, "paths", _texts(self.paths))
        for name in ("args", "patterns"):
            object.__setattr__(self, name, _mapping(getattr(self, name), name))
        tests = (
            Glob(tool),
            Glob(server) if server is not None else None,
            tuple(map(PathGlob, self.paths)),
            {name: Glob(text) for name, text in self.args.items()},
            {name: Regex(text) for name, text in self.patterns.items()},
        )
        object.__setattr__(self, "_tests", tests)

    @property
    def id(self) -> str:
        """The same for the same rule, in whatever order rules stand."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init and f.name != "reason"}
        return hashlib.sha256(json.dumps(plain, sort_keys=True, default=dict).encode()).hexdigest()[:12]

    @property
    def is_conditional(self) -> bool:
        """True if it depends on the arguments."""
        return bool(self.paths or self.args or self.patterns)

    def selects(self, definition: ToolDefinition) -> bool:
        """True if the rule is about this tool at all."""
        name, server, *_ = self._tests
        if self.kind is not None and self.kind != definition.kind:
            return False
        if self.read_only is not None and self.read_only != definition.read_only:
            return False
        if server is not None and not self._is_of(server, definition.server):
            return False
        return self._fits(name, definition.name)

    def matches(self, definition: ToolDefinition, args: Mapping[str, Any]) -> bool:
        """True if the arguments are those that the rule is about."""
        _, _, paths, globs, regexes = self._tests
        if paths and not self._all_or_any(paths_in(definition, args), lambda text: any(self._fits(p, text) for p in paths)):
            return False
        for tests in (globs, regexes):
            for name, test in tests.items():
                values = [text for _, text in leaves(args[name], name)] if name in args else []
                if not self._all_or_any(values, lambda text, test=test: self._fits(test, text)):
                    return False
        return True

    @property
    def sentence(self) -> str:
        """The rule in words."""
        about = f"{self.tool!r}" + (f" of server {self.server!r}" if self.server is not None else "")
        about += f" of kind {self.kind!r}" if self.kind else ""
        about += {None: "", True: ", read-only", False: ", not read-only"}[self.read_only]
        conditions = [f"a path matches {' or '.join(map(repr, self.paths))}"] if self.paths else []
        conditions += [f"{name} matches {text!r}" for name, text in (*self.args.items(), *self.patterns.items())]
        return f"{self.verdict} {about}" + (f" where {' and '.join(conditions)}" if conditions else "")

    def _is_of(self, test: Any, server: str | None) -> bool:
        return self.server == BUILT_IN if server is None else self._fits(test, server)

    def _fits(self, test: Any, text: str) -> bool:
        return test.narrow(text) if self.verdict == "allow" else test.wide(text)

    def _all_or_any(self, values: list[str], fits: Callable[[str], bool]) -> bool:
        return bool(values) and (all if self.verdict == "allow" else any)(map(fits, values))


def rule_from(given: object) -> Rule:
    """A rule from what a program or a file says: a `Rule`, a table with its fields, or `"deny @github/delete_*"`.

    Raises:
        UsageError: it cannot be read; the sentence says why.
    """
    if isinstance(given, Rule):
        return given
    if isinstance(given, str):
        verdict, _, tool = given.strip().partition(" ")
        if not tool.strip():
            raise UsageError(f"the rule {given!r} cannot be read: write a verdict and a tool, such as 'deny delete_*'")
        return Rule(verdict=cast("Verdict", verdict), tool=tool.strip())
    if not isinstance(given, Mapping):
        raise UsageError(f"{given!r:.80} is no rule: use a text such as 'deny delete_*', a table, or a Rule")
    table = cast("Mapping[str, Any]", given)
    known = [f.name for f in dataclasses.fields(Rule) if f.init]
    if unknown := [key for key in table if key not in known]:
        raise UsageError(f"a rule has no field {', '.join(map(repr, unknown))}: known are {', '.join(known)}")
    if "verdict" not in table:
        raise UsageError("a rule has no verdict: write verdict = 'allow', 'ask' or 'deny'")
    return Rule(**table)


def _subject(tool: object, server: object) -> tuple[str, str | None]:
    """Tool and server, with `@server/tool` taken apart."""
    if not isinstance(tool, str) or not tool.strip():
        raise UsageError(f"a rule is about the tool {tool!r}: use a name or a glob")
    if server is not None and not isinstance(server, str):
        raise UsageError(f"a rule is about the server {server!r}: use a name or a glob")
    if not tool.startswith("@"):
        return tool, server
    if server is not None:
        raise UsageError(f"a rule names its server twice: {tool!r} and server={server!r}")
    name, _, inside = tool[1:].partition("/")
    if not name:
        raise UsageError(f"a rule is about {tool!r}: write @server or @server/tool")
    return inside or "*", name


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise UsageError(f"a rule has paths={value!r:.80}: use a list of patterns")
    return tuple(cast("Iterable[str]", value))


def _mapping(value: object, name: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise UsageError(f"a rule has {name}={value!r:.80}: use a table of an argument's name and its pattern")
    return dict(cast("Mapping[str, str]", value))
