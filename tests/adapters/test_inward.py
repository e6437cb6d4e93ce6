"""Tools of other frameworks behind a gate, with the real packages: checked, allowed or refused, run, and answered once."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from agents import FunctionTool, RunContextWrapper, ToolOutputFileContent, ToolOutputImage, ToolOutputText, function_tool
from google.genai import types
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, ToolException
from langchain_core.tools import Tool as SingleInputTool
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel, Field, field_validator
from pydantic_ai import ApprovalRequired, BinaryContent, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.toolsets import FunctionToolset

from callgate import (
    Executor,
    FunctionCall,
    Gate,
    Policy,
    ScriptedModel,
    ToolNotDeclarableError,
    definition_from,
    definitions_from,
)
from callgate.adapters import from_google_genai, from_langchain, from_openai_agents, from_pydantic_ai
from callgate.cli.tools import ToolLoadError, load_tools
from callgate.errors import UsageError
from callgate.events import Notice
from callgate.permission import Rule
from callgate.testing import call, call_with, text
from callgate.types import CallRecord


def outcomes(records: Iterable[CallRecord]) -> list[tuple[str, Any]]:
    return [(record.state, record.result.error or record.result.value) for record in records if record.result]


def asked(tools: Iterable[object], *calls: Any, **options: Any) -> list[tuple[str, Any]]:
    """What comes of calls that a model makes in one turn."""
    with Gate(ScriptedModel([list(calls), text("Done.")]), tools=tools, **options) as gate:
        return outcomes(gate.run_sync("Go.").calls)


# The tools ---------------------------------------------------------------------------------------------------------------


@langchain_tool
def lc_add(a: int, b: int = 2) -> dict[str, int]:
    """Adds."""
    return {"sum": a + b}


@langchain_tool
async def lc_later(word: Literal["up", "down"]) -> str:
    """Says a word."""
    return word.upper()


class Even(BaseModel):
    number: int = Field(description="An even one.")

    @field_validator("number")
    @classmethod
    def is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("odd")
        return number


def half(number: int) -> int:
    if number == 0:
        raise ToolException("There is no half of nothing.")
    return number // 2


LC_HALF = StructuredTool.from_function(half, name="half", description="Halves.", args_schema=Even, handle_tool_error=True)


@langchain_tool
def lc_who(name: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Knows its call."""
    return f"{name} {bool(call_id)}"


@function_tool
def oa_mul(a: int, b: int = 3) -> int:
    """Multiplies."""
    return a * b


@function_tool
async def oa_who(context: RunContextWrapper[str], suffix: str) -> str:
    """Greets the owner of the context."""
    return context.context + suffix


@function_tool
def oa_broken() -> str:
    """Breaks."""
    raise RuntimeError("no luck")


@function_tool(failure_error_function=lambda context, error: f"sorry: {error}")
def oa_polite() -> str:
    """Breaks politely."""
    raise RuntimeError("no luck")


TOOLSET: FunctionToolset[str] = FunctionToolset(id="shelf")


@TOOLSET.tool_plain
def pa_stock(item: Literal["tea", "salt"], at_least: Annotated[int, Field(ge=0)] = 0) -> dict[str, int]:
    """Counts.

    Args:
        item: What.
        at_least: How many there are in any case.
    """
    return {item: max(12, at_least)}


@TOOLSET.tool
def pa_owner(ctx: RunContext[str]) -> ToolReturn:
    """Tells the deps."""
    if ctx.deps == "nobody":
        raise ModelRetry("Ask again with an owner.")
    return ToolReturn(return_value=f"{ctx.deps} by {ctx.tool_name} {bool(ctx.tool_call_id)}", metadata={"hidden": 1})


@TOOLSET.tool_plain
def pa_picture() -> BinaryContent:
    """Shows a picture."""
    return BinaryContent(b"\x89PNG", media_type="image/png")


@TOOLSET.tool_plain(requires_approval=True)
def pa_clear() -> str:
    """Clears everything."""
    return "cleared"


