"""The fake server: plain HTTP first, then Google's own client, which knows nothing of callgate."""

import asyncio
import contextlib
import gzip
import importlib
import json
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callgate.errors import UsageError
from callgate.testing.answers import partial_args
from callgate.testing.examples import demo, example_call, example_of
from callgate.testing.fake_gemini import Clock, FakeGemini, answer, call, calls, fault, main, raw, text, thought
from callgate.testing.google_rules import judge
from callgate.testing.script import Script, script_from_file, script_from_json

MODEL = "gemini-3.8-flash"
PATH = f"/v1beta/models/{MODEL}"
WX = {
    "name": "wx",
    "parametersJsonSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = [{"functionDeclarations": [WX]}]


def body(*more: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": "Oslo?"}]}, *more]} | fields


def run(main_of_test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(300):
            await main_of_test()

    asyncio.run(bounded())


def generate(fake: FakeGemini, request: Any = None, path: str = PATH, **options: Any) -> httpx2.Response:
    return httpx2.post(f"{fake.base_url}{path}:generateContent", json=request or body(), **options)


def stream(fake: FakeGemini, request: Any = None, path: str = PATH, query: str = "?alt=sse") -> httpx2.Response:
    return httpx2.post(f"{fake.base_url}{path}:streamGenerateContent{query}", json=request or body())


def events(response: httpx2.Response) -> list[Any]:
    return [json.loads(event.removeprefix("data: ")) for event in response.text.split("\r\n\r\n") if event]


def parts(response: Any) -> list[Any]:
    return response["candidates"][0]["content"]["parts"]


# Whole and streamed ------------------------------------------------------------------------------------------------------


def test_a_whole_answer_looks_like_googles() -> None:
    with FakeGemini.in_thread(["Four degrees."]) as fake:
        response = generate(fake)
    said = response.json()
    assert response.headers["content-type"] == "application/json; charset=UTF-8"
    assert parts(said)[0]["text"] == "Four degrees."
    assert said["candidates"][0]["finishReason"] == "STOP"
    assert said["modelVersion"] == MODEL
    assert said["responseId"]
    usage = said["usageMetadata"]
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"]


def test_a_stream_comes_as_events_with_crlf_and_cumulative_usage() -> None:
    with FakeGemini.in_thread([text("Four degrees.", chunks=["Four ", "deg", "rees."])]) as fake:
        response = stream(fake)
    assert response.headers["content-type"] == "text/event-stream"
    assert response.content.startswith(b"data: {")
    assert response.content.endswith(b"}\r\n\r\n")
    assert b"[DONE]" not in response.content
    chunks = events(response)
    assert [parts(chunk)[0]["text"] for chunk in chunks] == ["Four ", "deg", "rees.", ""]
    assert parts(chunks[-1])[0]["thoughtSignature"]
    assert [chunk["candidates"][0].get("finishReason") for chunk in chunks] == [None, None, None, "STOP"]
    assert len({chunk["responseId"] for chunk in chunks}) == 1
    counts = [chunk["usageMetadata"]["candidatesTokenCount"] for chunk in chunks]
    assert counts == sorted(counts)


def test_a_stream_without_alt_sse_is_one_json_array() -> None:
    with FakeGemini.in_thread([text("ab", chunks=2, signed=False)]) as fake:
        response = stream(fake, query="")
    assert response.headers["content-type"].startswith("application/json")
    assert [parts(chunk)[0]["text"] for chunk in response.json()] == ["a", "b"]


def test_errors_of_a_stream_are_wrapped_in_an_array_unless_events_were_asked_for() -> None:
    with FakeGemini.in_thread([]) as fake:
        assert stream(fake, query="").json()[0]["error"]["status"] == "INTERNAL"
        assert stream(fake).json()["error"]["code"] == 500


def test_separators_that_only_python_takes_for_line_ends_are_sent_raw() -> None:
    with FakeGemini.in_thread([text("a\u2028b", signed=False)]) as fake:
        assert "\u2028".encode() in stream(fake).content


def test_calls_have_ids_and_one_signature_on_new_models() -> None:
    with FakeGemini.in_thread([calls(("wx", {"city": "Oslo"}), ("wx", {"city": "Rome"}))]) as fake:
        first, second = parts(generate(fake, body(tools=TOOLS)).json())
    assert first["functionCall"]["id"] != second["functionCall"]["id"]
    assert first["thoughtSignature"] in fake.signatures
    assert "thoughtSignature" not in second


def test_a_list_of_short_forms_is_one_answer() -> None:
    script = [
        [thought("Hm."), call("wx", city="Oslo"), call("wx", city="Rome")],
        calls(("wx", {"city": "Oslo"}), ("wx", {"city": "Rome"})),
    ]
    with FakeGemini.in_thread(script) as fake:
        listed, together = (parts(generate(fake, body(tools=TOOLS)).json()) for _ in script)
    cities = [
        [part["functionCall"]["args"]["city"] for part in found if "functionCall" in part] for found in (listed, together)
    ]
    assert cities == [["Oslo", "Rome"], ["Oslo", "Rome"]]


def test_old_models_and_vertex_send_calls_without_ids() -> None:
    vertex = "/v1/projects/p/locations/global/publishers/google/models/gemini-3.8-flash"
    with FakeGemini.in_thread([call("wx", city="Oslo")] * 2) as fake:
        old = parts(generate(fake, path="/v1/models/gemini-2.5-flash").json())
        cloud = parts(generate(fake, path=vertex).json())
    assert old == [{"functionCall": {"name": "wx", "args": {"city": "Oslo"}}}]
    assert cloud[0].keys() == {"functionCall", "thoughtSignature"}
    assert "id" not in cloud[0]["functionCall"]
    assert [request.surface for request in fake.requests] == ["developer", "vertex"]


def test_options_of_an_answer_beat_the_habits_of_the_model() -> None:
    with FakeGemini.in_thread(
        [calls(("wx", {}), ids=False, signed=False), calls(("wx", {}), ("wx", {}), apart=True)]
    ) as fake:
        assert parts(generate(fake).json()) == [{"functionCall": {"name": "wx", "args": {}}}]
        assert [len(parts(chunk)) for chunk in events(stream(fake))] == [1, 1]


def test_thoughts_come_first_and_are_counted_apart() -> None:
    with FakeGemini.in_thread([answer(thought("Hm."), "Yes.")]) as fake:
        said = generate(fake).json()
    assert parts(said)[0] == {"text": "Hm.", "thought": True}
    assert said["usageMetadata"]["thoughtsTokenCount"] == 1


def test_dicts_lists_and_bytes_are_sent_as_they_are() -> None:
    whole = {"candidates": [{"content": {"parts": [{"text": "a"}], "role": "model"}, "finishReason": "STOP"}]}
    pieces = [{"candidates": [{"content": {"parts": [{"text": letter}]}}]} for letter in "ab"]
    with FakeGemini.in_thread([whole, pieces, pieces, raw(b'{"odd": NaN}')]) as fake:
        assert generate(fake).json() == whole
        assert events(stream(fake)) == pieces
        assert parts(generate(fake).json()) == [{"text": "a"}, {"text": "b"}]
        assert generate(fake).content == b'{"odd": NaN}\n'


def test_parts_are_answers_too() -> None:
    script = [{"text": "a"}, [{"text": "b", "thought": True}, {"functionCall": {"name": "wx"}}], answer("c", call("wx"))]
    with FakeGemini.in_thread(script) as fake:
        said = [parts(generate(fake).json()) for _ in script]
    assert [[next(iter(part)) for part in each] for each in said] == [
        ["text"],
        ["text", "functionCall"],
        ["text", "functionCall"],
    ]
    assert all(any("thoughtSignature" in part for part in each) for each in said)


def test_the_helpers_of_the_scripted_model_write_scripts_for_the_server_too() -> None:
    from callgate import testing

    script = [testing.call("wx", city="Oslo"), testing.answer(testing.thought("Hm."), "Four.")]
    with FakeGemini.in_thread(script) as fake:
        assert parts(generate(fake).json())[0]["functionCall"]["args"] == {"city": "Oslo"}
        assert parts(generate(fake).json())[1]["text"] == "Four."


def test_vertex_streams_arguments_when_asked_to() -> None:
    path = "/v1/publishers/google/models/gemini-3.8-flash"
    request = body(tools=TOOLS, toolConfig={"functionCallingConfig": {"streamFunctionCallArguments": True}})
    with FakeGemini.in_thread([call("wx", city="Oslo", days=0)]) as fake:
        pieces = [parts(chunk)[0]["functionCall"] for chunk in events(stream(fake, request, path))]
    assert pieces == [
        {"name": "wx", "willContinue": True},
        {"partialArgs": [{"jsonPath": "$.city", "stringValue": "Os", "willContinue": True}], "willContinue": True},
        {"partialArgs": [{"jsonPath": "$.city", "stringValue": "lo"}], "willContinue": True},
        {"partialArgs": [{"jsonPath": "$.days", "numberValue": 0}], "willContinue": True},
        {},
    ]


def test_every_kind_of_leaf_is_streamed() -> None:
    args = {"o": {"m": 1, "n": None}, "l": [{"x": True}], "e": [], "d": {}, "odd key": "a"}
    assert list(partial_args(args)) == [
        {"jsonPath": "$.o.m", "numberValue": 1}, {"jsonPath": "$.o.n", "nullValue": None},
        {"jsonPath": "$.l[0].x", "boolValue": True}, {"jsonPath": "$.e[]"}, {"jsonPath": "$.d"},
        {"jsonPath": "$['odd key']", "stringValue": "a"},
    ]  # fmt: skip


# Scripts -----------------------------------------------------------------------------------------------------------------


def test_a_function_in_the_script_sees_the_request() -> None:
    with FakeGemini.in_thread([lambda request: request["contents"][0]["parts"][0]["text"] + "!"]) as fake:
        assert parts(generate(fake).json())[0]["text"] == "Oslo?!"


def test_a_function_that_fails_is_answered_with_500_and_kept() -> None:
    with FakeGemini.in_thread([lambda request: request["nothing"]]) as fake:
        assert "KeyError" in generate(fake).json()["error"]["message"]
    assert isinstance(fake.errors[0], KeyError)


def test_a_tuple_is_a_sequence_and_the_end_says_so() -> None:
    with FakeGemini.in_thread([("a", ("b",)), lambda _: ("c", fault("W09"))]) as fake:
        said = [parts(generate(fake).json())[0]["text"] for _ in range(3)]
        late, end = generate(fake), generate(fake)
    assert said == ["a", "b", "c"]
    assert late.status_code == 504
    assert end.status_code == 500
    assert "script is at its end" in end.json()["error"]["message"]
    assert fake.steps_left == 0


def test_the_last_item_can_be_repeated() -> None:
    with FakeGemini.in_thread(["a", "b"], repeat_last=True) as fake:
        assert [parts(generate(fake).json())[0]["text"] for _ in range(4)] == ["a", "b", "b", "b"]


def test_an_answer_that_is_not_json_is_answered_with_500_and_kept() -> None:
    with FakeGemini.in_thread([call("wx", city=object())]) as fake:
        assert generate(fake).status_code == 500
    assert isinstance(fake.errors[0], TypeError)


def test_pieces_that_do_not_make_up_the_text_are_refused() -> None:
    with pytest.raises(UsageError, match="do not make up"):
        text("abc", chunks=["a", "b"])


def test_a_clock_that_stands_still_is_refused() -> None:
    with pytest.raises(UsageError, match="above 0"):
        Clock(scale=0)


def test_a_wrong_item_is_refused_when_the_server_is_made() -> None:
    with pytest.raises(UsageError, match="not 'int'"):
        FakeGemini([7])  # type: ignore[list-item]


def test_a_script_may_be_plain_data(tmp_path: Path) -> None:
    items = ["a", {"text": "b", "chunks": 2}, {"call": "f", "args": {"x": 1}}, {"calls": [{"name": "f"}, {"name": "g"}]}]
    items += [{"parts": [{"text": "c"}], "finish_reason": "MAX_TOKENS"}, {"fault": "W42:null"}, {"candidates": []}]
    path = tmp_path / "script.json"
    path.write_text(json.dumps(items))
    assert script_from_file(path) == [
        "a", text("b", chunks=2), call("f", x=1), calls(("f", {}), ("g", {})), answer("c", finish_reason="MAX_TOKENS"),
        fault("W42", "null"), {"candidates": []},
    ]  # fmt: skip


@pytest.mark.parametrize("value", [{}, [7], [{"fault": "W99"}], [{"text": "a", "colour": "red"}]])
def test_plain_data_that_is_no_script_is_refused(value: Any) -> None:
    with pytest.raises(UsageError):
        script_from_json(value)


def test_a_step_of_some_seconds_ends_by_the_clock_of_the_server() -> None:
    class Hands(Clock):
        moment = 0.0

        def now(self) -> float:
            return Hands.moment

    script, clock = Script.of([fault("W06"), "b"]), Hands()
    assert script.take({}, clock) == script.take({}, clock) == fault("W06")
    Hands.moment = 5.0
    assert script.take({}, clock) == text("b")


# Rules and doors ---------------------------------------------------------------------------------------------------------


def test_a_refused_request_takes_no_step_and_names_its_rule() -> None:
    with FakeGemini.in_thread(["a"]) as fake:
        refused = generate(fake, {"contents": []})
        assert refused.status_code == 400
        assert refused.json()["error"]["status"] == "INVALID_ARGUMENT"
        assert refused.headers["x-fake-gemini-rule"] == "contents_exist"
        assert generate(fake).status_code == 200
    assert [refusal.rule for refusal in fake.refusals] == ["contents_exist"]


def test_a_lenient_server_takes_anything() -> None:
    with FakeGemini.in_thread(["a"], strict=False) as fake:
        assert generate(fake, {"nonsense": 1}).status_code == 200


def test_a_signature_must_come_back_as_it_went() -> None:
    with FakeGemini.in_thread([call("wx", city="Oslo"), "a", "b"]) as fake:
        content = generate(fake).json()["candidates"][0]["content"]
        inner = content["parts"][0]["functionCall"]
        answered = {
            "role": "user",
            "parts": [{"functionResponse": {"id": inner["id"], "name": "wx", "response": {"result": 4}}}],
        }
        assert generate(fake, body(content, answered)).status_code == 200
        changed = {"role": "model", "parts": [content["parts"][0] | {"thoughtSignature": "AAAA"}]}
        assert generate(fake, body(changed, answered)).json()["error"]["message"] == "Invalid/Corrupted thought signature"
        fake.signatures.add("AAAA")
        assert generate(fake, body(changed, answered)).status_code == 200


def test_the_key_opens_the_door_in_the_header_or_the_query() -> None:
    with FakeGemini.in_thread(["a", "b"], api_key="right") as fake:
        assert generate(fake, headers={"x-goog-api-key": "right"}).status_code == 200
        assert generate(fake, params={"key": "right"}).status_code == 200
        assert (missing := generate(fake)).status_code == 403
        assert missing.json()["error"]["status"] == "PERMISSION_DENIED"
        wrong = generate(fake, headers={"x-goog-api-key": "wrong"})
        assert wrong.status_code == 400
        assert wrong.json()["error"]["details"][0]["reason"] == "API_KEY_INVALID"
    assert fake.requests[1].query == {"key": "right"}


def test_vertex_wants_a_bearer_token() -> None:
    path = "/v1/projects/p/locations/l/publishers/google/models/gemini-3.8-flash"
    with FakeGemini.in_thread(["a"], api_key="token") as fake:
        assert generate(fake, path=path).status_code == 401
        assert generate(fake, path=path, headers={"Authorization": "Bearer token"}).status_code == 200


def test_models_are_listed_and_unknown_ones_not_found() -> None:
    with FakeGemini.in_thread(["a"], models=["gemini-3.8-flash"]) as fake:
        listed = httpx2.get(f"{fake.base_url}/v1beta/models").json()["models"]
        one = httpx2.get(f"{fake.base_url}/v1beta/models/gemini-3.8-flash").json()
        missing = generate(fake, path="/v1beta/models/gemini-9")
        elsewhere = httpx2.get(f"{fake.base_url}/favicon.ico")
    assert listed == [one]
    assert one["name"] == "models/gemini-3.8-flash"
    assert missing.status_code == elsewhere.status_code == 404
    assert "models/gemini-9 is not found for API version v1beta" in missing.json()["error"]["message"]


def test_aliases_exist_only_on_the_beta_version() -> None:
    with FakeGemini.in_thread(["a"]) as fake:
        assert generate(fake, path="/v1/models/gemini-flash-latest").status_code == 404
        assert generate(fake, path="/v1beta/models/gemini-flash-latest").status_code == 200


def test_a_fixed_surface_judges_every_path() -> None:
    request = body(toolConfig={"includeServerSideToolInvocations": True})
    with FakeGemini.in_thread(["a"], surface="vertex") as fake:
        assert "Cannot find field" in generate(fake, request).json()["error"]["message"]


def test_gzip_is_sent_to_those_who_take_it() -> None:
    with FakeGemini.in_thread(["a", "b", "c"], compress=True) as fake:
        packed = generate(fake, headers={"Accept-Encoding": "gzip"})
        plain = generate(fake, headers={"Accept-Encoding": "identity"})
        assert events(stream(fake))
    assert packed.headers["content-encoding"] == "gzip"
    assert parts(packed.json())[0]["text"] == "a"
    assert "content-encoding" not in plain.headers


# Sockets -----------------------------------------------------------------------------------------------------------------


def request_bytes(request: Any, *headers: str) -> bytes:
    data = json.dumps(request).encode()
    lines = [f"POST {PATH}:generateContent HTTP/1.1", "Host: fake", *headers, f"Content-Length: {len(data)}", "", ""]
    return "\r\n".join(lines).encode() + data


def test_a_connection_serves_many_requests_and_the_exit_closes_it() -> None:
    async def scene() -> None:
        async with FakeGemini(["a", "b"]) as fake:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(fake.base_url.rpartition(":")[2]))
            for _ in range(2):
                writer.write(request_bytes(body()))
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                assert json.loads(await reader.readexactly(length))
            assert fake.open_connections == fake.connections == 1
        assert await reader.read() == b""
        assert fake.open_connections == 0
        writer.close()
        await writer.wait_closed()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scene)


def test_chunked_requests_and_expect_continue_are_understood() -> None:
    data = json.dumps(body()).encode()
    lines = [f"POST {PATH}:generateContent HTTP/1.1", "Host: f", "Transfer-Encoding: chunked", "Expect: 100-continue"]
    head = "\r\n".join([*lines, "Connection: close", "", ""])
    with (
        FakeGemini.in_thread(["a"]) as fake,
        socket.create_connection(("127.0.0.1", int(fake.base_url.rpartition(":")[2]))) as client,
    ):
        client.sendall(head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
        received = b"".join(iter(lambda: client.recv(4096), b""))
    assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert fake.requests[0].json == body()


@pytest.mark.parametrize("data", [
    b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\nno colon\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
])  # fmt: skip
def test_what_is_not_http_is_answered_with_400(data: bytes) -> None:
    with (
        FakeGemini.in_thread(["a"]) as fake,
        socket.create_connection(("127.0.0.1", int(fake.base_url.rpartition(":")[2]))) as client,
    ):
        client.sendall(data)
        assert client.recv(4096).startswith(b"HTTP/1.1 400 Bad Request")
    assert fake.requests == []


def test_a_taken_port_is_told_to_the_thread_that_asked_for_it() -> None:
    with FakeGemini.in_thread(["a"]) as fake:
        second = FakeGemini.in_thread(["b"], port=int(fake.base_url.rpartition(":")[2]))
        with pytest.raises(OSError, match="address"):
            second.__enter__()
    assert not [thread for thread in threading.enumerate() if thread.name == "fake-gemini"]


# Without a script --------------------------------------------------------------------------------------------------------


def test_without_a_script_text_is_echoed_and_the_first_tool_called_once() -> None:
    with FakeGemini.in_thread() as fake:
        assert parts(generate(fake).json())[0]["text"] == "Oslo?"
        content = generate(fake, body(tools=TOOLS)).json()["candidates"][0]["content"]
        inner = content["parts"][0]["functionCall"]
        assert (inner["name"], inner["args"]) == ("wx", {"city": "example"})
        answered = {
            "role": "user",
            "parts": [{"functionResponse": {"id": inner["id"], "name": "wx", "response": {"result": 4}}}],
        }
        assert parts(generate(fake, body(content, answered, tools=TOOLS)).json())[0]["text"] == 'wx: {"result": 4}'


@pytest.mark.parametrize(("schema", "expected"), [
    ({"type": "STRING", "enum": ["a", "b"]}, "a"),
    ({"type": "integer", "format": "enum", "enum": ["3"]}, 3),
    ({"type": "integer", "minimum": 5}, 5),
    ({"type": "integer", "maximum": -3}, -3),
    ({"type": "number", "exclusiveMinimum": 2}, 3),
    ({"type": ["null", "boolean"]}, True),
    ({"type": "string", "minLength": 9}, "examplexx"),
    ({"type": "string", "maxLength": 2}, "ex"),
    ({"type": "string", "format": "date"}, "2026-01-02"),
    ({"type": "array", "items": {"type": "null"}, "minItems": 2}, [None, None]),
    ({"anyOf": [{"const": 7}, {"type": "string"}]}, 7),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "boolean"}}}, True),
    ({"type": "object", "properties": {"a": {"default": 1}, "b": {"type": "string"}}, "required": ["a"]}, {"a": 1}),
    ({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {}}}}}, {"a": {}}),
])  # fmt: skip
def test_examples_fit_their_schema(schema: Any, expected: Any) -> None:
    assert example_of(schema) == expected


