"""Our tools as an MCP server, before the SDK's own client, which speaks to it in both of the protocol's eras."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from mcp_types import ElicitResult, ToolListChangedNotification

from callgate import (
    FileTools,
    Gate,
    Limits,
    McpServer,
    Media,
    Policy,
    ScriptedModel,
    ToolContext,
    ToolError,
    ToolNotDeclarableError,
    tool,
)
from callgate.calls import dispatcher as desks
from callgate.mcp import serialization, serve
from callgate.mcp.serve import ToolServer
from callgate.permission import AuditLog, Hook, Rate, RateLimits
from callgate.testing import call
from callgate.types import ToolDefinition
from mcp import Client, MCPError, StdioServerParameters

from .left_tasks import no_task_is_left

ERAS = ("auto", "legacy")
era = pytest.mark.parametrize("mode", ERAS)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a story within a minute, and checks that it leaves no task behind."""

    async def bounded() -> Any:
        async with asyncio.timeout(300):
            value = await work
        await no_task_is_left()
        return value

    return asyncio.run(bounded())


def client(server: ToolServer, mode: str, **more: Any) -> Client:
    return Client(server.sdk, mode=mode, **more)


def texts(result: Any) -> list[str]:
    return [block.text for block in result.content if block.type == "text"]


def answering(*answers: Any) -> tuple[list[str], Callable[..., Awaitable[ElicitResult]]]:
    """Somebody who gives these answers in turn, and what they were asked."""
    asked: list[str] = []
    left = list(answers)

    async def answer(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        said = left.pop(0)
        return said if isinstance(said, ElicitResult) else ElicitResult(action="accept", content={"answer": said})

    return asked, answer


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool(read_only=True, idempotent=True)
def look(place: Literal["here", "there"] = "here") -> dict[str, str]:
    """Looks around."""
    return {"seen": place}


class Writes:
    """A tool that must be asked about."""

    definition = ToolDefinition(
        name="note",
        title="Take a note",
        input_schema={"properties": {"text": {"type": "string"}}, "required": ["text"]},
        kind="mcp",
        server="notes",
    )

    def __init__(self) -> None:
        self.written: list[str] = []

    def problems(self, args: Any) -> tuple[str, ...]:
        return ("'text' must not be empty",) if args["text"] == "" else ()

    async def run(self, args: Any, context: ToolContext) -> str:
        self.written.append(args["text"])
        return f"noted in {context.session}"

    async def preview(self, args: Any) -> str:
        return f"+ {args['text']}"


# Listing -----------------------------------------------------------------------------------------------------------------


@era
def test_tools_are_listed_with_their_own_names_schemas_and_hints(mode: str, tmp_path: Path):
    async def story() -> list[Any]:
        async with client(ToolServer.of([add, look, Writes(), FileTools(tmp_path)]), mode) as it:
            return (await it.list_tools()).tools

    found = {item.name: item.model_dump(by_alias=True, exclude_none=True) for item in run(story())}
    assert [*found][:3] == ["add", "look", "note"]
    assert found["add"] == {
        "name": "add",
        "description": "Adds two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]},
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
    }
    assert found["look"]["annotations"] == {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}
    assert found["look"]["inputSchema"]["properties"]["place"]["enum"] == ["here", "there"]
    assert (found["note"]["title"], found["note"]["inputSchema"]["type"]) == ("Take a note", "object")
    assert found["read_file"]["annotations"]["openWorldHint"] is False


def test_what_the_policy_always_denies_is_not_listed_and_not_run():
    async def story() -> Any:
        async with client(ToolServer.of([add, look], policy=Policy(rules=["deny add"])), "auto") as it:
            return [item.name for item in (await it.list_tools()).tools], await it.call_tool("add", {"a": 1, "b": 2})

    names, refused = run(story())
    assert names == ["look"]
    assert refused.is_error
    assert texts(refused)[0].startswith("This call was not allowed. ")


def test_a_page_that_is_not_there_is_an_error():
    async def story() -> None:
        async with client(ToolServer.of([add]), "auto") as it:
            with pytest.raises(MCPError, match="no such page"):
                await it.list_tools(cursor="2")

    run(story())


def test_two_tools_of_one_name_are_refused_when_the_server_is_made():
    with pytest.raises(ToolNotDeclarableError, match="registered already"):
        ToolServer.of([add, add])


# Calling -----------------------------------------------------------------------------------------------------------------


@era
def test_calls_give_text_and_structured_content_and_bad_ones_give_errors_the_model_can_use(mode: str):
    async def story() -> tuple[Any, ...]:
        async with client(ToolServer.of([add, look, Writes()], policy=Policy(default="allow")), mode) as it:
            return (
                await it.call_tool("add", {"a": "1", "b": 2}),
                await it.call_tool("look"),
                await it.call_tool("add", {"a": 1}),
                await it.call_tool("note", {"text": ""}),
            )

    good, default, bad, refused = run(story())
    assert (texts(good), good.structured_content, good.is_error) == (["3"], {"result": 3}, False)
    assert default.structured_content == {"seen": "here"}
    assert json.loads(texts(default)[0]) == {"seen": "here"}
    assert bad.is_error
    assert "'b'" in texts(bad)[0]
    assert refused.is_error
    assert "must not be empty" in texts(refused)[0]


@era
def test_a_tool_that_is_not_there_is_an_error_of_the_protocol_that_names_the_nearest(mode: str):
    async def story() -> None:
        async with client(ToolServer.of([add, look]), mode) as it:
            with pytest.raises(MCPError, match="add"):
                await it.call_tool("ad")

    run(story())


@era
def test_failures_are_told_without_traceback_and_media_come_as_what_they_are(mode: str):
    @tool
    def fail(how: str) -> str:
        """Fails."""
        raise ToolError("No such thing.") if how == "told" else ValueError("bad /very/secret/path.txt")

    @tool
    def show(kind: str) -> Any:
        """Shows something."""
        medium = Media(data=b"\x00\xff" * 3, mime_type=kind, name="a")
        return medium if kind != "text/csv" else {"table": medium}

    async def story() -> list[Any]:
        async with client(ToolServer.of([fail, show]), mode) as it:
            asked = [("fail", {"how": "told"}), ("fail", {"how": "raised"})]
            asked += [("show", {"kind": kind}) for kind in ("image/png", "audio/wav", "application/pdf", "text/csv")]
            return [await it.call_tool(*item) for item in asked]

    told, raised, image, sound, pdf, table = run(story())
    assert (told.is_error, texts(told)) == (True, ["No such thing."])
    assert texts(raised) == ["ValueError: bad path.txt"]
    assert [block.type for block in image.content] == ["image"]
    assert base64.b64decode(image.content[0].data) == b"\x00\xff" * 3
    assert (sound.content[0].type, sound.content[0].mime_type) == ("audio", "audio/wav")
    assert pdf.content[0].resource.mime_type == "application/pdf"
    assert [block.type for block in table.content] == ["text", "resource"]


def test_content_of_another_server_passes_through_with_its_kind_address_and_order():
    other = McpServer("content", command=[sys.executable, str(Path(__file__).parent / "content_server.py")], start_s=120)
    direct = Client(StdioServerParameters(command=sys.executable, args=[str(Path(__file__).parent / "content_server.py")]))
    calls = [*(("show", {"kind": kind}) for kind in ("text", "blob", "mixed", "texts", "link")), ("measured", {})]

    async def story() -> tuple[list[Any], list[Any]]:
        async with direct as it:
            sent = [await it.call_tool(*call) for call in calls]
        async with client(ToolServer.of([other], policy=Policy(default="allow")), "auto") as it:
            return sent, [await it.call_tool(*call) for call in calls]

    sent, served = run(story())
    for before, after in zip(sent[:-1], served[:-1], strict=True):
        assert (after.is_error, after.content) == (before.is_error, before.content)
    assert served[-1].structured_content == {"height": 7}
    assert "about seven" in texts(served[-1])


def test_a_model_learns_the_address_of_an_embedded_text():
    other = McpServer("content", command=[sys.executable, str(Path(__file__).parent / "content_server.py")], start_s=120)
    gate = Gate(ScriptedModel([call("show", kind="text"), "Done."]), [other], policy=Policy(default="allow"))
    (made,) = run(gate.run("Go.")).calls
    assert made.result.value == {
        "type": "resource",
        "resource": {"uri": "test://words", "mimeType": "text/markdown", "text": "# Words"},
    }


def test_a_result_that_is_not_what_the_tool_says_is_an_error_that_shows_it():
    @tool
    def lie() -> int:
        """Says that it gives a number."""
        return "many"  # type: ignore[return-value]

    async def story() -> Any:
        async with client(ToolServer.of([lie]), "auto") as it:
            await it.list_tools()
            return await it.call_tool("lie")

    result = run(story())
    assert (result.is_error, result.structured_content) == (True, None)
    assert texts(result) == ["The call was made, but its result is not what the tool says that it returns.", "many"]


def test_a_long_result_is_cut_in_the_middle_and_never_breaks_the_promise_of_a_schema(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serialization, "TEXT_CHARS_MAX", 100)

    @tool
    def long() -> Any:
        """Says much."""
        return "a" * 150 + "b" * 150

    @tool
    def many() -> list[int]:
        """Counts."""
        return list(range(100))

    @tool
    def told() -> str:
        """Says much, and says that it is text."""
        return "a" * 150 + "b" * 150

    async def story() -> tuple[Any, Any, Any]:
        async with client(ToolServer.of([long, many, told]), "auto") as it:
            await it.list_tools()
            return await it.call_tool("long"), await it.call_tool("many"), await it.call_tool("told")

    text, numbers, declared = run(story())
    shown = "a" * 50 + "\n[... 200 characters left out; ask for a smaller part ...]\n" + "b" * 50
    assert texts(text) == texts(declared) == [shown]
    assert (declared.is_error, declared.structured_content) == (False, {"result": shown})
    assert numbers.is_error
    assert "more than 100" in texts(numbers)[0]


def test_integers_of_any_size_go_through_where_the_return_type_says_integers():
    class Row(TypedDict):
        id: int
        parents: list[int | None]

    @tool
    def number() -> int:
        """Gives an id."""
        return 2**60 + 1

    @tool
    def row() -> Row:
        """Gives ids."""
        return {"id": -(10**30), "parents": [None, 2**63, 7]}

    @tool
    def word() -> str:
        """Gives digits that are text."""
        return str(2**60)

    async def story() -> list[Any]:
        async with client(ToolServer.of([number, row, word]), "auto") as it:
            await it.list_tools()
            return [await it.call_tool(name) for name in ("number", "row", "word")]

    one, many, text = run(story())
    assert (one.is_error, one.structured_content, texts(one)) == (False, {"result": 2**60 + 1}, [str(2**60 + 1)])
    assert many.structured_content == {"id": -(10**30), "parents": [None, 2**63, 7]}
    assert [json.loads(said) for said in texts(many)] == [many.structured_content]
    assert text.structured_content == {"result": str(2**60)}


def test_an_output_schema_with_references_is_wrapped_with_them_and_one_that_refers_to_itself_is_left_out():
    item = {"$ref": "#/$defs/item"}
    fits = ToolDefinition(name="a", output_schema={"type": "array", "items": item, "$defs": {"item": {"type": "integer"}}})
    told = serialization.listed(fits)
    assert told.tool["outputSchema"] == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": item}},
        "required": ["result"],
        "$defs": {"item": {"type": "integer"}},
    }
    assert told.output is not None
    assert told.output.root.is_valid({"result": [1]})
    assert not told.output.root.is_valid({"result": ["x"]})
    recursive = ToolDefinition(name="b", output_schema={"type": "array", "items": {"$ref": "#"}})
    broken = ToolDefinition(name="c", output_schema={"type": "object", "properties": 5})
    assert [serialization.listed(one).tool.get("outputSchema") for one in (recursive, broken)] == [None, None]


