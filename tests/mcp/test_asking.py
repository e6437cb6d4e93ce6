"""What servers ask of us: of a person, a model and for folders; and what they have to read."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, McpServer, Media, Policy, Reply, ScriptedModel, ToolError, UsageError
from callgate.host import run_for
from callgate.mcp import Answer, Host, PromptArgument, Question, Resource, ServerPrompt, overview
from callgate.mcp.clock import PersonClock
from callgate.mcp.host import Elicit
from callgate.mcp.requests import Requests
from callgate.mcp.resources import resource_tools
from callgate.testing import call
from callgate.types import ToolContext

HERE = Path(__file__).parent
FORM = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
ALLOW = Policy(default="allow")


def old(*tools: str, host: Host | None = None, **options: Any) -> McpServer:
    """A server of an older revision, which asks by requests of its own."""
    given = json.dumps({"tools": list(tools), "protocol": "2025-11-25", **options})
    return McpServer("old", command=[sys.executable, "-I", str(HERE / "scripted_server.py"), given], start_s=120, host=host)


def new(host: Host | None = None, **more: Any) -> McpServer:
    """A server of the newest revision, whose results say what it wants to know."""
    return McpServer("new", command=[sys.executable, str(HERE / "asking_server.py")], host=host, start_s=60, **more)


def called(box: McpServer, *calls: tuple[str, dict[str, Any]]) -> list[object]:
    async def story() -> list[object]:
        found: list[object] = []
        async with asyncio.timeout(300):
            await box.start(story)
            for name, args in calls:
                try:
                    found.append(await box.call(name, args, ToolContext(call_id="1", name=name)))
                except ToolError as error:
                    found.append(error)
            await box.aclose(story)
        return found

    return asyncio.run(story())


def asking(answer: Answer, asked: list[Question]) -> Host:
    async def elicit(question: Question) -> Answer:
        asked.append(question)
        return answer

    return Host(elicit=elicit)


def form(message: str = "Which?") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": FORM}}


def page(url: str) -> dict[str, Any]:
    return {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Go there.", "url": url, "elicitationId": "7"},
    }


# A person ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer("accept", {"word": "blue"}), {"action": "accept", "content": {"word": "blue"}}),
        (Answer("decline"), {"action": "decline"}),
        (Answer("cancel"), {"action": "cancel"}),
        (Answer("accept", {"wurd": 3}), {"action": "cancel"}),  # It does not fit, so it is not sent.
    ],
)
def test_a_question_of_an_older_server_is_asked_of_the_person(answer: Answer, told: dict[str, Any]):
    asked: list[Question] = []
    (result,) = called(old("ask", host=asking(answer, asked)), ("ask", form()))
    assert json.loads(str(result)) == told
    assert asked == [Question(server="old", message="Which?", schema=FORM)]


def test_a_question_of_a_newer_server_is_asked_of_the_person():
    asked: list[Question] = []
    assert called(new(asking(Answer("accept", {"guests": 4}), asked)), ("book", {})) == [{"result": "4 outside=False"}]
    assert [(question.message, question.url) for question in asked] == [("For how many?", None)]
    assert called(new(asking(Answer("decline"), [])), ("book", {})) == [{"result": "decline"}]


def test_a_page_is_visited_only_where_it_is_encrypted_or_on_this_machine():
    asked: list[Question] = []
    box = old("ask", host=asking(Answer("accept"), asked))
    urls = ["https://a.example/x", "http://localhost:9/x", "http://a.example/x", "https://you@a.example/", "file:///x"]
    told = called(box, *(("ask", page(url)) for url in urls))
    assert [json.loads(str(result))["action"] for result in told] == ["accept", "accept", "decline", "decline", "decline"]
    assert [question.url for question in asked] == urls[:2]


def test_a_call_that_needs_a_visit_is_made_after_it():
    asked: list[Question] = []
    assert called(old("gated", host=asking(Answer("accept"), asked)), ("gated", {})) == ["through the gate"]
    assert asked == [Question(server="old", message="Allow it there.", url="https://auth.example/x")]
    (refused,) = called(old("gated", host=asking(Answer("decline"), [])), ("gated", {}))
    assert str(refused) == "The MCP server 'old' refused the call: visit (code -32042)"
    (alone,) = called(old("gated"), ("gated", {}))
    assert isinstance(alone, ToolError)


def test_where_nobody_can_be_asked_servers_are_told_so():
    (told,) = called(old("ask"), ("ask", form()))
    assert json.loads(str(told))["message"] == "Elicitation not supported"
    (refused,) = called(new(), ("book", {}))
    assert "elicitation" in str(refused)


def test_a_question_out_of_nowhere_is_declined_unasked(tmp_path: Path):
    asked: list[Question] = []
    box = old("ask_later", host=asking(Answer("accept", {"word": "hunter2"}), asked))
    told, wait = tmp_path / "told", tmp_path / "wait"
    wait.touch()

    async def story() -> object:
        await box.start(story)
        files = {"file": str(told), "wait": str(wait)}
        value = await box.call("ask_later", files, ToolContext(call_id="1", name="ask_later"))
        wait.unlink()
        while not told.exists():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        await box.aclose(story)
        return value

    assert asyncio.run(asyncio.wait_for(story(), 300)) == "over"
    assert (json.loads(told.read_text()), asked) == ({"action": "decline"}, [])


def test_the_person_of_a_gate_is_asked_by_all_its_servers_that_have_none_of_their_own():
    asked: list[Question] = []
    model = ScriptedModel([call("old__ask", **form()), call("book"), call("mine__ask", **form("Mine?")), "Done."])
    mine = McpServer("mine", command=old("ask").command, host=asking(Answer("decline"), asked))
    elicit = asking(Answer("accept", {"word": "blue", "guests": 4}), asked).elicit
    gate = Gate(model, [old("ask"), new(), mine], policy=ALLOW, elicit=elicit)

    async def story() -> Reply:
        async with gate, asyncio.timeout(300):
            await gate.tools.start_tools(gate)  # As a service does, before anybody asks.
            return await gate.with_options(mode="native").run("Go.")

    reply = asyncio.run(story())
    told = [record.result.value for record in reply.calls if record.result]
    assert json.loads(str(told[0])) == {"action": "accept", "content": {"word": "blue", "guests": 4}}
    assert told[1] == {"result": "4 outside=False"}
    assert json.loads(str(told[2])) == {"action": "decline"}
    assert gate.elicit is elicit
    assert [(question.server, question.message) for question in asked] == [
        ("old", "Which?"), ("new", "For how many?"), ("mine", "Mine?"),
    ]  # fmt: skip


def test_of_gates_that_share_a_server_each_has_its_own_person():
    async def story() -> list[Any]:
        box = old("ask")

        def person(word: str) -> Elicit:
            host = asking(Answer("accept", {"word": word}), [])
            assert host.elicit is not None
            return host.elicit

        async def one(elicit: Elicit | None) -> Any:
            gate = Gate(ScriptedModel([call("ask", **form()), "Done."]), [box], policy=ALLOW, elicit=elicit)
            (record,) = (await gate.run("Go.")).calls
            assert record.result is not None
            return json.loads(str(record.result.value))

        owner = Gate(ScriptedModel([]), elicit=person("nobody"))
        async with asyncio.timeout(300):
            await box.start(owner)
            told = [await one(person("ada")), await one(None), await one(person("bob"))]
            await box.aclose(owner)
            return told

    ada, bob = ({"action": "accept", "content": {"word": word}} for word in ("ada", "bob"))
    assert asyncio.run(story()) == [ada, {"action": "decline"}, bob]


def test_nobody_is_asked_while_it_cannot_be_known_whose_call_it_is_about():
    question = Question(server="s", message="Which?")
    requests = Requests("s", Host(), PersonClock(), lambda: True)
    asked: list[Question] = []

    async def story() -> list[str]:
        told: list[str] = []
        with run_for(asking(Answer("accept"), asked).elicit), requests.during(ToolContext(call_id="1", name="a")):
            with requests.during(ToolContext(call_id="2", name="a")):
                told.append((await requests.ask(question)).action)
            with run_for(None), requests.during(ToolContext(call_id="3", name="a")):
                told.append((await requests.ask(question)).action)
            with run_for(asking(Answer("accept"), asked).elicit), requests.during(ToolContext(call_id="4", name="a")):
                told.append((await requests.ask(question)).action)
            told.append((await requests.ask(question)).action)
        return [*told, (await requests.ask(question)).action]

    assert asyncio.run(story()) == ["accept", "decline", "decline", "accept", "decline"]
    assert asked == [question, question]


def test_the_clock_of_a_call_stands_still_while_a_person_thinks():
    async def elicit(question: Question) -> Answer:
        await asyncio.sleep(0.6)  # clock: longer than the limit of the call; more is as good
        return Answer("accept", {"word": "blue"})

    model = ScriptedModel([call("ask", **form()), call("hang"), "Done."])
    box = old("ask", "hang", host=Host(elicit=elicit))
    box._timeout_s = 0.3
    reply = asyncio.run(Gate(model, [box], policy=ALLOW).run("Go."))
    assert [record.state for record in reply.calls] == ["finished", "timed_out"]


def test_a_deadline_goes_on_where_it_stood_still():
    async def story() -> list[str]:
        clock, seen = PersonClock(), list[str]()

        async def bounded(name: str, seconds: float) -> None:
            try:
                async with clock.timeout(seconds):
                    await asyncio.sleep(60)
            except TimeoutError:
                seen.append(name)

        tasks = [asyncio.create_task(bounded("before", 0.05))]
        await asyncio.sleep(0)
        with clock.stopped():
            tasks.append(asyncio.create_task(bounded("within", 0.01)))
            with clock.stopped():
                await asyncio.sleep(0.2)  # clock: longer than the limits of both; more is as good
            assert seen == []
        await asyncio.gather(*tasks)
        return seen

    assert asyncio.run(asyncio.wait_for(story(), 30)) == ["within", "before"]


# A model, and folders ----------------------------------------------------------------------------------------------------


def test_a_model_and_folders_are_there_only_where_they_are_allowed(tmp_path: Path):
    wanted: list[Any] = []

    async def sample(server: str, request: dict[str, Any]) -> str:
        wanted.append((server, request["messages"][0]["content"]["text"]))
        return "said"

    allowed = Host(sample=sample, roots=[tmp_path])
    assert called(new(allowed), ("sample", {}), ("roots", {})) == [{"result": "said"}, {"result": tmp_path.as_uri()}]
    assert wanted == [("new", "Say it.")]
    refused = called(new(), ("sample", {}), ("roots", {}))
    assert ["sampling" in str(refused[0]), "roots" in str(refused[1])] == [True, True]


def test_an_older_server_has_a_model_and_folders_only_where_they_are_allowed(tmp_path: Path):
    async def sample(server: str, request: dict[str, Any]) -> str:
        return f"{server} said"

    message = {"role": "user", "content": {"type": "text", "text": "Hi."}}
    asks = [
        {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 5}},
        {"method": "roots/list"},
    ]
    told = [json.loads(str(one)) for one in called(old("ask", host=Host(sample=sample, roots=[tmp_path])),
                                                   *(("ask", one) for one in asks))]  # fmt: skip
    assert told[0]["content"]["text"] == "old said"
    assert told[1] == {"roots": [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]}
    refused = [json.loads(str(one))["message"] for one in called(old("ask"), *(("ask", one) for one in asks))]
    assert refused == ["Sampling not supported", "List roots not supported"]


# What there is to read ---------------------------------------------------------------------------------------------------


def test_resources_and_prompts_are_listed_and_read():
    async def story() -> None:
        box = new()
        with pytest.raises(UsageError, match="is not running"):
            await box.resources()
        await box.start(story)
        assert await box.resources() == [
            Resource(uri="notes://today", name="today", description="Of today.", mime_type="text/plain"),
            Resource(
                uri="notes://{day}/raw", name="raw", description="The bytes of a day.", mime_type="image/png",
                is_template=True,
            ),
        ]  # fmt: skip
        arguments = (PromptArgument(name="day", required=True), PromptArgument(name="mood"))
        assert await box.prompts() == [ServerPrompt(name="plan", description="Plans a day.", arguments=arguments)]
        assert await box.read_resource("notes://today") == "Buy milk."
        assert await box.read_resource("notes://x/raw") == Media(data=b"x", mime_type="image/png", name="notes://x/raw")
        assert await box.get_prompt("plan", {"day": "Monday"}) == [
            "user:", "Plan Monday in a good mood.", "assistant:", "Gladly."
        ]  # fmt: skip
        with pytest.raises(ToolError, match="notes://nothing"):
            await box.read_resource("notes://nothing")
        with pytest.raises(ToolError, match="refused"):
            await box.get_prompt("plan")
        status = box.status()
        assert (status.name, status.problem, status.about["name"]) == ("new", None, "asking")
        assert [tool.name for tool in status.tools] == ["book", "roots", "sample", "list_resources", "read_resource"]
        await box.aclose(story)
        assert box.status().problem == "it has not been started"

    asyncio.run(asyncio.wait_for(story(), 300))


def test_a_model_lists_and_reads_with_two_tools():
    model = ScriptedModel([
        call("list_resources", contains="TODAY"), call("list_resources"), call("read_resource", uri="notes://today"),
        call("read_resource", prompt="plan", arguments={"day": "Monday"}), call("read_resource"), "Done.",
    ])  # fmt: skip
    reply = asyncio.run(Gate(model, [new()], policy=ALLOW).run("Go."))
    found, everything, note, prompt, neither = (record.result for record in reply.calls)
    today = {"uri": "notes://today", "name": "today", "description": "Of today.", "mime_type": "text/plain"}
    assert found.value == {"resources": [today], "prompts": []}
    assert [one["uri"] for one in everything.value["resources"]] == ["notes://today", "notes://{day}/raw"]
    assert everything.value["prompts"][0]["arguments"] == [{"name": "day", "required": True}, {"name": "mood"}]
    assert note.value == "Buy milk."
    assert prompt.value[1] == "Plan Monday in a good mood."
    assert "give either 'uri' or 'prompt'" in str(neither.error)


@pytest.mark.parametrize("trust", [False, True])
def test_reading_is_asked_about_unless_the_server_is_trusted(trust: bool):
    tools = [tool.definition for tool in resource_tools(McpServer("box", command=["x"], trust=trust))]
    assert [(d.name, d.kind, d.server, d.read_only) for d in tools] == [
        ("list_resources", "mcp", "box", True), ("read_resource", "mcp", "box", trust)
    ]  # fmt: skip


def test_a_server_that_could_have_resources_and_has_none_gets_no_tools_for_them():
    can = {"resources": {}, "prompts": {}}
    answers = {"resources/list": {"resources": []}, "prompts/list": {"prompts": []}}
    some = {"prompts/list": {"prompts": [{"name": "p"}]}}

    async def story(box: McpServer) -> tuple[list[str], Any, Any]:
        await box.start(story)
        found = [tool.definition.name for tool in box.runnables()], await box.resources(), await box.prompts()
        await box.aclose(story)
        return found

    assert asyncio.run(story(old("echo", can=can, answers=answers))) == (["echo"], [], [])
    # Templates are asked for as well, and this server has never heard of them.
    names, resources, prompts = asyncio.run(story(old("echo", can=can, answers=answers | some)))
    assert (names, resources, prompts) == (["echo", "list_resources", "read_resource"], [], [ServerPrompt(name="p")])


def test_a_tool_of_the_server_keeps_its_name():
    can, answers = {"prompts": {}}, {"prompts/list": {"prompts": [{"name": "p"}]}}

    async def story() -> list[tuple[str, str]]:
        box = old("read_resource", can=can, answers=answers)
        await box.start(story)
        found = [(tool.definition.name, tool.definition.description[:5]) for tool in box.runnables()]
        await box.aclose(story)
        return found

    assert asyncio.run(story()) == [("read_resource", "Does "), ("list_resources", "Lists")]


def test_all_servers_are_seen_at_a_glance(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.import_module("callgate.mcp.overview"), "ANSWER_S", 3.0)
    monkeypatch.setattr("callgate.mcp.connection.RESOURCES_S", 0.5)
    can = {"resources": {}, "prompts": {}}
    lists = {"resources/list": {"resources": [{"uri": "x:a", "name": "a"}]}, "prompts/list": {"prompts": [{"name": "p"}]}}
    refusing = {"resources/list": lists["resources/list"]}

    async def story() -> list[tuple[Any, ...]]:
        boxes = [
            old("echo", can=can, answers=lists),
            old("echo", can=can, answers=refusing),
            old("echo", can=can, answers=lists | {"prompts/list": None}),
            McpServer("gone", command=["no-such-program-here"]),
        ]
        await asyncio.gather(*(box.start(story) for box in boxes))
        rows = await overview(boxes)
        await asyncio.gather(*(box.aclose(story) for box in boxes))
        return [(row.status.name, [one.uri for one in row.resources], len(row.prompts), row.problem) for row in rows]

    fine, refused, silent, gone = asyncio.run(asyncio.wait_for(story(), 300))
    assert fine == ("old", ["x:a"], 1, None)
    assert refused[:3] == ("old", [], 0)
    assert "no method prompts/list" in refused[3]
    assert silent == ("old", [], 0, "it did not answer within 3 s")
    assert gone == ("gone", [], 0, "there is no program 'no-such-program-here': install it, or give its whole path")