@TOOLSET.tool_plain
def pa_hesitant() -> str:
    """Wants approval only when it is called."""
    raise ApprovalRequired


# Definitions -------------------------------------------------------------------------------------------------------------


def test_definition_from_reads_the_objects_of_frameworks():
    found = [definition_from(item) for item in (lc_add, oa_mul, Tool(half))]
    assert [definition.name for definition in found] == ["lc_add", "oa_mul", "half"]
    assert found[0].description == "Adds."
    assert found[0].input_schema["properties"]["b"]["default"] == 2
    assert found[0].input_schema["required"] == ["a"]
    assert definitions_from([lc_add, half])[1].name == "half"


def test_a_class_of_another_package_with_such_a_name_is_no_tool_of_the_framework():
    imposter = type("FunctionTool", (), {"__module__": "agents.mine", "name": "x"})
    with pytest.raises(ToolNotDeclarableError, match="is not a tool"):
        Executor([imposter()])


# LangChain ---------------------------------------------------------------------------------------------------------------


def test_langchain_tools_are_called_through_the_gate_as_they_are():
    got = asked([lc_add, lc_later], call("lc_add", a="1"), call("lc_later", word="up"), call("lc_add", a="many"))
    assert got[:2] == [("finished", {"sum": 3}), ("finished", "UP")]
    state, error = got[2]
    assert state == "failed"
    assert "a: 'many' is a string" in error


def test_a_policy_decides_about_langchain_tools():
    got = asked([lc_add], call("lc_add", a=1), policy=Policy(rules=["ask lc_add"]))
    assert got[0][0] == "denied"


def test_an_error_of_a_langchain_tool_stays_an_error_and_validators_speak_before_it_runs():
    got = asked(from_langchain(LC_HALF), call("half", number=8), call("half", number=0), call("half", number=3))
    assert got[:2] == [("finished", 4), ("failed", "There is no half of nothing.")]
    assert "number: Value error, odd" in got[2][1]


@pytest.mark.parametrize(
    ("handler", "sentence"), [("Later, please.", "Later, please."), (lambda e: f"<{e}>", "<no>"), (False, "no")]
)
def test_the_sentence_of_a_langchain_error_is_the_one_that_its_handler_makes(handler: Any, sentence: str):
    def fails() -> None:
        raise ToolException("no")

    tool = StructuredTool.from_function(fails, description="Fails.", handle_tool_error=handler)
    assert asked([tool], call("fails")) == [("failed", sentence)]


def test_injected_arguments_are_hidden_from_the_model_and_filled_in():
    assert set(definition_from(lc_who).input_schema["properties"]) == {"name"}
    assert asked([lc_who], call("lc_who", name="Ada")) == [("finished", "Ada True")]


PIXEL = "iVBORw0KGgo="


def test_blocks_of_langchain_and_pictures_of_the_agents_sdk_are_media():
    @langchain_tool
    def shot(broken: bool = False) -> list[Any]:
        """Takes a picture."""
        data = "no base64!" if broken else PIXEL
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
        return [{"type": "text", "text": "Here."}, {"type": "image", "base64": data, "mime_type": "image/png"}, url]

    @function_tool
    def oa_shot() -> list[Any]:
        """Takes a picture."""
        picture = ToolOutputImage(image_url=f"data:image/png;base64,{PIXEL}")
        return [ToolOutputText(text="Here."), picture, ToolOutputImage(image_url="https://example.org/a.png")]

    script = [[call("shot"), call("shot", broken=True), call("oa_shot")], text("Done.")]
    with Gate(ScriptedModel(script), tools=[shot, oa_shot]) as gate:
        results = [record.result for record in gate.run_sync("Go.").calls]
    assert [len(result.media) for result in results if result] == [2, 0, 1]
    assert results[0] is not None
    assert results[0].value[0] == "Here."