# Progress and cancellation -----------------------------------------------------------------------------------------------


@era
def test_progress_reaches_the_client_in_order_and_only_grows(mode: str):
    @tool
    def work(context: ToolContext) -> str:
        """Works."""
        for message, fraction in [("begin", None), ("on", None), ("half", 0.5), ("still", 0.5), ("back", 0.1), ("?", 7)]:
            context.progress(message, fraction)
        return "done"

    seen: list[tuple[float, float | None, str | None]] = []

    async def story() -> None:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen.append((progress, total, message))

        async with client(ToolServer.of([work]), mode) as it:
            assert texts(await it.call_tool("work", progress_callback=note)) == ["done"]

    run(story())
    assert [message for _, _, message in seen] == ["begin", "on", "half", "still", "back", "?"]
    assert [(progress, total) for progress, total, _ in seen[:3]] == [(1, None), (2, None), (0.5, 1)]
    parts = [progress for progress, _, _ in seen[2:]]
    assert parts == sorted(set(parts))


def test_a_flood_of_progress_costs_reports_and_not_the_call():
    @tool
    def flood(context: ToolContext) -> str:
        """Reports a lot."""
        for number in range(5_000):
            context.progress(f"{number}")
        return "done"

    async def story() -> str:
        async def slowly(*_: Any) -> None:
            await asyncio.sleep(0.001)  # clock: a slow reader

        async with client(ToolServer.of([flood]), "legacy") as it:
            return texts(await it.call_tool("flood", progress_callback=slowly))[0]

    assert run(story()) == "done"


