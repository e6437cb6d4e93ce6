"""What the embedded model is asked with and what is made of its answers, with a stand-in for its engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Conversation, ToolDefinition
from callgate.declaration import declare
from callgate.embedded.decoder import Step
from callgate.embedded.gguf import GgufHead
from callgate.embedded.scope import DECLINED
from callgate.embedded.weights import Files
from callgate.errors import LimitExceededError
from callgate.events import Notice
from callgate.models import embedded as models
from callgate.models.embedded import EmbeddedModel
from callgate.request import ModelRequest

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}


class StandIn:
    """Answers from a list, one text for each request, in pieces of five characters."""

    def __init__(self, *texts: Any, tools: bool = True, reason: str = "stop") -> None:
        self.texts = list(texts)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.reason = reason
        self.tools = tools
        self.started = 0
        self.begun: list[str] = []

    def start(self) -> None:
        self.started += 1

    async def ready(self) -> None:
        self.start()

    async def begin_with(self, text: str) -> None:
        self.begun.append(text)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        before = len(self.texts)
        try:
            yield
        finally:
            if len(self.texts) == before and self.texts:
                self.texts.pop(0)

    async def step(self, prompt: str, *, count: int = 1, grammar: str | None = None) -> Step:
        """The next three characters of its text, if it has been followed so far."""
        self.asked.append(("step", {"prompt": prompt, "count": count, "grammar": grammar}))
        written = prompt.rpartition("<|im_start|>assistant\n")[2]
        rest = str(self.texts[0]).removeprefix(written) if str(self.texts[0]).startswith(written) else ""
        piece = rest if count > 1 else rest[:3]
        return Step(piece, [(piece.encode(), 0.99)] if piece else [], prompt_tokens=7, cached_tokens=2, output_tokens=1)

    async def tokens(self, text: str) -> int:
        return len(text) // 4

    async def properties(self) -> dict[str, Any]:
        return {"chat_template_caps": {"supports_tools": self.tools, "supports_tool_calls": self.tools}}

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        self.asked.append((path, body))
        answer = self.texts.pop(0)
        chat = path.endswith("/chat/completions")
        if isinstance(answer, list):
            for event in answer:
                yield event
            return
        for place in range(0, len(answer), 5):
            piece = answer[place : place + 5]
            yield {"choices": [{"delta": {"content": piece}} if chat else {"text": piece}]}
        yield {"choices": [{"finish_reason": self.reason}], "usage": USAGE}


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models, "find_files", lambda: Files("base.gguf", "adapter.gguf"))
    monkeypatch.setattr(models, "read_checked", lambda path: GgufHead(1, 1, {}))

    def model(engine: StandIn, path: str | None = None, **options: Any) -> EmbeddedModel:
        monkeypatch.setattr(models, "shared_engine", lambda settings: engine)
        return EmbeddedModel(path, announce=False, **options)

    return model


TEXT = {"type": "string"}


def tool(name: str, **properties: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolDefinition(name=name, description=f"Does {name}.", input_schema=schema)


def request(*contents: Any, tools: tuple[ToolDefinition, ...] = (), **more: Any) -> ModelRequest:
    conversation = Conversation(
        [{"role": "user", "parts": [{"text": content}]} if isinstance(content, str) else content for content in contents]
    )
    return ModelRequest(conversation=conversation, definitions=tools, declaration=declare(list(tools)), **more)


def items(model: EmbeddedModel, asked: ModelRequest) -> list[Any]:
    async def collect() -> list[Any]:
        return [item async for item in model.generate(asked)]

    return asyncio.run(collect())


def chunk(*parts: Any, finish: str | None = None, usage: Any = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate]} | ({"usageMetadata": usage} if usage else {})


COUNTS = {"promptTokenCount": 7, "cachedContentTokenCount": 2, "candidatesTokenCount": 3, "totalTokenCount": 10}


def last(*parts: Any, finish: str = "STOP", name: str = "callgate-tools-135m", usage: Any = COUNTS) -> dict[str, Any]:
    return {**chunk(*parts, finish=finish, usage=usage), "modelVersion": name}


def test_prose_streams_and_the_last_chunk_names_the_model_and_counts_tokens(use: Any) -> None:
    engine = StandIn("Hello there.")
    assert items(use(engine), request("Hi")) == [
        chunk({"text": "Hello"}), chunk({"text": " ther"}), chunk({"text": "e."}), last(),
    ]  # fmt: skip
    ((path, body),) = engine.asked
    assert path == "/v1/completions"
    assert body["prompt"].endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert (body["temperature"], body["stop"], body["max_tokens"]) == (0, ["<|im_end|>"], 400)
    assert body["grammar"].startswith("root ::= prose")


def spoken(found: list[Any]) -> list[Any]:
    """Items without their counts of tokens."""
    return [
        item if isinstance(item, Notice) else {key: value for key, value in item.items() if key != "usageMetadata"}
        for item in found
    ]


def test_calls_come_whole_in_the_last_chunk_and_are_counted(use: Any) -> None:
    engine = StandIn('TOOL_CALL: find({"what": "keys"})\nTOOL_CALL: find({"what": "money"})')
    made = [{"functionCall": {"name": "find", "args": {"what": value}}} for value in ("keys", "money")]
    (found,) = items(use(engine), request("find keys and money", tools=(tool("find", what=TEXT),)))
    assert spoken([found]) == spoken([last(*made)])
    asked = sum(path == "step" for path, _ in engine.asked)
    assert found["usageMetadata"] == {
        "promptTokenCount": 7, "cachedContentTokenCount": 2, "candidatesTokenCount": asked, "totalTokenCount": 7 + asked,
    }  # fmt: skip


def test_a_value_is_written_as_it_was_said_whatever_the_model_would_write(use: Any) -> None:
    engine = StandIn('TOOL_CALL: find({"what": "MATEo"})')
    found = items(use(engine), request("find Mateusz there", tools=(tool("find", what=TEXT),)))
    assert spoken(found) == spoken([last({"functionCall": {"name": "find", "args": {"what": "Mateusz"}}})])


def test_an_optional_argument_that_nobody_gave_is_left_out(use: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"what": TEXT, "day": {"type": "string", "format": "date"}},
        "required": ["what"],
    }
    engine = StandIn('TOOL_CALL: find({"what": "keys", "day": "1978-07-19"})')
    asked = request("find the keys of object 1978.3", tools=(ToolDefinition(name="find", input_schema=schema),))
    assert spoken(items(use(engine), asked)) == spoken([last({"functionCall": {"name": "find", "args": {"what": "keys"}}})])


def test_an_answer_that_takes_too_long_ends_with_a_sentence(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "ANSWER_S_MAX", 0.0)
    engine = StandIn("x")
    monkeypatch.setattr(engine, "step", lambda *args, **options: asyncio.Event().wait())
    notice, answer = items(use(engine), request("find keys", tools=(tool("find", what=TEXT),)))
    assert notice.code == "answer_timed_out"
    assert "too busy" in answer["candidates"][0]["content"]["parts"][0]["text"]


def test_settings_of_the_request_are_used(use: Any) -> None:
    engine = StandIn("x")
    settings = {"temperature": 0.7, "max_output_tokens": 9, "stop_sequences": ["!"], "seed": 3}
    items(use(engine, grammar=False), request("Hi", settings=settings))
    body = engine.asked[0][1]
    assert (body["temperature"], body["max_tokens"], body["stop"], body["seed"]) == (0.7, 9, ["<|im_end|>", "!"], 3)
    assert "grammar" not in body


@pytest.mark.parametrize(
    ("text", "reason", "finish"),
    [("TOOL_CALL: find({", "stop", "MALFORMED_FUNCTION_CALL"), ('TOOL_CALL: find({"what": "a', "length", "MAX_TOKENS")],
)
def test_an_answer_that_broke_off_makes_no_call(use: Any, text: str, reason: str, finish: str) -> None:
    engine = StandIn(text, reason=reason)
    assert items(use(engine, grammar=False), request("find a", tools=(tool("find", what=TEXT),))) == [last(finish=finish)]


def test_a_value_that_nobody_gave_becomes_a_question(use: Any) -> None:
    engine = StandIn('TOOL_CALL: find({"what": "keys"})', 'TOOL_CALL: find({"what": "keys"})')
    asked = request("find it", tools=(tool("find", what=TEXT),))
    notice, answer = spoken(items(use(engine), asked))
    assert notice == Notice("asked_instead", "A call of 'find' was held back: the conversation does not give 'what'.")
    assert [answer] == spoken([last({"text": "To use find I need to know the what. What should it be?"})])
    call = {"functionCall": {"name": "find", "args": {"what": "keys"}}}
    assert spoken(items(use(engine, ask=False), asked)) == spoken([last(call)])


def test_a_misspelt_name_is_taken_for_the_one_that_was_said(use: Any) -> None:
    engine = StandIn('TOOL_CALL: find({"what": "Creamure"})')
    notice, answer = items(use(engine, grammar=False), request("find Craignure", tools=(tool("find", what=TEXT),)))
    assert notice == Notice("respelled", "'what' of 'find': 'Creamure' was taken for 'Craignure'.")
    assert answer == last({"functionCall": {"name": "find", "args": {"what": "Craignure"}}})


def test_several_results_are_put_into_words_one_by_one(use: Any) -> None:
    calls = [{"functionCall": {"name": "find", "args": {"what": value}}} for value in "ab"]
    results = [{"functionResponse": {"name": "find", "response": {"result": value}}} for value in (1, 2)]
    history = ("find a and b", {"role": "model", "parts": calls}, {"role": "user", "parts": results})
    engine = StandIn("One.", "Two.")
    twice = {key: 2 * value for key, value in COUNTS.items()}
    assert items(use(engine), request(*history, tools=(tool("find", what=TEXT),))) == [
        chunk({"text": "One."}), chunk({"text": "\n"}), chunk({"text": "Two."}), last(usage=twice),
    ]  # fmt: skip
    first, second = (body["prompt"] for _, body in engine.asked)
    assert 'TOOL_RESULT find: {"result": 1}' in first
    assert 'TOOL_RESULT find: {"result": 2}' not in first
    assert 'TOOL_RESULT find: {"result": 2}' in second


def test_what_does_not_fit_is_left_out_with_a_notice_or_refused(use: Any) -> None:
    many = tuple(ToolDefinition(name=f"tool_{n}", description="word " * 40) for n in range(40))
    engine = StandIn("Yes.", "No.")
    notices = [item for item in items(use(engine), request("tool_39 please", tools=many)) if isinstance(item, Notice)]
    assert [notice.code for notice in notices] == ["tools_left_out"]
    assert "tool_39 - " in engine.asked[0][1]["prompt"]
    old = ("long ago " * 2_000, {"role": "model", "parts": [{"text": "I see."}]}, "And now?")
    notices = [item for item in items(use(engine), request(*old)) if isinstance(item, Notice)]
    assert [notice.message for notice in notices] == [
        "The first 2 messages were left out: the model has room for 4096 tokens."
    ]
    with pytest.raises(LimitExceededError, match="too long for callgate-tools-135m"):
        items(use(engine), request("word " * 5_000))


def test_tokens_are_counted_and_loading_can_be_asked_for(use: Any) -> None:
    engine = StandIn()
    model = use(engine)
    model.load()
    assert engine.started == 1
    assert asyncio.run(model.count_tokens(request("Hi"))) > 0
    assert asyncio.run(use(engine, "other.gguf").count_tokens(request("Hi there, you"))) == 3


def test_the_first_answer_names_the_model(use: Any) -> None:
    model = use(StandIn("Hello.", "Hello."))
    model._announce = True
    assert items(model, request("Hi"))[0].code == "embedded_model"
    assert not [item for item in items(model, request("Hi")) if isinstance(item, Notice)]


# --- other models --------------------------------------------------------------------------------------------------------


def delta(index: int = 0, **function: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"tool_calls": [{"index": index, "function": function}]}}]}


END = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}], "usage": USAGE}


def test_another_model_is_asked_through_its_template_and_its_calls_are_joined(use: Any, tmp_path: Path) -> None:
    engine = StandIn([
        {"choices": [{"delta": {"reasoning_content": "Hm."}}]},
        {"choices": [{"delta": {"content": "Well."}}]},
        delta(name="find", arguments='{"wh'), delta(arguments='at": 1}'), delta(1, name="find"), END,
    ])  # fmt: skip
    asked = request("Hi", tools=(tool("find", what=TEXT), tool("other")), system="Be brief.", tool_choice="find")
    calls = [{"functionCall": {"name": "find", "args": args}} for args in ({"what": 1}, {})]
    assert items(use(engine, str(tmp_path / "qwen.gguf")), asked) == [
        chunk({"text": "Hm.", "thought": True}), chunk({"text": "Well."}), last(*calls, name="qwen"),
    ]  # fmt: skip
    path, body = engine.asked[0]
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert [each["function"]["name"] for each in body["tools"]] == ["find"]
    assert body["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("events", "finish"),
    [
        ([delta(name="find", arguments="{oops"), END], "MALFORMED_FUNCTION_CALL"),
        ([delta(name="find", arguments="[1]"), END], "MALFORMED_FUNCTION_CALL"),
        ([delta(name="find"), {"choices": [{"finish_reason": "length"}]}], "MAX_TOKENS"),
        ([delta(name="find")], "OTHER"),
    ],
)
def test_calls_of_another_model_that_cannot_be_read_are_not_made(use: Any, events: list[Any], finish: str) -> None:
    asked = request("Hi", tools=(tool("find"),))
    end = items(use(StandIn(events), "qwen.gguf"), asked)[-1]
    assert end["candidates"] == [{"index": 0, "finishReason": finish}]


def test_tools_are_left_out_where_none_may_be_called(use: Any) -> None:
    engine = StandIn([END])
    items(use(engine, "qwen.gguf"), request("Hi", tools=(tool("find"),), tool_choice="none"))
    assert "tools" not in engine.asked[0][1]


def test_a_template_without_tools_is_told_of_them_in_words_and_held_to_the_grammar(use: Any) -> None:
    engine = StandIn('TOOL_CALL: find({"what": "a"})', tools=False)
    asked = request("find a", tools=(tool("find", what=TEXT),))
    call = {"functionCall": {"name": "find", "args": {"what": "a"}}}
    assert items(use(engine, "tiny.gguf"), asked) == [last(call, name="tiny")]
    path, body = engine.asked[0]
    assert path == "/v1/chat/completions"
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert "find - Does find.\n  what*: string" in body["messages"][0]["content"]
    assert body["grammar"].startswith("root ::= call")


def test_a_list_is_copied_item_by_item_and_closed_whatever_marks_the_model_would_write(use: Any) -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    engine = StandIn('TOOL_CALL: find({"numbers": [3, 5]')
    found = items(use(engine), request("find 3 and 5", tools=(tool("find", numbers=schema),)))
    assert spoken(found) == spoken([last({"functionCall": {"name": "find", "args": {"numbers": [3, 5]}}})])


def test_a_list_with_repeated_items_is_called_as_it_was_said(use: Any) -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    engine = StandIn('TOOL_CALL: find({"numbers": [3]})')
    found = items(use(engine), request("find [3,5,3,50]", tools=(tool("find", numbers=schema),)))
    assert spoken(found) == spoken([last({"functionCall": {"name": "find", "args": {"numbers": [3, 5, 3, 50]}}})])


def test_composed_text_ends_before_the_marks_of_the_format(use: Any) -> None:
    engine = StandIn('TOOL_CALL: send({"message": "All is well.\'})assistantname: send({"})')
    found = items(use(engine), request("send that we are fine", tools=(tool("send", message=TEXT),)))
    assert spoken(found) == spoken([last({"functionCall": {"name": "send", "args": {"message": "All is well."}}})])


def test_strings_and_numbers_inside_an_object_are_among_those_that_were_said(use: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"name": TEXT, "age": {"type": "integer"}, "email": TEXT},
        "required": ["name", "age"],
    }
    engine = StandIn('TOOL_CALL: add({"person": {"name": "Chester", "age": 42}})')
    items(use(engine), request("add Chester, who is 42", tools=(tool("add", person=schema),)))
    (grammar,) = [body["grammar"] for path, body in engine.asked if path == "step" and body["count"] > 1]
    written = dict(line.split(" ::= ") for line in grammar.splitlines())
    rules = [written[name] for name in ("v-1", "v-2")]
    assert rules == ['"\\"" ("42\\"" | "Chester\\"")', '"42"']
    assert "email" not in grammar


def test_an_object_without_what_it_requires_is_asked_for(use: Any) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    engine = StandIn('TOOL_CALL: add({"person": {"age": 42}})')
    found = items(use(engine), request("add a person", tools=(tool("add", person=schema),)))
    assert [item.code for item in found if isinstance(item, Notice)] == ["asked_instead"]


def test_a_call_written_as_prose_is_never_an_answer(use: Any) -> None:
    engine = StandIn('find({"what": "keys"})')
    found = items(use(engine), request("Hm", tools=(tool("find", what=TEXT),)))
    assert spoken(found) == spoken([chunk({"text": DECLINED}), last()])
