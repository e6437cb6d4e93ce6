"""Rules of a policy: each says allow, ask or deny about some calls.

A text, a table or a `Rule` comes in; a rule that can be tested on a call goes out. There is one reader, which raises for
whatever it does not fully understand.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from callgate.errors import UsageError
from callgate.permission.argument_values import Argument
from callgate.permission.call_paths import RunningValues, paths_of, rooted, text_of, unsure_paths_of
from callgate.permission.patterns import AnyPath, Glob, PathGlob, Regex
from callgate.permission.subject import Subject
from callgate.types import ToolDefinition, ToolKind, Verdict

__all__ = ["KINDS", "MODES", "VERDICTS", "Mode", "Rule", "rule_from"]

Mode: TypeAlias = Literal["default", "auto_edit", "yolo", "plan"]
"""The mode of a policy: what is asked about where no rule speaks."""
MODES: tuple[Mode, ...] = ("default", "auto_edit", "yolo", "plan")
"""All modes of a policy."""
VERDICTS = ("allow", "ask", "deny")
CONFIRMATION_CHARS_MAX = 200
KINDS = ("function", "file", "command", "mcp", "worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A verdict about the calls that every given field fits.

    A rule that asks or denies reads its patterns widely: it is enough that one of several values fits, and case does not
    matter. A rule that allows reads them narrowly, and all values must fit. A rule that names its tools, by a name or a glob
    such as `delete_*`, and is about an argument that one of them does not have, cannot be tested on that one: it asks or
    denies every call of it, and allows none. With `tool="*"` it is about the tools that have the argument.
    """

    verdict: Verdict
    """The verdict on the calls that fit."""
    tool: str = "*"
    """A glob for the tool's own name; `@server` and `@server/tool` name tools of servers, `@builtin` those of none."""
    server: str | None = None
    """A glob for the name of the server or worker pool that the tool lives on."""
    kind: ToolKind | None = None
    """The source of the tool: `function`, `file`, `command`, `mcp` or `worker`."""
    read_only: bool | None = None
    """Only tools that say so, or only those that do not."""
    paths: Sequence[str] | None = None
    """Patterns as in `.gitignore`, one of which must fit the files that the call names."""
    args: Mapping[str, str] | None = None
    """Name of an argument -> a glob for its whole text; a list is tested word by word, and joined with spaces."""
    patterns: Mapping[str, str] | None = None
    """Name of an argument -> a regular expression for its whole text, without look-around and back-references."""
    reason: str = ""
    """A sentence for the approver and the model."""
    confirm: str | None = None
    """The argument that names what a call destroys; the approver repeats its value. Only with the verdict `ask`."""
    _subject: Subject = field(init=False, repr=False, compare=False, default=Subject())
    _paths: tuple[PathGlob, ...] = field(init=False, repr=False, compare=False, default=())
    _any_path: AnyPath = field(init=False, repr=False, compare=False, default=AnyPath(()))
    _args: tuple[tuple[str, Glob | Regex], ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise UsageError(f"a rule says {self.verdict!r}: use 'allow', 'ask' or 'deny'")
        if self.kind is not None and self.kind not in KINDS:
            raise UsageError(f"a rule is for the kind {self.kind!r}: use {', '.join(map(repr, KINDS))}")
        if self.read_only not in (None, True, False):
            raise UsageError(f"a rule has read_only={self.read_only!r}: use true or false")
        if not isinstance(self.reason, str):  # pyright: ignore[reportUnnecessaryIsInstance] - files hold anything
            raise UsageError(f"a rule has the reason {self.reason!r}: use a sentence")
        if self.confirm is not None and (not isinstance(cast("Any", self.confirm), str) or not self.confirm):
            raise UsageError(f"a rule has confirm={self.confirm!r}: use the name of an argument")
        if self.confirm is not None and self.verdict != "ask":
            raise UsageError(f"a rule has confirm={self.confirm!r} and says {self.verdict!r}: only 'ask' can be confirmed")
        subject = Subject.read(self.tool, self.server)
        paths = _texts(self.paths)
        globs, regexes = _mapping(self.args, "args"), _mapping(self.patterns, "patterns")
        _refuse_expanded(paths or (), (globs or {}).values())
        tests = [(name, Glob(text)) for name, text in (globs or {}).items()]
        tests += [(name, Regex(text)) for name, text in (regexes or {}).items()]
        settled = {"tool": subject.tool, "server": subject.server, "paths": paths, "args": globs, "patterns": regexes}
        settled |= {"_subject": subject, "_paths": tuple(map(PathGlob, paths or ())), "_args": tuple(tests)}
        settled |= {"_any_path": AnyPath(paths or ())}
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    @property
    def id(self) -> str:
        """The same for the same rule, in whatever order rules stand."""
        names = [f.name for f in dataclasses.fields(self) if f.init and f.name != "reason"]
        names = [name for name in names if name != "confirm" or self.confirm is not None]  # Older rules keep their ids.
        plain = {name: getattr(self, name) for name in names}
        return hashlib.sha256(json.dumps(plain, sort_keys=True, default=dict).encode()).hexdigest()[:12]

    @property
    def is_conditional(self) -> bool:
        """True if it depends on the arguments."""
        return bool(self.paths is not None or self._args or self._has_empty)

    @property
    def names_tools(self) -> bool:
        """True if it says what its tools are called, and is not about tools of any name."""
        return self._subject.names_tools

    @property
    def names_one(self) -> bool:
        """True if it names one tool, and no pattern of several."""
        return self._subject.is_exact

    @property
    def _has_empty(self) -> bool:
        return any(given is not None and not given for given in (self.paths, self.args, self.patterns))

    def selects(self, definition: ToolDefinition) -> bool:
        """True if the rule is about this tool at all."""
        if self.kind is not None and self.kind != definition.kind:
            return False
        if self.read_only is not None and self.read_only != definition.read_only:
            return False
        return self._subject.fits(definition, wide=self.verdict != "allow")

    def may_select_of(self, server: str) -> bool:
        """True if the rule may be about some tool of an MCP server whose tools are not known."""
        return self.kind in (None, "mcp") and self._subject.may_be_of(server, wide=self.verdict != "allow")

    def is_untestable(self, definition: ToolDefinition) -> bool:
        """True if the rule has a condition that no call of this tool can be tested by: it holds for all, or allows none."""
        return self._has_empty or bool(self._args and self._subject.names_tools and self.missing(definition))

    def matches(self, definition: ToolDefinition, args: Mapping[str, Any], running: RunningValues | None = None) -> bool:
        """True if the arguments are those that the rule is about.

        `running` gives the values that the tool gets, if these are known: a rule that asks or denies is about the text that
        the model wrote and about the value in it, a rule that allows is about the value.
        """
        if self.is_untestable(definition):
            return self.verdict != "allow"  # Nothing is known to be meant, or to be left out.
        if self._paths and not self._paths_fit(definition, args, running):
            return False
        return all(self._argument_fits(definition, args, name, test, running) for name, test in self._args)

    def _paths_fit(self, definition: ToolDefinition, args: Mapping[str, Any], running: RunningValues | None) -> bool:
        if self.verdict == "allow":
            paths = paths_of(definition, args, running, wide=False)
            return bool(paths) and all(self._is_allowed(definition, path) for path in paths)
        known = self._any_path
        found = paths_of(definition, args, running, may_match=known.may_match_in)
        if any(known.wide(path) or any(map(known.wide_at, rooted(definition.roots, path))) for path in found):
            return True
        unsure = unsure_paths_of(definition, args, running)
        return unsure is None or any(
            map(known.may_be, (spelled for path in unsure for spelled in (path, *rooted(definition.roots, path))))
        )

    def missing(self, definition: ToolDefinition) -> list[str]:
        """The arguments that the rule is about and that the tool does not have."""
        names = _argument_names(definition)
        return [] if names is None else [name for name, _ in self._args if _declared_as(definition, name) not in names]

    def can_confirm(self, definition: ToolDefinition) -> bool:
        """True if the tool may have the argument whose value confirms a call."""
        names = _argument_names(definition)
        return self.confirm is None or names is None or self.confirm in names

    def confirmation(self, definition: ToolDefinition, args: Mapping[str, Any]) -> str:
        """The text that confirms a call: the value of the argument, or the tool's name if it has none that can be typed."""
        if self.confirm is None:
            return ""
        value = args.get(self.confirm, _default_of(definition, self.confirm))  # `_NONE` cannot be typed.
        text = text_of(value) if isinstance(value, (str, int, float)) else ""
        can_be_typed = text.strip() == text and text.isprintable() and 0 < len(text) <= CONFIRMATION_CHARS_MAX
        return text if can_be_typed else definition.name

    @property
    def sentence(self) -> str:
        """The rule in words."""
        about = f"{self.tool!r}" + (f" of server {self.server!r}" if self.server is not None else "")
        about += f" of kind {self.kind!r}" if self.kind else ""
        about += {None: "", True: ", read-only", False: ", not read-only"}[self.read_only]
        conditions = [f"a path matches {' or '.join(map(repr, self.paths))}"] if self.paths else []
        conditions += [f"{name} matches {test.pattern!r}" for name, test in self._args]
        return f"{self.verdict} {about}" + (f" where {' and '.join(conditions)}" if conditions else "")

    def _argument_fits(
        self,
        definition: ToolDefinition,
        args: Mapping[str, Any],
        name: str,
        test: Glob | Regex,
        running: RunningValues | None,
    ) -> bool:
        declared = _declared_as(definition, name)
        value: Any = args.get(declared, _default_of(definition, declared))
        if value is _NONE or (declared not in args and value is None and self.verdict == "allow"):
            return False
        argument = Argument(definition, declared, value, args, running)
        return argument.fits_narrowly(test) if self.verdict == "allow" else argument.fits_widely(test)

    def _is_allowed(self, definition: ToolDefinition, path: str) -> bool:
        from callgate.permission.unsure_paths import is_unsure  # Most rules name no paths.

        if definition.kind != "file" and is_unsure(path):
            return False  # Its tool may expand it to another one.
        return any(glob.narrow(path) or any(map(glob.narrow, rooted(definition.roots, path))) for glob in self._paths)


def rule_from(given: object) -> Rule:
    """Read a rule: a `Rule`, a table with its fields, or a text such as `"deny @github/delete_*"`.

    Raises:
        UsageError: it cannot be read; the message says why.
    """
    if isinstance(given, Rule):
        return given
    if isinstance(given, str):
        words = given.split()
        if len(words) != 2:
            raise UsageError(f"the rule {given!r} cannot be read: write a verdict and one tool, such as 'deny delete_*'")
        return Rule(verdict=cast("Verdict", words[0]), tool=words[1])
    if not isinstance(given, Mapping):
        raise UsageError(f"{given!r:.80} is no rule: use a text such as 'deny delete_*', a table, or a Rule")
    table = cast("Mapping[str, Any]", given)
    known = [f.name for f in dataclasses.fields(Rule) if f.init]
    if unknown := [key for key in table if key not in known]:
        raise UsageError(f"a rule has no field {', '.join(map(repr, unknown))}: known are {', '.join(known)}")
    if empty := [key for key in ("paths", "args", "patterns") if key in table and not table[key]]:
        raise UsageError(f"a rule has nothing in {', '.join(empty)}: name a pattern, or leave it out")
    if "verdict" not in table:
        raise UsageError("a rule has no verdict: write verdict = 'allow', 'ask' or 'deny'")
    return Rule(**table)


# The schema of a tool ----------------------------------------------------------------------------------------------------


def _argument_names(definition: ToolDefinition) -> Mapping[str, Any] | None:
    """The arguments of a tool by name; None if its schema says nothing of them, or leaves room for others."""
    schema = definition.input_schema
    names: Any = schema.get("properties") or ({} if schema.get("additionalProperties") is False else None)
    is_open = schema.get("additionalProperties") not in (None, False) or any(
        key in schema for key in ("$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if")
    )
    return cast("Mapping[str, Any]", names) if isinstance(names, Mapping) and not is_open else None


def _declared_as(definition: ToolDefinition, name: str) -> str:
    """The name of an argument in this tool: `path` of the tool that it stands for may be one of several `paths` here."""
    several = f"{name}s"
    names: Any = definition.input_schema.get("properties") or {} if definition.other_names else {}
    return several if name not in names and several in names else name


_NONE: Any = object()
"""The default of an argument that has none; null is a value."""


def _default_of(definition: ToolDefinition, name: str) -> Any:
    properties: Any = definition.input_schema.get("properties")
    declared: Any = cast("Mapping[str, Any]", properties).get(name) if isinstance(properties, Mapping) else None
    return cast("Mapping[str, Any]", declared).get("default", _NONE) if isinstance(declared, Mapping) else _NONE


_ALTERNATIVES = re.compile(r"(?<!\\)\{[^{}\s\"':]*(?:,[^{}\s\"':]*)+\}")
_EXPANDED = {
    re.compile(r"~[\w.-]*(?:/|\Z)"): "'//' and the whole path of the home folder",
    re.compile(r"\$(?:[A-Z_]+|\{\w+\})(?:/|\Z)|%[A-Za-z_]+%"): "the folder itself, as //absolute/path",
    re.compile(r"/{0,2}[A-Za-z]:(?:/|\Z)"): "the folders without the drive, such as 'vault/**'",
    re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/"): "its path, as //absolute/path",
}
"""Beginnings of path patterns that other programs expand, so that no path could fit them -> what to write instead."""


def _refuse_expanded(paths: Iterable[str], globs: Iterable[str]) -> None:
    """Refuse patterns in which somebody expects something to be expanded: they would fit nothing."""
    for pattern in (*paths, *globs):
        if isinstance(cast("Any", pattern), str) and (found := _ALTERNATIVES.search(pattern)):
            raise UsageError(
                f"the pattern {pattern!r} has {found[0]!r} in it: write a pattern for each, or \\{{ for the sign"
            )
    for pattern in paths:
        # What is no text is refused by the pattern itself.
        instead = next(
            (said for start, said in _EXPANDED.items() if isinstance(cast("Any", pattern), str) and start.match(pattern)),
            None,
        )
        if instead is not None:
            raise UsageError(f"the path pattern {pattern!r} is not expanded: write {instead}")


def _texts(value: object) -> tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return None if value is None else (value,)
    if not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise UsageError(f"a rule has paths={value!r:.80}: use a list of patterns")
    return tuple(cast("Iterable[str]", value))


def _mapping(value: object, name: str) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise UsageError(f"a rule has {name}={value!r:.80}: use a table of an argument's name and its pattern")
    return dict(cast("Mapping[str, str]", value))
