"""Facts go to the journal and come back as they were."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import strict_json
from callgate.errors import JsonError
from callgate.machine import codec, facts
from callgate.types import Decision, FunctionCall, Limits, SessionRule, ToolDefinition, ToolResult, Usage

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
usages = st.builds(Usage, input_tokens=st.integers(0), total_tokens=st.integers(0))
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
    facts.ModelAccepted: st.builds(facts.ModelAccepted, id=text, origin=text, background=st.none() | st.booleans()),
    facts.ModelLent: st.builds(facts.ModelLent, server=text, model=text, usage=usages, cost=st.none() | st.floats(0, 9)),
    facts.CallChecked: st.builds(
        facts.CallChecked, id=text, tool=st.none() | text, args=objects, problems=texts, coercions=texts, digest=text
    ),
    facts.CallDecided: st.builds(
        facts.CallDecided, id=text, decision=decisions, args=st.none() | objects, confirm=st.none() | text
    ),
    facts.ApprovalAnswered: st.builds(
        facts.ApprovalAnswered,
        id=text,
        answer=st.sampled_from(["yes", "no", "always"]),
        args=st.none() | objects,
        reason=text,
        rule=st.none() | rules,
        by=text,
    ),
    facts.Renamed: st.builds(facts.Renamed, title=text),
    facts.ExchangeForgotten: st.builds(facts.ExchangeForgotten, exchange=text),
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
    facts.Adopted: st.builds(facts.Adopted, fork_of=text),
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


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_a_fact_comes_back_as_it_was(kind: type) -> None:
    @settings(max_examples=50 * SCALE)
    @given(FACTS[kind])
    def comes_back(fact: Any) -> None:
        line = codec.encode(fact)
        assert b"\n" not in line
        assert codec.decode(line) == fact
        assert codec.decode(line.decode()) == fact

    comes_back()


def test_the_defaults_of_a_run_come_back() -> None:
    fact = facts.RunStarted(content=None)
    assert codec.decode(codec.encode(fact)) == fact


def test_fields_that_are_not_known_are_ignored_and_missing_ones_have_their_defaults() -> None:
    assert codec.decode('{"v": 1, "kind": "cancelled", "new": [1]}') == facts.Cancelled()
    line = strict_json.dump({
        "v": 1, "kind": "call_ended", "id": "a", "later": 1,
        "result": {"call_id": "a", "name": "f", "status": "failed", "error": "e", "later": 2},
    })  # fmt: skip
    assert codec.decode(line) == facts.CallEnded(
        id="a", result=ToolResult(call_id="a", name="f", status="failed", error="e")
    )


@pytest.mark.rows(
    ("line", "why"),
    [
        ('{"v": 2, "kind": "recovered"}', "schema version 2"),
        ('{"v": 2, "kind": "new"}', "schema version 2"),
        ('{"v": "1", "kind": "recovered"}', "schema version '1'"),
        ('{"kind": "recovered"}', "not a fact"),
        ('{"v": 1}', "not a fact"),
        ('{"v": 1, "kind": "new"}', "kind 'new', which this callgate does not know"),
        ('{"v": 1, "kind": ["x"]}', "not a fact"),
        ('{"v": 1, "kind": null}', "not a fact"),
        ("[]", "not a fact"),
        ("null", "not a fact"),
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ('{"v": 1, "kind": "call_started"}', "cannot be read"),
        ('{"v": 1, "kind": "call_ended", "id": "a", "result": 5}', "cannot be read"),
        ('{"v": 1, "kind": "call_ended", "id": "a", "result": {}}', "cannot be read"),
        ('{"v": 1, "kind": "call_checked", "id": "a", "tool": null, "args": {}, "problems": 5}', "cannot be read"),
        ('{"v": 1, "kind": "tools_known", "tools": [], "names": {}}', "cannot be read"),
        ('{"v": 1, "kind": "tools_known", "tools": {"a": null}, "names": {}}', "cannot be read"),
        ('{"v": 1, "kind": "run_started", "content": null, "limits": {"turns": -1}}', "cannot be read"),
        ('{"v": 1, "kind": "run_started", "content": null, "limits": {"turns": "x"}}', "cannot be read"),
        ('{"v": 1, "kind": "history_shortened", "dropped": 1, "usage": {"total_tokens": "many"}}', "is not a number"),
        (f'{{"v": 1, "kind": "history_shortened", "dropped": 1, "usage": {{"total_tokens": 1{"0" * 400}}}}}', "too large"),
        ('{"v": 1, "kind": "model_answered", "content": {}, "finish_reason": 5}', "5 is not a text"),
        ('{"v": 1, "kind": "call_started", "id": null}', "None is not a text"),
        ('{"v": 1, "kind": "model_accepted", "id": "a", "origin": "o", "background": {}}', "{} is not a single value"),
    ],
)
def test_what_is_not_a_fact_is_a_json_error(line: str, why: str) -> None:
    with pytest.raises(JsonError, match=why):
        codec.decode(line)


@settings(max_examples=300 * SCALE)
@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_garbage_is_a_fact_or_a_json_error(kind: str, fields: dict[str, Any]) -> None:
    line = strict_json.dump({"v": 1, "kind": kind, **fields})
    with contextlib.suppress(JsonError):
        codec.decode(line)


@settings(max_examples=200 * SCALE)
@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_json_error(line: bytes) -> None:
    with pytest.raises(JsonError):
        codec.decode(line)


def test_results_as_deep_as_the_limit_can_be_read_again() -> None:
    value: Any = 1
    for _ in range(strict_json.DEPTH_MAX):
        value = [value]
    fact = facts.CallEnded(id="a", result=ToolResult(call_id="a", name="f", status="finished", value=value))
    assert codec.decode(codec.encode(fact)) == fact


@pytest.mark.rows("levels", [100, 150, 190, 195, *range(196, 202), 230, 245, *range(248, 255), 300])
def test_whatever_is_written_can_be_read_again_however_deep(levels: int) -> None:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    ended = facts.CallEnded(id="a", result=ToolResult(call_id="a", name="f", status="finished", value=value))
    started = facts.RunStarted(
        content={"role": "user", "parts": [{"text": "Go.", "more": value}]}, output={"default": value}
    )
    for fact in (ended, started):
        try:
            line = codec.encode(fact)
        except JsonError:
            assert levels > 240
        else:
            assert codec.decode(line) == fact


def test_a_known_tool_is_what_its_definition_says() -> None:
    definition = ToolDefinition(name="f", kind="file", idempotent=True)
    assert facts.KnownTool.of(definition, "d") == facts.KnownTool(digest="d", ordered=True, read_only=False, repeatable=True)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\x00", b"", b"[]", b'{"v": 1, "kind": "not a kind"}', b'{"v": 0, "kind": "recovered"}',
        b'{"v": 1, "kind": "call_started"}', b'{"v": 1, "kind": "call_started", "id": ["a"]}',
        b'{"v": 1, "kind": "model_answered", "content": "words", "finish_reason": "STOP"}',
        b'{"v": 1, "kind": "call_checked", "id": "a", "tool": null, "args": {}, "problems": "none"}',
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_decoded_is_kept_as_it_is(line: bytes) -> None:
    fact = codec.decode_line(line)
    assert isinstance(fact, facts.Unreadable)
    assert fact.problem
    assert codec.encode(fact) == codec.encode(facts.dated(fact, 1.0)) == line


def test_a_line_of_a_newer_schema_is_not_taken_for_a_damaged_one() -> None:
    with pytest.raises(codec.NewerSchemaError, match="schema version 2"):
        codec.decode_line(b'{"v": 2, "kind": "recovered"}')
    with pytest.raises(codec.NewerSchemaError, match="kind 'new', which this callgate does not know"):
        codec.decode_line(b'{"v": 1, "kind": "new"}')


@settings(max_examples=200 * SCALE)
@given(st.sampled_from(list(FACTS.values())).flatmap(lambda kind: kind), st.data())
def test_a_line_with_a_damaged_byte_is_a_fact_or_kept(fact: Any, data: st.DataObject) -> None:
    line = bytearray(codec.encode(fact))
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(codec.NewerSchemaError):
        read = codec.decode_line(bytes(line))
        assert not isinstance(read, facts.Unreadable) or codec.encode(read) == line


class _Counted:
    def __init__(self, function: Any) -> None:
        self.function, self.count = function, 0

    def __call__(self, value: Any) -> Any:
        self.count += 1
        return self.function(value)


def test_the_kind_of_a_fact_is_seen_at_the_beginning_of_its_line():
    line = codec.encode(facts.CallStarted(id="a"))
    assert line.startswith(codec.line_start("call_started"))
    assert (codec.kind_of(line[:40]), codec.kind_of(b'{"v": 1, "kind": "rewound"'), codec.kind_of(b"junk")) == (
        "call_started",
        "rewound",
        "",
    )


def test_tokens_of_journals_from_before_the_rename_are_read():
    line = codec.encode(facts.ModelAnswered(content={"role": "model", "parts": []}, finish_reason="STOP", usage=Usage()))
    old = json.loads(line)
    old["usage"] = {"prompt_tokens": 7, "total_tokens": 9}
    assert codec.decode(json.dumps(old).encode()).usage == Usage(input_tokens=7, total_tokens=9)
