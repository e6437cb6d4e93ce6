"""Fourteen faults of an older service of this kind, each over HTTP: what it got wrong must come out right here.

The model is told of tools in its prompt, as it was there.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from callgate import Gate, McpServer, Policy, ScriptedModel, tool
from callgate.permission import ResultCache
from callgate.server.providers import Provider, Providers
from callgate.testing import answer, text

CREATE = 'TOOL_CALL: create({"name": "db", "kind": "database"})'


@pytest.fixture
def made() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def create(made):
    @tool
    def create(name: str, kind: str = "none") -> str:
        """Creates something."""
        made.append({"name": name, "kind": kind})
        return f"{name} was made"

    return create


@tool(read_only=True)
def blueprints() -> list[str]:
    """Lists the blueprints."""
    return ["postgresql"]


def prompted(*script: Any, tools: Any, **options: Any) -> tuple[Gate, ScriptedModel]:
    model = ScriptedModel(script)
    return Gate(model, tools, mode="prompted", **options), model


def seen_by(model: ScriptedModel, number: int) -> str:
    """Everything that the model was sent with one request."""
    request = model.requests[number]
    return f"{request.system} {request.contents}"


def test_1_the_question_is_in_every_request(serve, create) -> None:
    gate, model = prompted(CREATE, "Done.", tools=[create])
    serve(gate).chat({"prompt": "Make me a database."})
    assert ["Make me a database." in seen_by(model, number) for number in (0, 1)] == [True, True]


def test_2_provider_model_and_context_are_used(serve) -> None:
    asked = ScriptedModel(["Fine."], name="big")
    opened = []

    def open_it(name: str | None) -> ScriptedModel:
        opened.append(name)
        return asked

    providers = Providers({"other": Provider(name="other", open=open_it)})
    site = serve(Gate(ScriptedModel([])), providers=providers)
    site.chat({"prompt": "Hi.", "provider": "other", "model": "big", "context": {"team": "blue"}})
    assert opened == ["big"]
    assert '"team":"blue"' in seen_by(asked, 0)


def test_3_a_second_create_is_executed_even_with_a_cache(serve, create, made) -> None:
    gate, _ = prompted(CREATE, "Done.", CREATE, "Done.", tools=[create], cache=ResultCache())
    site = serve(gate)
    for _ in range(2):
        site.chat({"prompt": "Make it."})
    assert len(made) == 2


@pytest.mark.parametrize("arguments", ['{"name": ', "{'name': }", '{"name": NaN}', "not json"])
def test_4_arguments_that_do_not_parse_run_nothing_and_the_model_is_told(serve, create, made, arguments) -> None:
    gate, model = prompted(f"TOOL_CALL: create({arguments})", "Sorry.", "Sorry.", "Sorry.", tools=[create])
    serve(gate).chat({"prompt": "Make it."})
    assert made == []
    assert len(model.requests) >= 2  # It was told, and could answer again.


def test_4_arguments_over_several_lines_are_read(serve, create, made) -> None:
    gate, _ = prompted('TOOL_CALL: create({\n  "name": "db",\n  "kind": "a"\n})', "Done.", tools=[create])
    serve(gate).chat({"prompt": "Make it."})
    assert made == [{"name": "db", "kind": "a"}]


def test_5_parentheses_in_strings_and_behind_the_call_do_no_harm(serve, create, made) -> None:
    gate, _ = prompted('TOOL_CALL: create({"name": "a) b(", "kind": "x)"}) (this makes it :))', "Done.", tools=[create])
    serve(gate).chat({"prompt": "Make it."})
    assert made == [{"name": "a) b(", "kind": "x)"}]


def test_6_ids_are_unique_in_the_conversation_and_unknown_tools_are_told(serve, create) -> None:
    gate, model = prompted(CREATE, "Done.", CREATE + '\nTOOL_CALL: destroy({"name": "db"})', "Done.", tools=[create])
    site = serve(gate)
    first = site.chat({"prompt": "Make it.", "session": "s"}).json
    second = site.chat({"prompt": "And again.", "session": "s"}).json
    ids = [item["id"] for told in (first, second) for item in told["tool_calls"]]
    assert len(ids) == len(set(ids)) == 3
    assert second["tool_results"][1]["is_error"]
    assert "destroy" in seen_by(model, 3)


def test_7_a_call_in_a_code_block_or_a_quote_is_not_run_and_calls_are_not_in_the_answer(serve, create, made) -> None:
    quoted = f"Write it like this:\n```text\nSome words\n{CREATE}\n```\nor so:\n> {CREATE}\nThat is all."
    gate, _ = prompted(quoted, f"I make it.\n{CREATE}", "Done.", tools=[create])
    site = serve(gate)
    assert site.chat({"prompt": "How is it written?"}).json["tool_calls"] == []
    assert made == []
    told = site.chat({"prompt": "Do it."}).json
    assert len(made) == 1
    assert "TOOL_CALL" not in told["response"]


def test_8_a_call_that_needs_a_result_can_wait_for_it(serve, create, made) -> None:
    gate, model = prompted("TOOL_CALL: blueprints({})", CREATE, "Done.", tools=[create, blueprints])
    told = serve(gate).chat({"prompt": "Make a database."}).json
    assert [item["name"] for item in told["tool_calls"]] == ["blueprints", "create"]
    assert "postgresql" in seen_by(model, 1)
    assert told["metadata"]["iterations"] == 3


def test_9_failed_calls_are_in_both_lists(serve, create) -> None:
    gate, _ = prompted('TOOL_CALL: create({"kind": "nameless"})', "Sorry.", tools=[create])
    told = serve(gate).chat({"prompt": "Make it."}).json
    (call,), (result,) = told["tool_calls"], told["tool_results"]
    assert (call["id"], result["is_error"]) == (result["tool_call_id"], True)


def test_10_the_model_sees_which_result_belongs_to_which_tool(serve, create) -> None:
    gate, model = prompted(f"{CREATE}\nTOOL_CALL: blueprints({{}})", "Done.", tools=[create, blueprints])
    serve(gate).chat({"prompt": "Both."})
    said = seen_by(model, 1)
    assert said.index("create") < said.index("db was made")
    assert said.rindex("blueprints") < said.rindex("postgresql")


def test_11_a_client_that_leaves_cancels_the_call_on_the_server_of_tools_and_health_tells_the_truth(serve, slow) -> None:
    site = serve(Gate(ScriptedModel(["TOOL_CALL: slow({})"]), [slow.tool], mode="prompted"))
    with site.stream_chat({"prompt": "Wait."}) as stream:
        stream.until("call_started")
        stream.close()
    site.until(lambda: slow.states == ["cancelled"], "the cancellation")
    broken = serve(Gate(ScriptedModel([]), [McpServer("gone", command=["/no/such/server"], start_s=0.3)]))
    health = broken.get("/api/v1/health").json
    assert (health["status"], health["services"]["mcp_client"]) == ("degraded", "degraded")


def test_12_the_prompt_tells_of_parameters_in_order_with_enums_and_nested_fields(serve) -> None:
    from typing import Literal, TypedDict

    class Size(TypedDict):
        disk_gb: int

    @tool
    def resize(zebra: str, apple: Literal["small", "large"], size: Size) -> str:
        """Resizes."""
        return zebra

    systems = []
    for _ in range(2):
        gate, model = prompted("Fine.", tools=[resize])
        serve(gate).chat({"prompt": "Hi."})
        systems.append(seen_by(model, 0))
    assert systems[0] == systems[1]
    assert systems[0].index("zebra") < systems[0].index("apple") < systems[0].index("disk_gb")
    assert "large" in systems[0]


def test_13_tokens_are_counted_and_several_origins_can_be_allowed(serve) -> None:
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
    site = serve(Gate(ScriptedModel([answer(text("Hi."), usage=usage)])), origins=("https://a.example", "https://b.example"))
    told = site.chat({"prompt": "Hi."}, Origin="https://b.example")
    assert told.json["metadata"]["usage"]["total_tokens"] == 10
    assert told.headers["access-control-allow-origin"] == "https://b.example"


def test_14_nothing_that_was_said_is_in_a_log(serve, create, caplog) -> None:
    gate, _ = prompted('TOOL_CALL: create({"name": "hush-argument"})', "hush-answer", tools=[create])
    with caplog.at_level(logging.INFO):
        serve(gate).chat({"prompt": "hush-prompt", "context": {"key": "hush-context"}})
    assert "hush" not in caplog.text


def test_nothing_of_it_depends_on_asking(serve, create, made) -> None:
    gate, _ = prompted(CREATE, "Done.", tools=[create], policy=Policy(default="ask"))
    assert serve(gate).chat({"prompt": "Make it."}).status == 202
    assert made == []
