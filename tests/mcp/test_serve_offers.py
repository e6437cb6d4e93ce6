"""Resources, prompts, completion, logs and questions of a tool server, before the SDK's own client in both eras."""

from __future__ import annotations

import asyncio
import base64
import logging
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp_types import (
    INVALID_PARAMS,
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    Root,
    TextContent,
)
from pydantic import FileUrl

from callgate import McpServer, Media, Policy, ToolContext, UsageError, tool
from callgate.mcp import elicit, offers, prompt, resource, roots, sample
from callgate.mcp.serve import ToolServer
from callgate.permission import AuditLog
from mcp import MCPError

from .test_serve import client, era, run, texts

HERE = Path(__file__).parent
older_era = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
"""The newest protocol has other ways for this, and the SDK's client says so."""


@resource("notes://today", title="Today", mime_type="text/plain")
def today() -> str:
    """The notes of today."""
    return "Nothing yet."


@resource("notes://{year}/{+path}")
def older(year: int, path: str) -> list[str | Media]:
    """Older notes."""
    return [f"{year + 1}: {path}", Media(data=b"\x89PNG", mime_type="image/png")]


@prompt(title="Greeting")
def greet(who: str, tone: Literal["warm", "wary", "cold"] = "warm") -> list[str | Media]:
    """A greeting."""
    return [f"Greet {who}: {tone}.", Media(data=b"\x89PNG", mime_type="image/png")]


@tool(read_only=True)
def look() -> str:
    """Looks."""
    return "seen"


def plain(item: Any) -> dict[str, Any]:
    fields = item.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: value for key, value in fields.items() if key not in ("resultType", "ttlMs", "cacheScope")}


@era
def test_functions_are_listed_as_resources_templates_and_prompts_and_not_as_tools(mode: str):
    async def story() -> list[Any]:
        async with client(ToolServer.of([look, today, older, greet]), mode) as it:
            return [
                [one.name for one in (await it.list_tools()).tools],
                [plain(one) for one in (await it.list_resources()).resources],
                [plain(one) for one in (await it.list_resource_templates()).resource_templates],
                [plain(one) for one in (await it.list_prompts()).prompts],
            ]

    tools, resources, templates, prompts = run(story())
    assert tools == ["look"]
    about = {"name": "today", "title": "Today", "description": "The notes of today.", "mimeType": "text/plain"}
    assert resources == [{"uri": "notes://today", **about}]
    assert templates == [{"uriTemplate": "notes://{year}/{+path}", "name": "older", "description": "Older notes."}]
    arguments = [
        {"name": "who", "description": "", "required": True},
        {"name": "tone", "description": "", "required": False},
    ]
    assert prompts == [{"name": "greet", "title": "Greeting", "description": "A greeting.", "arguments": arguments}]


@era
def test_they_are_read_with_the_arguments_in_the_address(mode: str):
    async def story() -> list[Any]:
        async with client(ToolServer.of([today, older, greet]), mode) as it:
            return [
                [plain(one) for one in (await it.read_resource("notes://today")).contents],
                [plain(one) for one in (await it.read_resource("notes://1999/a/b%20c")).contents],
                [plain(one) for one in (await it.get_prompt("greet", {"who": "Ada"})).messages],
            ]

    static, filled, messages = run(story())
    png = base64.b64encode(b"\x89PNG").decode()
    assert static == [{"uri": "notes://today", "mimeType": "text/plain", "text": "Nothing yet."}]
    assert filled == [
        {"uri": "notes://1999/a/b%20c", "text": "2000: a/b c"},
        {"uri": "notes://1999/a/b%20c", "mimeType": "image/png", "blob": png},
    ]
    assert messages == [
        {"role": "user", "content": {"type": "text", "text": "Greet Ada: warm."}},
        {"role": "user", "content": {"type": "image", "data": png, "mimeType": "image/png"}},
    ]


def test_what_is_not_there_or_does_not_fit_is_an_error_that_says_so():
    async def story() -> None:
        async with client(ToolServer.of([older, greet]), "auto") as it:
            for work, told in (
                (it.read_resource("notes://nowhere"), "no resource 'notes://nowhere'"),
                (it.read_resource("notes://soon/x"), "year"),
                (it.get_prompt("nothing"), "no prompt 'nothing'"),
                (it.get_prompt("greet", {}), "who"),
                (it.list_resources(cursor="x"), "no such page"),
            ):
                with pytest.raises(MCPError, match=told):
                    await work

    run(story())


def test_a_read_is_decided_and_written_down_like_a_call(tmp_path: Path):
    log = tmp_path / "audit.jsonl"

    async def story() -> None:
        server = ToolServer.of([today, greet], policy=Policy(rules=["deny today"]), audit=AuditLog(log))
        async with client(server, "auto") as it:
            with pytest.raises(MCPError, match="not allowed"):
                await it.read_resource("notes://today")
            await it.get_prompt("greet", {"who": "Ada"})

    run(story())
    written = log.read_text("utf-8")
    assert '"today"' in written
    assert '"greet"' in written