@era
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_cancelled_call_reaches_the_tool_and_is_written_down(mode: str, kind: str, tmp_path: Path):
    begun, ended = threading.Event(), threading.Event()

    @tool(name="wait")
    async def wait_async() -> None:
        """Waits."""
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    @tool(name="wait")
    def wait_sync(context: ToolContext) -> None:
        """Waits."""
        begun.set()
        while not context.is_cancelled():
            ended.wait(0.01)
        ended.set()

    log = tmp_path / "audit.jsonl"

    async def story() -> str:
        server = ToolServer.of([wait_async if kind == "async" else wait_sync, add], audit=AuditLog(log))
        async with client(server, mode) as it:
            call = asyncio.create_task(it.call_tool("wait"))
            await asyncio.to_thread(begun.wait)
            call.cancel()
            await asyncio.wait({call})
            await asyncio.to_thread(ended.wait)
            return texts(await it.call_tool("add", {"a": 1, "b": 1}))[0]

    assert run(story()) == "2"
    ends = [record for record in map(json.loads, log.read_text().splitlines()) if record["kind"] == "end"]
    assert [(record["tool"], record["outcome"]) for record in ends if record["tool"] == "wait"] == [("wait", "cancelled")]


def test_a_call_past_its_deadline_is_an_error_and_a_server_that_closes_stops_what_runs():
    stopped: list[str] = []

    @tool(timeout_s=0.05)
    async def late() -> None:
        """Is late."""
        await asyncio.sleep(60)

    begun = asyncio.Event()

    @tool
    async def endless() -> None:
        """Does not end."""
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append("endless")
            raise

    async def story() -> Any:
        async with client(ToolServer.of([late, endless]), "legacy") as it:
            result = await it.call_tool("late")
            call = asyncio.create_task(it.call_tool("endless"))
            await begun.wait()
        await asyncio.wait({call})
        return result

    result = run(story())
    assert result.is_error
    assert "did not finish within 0.05 s" in texts(result)[0]
    assert stopped == ["endless"]


