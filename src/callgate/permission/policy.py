"""The rules in, a decision out: may a call run, must somebody be asked, or is it refused?

The strictest word wins: deny, then ask, then allow. Nothing is run and nobody is asked here, and the same rules say the same
of the same call, always: what `explain` says of a tool is what `decide` does with its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from callgate.base_errors import expect, expect_list
from callgate.errors import UsageError
from callgate.permission.call_paths import RunningValues, paths_in, paths_of
from callgate.permission.patterns import PathGlob, path_parts, plain_path
from callgate.permission.rules import MODES, VERDICTS, Mode, Rule, rule_from
from callgate.permission.sensitive import RUNS_CODE, SENSITIVE, path_matcher, sensitive_path
from callgate.permission.session_rules import covers
from callgate.types import Decision, FunctionCall, SessionRule, ToolDefinition, Verdict

if TYPE_CHECKING:
    from callgate.permission.hooks import Hook

__all__ = ["Explanation", "Policy"]

_HOLDS = "the rule holds for every call of it"
NOBODY = "There is no one to ask: pass approve= to Gate, or Policy(default='allow')."


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A summary of how a policy treats the calls of one tool."""

    verdict: Verdict
    """For a call that none of the `conditions` is about."""
    reason: str
    """The rule or default that led to the verdict, as a sentence."""
    declared: bool
    """True if the tool is declared to the model."""
    conditions: tuple[str, ...] = ()
    """Rules that depend on the arguments, in words; the strictest one that fits wins over all."""


