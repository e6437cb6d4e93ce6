"""Requests of servers to the gate's own model: asked about, within a budget, with tools."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Limits, McpServer, Policy, Reply, ScriptedModel, UsageError
from callgate.errors import ConnectionLostError
from callgate.events import Notice, RunEnded
from callgate.mcp import Answer, Host, Question, Sampling, read_servers
from callgate.mcp.model_loans import RefusedError, model_request
from callgate.request import ModelRequest
from callgate.run.lent_model import LentModel
from callgate.testing import answer, call
from callgate.types import JsonObject, ToolContext

HERE = Path(__file__).parent
TOOL: JsonObject = {
    "name": "find-it",
    "description": "Finds it.",
    "inputSchema": {"type": "object", "properties": {"where": {}}},
}


def wanted(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    said = messages or ({"role": "user", "content": {"type": "text", "text": "What is the word?"}},)
    return {"messages": list(said), "maxTokens": 100, **more}


def lending(terms: Sampling | None = None, *, revision: str = "2025-11-25") -> McpServer:
    given = json.dumps({"tools": ["ask"], "protocol": revision})
    command = [sys.executable, "-I", str(HERE / "scripted_server.py"), given]
    return McpServer("old", command=command, start_s=120, host=Host(sample=terms or Sampling()))


def asks(**request: Any) -> Any:
    return call("ask", method="sampling/createMessage", params=request or wanted())


def answers(action: Any, asked: list[Question]) -> Any:
    async def elicit(question: Question) -> Answer:
        asked.append(question)
        return Answer(action)

    return elicit


def ran(
    model: ScriptedModel, box: McpServer, *, elicit: Any = None, notices: list[Notice] | None = None, **more: Any
) -> Reply:
    async def story() -> Reply:
        async with Gate(model, [box], policy=Policy(default="allow"), elicit=elicit, **more) as gate:
            events = [event async for event in gate.stream("Go.")]
            if notices is not None:
                notices.extend(event for event in events if isinstance(event, Notice))
            ended = events[-1]
            assert isinstance(ended, RunEnded)
            return ended.reply

    return asyncio.run(asyncio.wait_for(story(), 300))


def told(reply: Reply) -> list[Any]:
    """What the server got for each of its requests."""
    found: list[Any] = [record.result.value for record in reply.calls]
    return [json.loads(value) if isinstance(value, str) else value for value in found]


def test_a_server_is_lent_the_model_when_the_person_says_yes():
    asked: list[Question] = []
    notices: list[Notice] = []
    lent = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Blue."}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 30, "candidatesTokenCount": 3, "totalTokenCount": 33}}  # fmt: skip
    model = ScriptedModel([asks(**wanted(systemPrompt="Be brief.", temperature=0.5)), lent, "Done."])
    reply = ran(model, lending(), elicit=answers("accept", asked), notices=notices)
    assert told(reply) == [
        {"role": "assistant", "model": "scripted", "stopReason": "endTurn", "content": {"type": "text", "text": "Blue."}}
    ]
    shown = "system: Be brief.\nuser: What is the word?\nat most 100 tokens"
    assert asked == [Question(server="old", message=shown, wants_model=True)]
    assert [notice.message for notice in notices if notice.code == "model_lent"] == [
        "The MCP server 'old' was lent the model: 33 tokens."
    ]
    sent = model.requests[1]
    assert (sent.system, sent.settings) == ("Be brief.", {"max_output_tokens": 100, "temperature": 0.5})
    assert sent.contents == [{"role": "user", "parts": [{"text": "What is the word?"}]}]
    assert reply.usage.total_tokens == 33
    assert len(reply.contents) == 4  # The conversation is the user's: nothing of the server's request is in it.


@pytest.mark.parametrize("person", [answers("decline", []), answers("cancel", []), None])
def test_without_a_yes_the_model_is_not_asked(person: Any):
    model = ScriptedModel([asks(), "Done."])
    assert told(ran(model, lending(), elicit=person)) == [{"code": -1, "message": "User rejected sampling request"}]
    assert len(model.requests) == 2


def test_a_model_may_be_lent_without_asking():
    model = ScriptedModel([asks(), "Blue.", "Done."])
    (result,) = told(ran(model, lending(Sampling(ask=False))))
    assert result["content"] == {"type": "text", "text": "Blue."}


def test_the_budget_of_a_server_is_for_one_run():
    lent = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Blue."}]}, "finishReason": "MAX_TOKENS"}],
            "usageMetadata": {"totalTokenCount": 60}}  # fmt: skip
    script = [asks(), lent, asks(), lent, asks(), "Done."]
    model = ScriptedModel([*script, *script])
    box = lending(Sampling(tokens=90, requests=5, ask=False))

    async def story() -> list[list[Any]]:
        async with Gate(model, [box], policy=Policy(default="allow")) as gate:
            return [told(await gate.run("Go.")) for _ in range(2)]

    for first, second, third in asyncio.run(asyncio.wait_for(story(), 300)):
        assert (first["stopReason"], second["stopReason"]) == ("maxTokens", "maxTokens")
        assert third == {"code": -1, "message": "the requests and tokens that this run lends to the server are used up"}
    assert [request.settings.get("max_output_tokens") for request in model.requests[:6]] == [None, 90, None, 30, None, None]


def test_the_requests_of_a_server_are_counted_whatever_the_person_says():
    model = ScriptedModel([asks(), asks(), "Done."])
    asked: list[Question] = []
    told(ran(model, lending(Sampling(requests=1)), elicit=answers("decline", asked)))
    assert len(asked) == 1


def test_a_budget_of_the_run_holds_for_servers_too():
    lent = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Blue."}]}, "finishReason": "STOP"}],
            "usageMetadata": {"totalTokenCount": 60}}  # fmt: skip
    model = ScriptedModel([[asks(), asks()], lent, "Done."])
    reply = ran(model, lending(Sampling(ask=False)), limits=Limits(run_tokens=50, parallel=1))
    first, second = told(reply)
    assert first["content"]["text"] == "Blue."
    assert second["message"] == "the model gave no answer: a budget of the run is used up (token_limit)"


def test_a_server_may_give_the_model_tools_of_its_own():
    request = wanted(tools=[TOOL], toolChoice={"mode": "required"})
    first = ScriptedModel([asks(**request), call("find_it", where="here"), "Done."])
    (result,) = told(ran(first, lending(Sampling(ask=False))))
    (block,) = result["content"]
    assert (result["stopReason"], block["name"], block["input"]) == ("toolUse", "find-it", {"where": "here"})
    assert first.requests[1].tool_choice == "required"

    found = {"type": "tool_result", "toolUseId": block["id"], "content": [{"type": "text", "text": "a key"}]}
    history = [
        {"role": "user", "content": {"type": "text", "text": "Find it."}},
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": [found]},
    ]
    again = ScriptedModel([asks(**wanted(*history, tools=[TOOL])), "A key.", "Done."])
    (answered,) = told(ran(again, lending(Sampling(ask=False))))
    assert answered["content"] == {"type": "text", "text": "A key."}
    _, called, response = again.requests[1].contents
    assert called["parts"][0]["functionCall"]["name"] == "find_it"
    assert response["parts"][0]["functionResponse"]["response"] == {"result": "a key"}


@pytest.mark.slow
def test_a_server_of_the_newest_revision_is_lent_the_model_too():
    box = McpServer(
        "new", command=[sys.executable, str(HERE / "asking_server.py")], start_s=60, host=Host(sample=Sampling(ask=False))
    )
    model = ScriptedModel([call("sample"), "Blue.", "Done."])
    assert told(ran(model, box)) == [{"result": "Blue."}]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (ConnectionLostError("it is away"), "the model gave no answer: it is away"),
        (answer("No.", finish_reason="SAFETY"), "the model gave no usable answer: SAFETY"),
    ],
)
def test_a_model_that_gives_no_answer_is_an_error_of_the_request_alone(item: Any, message: str):
    reply = ran(ScriptedModel([asks(), item, "Done."]), lending(Sampling(ask=False)))
    assert (told(reply)[0]["message"], reply.text) == (message, "Done.")


def test_a_run_that_is_cancelled_takes_its_model_back():
    began = asyncio.Event()

    class Slow(ScriptedModel):
        async def generate(self, request: ModelRequest) -> AsyncIterator[JsonObject]:
            if len(self.requests) == 1:
                began.set()
                await asyncio.Event().wait()
            async for item in super().generate(request):
                yield item

    async def story() -> Reply:
        async with Gate(Slow([asks()]), [lending(Sampling(ask=False))], policy=Policy(default="allow")) as gate:
            running = asyncio.ensure_future(gate.run("Go.", session="s"))
            await began.wait()
            gate.cancel("s")
            return await running

    reply = asyncio.run(asyncio.wait_for(story(), 300))
    assert reply.finish_reason == "cancelled"


def test_a_call_without_a_run_has_no_model_to_lend():
    async def story() -> object:
        box = lending(Sampling(ask=False))
        await box.start(story)
        try:
            args = {"method": "sampling/createMessage", "params": wanted()}
            return await box.call("ask", args, ToolContext(call_id="1", name="ask"))
        finally:
            await box.aclose(story)

    assert "there is no model to ask" in str(asyncio.run(asyncio.wait_for(story(), 300)))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (wanted(tools=[TOOL, TOOL]), "two tools of the request are called 'find-it'"),
        (wanted(tools=[{"name": "x", "inputSchema": 3}]), "a tool of the request cannot be read"),
        (wanted(tools=[{**TOOL, "name": f"t{number}"} for number in range(129)]), "129 tools: at most 128"),
        (wanted({"role": "assistant", "content": {"type": "text", "text": "Hi."}}), "the messages cannot be sent"),
    ],
)
def test_a_request_that_no_model_can_answer_is_refused(request_: dict[str, Any], message: str):
    with pytest.raises(RefusedError, match=message):
        model_request(request_)


def test_media_and_structured_results_go_to_the_model():
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    use: JsonObject = {"type": "tool_use", "id": "u1", "name": "find-it", "input": {}}
    result = {"type": "tool_result", "toolUseId": "u1", "structuredContent": {"n": 1}, "content": [image]}
    failed = {"type": "tool_result", "toolUseId": "u1", "isError": True, "content": [{"type": "text", "text": "no"}]}

    def parts(*blocks: dict[str, Any]) -> list[Any]:
        said = wanted({"role": "user", "content": [image]}, {"role": "assistant", "content": [use]},
                      {"role": "user", "content": list(blocks)})  # fmt: skip
        return model_request(said).contents[-1]["parts"]

    (good,), (bad,) = parts(result), parts(failed)
    assert good["functionResponse"]["response"] == {"result": {"n": 1}}
    assert good["functionResponse"]["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]
    assert bad["functionResponse"]["response"] == {"error": "no"}


def test_a_file_may_lend_the_model(tmp_path: Path):
    rows: dict[str, Any] = {
        "plain": {"command": "x"}, "yes": {"command": "x", "sampling": True}, "no": {"command": "x", "sampling": False},
        "less": {"command": "x", "sampling": {"requests": 2, "tokens": 500, "ask": False}},
        "wrong": {"command": "x", "sampling": {"token": 5}}, "zero": {"command": "x", "sampling": {"tokens": 0}},
    }  # fmt: skip
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": rows}))

    async def login(server: str, url: str) -> None:
        raise AssertionError

    read = read_servers(path, host=Host(login=login))
    assert {server.name: server.host.sample for server in read.servers} == {
        "plain": None, "yes": Sampling(), "no": None, "less": Sampling(requests=2, tokens=500, ask=False),
    }  # fmt: skip
    assert all(server.host.login is login for server in read.servers)
    assert [sentence.partition(" was left out: ")[2] for sentence in read.warnings] == [
        "its 'sampling' must be true, or have the keys 'requests', 'tokens' and 'ask' only",
        "Sampling(tokens=0): expected a number of at least 1",
    ]


@pytest.mark.parametrize("wrong", [{"requests": 0}, {"tokens": True}, {"ask": "no"}])
def test_terms_that_mean_nothing_are_refused(wrong: dict[str, Any]):
    with pytest.raises(UsageError):
        Sampling(**wrong)


def test_another_event_loop_may_borrow_the_model():
    """A server may be connected on the loop of another gate."""

    async def story() -> str:
        lent: list[LentModel] = []
        real = LentModel.__call__

        async def elsewhere(self: LentModel, server: str, request: Any) -> Any:
            lent.append(self)
            run: Callable[..., Any] = asyncio.run
            return await asyncio.to_thread(run, real(self, server, request))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LentModel, "__call__", elsewhere)
            model = ScriptedModel([asks(), "Blue.", "Done."])
            async with Gate(model, [lending(Sampling(ask=False))], policy=Policy(default="allow")) as gate:
                (result,) = told(await gate.run("Go."))
        assert len(lent) == 1
        return result["content"]["text"]

    assert asyncio.run(asyncio.wait_for(story(), 300)) == "Blue."