# Permission --------------------------------------------------------------------------------------------------------------


@era
def test_what_must_be_asked_about_is_asked_of_the_clients_user(mode: str):
    asked, answer = answering("yes", "no", ElicitResult(action="decline"), ElicitResult(action="accept", content={}))
    notes = Writes()

    async def story() -> list[Any]:
        async with client(ToolServer.of([notes]), mode, elicitation_callback=answer) as it:
            return [await it.call_tool("note", {"text": text}) for text in ("a", "b", "c", "d")]

    results = run(story())
    assert [result.is_error for result in results] == [False, True, True, True]
    assert texts(results[1]) == ["The user did not allow this call."]
    assert notes.written == ["a"]
    assert asked[0].split("\n\n") == [
        'May note (of notes) be called with {"text": "a"}?',
        "'note' may change something: the server 'notes' is not trusted, or does not say that the tool is read-only.",
        "+ a",
    ]


@era
def test_a_call_that_must_be_confirmed_runs_only_when_the_clients_user_types_the_text(mode: str):
    def said(typed: str | None) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": "yes"} | ({} if typed is None else {"confirm": typed}))

    asked, answer = answering(said(None), said("b"), said("c"))
    notes = Writes()
    policy = Policy(rules=[{"verdict": "ask", "tool": "note", "confirm": "text"}])

    async def story() -> list[Any]:
        async with client(ToolServer.of([notes], policy=policy), mode, elicitation_callback=answer) as it:
            return [await it.call_tool("note", {"text": text}) for text in ("a", "b", "d")]

    with pytest.warns(RuntimeWarning, match="is not confirmed"):
        results = run(story())
    assert [result.is_error for result in results] == [True, False, True]
    assert notes.written == ["b"]
    assert "To confirm, type 'a'." in asked[0]