def test_from_langchain_refuses_what_is_none():
    with pytest.raises(ToolNotDeclarableError, match="not a tool of that framework"):
        from_langchain(half)


# OpenAI Agents -----------------------------------------------------------------------------------------------------------


def test_function_tools_of_the_agents_sdk_are_called_through_the_gate():
    tools = [oa_mul, *from_openai_agents(oa_who, context="Ada")]
    got = asked(tools, call("oa_mul", a=2, b=4), call("oa_who", suffix="!"), call("oa_mul", a=2))
    assert got[:2] == [("finished", 8), ("finished", "Ada!")]
    assert got[2][0] == "failed"  # A strict schema requires every argument.


def test_a_failing_function_tool_is_an_error_and_not_a_text():
    assert asked([oa_broken, oa_polite], call("oa_broken"), call("oa_polite")) == [
        ("failed", "RuntimeError: no luck"),
        ("failed", "sorry: no luck"),
    ]


def test_what_only_a_runner_can_do_is_refused_with_what_to_do():
    @function_tool(needs_approval=True)
    def risky() -> str:
        """Is risky."""
        return "done"

    @function_tool(is_enabled=False)
    def off() -> str:
        """Is off."""
        return "on"

    with pytest.raises(ToolNotDeclarableError, match=r"approved=True.*'ask risky'"):
        Executor([risky])
    with pytest.raises(ToolNotDeclarableError, match="is_enabled"):
        Executor([off])
    assert asked(from_openai_agents(risky, approved=True), call("risky")) == [("finished", "done")]


# pydantic-ai -------------------------------------------------------------------------------------------------------------


def test_a_toolset_of_pydantic_ai_is_called_through_the_gate():
    got = asked(
        from_pydantic_ai(TOOLSET, deps="Ada"),
        call("pa_stock", item="tea", at_least=20),
        call("pa_owner"),
        call("pa_stock", item="gold"),
        call("pa_stock", item="tea", at_least=-1),
        call("pa_hesitant"),
    )
    assert got[:2] == [("finished", {"tea": 20}), ("finished", "Ada by pa_owner True")]
    assert [state for state, _ in got[2:]] == ["failed"] * 3
    assert "only an agent of pydantic-ai" in got[4][1]


def test_a_retry_of_pydantic_ai_is_a_sentence_for_the_model_and_a_picture_is_media():
    with Gate(
        ScriptedModel([[call("pa_owner"), call("pa_picture")], text("Done.")]), from_pydantic_ai(TOOLSET, deps="nobody")
    ) as gate:
        owner, picture = gate.run_sync("Go.").calls
    assert outcomes([owner]) == [("failed", "Ask again with an owner.")]
    assert picture.result is not None
    assert len(picture.result.media) == 1


def test_a_tool_that_requires_approval_is_left_out_unless_the_policy_decides():
    async def story(approved: bool) -> tuple[list[str], list[tuple[str, Any]]]:
        gate = Gate(
            ScriptedModel([call("pa_clear"), text("Done.")]),
            from_pydantic_ai(TOOLSET, approved=approved),
            policy=Policy(rules=["ask pa_clear"]),
            approve=yes,
        )
        notices: list[str] = []
        async for event in gate.stream("Go."):
            notices += [event.message] if isinstance(event, Notice) else []
        return notices, outcomes(event.reply.calls)

    async def yes(*_: object) -> str:
        return "yes"

    notices, got = asyncio.run(story(False))
    assert any("'pa_clear' requires approval, so it is left out" in notice for notice in notices)
    assert got[0][0] == "failed"
    assert asyncio.run(story(True))[1] == [("finished", "cleared")]


def test_a_single_tool_of_pydantic_ai_is_a_tool():
    assert asked([Tool(half)], call("half", number=8)) == [("finished", 4)]