def test_a_recursive_schema_has_an_example() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert example_of(node)["next"]["next"]


def test_the_demo_reads_both_spellings_and_obeys_the_mode() -> None:
    declared = {"tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": {"type": "object"}}]}]}
    assert example_call(declared) == ("f", {})
    assert demo(body(**declared)) == call("f")
    off = {"tool_config": {"function_calling_config": {"mode": "NONE"}}}
    assert demo(body(**declared, **off)) == text("Oslo?")


def test_the_command_prints_its_url_and_serves(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('["From a file."]')
    command = [sys.executable, "-m", "callgate.testing.fake_gemini", "--script", str(script), "--no-strict"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            said = httpx2.post(f"{url}{PATH}:generateContent", json={"anything": 1}).json()
        finally:
            process.terminate()
    assert parts(said)[0]["text"] == "From a file."


def test_the_command_says_what_is_wrong_with_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.json"
    script.write_text("not json")
    assert main(["--script", str(script)]) == 2
    assert "cannot be read" in capsys.readouterr().err


# Google's own client -----------------------------------------------------------------------------------------------------

genai: Any = None
with warnings.catch_warnings(), contextlib.suppress(ImportError):
    warnings.simplefilter("ignore", DeprecationWarning)  # of the import itself, on the newest Pythons
    genai = importlib.import_module("google.genai")


def with_google(test: Any) -> Any:
    """Runs a test only where Google's client is, and forgives that client its deprecated calls."""
    forgiven = pytest.mark.filterwarnings("ignore::DeprecationWarning:google.*")(test)
    return pytest.mark.skipif(genai is None, reason="Google's client is not installed")(forgiven)


def google(fake: FakeGemini, **options: Any) -> Any:
    return genai.Client(api_key="k", http_options={"base_url": fake.base_url, "api_version": "v1beta"} | options)


def weather(city: str) -> dict[str, Any]:
    """The weather of a city."""
    return {"city": city, "degrees": 4}


def today() -> str:
    """The date of today."""
    return "2026-01-02"


@with_google
@pytest.mark.parametrize("model", ["gemini-3.8-flash", "gemini-2.5-flash"])
def test_googles_client_gets_text_whole_and_streamed(model: str) -> None:
    with FakeGemini.in_thread([text("Grüße aus Oslo, wie geht's?")] * 2) as fake, google(fake) as client:
        whole = client.models.generate_content(model=model, contents="hi")
        pieces = list(client.models.generate_content_stream(model=model, contents="hi"))
    assert whole.text == "".join(piece.text or "" for piece in pieces) == "Grüße aus Oslo, wie geht's?"
    assert whole.candidates[0].finish_reason.name == "STOP"
    assert pieces[-1].usage_metadata.total_token_count > 0
    assert len(pieces) > 2
    assert fake.refusals == []


@with_google
@pytest.mark.parametrize("model", ["gemini-3.8-flash", "gemini-2.5-flash"])
@pytest.mark.parametrize("streamed", [False, True])
def test_googles_client_runs_functions_by_itself(model: str, streamed: bool) -> None:
    script = [
        calls(("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})),
        call("weather", city="Bern"),
        "Four everywhere.",
    ]
    config = genai.types.GenerateContentConfig(tools=[weather, today])
    with FakeGemini.in_thread(script) as fake, google(fake) as client:
        if streamed:
            pieces = list(client.models.generate_content_stream(model=model, contents="Weather?", config=config))
            said = "".join(piece.text or "" for piece in pieces if not piece.function_calls)
        else:
            said = client.models.generate_content(model=model, contents="Weather?", config=config).text
    assert said == "Four everywhere."
    assert fake.refusals == []
    assert len(fake.requests) == 3
    last = fake.requests[-1].json["contents"]
    results = [part["functionResponse"]["response"]["result"]["city"] for content in last[2::2] for part in content["parts"]]
    assert results == ["Oslo", "Rome", "Bern"]


@with_google
def test_googles_chat_keeps_a_history_that_the_judge_accepts() -> None:
    script = ["Hello.", calls(("weather", {"city": "Oslo"})), "Four.", "Bye."]
    with FakeGemini.in_thread(script) as fake, google(fake) as client:
        chat = client.chats.create(model=MODEL, config=genai.types.GenerateContentConfig(tools=[weather]))
        assert [chat.send_message(words).text for words in ("hi", "weather?", "bye")] == ["Hello.", "Four.", "Bye."]
    assert fake.refusals == []


@with_google
def test_googles_async_client_streams_calls() -> None:
    async def scene() -> None:
        config = genai.types.GenerateContentConfig(
            tools=[weather], automatic_function_calling=genai.types.AutomaticFunctionCallingConfig(disable=True)
        )
        script = [calls(("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"}), apart=True)]
        found: list[Any] = []
        async with FakeGemini(script) as fake, google(fake).aio as client:
            async for piece in await client.models.generate_content_stream(model=MODEL, contents="hi", config=config):
                found += piece.function_calls or []
        assert [(each.name, each.args, bool(each.id)) for each in found] == [
            ("weather", {"city": "Oslo"}, True),
            ("weather", {"city": "Rome"}, True),
        ]

    run(scene)


@with_google
def test_googles_client_raises_its_own_errors() -> None:
    script = [fault("W10", times=1), fault("W08", times=1), fault("W01", times=1), fault("W40", "after_text")]
    with FakeGemini.in_thread(script, api_key="k") as fake, google(fake) as client:
        with pytest.raises(genai.errors.ClientError, match="Cannot find field") as bad:
            client.models.generate_content(model=MODEL, contents="hi")
        assert (bad.value.code, bad.value.status) == (400, "INVALID_ARGUMENT")
        with pytest.raises(genai.errors.ServerError, match="overloaded") as down:
            list(client.models.generate_content_stream(model=MODEL, contents="hi"))
        assert (down.value.code, down.value.status) == (503, "UNAVAILABLE")
        with pytest.raises(genai.errors.ClientError) as limited:
            client.models.generate_content(model=MODEL, contents="hi")
        assert limited.value.details["error"]["details"][0]["retryDelay"] == "2.5s"
        with pytest.raises(genai.errors.APIError):
            list(client.models.generate_content_stream(model=MODEL, contents="hi"))
        wrong = genai.types.FunctionDeclaration(name="no good", parameters_json_schema={"type": "object"})
        config = genai.types.GenerateContentConfig(tools=[genai.types.Tool(function_declarations=[wrong])])
        with pytest.raises(genai.errors.ClientError, match="Invalid function name"):
            client.models.generate_content(model=MODEL, contents="hi", config=config)
    assert [refusal.rule for refusal in fake.refusals] == ["declaration_name"]


@with_google
def test_googles_client_sees_thoughts_signatures_and_blocks() -> None:
    with FakeGemini.in_thread([answer(thought("Hm."), "Yes."), fault("W43")]) as fake, google(fake) as client:
        said = client.models.generate_content(model=MODEL, contents="hi")
        blocked = client.models.generate_content(model=MODEL, contents="hi")
    first, last = said.candidates[0].content.parts
    assert first.thought
    assert last.thought_signature
    assert said.text == "Yes."
    assert blocked.prompt_feedback.block_reason.name == "SAFETY"


@with_google
def test_googles_client_works_on_the_cloud_paths() -> None:
    with FakeGemini.in_thread(["From the cloud."]) as fake:
        options = {"base_url": fake.base_url, "api_version": "v1beta1"}
        client = genai.Client(vertexai=True, api_key="k", http_options=options)
        with client:
            assert client.models.generate_content(model=MODEL, contents="hi").text == "From the cloud."
    assert fake.requests[0].surface == "vertex"
    assert fake.requests[0].path == f"/v1beta1/publishers/google/models/{MODEL}:generateContent"


@with_google
def test_googles_client_lists_models() -> None:
    with FakeGemini.in_thread([]) as fake, google(fake) as client:
        assert f"models/{MODEL}" in [model.name for model in client.models.list()]


@with_google
def test_answers_fit_googles_own_types() -> None:
    every = [answer(thought("Hm."), "Yes."), calls(("f", {"a": 1}), ("g", {})), text("x", chunks=1)]
    with FakeGemini.in_thread(every * 2) as fake:
        said = [generate(fake).json() for _ in every] + [chunk for _ in every for chunk in events(stream(fake))]
    for message in said:
        genai.types.GenerateContentResponse.model_validate(message)


def test_the_judge_takes_bodies_that_googles_protos_take() -> None:
    protos = pytest.importorskip("google.ai.generativelanguage_v1beta.types", reason="Google's protos are not installed")
    from google.protobuf import json_format

    parameters = {"type": "OBJECT", "properties": {"a": {"type": "ARRAY", "items": {"type": "STRING"}, "maxItems": "3"}}}
    request = body(tools=[{"functionDeclarations": [{"name": "f", "description": "F.", "parameters": parameters}]}])
    json_format.ParseDict(request, protos.GenerateContentRequest.pb(protos.GenerateContentRequest()))
    assert judge(request) is None
    wrong = body(tools=[{"functionDeclarations": [{"name": "f", "parameters": parameters | {"oneOf": []}}]}])
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict(wrong, protos.GenerateContentRequest.pb(protos.GenerateContentRequest()))
    assert judge(wrong) is not None


def test_gzip_of_a_stream_ends_properly() -> None:
    accepts = {"Accept-Encoding": "gzip"}
    with FakeGemini.in_thread([text("abc", chunks=3)], compress=True) as fake:
        url = f"{fake.base_url}{PATH}:streamGenerateContent?alt=sse"
        asked = httpx2.stream("POST", url, json=body(), headers=accepts)
        with asked as response:
            packed = b"".join(response.iter_raw())
    assert gzip.decompress(packed).startswith(b"data: ")


def test_the_servers_can_be_had_from_the_front_of_the_package() -> None:
    from callgate import testing
    from callgate.testing import fake_openai

    assert (testing.FakeGemini, testing.FakeOpenAI) == (FakeGemini, fake_openai.FakeOpenAI)
    with pytest.raises(AttributeError, match=r"'callgate\.testing' has no attribute 'FakeClaude'"):
        _ = testing.FakeClaude  # type: ignore[attr-defined]