@era
def test_always_covers_later_calls_of_the_same_client(mode: str):
    asked, answer = answering("always")
    notes = Writes()

    async def story() -> None:
        async with client(ToolServer.of([notes]), mode, elicitation_callback=answer) as it:
            for text in "abc":
                assert not (await it.call_tool("note", {"text": text})).is_error

    run(story())
    assert (len(asked), notes.written) == (1, ["a", "b", "c"])


@era
@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (Policy(), "--approval-mode auto_edit or yolo"),
        (Policy(mode="plan"), "Plan mode is on"),
        (Policy(mode="yolo", rules=["deny note"]), "This call was not allowed"),
    ],
)
def test_a_client_that_cannot_be_asked_is_refused_with_a_sentence_that_names_the_flag(
    mode: str, policy: Policy, sentence: str
):
    notes = Writes()

    async def story() -> Any:
        async with client(ToolServer.of([notes], policy=policy), mode) as it:
            return await it.call_tool("note", {"text": "a"})

    result = run(story())
    assert result.is_error
    assert sentence in texts(result)[0]
    assert notes.written == []


def test_a_sensitive_file_is_refused_even_in_yolo_where_nobody_can_be_asked(tmp_path: Path):
    async def story() -> tuple[Any, Any]:
        server = ToolServer.of([FileTools(tmp_path)], policy=Policy(mode="yolo"))
        async with client(server, "auto") as it:
            plain = await it.call_tool("write_file", {"path": "a.txt", "content": "x"})
            return plain, await it.call_tool("write_file", {"path": ".env", "content": "x"})

    plain, sensitive = run(story())
    assert not plain.is_error
    assert "no --approval-mode allows it" in texts(sensitive)[0]
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_mark_is_good_for_one_call_and_for_no_other_call():
    """A newer client answers in a request of its own, and could send an answer again, or with other arguments."""
    notes = Writes()

    async def story() -> list[Any]:
        _, answer = answering()
        async with client(ToolServer.of([notes]), "auto", elicitation_callback=answer) as it:

            async def call(text: str, state: str | None = None) -> Any:
                yes = {"permission": ElicitResult(action="accept", content={"answer": "yes"})}
                more: dict[str, Any] = {"input_responses": yes} if state else {}
                return await it.session.call_tool(
                    "note", {"text": text}, request_state=state, allow_input_required=True, **more
                )

            first = await call("a")
            other = await call("b", first.request_state)
            spent = await call("a", first.request_state)
            second = await call("a")
            good = await call("a", second.request_state)
            return [first, other, spent, good, await call("a", second.request_state), await call("a", "made up")]

    first, other, spent, good, again, made_up = run(story())
    kinds = [item.result_type for item in (first, other, spent, good, again, made_up)]
    assert kinds == ["input_required", "input_required", "input_required", "complete", "input_required", "input_required"]
    assert notes.written == ["a"]