def test_a_toolset_that_cannot_be_entered_costs_its_own_tools_only():
    class Broken(FunctionToolset[None]):
        async def __aenter__(self) -> Any:
            raise OSError("no such shelf")

    gate = Gate(ScriptedModel([call("lc_add", a=1), text("Done.")]), tools=[Broken(id="far"), lc_add])

    async def story() -> tuple[list[str], list[tuple[str, Any]]]:
        events = [event async for event in gate.stream("Go.")]
        return [event.message for event in events if isinstance(event, Notice)], outcomes(events[-1].reply.calls)

    notices, got = asyncio.run(story())
    assert notices == ["The toolset 'far' cannot be used: OSError: no such shelf"]
    assert got == [("finished", {"sum": 3})]


def test_two_runs_at_once_share_a_toolset_and_both_see_its_tools():
    class Slow(FunctionToolset[None]):
        async def __aenter__(self) -> Any:
            for _ in range(50):
                await asyncio.sleep(0)
            return self

    shelf: Slow = Slow()
    shelf.add_function(half)

    async def story() -> list[list[tuple[str, Any]]]:
        def model() -> ScriptedModel:
            return ScriptedModel([call("half", number=8), text("Done.")])

        gate = Gate(model(), tools=[shelf])
        replies = await asyncio.gather(gate.with_options(model()).run("Go."), gate.with_options(model()).run("Go."))
        return [outcomes(reply.calls) for reply in replies]

    assert asyncio.run(story()) == [[("finished", 4)], [("finished", 4)]]


# google-genai ------------------------------------------------------------------------------------------------------------


def weather(city: str, days: int = 1) -> str:
    """Not what the model is told."""
    return f"{city}: {days} x sun"


DECLARED = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="weather",
            description="Tells the weather.",
            parameters=types.Schema(
                type=types.Type.OBJECT,
                properties={
                    "city": types.Schema(type=types.Type.STRING, enum=["Oslo", "Rome"]),
                    "days": types.Schema(type=types.Type.INTEGER),
                },
                required=["city"],
            ),
        )
    ],
    google_search=types.GoogleSearch(),
)


def test_a_tool_of_google_genai_is_called_through_the_gate_and_its_declaration_is_what_is_checked():
    tools = from_google_genai(DECLARED, half, functions=[weather])
    assert tools[1:] == [{"googleSearch": {}}, half]
    got = asked(tools, call("weather", city="Oslo", days="2"), call("weather", city="Paris"), call("half", number=4))
    assert (got[0], got[2]) == (("finished", "Oslo: 2 x sun"), ("finished", 2))
    assert got[1][0] == "failed"
    assert definition_from(DECLARED).description == "Tells the weather."


@pytest.mark.parametrize(
    ("given", "functions", "sentence"),
    [(DECLARED, [], "nothing runs the declared function 'weather'"), (half, [weather], "no declaration is there")],
)
def test_declarations_and_functions_must_fit(given: Any, functions: list[Callable[..., Any]], sentence: str):
    with pytest.raises(ToolNotDeclarableError, match=sentence):
        from_google_genai(given, functions=functions)


def test_a_bare_tool_of_google_genai_says_where_its_functions_go():
    with pytest.raises(ToolNotDeclarableError, match=r"from_google_genai\(tool, functions="):
        Gate(ScriptedModel([text("x")]), tools=[DECLARED])


def test_the_command_line_loads_tools_of_frameworks_from_a_file(tmp_path: Path):
    file = tmp_path / "their_tools.py"
    file.write_text(
        "from agents import function_tool\nfrom langchain_core.tools import tool\n\n"
        "@tool\ndef lc(a: int) -> int:\n    'Adds one.'\n    return a + 1\n\n"
        "@function_tool(needs_approval=True)\ndef oa(a: int) -> int:\n    'Adds two.'\n    return a + 2\n"
    )
    assert [definition_from(item).name for item in load_tools([f"{file}:lc"])] == ["lc"]
    with pytest.raises(ToolLoadError, match=r"'oa' has needs_approval"):
        load_tools([str(file)])