def test_arguments_are_completed_by_the_values_that_they_may_have():
    async def story() -> list[Any]:
        async with client(ToolServer.of([greet, older]), "auto") as it:
            ref = PromptReference(type="ref/prompt", name="greet")
            other = ResourceTemplateReference(type="ref/resource", uri="notes://{year}/{+path}")
            asked = [(ref, "tone", "wa"), (ref, "who", ""), (other, "year", "1")]
            return [(await it.complete(of, {"name": n, "value": v})).completion.values for of, n, v in asked]

    assert run(story()) == [["warm", "wary"], [], []]


def test_long_lists_come_in_pages(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(offers, "PAGE", 1)

    async def story() -> list[str]:
        found: list[str] = []
        async with client(ToolServer.of([look, tool(name="see", read_only=True)(lambda: "x")]), "auto") as it:
            page = await it.list_tools()
            found += [one.name for one in page.tools]
            page = await it.list_tools(cursor=page.next_cursor)
            return [*found, *(one.name for one in page.tools), str(page.next_cursor)]

    assert run(story()) == ["look", "see", "None"]


def test_what_a_server_does_not_have_is_not_declared():
    async def story() -> list[bool]:
        async with client(ToolServer.of([look]), "legacy") as it:
            can = it.server_capabilities
            return [can.resources is None, can.prompts is None, can.completions is None, can.logging is None]

    assert run(story()) == [True, True, True, False]


@older_era
def test_subscribers_hear_of_a_change():
    heard: list[str] = []

    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            heard.append(str(message.params.uri))

    async def story() -> None:
        server = ToolServer.of([today])
        async with client(server, "legacy", message_handler=hear) as it:
            await server.resource_updated("notes://today")
            await it.subscribe_resource("notes://today")
            await server.resource_updated("notes://today")
            await it.unsubscribe_resource("notes://today")
            await server.resource_updated("notes://today")
            await it.send_ping()

    run(story())
    assert heard == ["notes://today"]


@older_era
def test_a_resource_that_is_not_there_has_no_subscribers():
    async def story() -> None:
        async with client(ToolServer.of([today, older]), "legacy") as it:
            with pytest.raises(MCPError, match="no resource 'notes://nowhere'"):
                await it.subscribe_resource("notes://nowhere")
            await it.subscribe_resource("notes://1999/a")

    run(story())


@older_era
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_log_lines_of_a_tool_reach_its_client_from_the_level_on_that_it_asked_for(kind: str):
    logger = logging.getLogger("my_tool")
    logger.setLevel(logging.DEBUG)
    heard: list[tuple[str, Any, str | None]] = []

    def write() -> str:
        """Logs."""
        logger.info("fine")
        logger.warning("odd")
        return "done"

    async def awrite() -> str:
        """Logs."""
        return write()

    async def hear(params: Any) -> None:
        heard.append((params.level, params.data, params.logger))

    async def story() -> None:
        made = tool(name="write", read_only=True)(awrite if kind == "async" else write)
        async with client(ToolServer.of([made]), "legacy", logging_callback=hear) as it:
            await it.call_tool("write", {})
            await it.set_logging_level("warning")
            await it.call_tool("write", {})

    run(story())
    line = ("warning", "odd", "my_tool")
    assert heard == [("info", "fine", "my_tool"), line, line]


@era
def test_a_tool_can_ask_the_client_for_an_answer_a_sample_and_folders(mode: str):
    begun: list[str] = []

    @tool(read_only=True)
    async def ask(context: ToolContext) -> list[Any]:
        """Asks."""
        begun.append("once")
        name = {"type": "object", "properties": {"name": {"type": "string"}}}
        answers: list[Any] = [await elicit(context, "Name?", name)]
        answers.append(await elicit(context, "Again?", {"type": "object", "properties": {}}))
        return [*answers, *await asyncio.gather(sample(context, "Say hi.", max_tokens=5), roots(context))]

    left = [ElicitResult(action="accept", content={"name": "Ada"}), ElicitResult(action="decline")]

    async def answer(context: Any, params: Any) -> ElicitResult:
        return left.pop(0)

    async def model(context: Any, params: Any) -> CreateMessageResult:
        said = f"{params.messages[0].content.text} {params.max_tokens}"
        return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text=said))

    async def folders(context: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///plans"))])

    async def story() -> Any:
        more = {"elicitation_callback": answer, "sampling_callback": model, "list_roots_callback": folders}
        async with client(ToolServer.of([ask]), mode, **more) as it:
            return (await it.call_tool("ask", {})).structured_content

    assert run(story()) == {"result": [{"name": "Ada"}, None, "Say hi. 5", ["file:///plans"]]}
    assert begun == ["once"]


@era
def test_a_tool_without_such_a_client_fails_with_a_sentence(mode: str):
    @tool(read_only=True)
    async def ask(context: ToolContext) -> str:
        """Asks."""
        return str(await elicit(context, "Name?", {"type": "object", "properties": {}}))

    async def story() -> tuple[str, Any]:
        async with client(ToolServer.of([ask]), mode) as it:
            try:
                refused = await it.call_tool("ask", {})
            except MCPError as error:
                return error.error.message, error.error.data
            return texts(refused)[0], None if refused.is_error else refused

    told, data = run(story())
    assert "cannot be asked" in told
    assert data == (None if mode == "legacy" else {"requiredCapabilities": {"elicitation": {}}})


def test_a_call_that_waits_for_an_answer_goes_on_for_its_own_request_alone():
    ended: list[str] = []

    @tool(read_only=True)
    async def ask(context: ToolContext, what: str) -> str:
        """Asks."""
        try:
            return f"{what}: {await elicit(context, 'Sure?', {'type': 'object', 'properties': {'ok': {'type': 'boolean'}}})}"
        finally:
            ended.append(what)

    async def story() -> list[Any]:
        said: list[Any] = []

        async def never(context: Any, params: Any) -> ElicitResult:
            raise AssertionError("the answers are sent by hand")

        async with client(ToolServer.of([ask]), "2026-07-28", elicitation_callback=never) as it:

            async def call(what: str, **more: Any) -> Any:
                return await it.session.call_tool("ask", {"what": what}, allow_input_required=True, **more)

            first = await call("first")
            yes = {next(iter(first.input_requests)): ElicitResult(action="accept", content={"ok": True})}
            for what, state in (("first", f"{first.request_state}x"), ("second", first.request_state)):
                with pytest.raises(MCPError) as refused:
                    await call(what, input_responses=yes, request_state=state)
                said.append(refused.value.error.code)
            again = await call("first", input_responses={}, request_state=first.request_state)
            said.append(again.request_state != first.request_state)
            said += texts(await call("first", input_responses=yes, request_state=again.request_state))
            await call("left behind")
        return said

    assert run(story()) == [INVALID_PARAMS, INVALID_PARAMS, True, "first: {'ok': True}"]
    assert ended == ["first", "left behind"], "a call that is still asked about ends with the server"


@era
def test_resources_and_prompts_of_a_mounted_server_are_served_too(mode: str):
    far = McpServer("far", command=[sys.executable, str(HERE / "offering_server.py")], start_s=120, trust=True)

    async def story() -> list[Any]:
        async with client(ToolServer.of([far, today, greet]), mode) as it:
            return [
                [str(one.uri) for one in (await it.list_resources()).resources],
                [one.uri_template for one in (await it.list_resource_templates()).resource_templates],
                [one.name for one in (await it.list_prompts()).prompts],
                [plain(one) for one in (await it.read_resource("far://text")).contents],
                [plain(one) for one in (await it.read_resource("far://monday/notes")).contents],
                [plain(one) for one in (await it.get_prompt("far__greet", {"who": "Ada"})).messages],
            ]

    uris, templates, prompts, text, notes, messages = run(story())
    assert uris == ["notes://today", "far://text"]
    assert templates == ["far://{day}/notes"]
    assert prompts == ["greet", "far__greet"]
    assert text == [{"uri": "far://text", "mimeType": "text/plain", "text": "From afar."}]
    assert notes == [{"uri": "far://monday/notes", "mimeType": "text/plain", "text": "Notes of monday."}]
    assert messages == [{"role": "user", "content": {"type": "text", "text": "Greet Ada."}}]


def test_a_resource_of_a_server_that_is_not_trusted_is_refused_where_nobody_can_be_asked():
    far = McpServer("far", command=[sys.executable, str(HERE / "offering_server.py")], start_s=120)

    async def story() -> None:
        async with client(ToolServer.of([far]), "auto") as it:
            with pytest.raises(MCPError, match="no way to ask"):
                await it.read_resource("far://text")

    run(story())


def test_an_address_without_a_scheme_is_refused():
    with pytest.raises(UsageError, match="scheme"):
        resource("today")


OUTSIDE = ["%2e%2e/x", "a/%2E%2E%2Fx", "..", "%2Fetc/x", "a%5C..", "a%00"]


@era
@pytest.mark.parametrize("path", OUTSIDE)
def test_an_address_whose_argument_leads_out_of_a_folder_is_no_resource(path: str, mode: str) -> None:
    async def main() -> None:
        async with client(ToolServer.of([older]), mode) as connected:
            with pytest.raises(MCPError, match="There is no resource"):
                await connected.read_resource(f"notes://2024/{path}")
            inside = await connected.read_resource("notes://2024/a%2Fb..c")
        assert plain(inside)["contents"][0]["text"] == "2025: a/b..c"

    run(main())