def test_what_hides_in_arguments_is_spelled_out_in_the_question():
    asked, answer = answering("no")

    async def story() -> None:
        async with client(ToolServer.of([Writes()]), "legacy", elicitation_callback=answer) as it:
            await it.call_tool("note", {"text": "a\u202eb\x1b[2J" + "x" * 10_000})

    run(story())
    assert "\\u202e" in asked[0]
    assert "\u202e" not in asked[0]
    assert "\x1b" not in asked[0]
    assert "more characters]" in asked[0]


def test_a_client_that_fails_to_ask_has_not_said_yes():
    notes = Writes()

    async def broken(context: Any, params: Any) -> ElicitResult:
        raise RuntimeError("no screen")

    async def story() -> Any:
        async with client(ToolServer.of([notes]), "legacy", elicitation_callback=broken) as it:
            return await it.call_tool("note", {"text": "a"})

    result = run(story())
    assert result.is_error
    assert notes.written == []


def test_a_question_that_nobody_answers_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(desks, "ASK_S", 0.05)
    notes = Writes()

    async def silent(context: Any, params: Any) -> ElicitResult:
        await asyncio.sleep(60)
        raise AssertionError

    async def story() -> Any:
        async with client(ToolServer.of([notes]), "legacy", elicitation_callback=silent) as it:
            return await it.call_tool("note", {"text": "a"})

    assert "Nobody answered within 0.05 s." in texts(run(story()))[0]


def test_hooks_rates_and_the_audit_log_are_those_of_a_gate(tmp_path: Path):
    block = tmp_path / "hook.py"
    block.write_text(
        "import json, sys\n"
        "call = json.load(sys.stdin)\n"
        "if 'stop' in json.dumps(call): print('blocked by the hook', file=sys.stderr); sys.exit(2)\n"
        "if 'other' in json.dumps(call): print(json.dumps({'args': {'text': 'rewritten'}}))\n"
    )
    hook = Hook(when="before", command=(sys.executable, "-I", str(block)), may_rewrite=True)
    after = Hook(when="after", command=(sys.executable, "-I", "-c", "import sys; sys.exit(3)"))
    notes, log = Writes(), tmp_path / "audit.jsonl"

    async def story() -> list[Any]:
        server = ToolServer.of(
            [notes],
            policy=Policy(default="allow", hooks=(hook, after)),
            rates=RateLimits(tools={"note": Rate(per_s=0.0001, burst=2)}, when_used_up="refuse"),
            audit=str(log),
        )
        async with client(server, "auto") as it:
            return [await it.call_tool("note", {"text": text}) for text in ("a", "stop", "other", "late")]

    fine, blocked, rewritten, late = run(story())
    assert (fine.is_error, rewritten.is_error) == (False, False)
    assert notes.written == ["a", "rewritten"]
    assert "blocked by the hook" in texts(blocked)[0]
    assert late.is_error
    records = [json.loads(line) for line in log.read_text().splitlines()]
    ends = [record["outcome"] for record in records if record["kind"] == "end"]
    assert ends == ["finished", "denied", "finished", "denied"]
    assert len({record["session"] for record in records if "session" in record}) == 1


def test_calls_that_keep_their_order_run_one_after_another_and_others_at_once():
    running: list[int] = []
    most: dict[str, int] = {}
    expected = {"one": 1, "many": 3}

    async def busy(name: str) -> None:
        """Ends once as many run as may, and after a moment in which too many could."""
        running.append(1)
        most[name] = max(most.get(name, 0), len(running))
        while most[name] < expected[name]:  # noqa: ASYNC110 - as many begin at once as may
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        running.pop()

    @tool(sequential=True)
    async def one() -> None:
        """One at a time."""
        await busy("one")

    @tool
    async def many() -> None:
        """Many at once."""
        await busy("many")

    async def story() -> None:
        async with client(ToolServer.of([one, many], limits=Limits(parallel=3)), "legacy") as it:
            for name in ("one", "many"):
                await asyncio.gather(*(it.call_tool(name) for _ in range(8)))

    run(story())
    assert most == expected