def test_an_executor_takes_tools_of_several_frameworks():
    async def story() -> list[Any]:
        executor = Executor([lc_add, oa_mul, weather])
        calls = [FunctionCall(name=n, args=a) for n, a in (("lc_add", {"a": 1}), ("oa_mul", {"a": 2, "b": 2}))]
        return [result.value for result in await executor.execute_all(calls)]

    assert asyncio.run(story()) == [{"sum": 3}, 4]


def test_a_model_cannot_give_what_langchain_injects():
    @langchain_tool
    def look(x: int, secret: Annotated[str, InjectedToolArg] = "own") -> str:
        """Looks."""
        return f"{x} {secret}"

    assert asked([look], call("look", x=1), call("look", x=1, secret="mine")) == [
        ("finished", "1 own"),
        ("failed", "The arguments of 'look' are not valid: secret: is not for a model to say. Correct them and call again."),
    ]


def test_what_langchain_would_inject_is_given_in_code_or_the_tool_is_refused_in_a_sentence():
    @langchain_tool
    def greet(text: str, user: Annotated[str, InjectedToolArg]) -> str:
        """Greets."""
        return f"{text} {user}"

    class Look(BaseTool):
        name: str = "look"
        description: str = "Looks."

        def _run(self, text: str, user: Annotated[str, InjectedToolArg]) -> str:
            return f"{text} {user}"

    for tool in (greet, Look()):
        with pytest.raises(ToolNotDeclarableError, match=r"injected=\{'user': \.\.\.\}"):
            Gate(ScriptedModel(["x"]), tools=[tool])
        given = from_langchain(tool, injected={"user": "Ada"})
        refused = f"The arguments of {tool.name!r} are not valid: user: is not for a model to say."
        assert asked(given, call(tool.name, text="Hi"), call(tool.name, text="Hi", user="Eve")) == [
            ("finished", "Hi Ada"),
            ("failed", f"{refused} Correct them and call again."),
        ]


def test_rows_that_look_like_blocks_of_a_message_stay_whole():
    rows = [{"type": "text", "text": "a", "price": 3}, {"type": "text", "text": "b", "price": 4}]

    @langchain_tool
    def list_rows() -> list[Any]:
        """Lists them."""
        return rows

    assert asked([list_rows], call("list_rows")) == [("finished", rows)]


def test_what_a_tool_of_pydantic_ai_shows_besides_its_value_is_not_lost():
    def shown() -> ToolReturn:
        """Shows."""
        return ToolReturn(return_value="value", content=["Look:", BinaryContent(data=b"1", media_type="image/png")])

    with Gate(ScriptedModel([call("shown"), text("Done.")]), [Tool(shown)]) as gate:
        result = gate.run_sync("Go.").calls[0].result
    assert result is not None
    assert (result.value[:2], len(result.media)) == (["value", "Look:"], 1)


def test_arguments_that_look_like_a_whole_call_of_langchain_are_arguments_all_the_same():
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

    def read(**args: Any) -> str:
        return args["path"]

    reader = StructuredTool(name="read", description="Reads.", args_schema=schema, func=read)
    policy = Policy(rules=[Rule(verdict="allow", tool="read", args={"path": "public"})], default="deny")
    hidden = {"type": "tool_call", "id": "1", "name": "read", "args": {"path": "secret"}}
    assert asked([reader], call_with("read", {"path": "public", **hidden}), policy=policy) == [("finished", "public")]


def test_a_langchain_tool_of_one_text_is_called_with_the_argument_that_it_names():
    async def shout(words: str) -> str:
        return words.upper()

    tools = [
        SingleInputTool(name="upper", description="Shouts.", func=str.upper),
        SingleInputTool(name="shout", description="Shouts.", func=None, coroutine=shout),
    ]
    calls = [call("upper", tool_input="hi"), call("shout", tool_input="ho")]
    assert asked(tools, *calls) == [("finished", "HI"), ("finished", "HO")]
    assert definition_from(tools[0]).input_schema == {
        "type": "object",
        "properties": {"tool_input": {"type": "string"}},
        "required": ["tool_input"],
    }