@dataclass(frozen=True, slots=True)
class _Ask:
    """Reason to ask: the rule that requires it, and a sentence."""

    rule: str
    reason: str
    lasts: bool = True
    """False if it is asked about each time, whatever was answered before and whatever the mode."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Rules for which calls run, are asked about, or are refused.

    ```python
    Policy(rules=["deny delete_*", "allow @github/get_*", Rule(verdict="allow", tool="write_file", paths=("docs/**",))])
    ```

    Where no rule speaks and `default=None`: functions that a program passes in are allowed, because the programmer chose
    them; read-only tools are allowed; everything else that writes files, runs commands or lives on a server is asked about.
    Sensitive files are always asked about, whatever rules, default and mode say, unless they are denied.
    """

    default: Verdict | None = None
    """The verdict where no rule speaks; None: it depends on the origin of the tool, as above."""
    rules: Sequence[Rule | Mapping[str, Any] | str] = ()
    """Rules as objects, tables or texts; they are kept as `Rule` objects."""
    mode: Mode = "default"
    """`auto_edit` allows writes of file tools inside their root unasked; `yolo` answers yes to everything that would be
    asked but sensitive files; `plan` lets only read-only tools run."""
    sensitive: tuple[str, ...] = SENSITIVE
    """Path patterns of files that are always asked about."""
    runs_code: tuple[str, ...] = RUNS_CODE
    """Path patterns of files that make programs run code; a write to one is always asked about."""
    hooks: tuple[Hook, ...] = ()
    """Commands that are run before and after calls."""
    nobody: str = NOBODY
    """The sentence for a call that needs an approval when there is no approver."""
    problems: tuple[str, ...] = ()
    """Parts of the policy that could not be read, or rules that can never apply. They deny instead."""

    parts: tuple[Policy, ...] = ()
    """Further policies, each with its own default; the strictest decision counts. See `strictest`."""

    def __post_init__(self) -> None:
        if self.default not in (None, "allow", "ask", "deny"):
            raise UsageError(f"Policy(default={self.default!r}): use 'allow', 'ask', 'deny' or None")
        if self.mode not in MODES:
            raise UsageError(f"Policy(mode={self.mode!r}): use {', '.join(map(repr, MODES))}")
        expect_list(self.rules, "Policy(rules={})", "a list of rules")
        for name in ("sensitive", "runs_code"):
            expect_list(getattr(self, name), f"Policy({name}={{}})", "a list of path patterns")
        expect_list(self.hooks, "Policy(hooks={})", "a list of Hook objects")
        for hook in self.hooks:
            # The module of hooks is loaded by those who have some.
            if not hasattr(hook, "command"):
                raise UsageError(f"Policy(hooks=[{hook!r:.200}]): expected Hook objects")
        expect_list(self.parts, "Policy(parts={})", "a list of policies")
        for part in self.parts:
            expect(part, Policy, "Policy(parts=[{}])", "policies")
        expect(self.nobody, str, "Policy(nobody={})", "a sentence")
        object.__setattr__(self, "rules", tuple(map(rule_from, self.rules)))
        object.__setattr__(self, "sensitive", tuple(self.sensitive))
        object.__setattr__(self, "hooks", tuple(self.hooks))
        object.__setattr__(self, "runs_code", tuple(self.runs_code))
        for given, known in ((self.sensitive, SENSITIVE), (self.runs_code, RUNS_CODE)):
            for pattern in (pattern for pattern in given if given is not known and pattern not in known):
                PathGlob(pattern)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Policy:
        """The policy that a TOML file holds. A rule that cannot be read denies what it is about, and is told in `problems`.

        Raises:
            UsageError: there is no such file, or it is not TOML.
        """
        from callgate.permission.policy_file import fields_of, read_table

        table, places = read_table(path)
        return cls(**fields_of(table, places))

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Policy:
        """The policy that a table holds, as the file would say it."""
        from callgate.permission.policy_file import fields_of

        return cls(**fields_of(table))

    def strictest(self, *others: Policy) -> Policy:
        """Combine policies: the strictest decision of all counts, in the mode of this one."""
        parts = tuple(part for other in others for part in (replace(other, parts=()), *other.parts))
        return replace(
            self,
            parts=(*self.parts, *parts),
            hooks=(*self.hooks, *(hook for other in others for hook in other.hooks)),
            problems=(*self.problems, *(problem for other in others for problem in other.problems)),
        )

    def decide(
        self,
        definition: ToolDefinition,
        call: FunctionCall,
        *,
        always: Iterable[SessionRule] = (),
        digest: str = "",
        running: RunningValues | None = None,
    ) -> Decision:
        """The decision for one call, before anybody is asked: the strictest of all parts.

        `always` are the lasting answers of the session, and `digest` the hash of what was declared of the tool now: one that
        has changed since the answer is asked about again. `running` gives the values that the tool gets for arguments.
        """
        asks: list[_Ask] = []
        reasons: list[str] = []
        for part in (self, *self.parts):
            found, reason = part._found(definition, call.args, mode=self.mode, running=running)
            if found is None:
                return Decision(verdict="deny", reason=reason)
            asks += found
            reasons.append(reason)
        covering = [rule for rule in always if covers(rule, definition, call.args, digest, running)]
        lasting = {name for rule in covering for name in rule.raised_by.split()}
        left = [ask for ask in asks if not ask.lasts or ask.rule not in lasting]
        if asks and not left:
            return Decision(verdict="allow", reason="The user allowed such calls for the whole session.", by="user")
        if asks and not (left := [ask for ask in left if not self._mode_allows(ask, definition, call.args)]):
            return Decision(verdict="allow", reason=f"The mode {self.mode!r} allows it unasked.", by="mode")
        if left:
            said, names = dict.fromkeys(ask.reason for ask in left), dict.fromkeys(ask.rule for ask in left)
            typed = self.confirmation(definition, call.args, running)
            asked = " ".join([*said, *_led_to(definition, call.args, running)])
            asked += f" To confirm, type {typed!r}." if typed else ""
            return Decision(verdict="ask", reason=asked, rule=" ".join(names))
        return Decision(verdict="allow", reason=reasons[0])

    def confirmation(self, definition: ToolDefinition, args: Mapping[str, Any], running: RunningValues | None = None) -> str:
        """The text that an approver repeats to confirm a call, of every rule that wants one; empty if there is none."""
        rules = (rule for part in (self, *self.parts) for rule in part._about(definition) if rule.confirm is not None)
        texts = [rule.confirmation(definition, args) for rule in rules if rule.matches(definition, args, running)]
        return " ".join(dict.fromkeys(texts))

    def explain(self, definition: ToolDefinition) -> Explanation:
        """Summarise the decisions about calls of the tool; `decide` follows the same rules."""
        explained = [part._explained(definition, mode=self.mode) for part in (self, *self.parts)]
        worst = max(explained, key=lambda one: (not one.declared, VERDICTS.index(one.verdict)))
        conditions = tuple(dict.fromkeys(said for one in explained for said in one.conditions)) if worst.declared else ()
        return replace(worst, conditions=conditions)

    def hides(self, definition: ToolDefinition, reading: ToolDefinition | None = None) -> Callable[[str, str], bool]:
        """A test for files that a walk meets and that its call did not name: (file, named path) -> it must not be shown.

        Files that a rule denies, or that a call of `reading` (`read_file`) would be denied, are never shown; those that are
        asked about are, where the named path was asked about too.
        """
        denied: list[str] = []
        asked: list[str] = []
        reading = reading or replace(definition, name="read_file", alias_of=None, input_schema={"type": "object"})
        reads = self.about(reading)
        decides = False
        for part in (self, *self.parts):
            asked += part.sensitive
            decides = decides or part.default == "deny" or any(map(_denies_beyond_paths, part._about(reading)))
            for rule in (*part._about(definition), *part._about(reading)):
                patterns = {"deny": denied, "ask": asked, "allow": []}[rule.verdict]
                patterns += rule.paths or ()
        roots = tuple(definition.roots)
        never = path_matcher(tuple(dict.fromkeys(denied)), roots)
        unless_named = path_matcher(tuple(dict.fromkeys(asked)), roots)

        def is_hidden(path: str, named: str) -> bool:
            if denied and never(path):
                return True
            if decides and reads.decide(reading, FunctionCall(name=reading.name, args={"path": path})).verdict == "deny":
                return True
            return bool(asked) and unless_named(path) and not unless_named(named) and not unless_named(f"{named}/x")

        return is_hidden

    def against(self, definitions: Iterable[ToolDefinition]) -> Policy:
        """The policy for these tools, with what is wrong about it in `problems`.

        Told are rules about an argument that a tool which they name does not have, or with `tool="*"` no tool, and rules
        that ask about or deny one tool by its name where there is no such tool. A rule about an argument that no tool has
        holds for all calls, or allows none.
        """
        known = list(definitions)
        found: list[Rule] = []
        problems: list[str] = []
        for rule in self.rules:
            assert isinstance(rule, Rule)
            selected = [definition for definition in known if rule.selects(definition)]
            if known and not selected and rule.verdict != "allow" and rule.names_one:
                problems.append(f"there is no tool that the rule is about: {rule.sentence}")
            if selected and not any(map(rule.can_confirm, selected)):
                why = _lacks(selected[0], [rule.confirm or ""], "the approver types the name of the tool")
                problems.append(f"the rule has nothing to confirm a call by: {rule.sentence} ({why})")
            lacking = [definition for definition in selected if rule.missing(definition)]
            if lacking and (rule.names_tools or len(lacking) == len(selected)):
                so = "the rule holds for no call of it" if rule.verdict == "allow" else _HOLDS
                said = f"{rule.sentence} ({_lacks(lacking[0], rule.missing(lacking[0]), so)})"
                problems.append(f"the rule can never be tested: {said}")
                if not rule.names_tools:  # It is closed for all of them, where one that names its tools is by itself.
                    rule = replace(rule, args={}, patterns=None, reason=rule.reason or f"The policy says: {said}.")
            found.append(rule)
        if not problems and not self.parts:
            return self
        parts = tuple(part.against(known) for part in self.parts)
        problems += [problem for part in parts for problem in part.problems if problem not in self.problems]
        return replace(self, rules=tuple(found), parts=parts, problems=(*self.problems, *problems))

    def about(self, definition: ToolDefinition) -> Policy:
        """The policy with those of its rules that are about the tool: it decides the same about calls of it, and sooner."""
        parts = tuple(part.about(definition) for part in self.parts)
        return replace(self, rules=tuple(self._about(definition)), parts=parts)

    def may_declare(self, definition: ToolDefinition) -> bool:
        """True if the tool is declared to the model; one that is always denied is not."""
        return bool(self.declarable([definition]))

    def declarable(self, definitions: Iterable[ToolDefinition]) -> list[ToolDefinition]:
        """The tools of which the model is told, in the same order: those of which `may_declare` is true."""
        if not self.rules and not self.parts and self.default != "deny" and self.mode != "plan":
            return [*definitions]  # As it mostly is, and there may be a thousand tools.
        return [definition for definition in definitions if self.explain(definition).declared]

    def allows_server(self, name: str) -> bool:
        """True if a rule allows a server by its name (`@name`) for all calls, and no rule asks about or denies any of them.

        For servers that the provider of the model calls by itself: their calls never come by here, and their tools are not
        known, so that a rule about tools of any server counts.
        """
        about = [rule for rule in self.rules if isinstance(rule, Rule) and rule.may_select_of(name)]
        allowing = [rule for rule in about if rule.verdict == "allow" and not rule.is_conditional]
        is_named = any((rule.server, rule.tool) == (name, "*") for rule in allowing if rule.read_only is None)
        is_clear = all(rule.verdict == "allow" for rule in about) and self.mode != "plan"
        return is_named and is_clear and all(part.allows_server(name) for part in self.parts)

    # Internals ------------------------------------------------------------------------------------------------------------

    def _about(self, definition: ToolDefinition) -> list[Rule]:
        return [rule for rule in self.rules if isinstance(rule, Rule) and rule.selects(definition)]

    def _found(
        self, definition: ToolDefinition, args: Mapping[str, Any], *, mode: Mode, running: RunningValues | None
    ) -> tuple[list[_Ask] | None, str]:
        rules = [rule for rule in self._about(definition) if rule.matches(definition, args, running)]
        sensitive = sensitive_path(definition, args, self.sensitive, self.runs_code, running)
        return self._asks(definition, rules, sensitive, mode=mode)

    def _explained(self, definition: ToolDefinition, *, mode: Mode) -> Explanation:
        about = self._about(definition)
        depending = [rule for rule in about if rule.is_conditional and not rule.is_untestable(definition)]
        always = [rule for rule in about if rule not in depending and rule.matches(definition, {})]
        asks, reason = self._asks(definition, always, None, mode=mode)
        conditions = tuple(rule.sentence for rule in depending)
        if asks is None:
            # Only the default can give way to a rule: a deny and the plan mode cannot.
            by_default = reason == self._default_reason("deny")
            declared = by_default and any(rule.verdict != "deny" for rule in depending)
            return Explanation(verdict="deny", reason=reason, declared=declared, conditions=conditions if declared else ())
        if definition.kind == "file" and self.sensitive:
            conditions += ("ask where a path is a sensitive file",)
        left = [ask for ask in asks if not self._mode_allows(ask, definition, {}, mode=mode)]
        if left:
            return Explanation(verdict="ask", reason=left[0].reason, declared=True, conditions=conditions)
        reason = f"The mode {mode!r} allows it unasked." if asks else reason
        return Explanation(verdict="allow", reason=reason, declared=True, conditions=conditions)

    def _asks(
        self, definition: ToolDefinition, rules: Sequence[Rule], sensitive: str | None, *, mode: Mode
    ) -> tuple[list[_Ask] | None, str]:
        """Reasons to ask (None: it is denied), and the reason for what is not asked about."""
        for rule in rules:
            if rule.verdict == "deny":
                return None, rule.reason or f"The policy has a rule against it: {_in_words(rule, definition)}."
        if mode == "plan" and not definition.read_only:
            return None, "Plan mode is on: only tools that are read-only run. Say what you would do instead."
        asks: list[_Ask] = []
        if sensitive is not None:
            asks.append(
                _Ask("sensitive", f"{sensitive!r:.200} is a sensitive file, which is always asked about.", lasts=False)
            )
        asks += [
            _Ask(
                rule.id,
                rule.reason or f"The policy says: {_in_words(rule, definition)}.",
                lasts=rule.confirm is None,
            )
            for rule in rules
            if rule.verdict == "ask"
        ]
        # A rule that cannot be tested never makes a call easier than it is without the rule.
        if testable := [rule for rule in rules if not rule.is_untestable(definition)]:
            return asks, testable[0].reason or f"The policy says: {testable[0].sentence}."
        verdict, reason = self._by_default(definition)
        if verdict == "deny":
            return None, reason
        return asks + ([_Ask("default", reason)] if verdict == "ask" else []), reason

    def _by_default(self, definition: ToolDefinition) -> tuple[Verdict, str]:
        if self.default is not None:
            return self.default, self._default_reason(self.default)
        if definition.kind == "function":
            return "allow", "Functions run without approval by default."
        if definition.read_only:
            return "allow", "The tool is read-only."
        if definition.kind == "mcp" and definition.server is not None:
            server = f"the server {definition.server!r} is not trusted, or does not say that the tool is read-only"
            return "ask", f"{definition.name!r} may change something: {server}."
        return "ask", f"{definition.name!r} may change something."

    def _default_reason(self, verdict: str) -> str:
        return f"The policy's default is {verdict!r}."

    def _mode_allows(
        self, ask: _Ask, definition: ToolDefinition, args: Mapping[str, Any], *, mode: Mode | None = None
    ) -> bool:
        mode = mode or self.mode
        if not ask.lasts:
            return False
        if mode == "auto_edit" and ask.rule == "default" and definition.kind == "file":
            return not any(path_parts(path.replace("\\", "/"))[1] for path in paths_in(definition, args))
        return mode == "yolo"