def test_too_many_calls_at_once_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(desks, "CALLS_MAX", 2)

    @tool
    async def pause() -> str:
        """Pauses."""
        await over.wait()
        return "ok"

    over = asyncio.Event()

    async def story() -> list[str]:
        async with client(ToolServer.of([pause]), "legacy") as it:
            calls = [asyncio.create_task(it.call_tool("pause")) for _ in range(3)]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            over.set()
            return sorted([texts(await call)[0] for call in calls])

    assert run(story())[0].startswith("Not run: 2 calls are under way already")


# Tools that come and go --------------------------------------------------------------------------------------------------


class Box:
    """A toolset whose tools change."""

    name = "box"

    def __init__(self) -> None:
        self.version = 0
        self.names = ["a"]
        self.output: dict[str, Any] | None = None
        self.owners: set[object] = set()

    def runnables(self) -> list[Any]:
        return [_Named(name, self.output) for name in self.names]

    async def start(self, owner: object) -> None:
        self.owners.add(owner)

    async def aclose(self, owner: object) -> None:
        self.owners.discard(owner)

    def complaints(self) -> list[str]:
        return ["The box creaks."]

    def change(self, *names: str) -> None:
        self.names, self.version = list(names), self.version + 1


class _Named(Writes):
    def __init__(self, name: str, output: dict[str, Any] | None) -> None:
        super().__init__()
        self.definition = ToolDefinition(name=name, read_only=True, kind="mcp", server="box", output_schema=output)

    def problems(self, args: Any) -> tuple[str, ...]:
        return ()

    async def run(self, args: Any, context: ToolContext) -> str:
        return self.definition.name


@era
def test_clients_are_told_when_tools_change_and_the_tools_are_closed_at_the_end(mode: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serve, "LOOK_S", 0.01)
    box = Box()

    async def story() -> list[list[str]]:
        told = asyncio.Event()

        async def hear(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                told.set()

        async with client(ToolServer.of([box]), mode, message_handler=hear) as it:
            names = [[item.name for item in (await it.list_tools(cache_mode="bypass")).tools]]
            if mode == "auto":
                async with it.listen(tools_list_changed=True) as events:
                    box.change("a", "b")
                    async for _ in events:
                        break
            else:
                box.change("a", "b")
                await told.wait()
            names.append([item.name for item in (await it.list_tools(cache_mode="bypass")).tools])
            assert texts(await it.call_tool("b")) == ["b"]
            return names

    assert run(story()) == [["a"], ["a", "b"]]
    assert box.owners == set()


def test_a_tool_that_comes_to_return_something_else_is_told_of_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serve, "LOOK_S", 0.01)
    box = Box()
    box.output = {"type": "object"}

    async def story() -> list[Any]:
        async with client(ToolServer.of([box]), "auto") as it:
            first = (await it.list_tools(cache_mode="bypass")).tools[0].output_schema
            async with it.listen(tools_list_changed=True) as events:
                box.output = {"type": "object", "required": ["x"]}
                box.change("a")
                async for _ in events:
                    break
            return [first, (await it.list_tools(cache_mode="bypass")).tools[0].output_schema]

    assert run(story()) == [{"type": "object"}, {"type": "object", "required": ["x"]}]


def test_a_server_that_is_entered_twice_lives_until_it_is_left_twice():
    box = Box()

    async def story() -> tuple[int, ...]:
        server = ToolServer.of([box])
        async with server.running():
            async with server.running():
                first = len(box.owners)
            return first, len(box.owners)

    assert run(story()) == (2, 1)
    assert box.owners == set()