def test_a_file_of_an_agents_tool_is_media():
    @function_tool
    def report() -> Any:
        """Reports."""
        return ToolOutputFileContent(file_data="data:application/pdf;base64,JVBERi0=", filename="a.pdf")

    with Gate(ScriptedModel([call("report"), text("Done.")]), tools=[report]) as gate:
        (record,) = gate.run_sync("Go.").calls
    assert [part["inlineData"]["mimeType"] for part in record.result.media] == ["application/pdf"]


def test_a_value_for_an_argument_that_no_tool_has_injected_is_an_error() -> None:
    @langchain_tool
    def read(key: str, account: Annotated[str, InjectedToolArg] = "none") -> str:
        """Read."""
        return f"{account}/{key}"

    with pytest.raises(UsageError, match=r"injected= has 'acount', .*: they have 'account'"):
        from_langchain(read, injected={"acount": "x"})
    with pytest.raises(UsageError, match="they have none"):
        from_langchain(injected={"account": "x"})
    assert len(from_langchain(read, injected={"account": "x"})) == 1


def test_parts_of_google_genai_are_shown_as_what_they_hold() -> None:
    def draw() -> list[types.Part]:
        """Draw."""
        return [types.Part(text="A dot."), types.Part.from_bytes(data=b"png", mime_type="image/png")]

    def blob() -> types.Blob:
        """Draw."""
        return types.Blob(data=b"png", mime_type="image/png", display_name="dot.png")

    def place() -> types.Part:
        """Say where it is."""
        return types.Part.from_uri(file_uri="gs://a/b.png", mime_type="image/png")

    model = ScriptedModel([[call("draw"), call("blob"), call("place")], "Done."])
    drawn, blobbed, placed = (record.result for record in Gate(model, [draw, blob, place]).run_sync("Go.").calls)
    assert (drawn.value, blobbed.value) == (["A dot.", {"$ref": "media_1.png"}], {"$ref": "dot.png"})
    assert placed.value == {"file_data": {"file_uri": "gs://a/b.png", "mime_type": "image/png"}}
    assert [len(result.media) for result in (drawn, blobbed, placed)] == [1, 1, 0]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "video", "base64": "AAAA", "mime_type": "video/mp4"},
        {"type": "image", "source_type": "base64", "data": "AAAA", "mime_type": "image/png", "metadata": {"a": 1}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}, "title": "t"},
    ],
)
def test_media_of_langchain_in_any_of_its_spellings_are_media(block: dict[str, Any]) -> None:
    @langchain_tool
    def draw() -> list[Any]:
        """Draws."""
        return [{"type": "text", "text": "see"}, block]

    with Gate(ScriptedModel([call("draw"), text("Done.")]), tools=[draw]) as gate:
        (record,) = gate.run_sync("Go.").calls
    assert record.result is not None
    assert len(record.result.media) == 1
    assert "AAAA" not in str(record.result.value)


@pytest.mark.parametrize("declared", [["city", "more"], ["city"], ["town"]])
def test_a_declaration_and_its_function_have_the_same_arguments(declared: list[str]) -> None:
    def look(city: str, when: str, days: int = 1) -> str:
        """Looks."""
        return city

    properties = {name: types.Schema(type=types.Type.STRING) for name in declared}
    schema = types.Schema(type=types.Type.OBJECT, properties=properties)
    given = types.Tool(
        function_declarations=[types.FunctionDeclaration(name="look", description="Looks.", parameters=schema)]
    )
    with pytest.raises(ToolNotDeclarableError, match=r"'more', which its function|needs 'when'|'town', which its function"):
        from_google_genai(given, functions=[look])


PICTURE_URL = "data:image/png;base64,iVBORw=="