def _denies_beyond_paths(rule: Rule) -> bool:
    """True if the rule denies by more than patterns of paths, so that each file is decided about."""
    return rule.verdict == "deny" and bool(rule.args or rule.patterns or not rule.paths)


def _led_to(definition: ToolDefinition, args: Mapping[str, Any], running: RunningValues | None) -> list[str]:
    """The files that links in the arguments of a file tool lead to, for the approver."""
    if definition.kind != "file":
        return []
    written = set(map(plain_path, paths_in(definition, args)))
    led = [path for path in paths_of(definition, args, running) if plain_path(path) not in written]
    return [f"A link in it leads to {', '.join(map(repr, led)):.400}."] if led else []


def _in_words(rule: Rule, definition: ToolDefinition) -> str:
    missing = rule.missing(definition) if rule.names_tools else []
    return f"{rule.sentence} ({_lacks(definition, missing)})" if missing else rule.sentence


def _lacks(definition: ToolDefinition, missing: Sequence[str], so: str = _HOLDS) -> str:
    has = ", ".join(map(repr, cast("Mapping[str, Any]", definition.input_schema.get("properties") or {}))) or "none"
    named = " and ".join(map(repr, missing))
    return f"the tool {definition.own_name!r} has no argument {named}, so {so}; it has {has}"
