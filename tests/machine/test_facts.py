"""Facts go to the journal and come back as they were."""

from __future__ import annotations

import os
from typing import Any, get_args

from hypothesis import strategies as st

from callgate.machine import codec, facts
from callgate.types import Decision, FunctionCall, Limits, SessionRule, ToolResult, Usage

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))

text = st.text(max_size=6)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(text, json_values, max_size=3)
texts = st.lists(text, max_size=3).map(tuple)
contents = st.fixed_dictionaries({"role": text, "parts": st.lists(objects, max_size=2)})
calls = st.lists(
    st.builds(
        FunctionCall, name=text, args=objects, id=text, wire_id=st.none() | text, wire_name=st.none() | text,
        problem=st.none() | text, notes=texts,
    ), max_size=3,
).map(tuple)  # fmt: skip
results = st.builds(
    ToolResult, call_id=text, name=text, status=st.sampled_from(["finished", "failed", "unknown"]), value=json_values,
    error=st.none() | text, notes=texts, media=st.lists(objects, max_size=2).map(tuple),
    duration_s=st.floats(0, 1e6),
)  # fmt: skip
usages = st.builds(Usage, prompt_tokens=st.integers(0), total_tokens=st.integers(0))
decisions = st.builds(Decision, verdict=st.sampled_from(["allow", "ask", "deny"]), reason=text, by=text, rule=text)
rules = st.builds(
    SessionRule, id=text, tool=text, server=st.none() | text, digest=text, raised_by=text, paths=texts,
    exact=st.none() | objects,
)  # fmt: skip
limits = st.builds(Limits, turns=st.integers(1, 99), calls=st.integers(1, 999), call_timeout_s=st.floats(0.001, 1e6))
known = st.builds(facts.KnownTool, digest=text, ordered=st.booleans(), read_only=st.booleans(), repeatable=st.booleans())

FACTS: dict[type, st.SearchStrategy[Any]] = {
    facts.ToolsKnown: st.builds(facts.ToolsKnown, tools=st.dictionaries(text, known), names=st.dictionaries(text, text)),
    facts.HistoryGiven: st.builds(facts.HistoryGiven, contents=st.lists(contents, max_size=2)),
    facts.RunStarted: st.builds(
        facts.RunStarted, content=st.none() | contents, tool_choice=text, limits=limits, output=st.none() | objects
    ),
    facts.ModelAnswered: st.builds(
        facts.ModelAnswered,
        content=contents,
        calls=calls,
        finish_reason=text,
        finish_message=text,
        usage=usages,
        salvaged=calls,
    ),
    facts.ModelFailed: st.builds(facts.ModelFailed, message=text),
    facts.CallChecked: st.builds(
        facts.CallChecked, id=text, tool=st.none() | text, args=objects, problems=texts, coercions=texts, digest=text
    ),
    facts.CallDecided: st.builds(facts.CallDecided, id=text, decision=decisions, args=st.none() | objects),
    facts.ApprovalAnswered: st.builds(
        facts.ApprovalAnswered,
        id=text,
        answer=st.sampled_from(["yes", "no", "always"]),
        args=st.none() | objects,
        reason=text,
        rule=st.none() | rules,
    ),
    facts.Renamed: st.builds(facts.Renamed, title=text),
    facts.AlwaysRevoked: st.builds(facts.AlwaysRevoked, rule=st.none() | text),
    facts.CallStarted: st.builds(facts.CallStarted, id=text),
    facts.CallEnded: st.builds(facts.CallEnded, id=text, result=results),
    facts.Cancelled: st.builds(facts.Cancelled, reason=text, partial=text),
    facts.Recovered: st.builds(facts.Recovered),
    facts.Rewound: st.builds(
        facts.Rewound,
        contents_kept=st.integers(0, 9),
        contents=st.none() | st.lists(contents, max_size=2),
        position=st.none() | st.integers(0, 9),
    ),
    facts.Adopted: st.builds(facts.Adopted),
    facts.OutputChecked: st.builds(facts.OutputChecked, value=json_values, problems=texts),
    facts.NestedCall: st.builds(
        facts.NestedCall, parent=text, id=text, name=text, args=st.dictionaries(text, text), result=st.none() | results
    ),
    facts.HistoryShortened: st.builds(
        facts.HistoryShortened, dropped=st.integers(0, 9), summary=st.none() | text, usage=usages
    ),
}


KINDS = ["tools_known", "run_started", "model_answered", "call_checked", "call_decided", "call_ended", "history_given", "x"]
FIELDS = [
    "id",
    "result",
    "calls",
    "tools",
    "limits",
    "args",
    "notes",
    "content",
    "problems",
    "usage",
    "decision",
    "names",
    "tool",
    "finish_reason",
    "contents",
    "salvaged",
    "rule",
]


def test_every_kind_of_fact_is_tested_here() -> None:
    assert set(FACTS) == set(get_args(facts.JournalledFact))


def test_a_fact_keeps_its_time_and_is_equal_to_the_same_fact_at_another() -> None:
    early, late = facts.dated(facts.CallStarted(id="a"), 1.5), facts.dated(facts.CallStarted(id="a"), 2.5)
    assert (codec.decode(codec.encode(early)).at_s, codec.decode(codec.encode(late)).at_s) == (1.5, 2.5)
    assert early == late == facts.CallStarted(id="a")
    assert facts.dated(early, 9.0).at_s == 1.5
    assert b"at_s" not in codec.encode(facts.CallStarted(id="a"))


class _Counted:
    def __init__(self, function: Any) -> None:
        self.function, self.count = function, 0

    def __call__(self, value: Any) -> Any:
        self.count += 1
        return self.function(value)