def media_of_call(tool_of_others: Any) -> tuple[int, str]:
    """How many media items the tool's result has, and its value."""
    with Gate(ScriptedModel([call("draw"), text("Done.")]), tools=[tool_of_others]) as gate:
        (record,) = gate.run_sync("Go.").calls
    assert record.result is not None
    return len(record.result.media), str(record.result.value)


@pytest.mark.parametrize(
    "given",
    [
        {"type": "image", "image_url": PICTURE_URL, "detail": "low"},
        {"type": "file", "file_data": PICTURE_URL, "filename": "a.png"},
        (ToolOutputText(text="see"), ToolOutputImage(image_url=PICTURE_URL)),
        [{"type": "text", "text": "see"}, {"type": "image", "image_url": PICTURE_URL}],
    ],
)
def test_what_the_agents_sdk_takes_for_media_is_media(given: Any) -> None:
    @function_tool
    def draw() -> Any:
        """Draws."""
        return given

    count, value = media_of_call(draw)
    assert (count, "iVBORw" in value) == (1, False)


@pytest.mark.parametrize("form", ["tuple", "dict", "list"])
def test_a_picture_of_pydantic_ai_inside_of_a_value_is_media(form: str) -> None:
    picture = BinaryContent(data=b"\x89PNG", media_type="image/png")

    def draw() -> Any:
        """Draws."""
        return {"tuple": ("see", picture), "dict": {"picture": picture}, "list": ["see", picture]}[form]

    count, value = media_of_call(Tool(draw))
    assert (count, "base64" in value) == (1, False)


def test_a_validator_of_pydantic_ai_that_returns_an_awaitable_is_awaited() -> None:
    def refuse(context: Any) -> Any:
        refusal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refusal.set_exception(ModelRetry("Not now."))
        return refusal

    def draw() -> str:
        """Draws."""
        return "drawn"

    with Gate(ScriptedModel([call("draw"), text("Done.")]), tools=[Tool(draw, args_validator=refuse)]) as gate:
        (record,) = gate.run_sync("Go.").calls
    assert (record.state, record.result and record.result.error) == ("failed", "Not now.")


class Closing:
    """A tool that is an object."""

    def __call__(self, day: datetime.date) -> str:
        """Close a day."""
        return f"closed {day}"


def close_day(day: datetime.date) -> str:
    """Close a day."""
    return f"closed {day}"


@pytest.mark.parametrize(
    "framework_tool",
    [
        langchain_tool(close_day), Tool(close_day), FunctionToolset([close_day]), function_tool(close_day),
        function_tool(close_day, strict_mode=False), function_tool(Closing(), name_override="close_day"),
    ],
    ids=["LangChain", "pydantic-ai", "toolset", "Agents SDK", "Agents SDK, not strict", "Agents SDK, object"],
)  # fmt: skip
def test_a_rule_about_an_argument_holds_for_the_value_that_a_tool_of_a_framework_gets(framework_tool: Any) -> None:
    policy = Policy(rules=[Rule(verdict="deny", tool="close_day", args={"day": "2024-01-01"})])

    async def story() -> list[str]:
        days = "2024-01-01", "2024-01-01T00:00:00", "2024-01-02T00:00:00"
        model = ScriptedModel([[call("close_day", day=day) for day in days], "x"])
        async with Gate(model, [framework_tool], policy=policy) as gate:
            return [record.state for record in (await gate.run("Go")).calls]

    assert asyncio.run(story()) == ["denied", "denied", "finished"]


def test_arguments_of_an_agents_tool_without_a_function_are_what_it_gets() -> None:
    async def invoke(context: Any, text: str) -> str:
        return text

    schema = {
        "type": "object",
        "properties": {"day": {"type": "string"}},
        "required": ["day"],
        "additionalProperties": False,
    }
    made = FunctionTool(name="close", description="", params_json_schema=schema, on_invoke_tool=invoke)
    (tool,) = from_openai_agents(made)
    assert tool.running_values({"day": "x"}) == {"day": "x"}  # pyright: ignore[reportAttributeAccessIssue]
