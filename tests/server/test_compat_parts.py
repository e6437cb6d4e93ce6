"""Parts of messages at the endpoints of other APIs: each reaches the model, or is refused with its place in the request."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from callgate import Gate
from callgate.server import Service, ServiceOptions

from .conftest import Answer, Site, Stage, add, serving

anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
genai = pytest.importorskip("google.genai", reason="google-genai is not installed")
openai = pytest.importorskip("openai", reason="openai is not installed")

TOKEN = "a-token-of-some-length"
STAGE = Stage()
PDF = base64.b64encode(b"%PDF-1.4").decode()
WORDS = base64.b64encode(b"Words.").decode()
PNG = "data:image/png;base64,AAAA"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(Service(Gate(STAGE, [add]), options=ServiceOptions(token=TOKEN))) as running:
        yield running


@pytest.fixture(scope="module")
def chat(site: Site) -> Iterator[Any]:
    with openai.OpenAI(api_key=TOKEN, base_url=f"http://127.0.0.1:{site.port}/v1", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def claude(site: Site) -> Iterator[Any]:
    with anthropic.Anthropic(api_key=TOKEN, base_url=f"http://127.0.0.1:{site.port}", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def gemini(site: Site) -> Any:
    return genai.Client(api_key=TOKEN, http_options={"base_url": f"http://127.0.0.1:{site.port}"})


def seen(model: Any) -> list[Any]:
    """The parts of the newest content that the model was sent."""
    (request,) = model.requests
    return request.contents[-1]["parts"]


def post(site: Site, path: str, body: Any) -> Answer:
    return site.post(path, body, Authorization=f"Bearer {TOKEN}")


# Chat completions ---------------------------------------------------------------------------------------------------------


def complete(chat: Any, *parts: Any, before: Any = (), **more: Any) -> Any:
    return chat.chat.completions.create(model="callgate", messages=[*before, {"role": "user", "content": [*parts]}], **more)


@pytest.mark.parametrize(
    ("part", "carried"),
    [
        ({"type": "text", "text": "Hi."}, {"text": "Hi."}),
        ({"type": "input_text", "text": "Hi."}, {"text": "Hi."}),
        ({"type": "image_url", "image_url": {"url": PNG}}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
        (
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"fileData": {"fileUri": "https://example.org/a.png", "mimeType": "image/png"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
        ),
        (
            {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"}},
            {"inlineData": {"mimeType": "application/pdf", "data": PDF, "displayName": "a.pdf"}},
        ),
        (
            {"type": "file", "file": {"file_data": WORDS, "filename": "a.txt"}},
            {"inlineData": {"mimeType": "text/plain", "data": WORDS, "displayName": "a.txt"}},
        ),
    ],
)
def test_a_part_of_a_chat_message_reaches_the_model(chat: Any, part: Any, carried: Any) -> None:
    model = STAGE.plays("Seen.")
    assert complete(chat, part).choices[0].message.content == "Seen."
    assert seen(model) == [carried]


@pytest.mark.rows(
    ("part", "field"),
    [
        ({"type": "file", "file": {"file_id": "file-1"}}, "messages[0].content[1].file.file_id"),
        ({"type": "file", "file": {"filename": "a.pdf"}}, "messages[0].content[1].file"),
        ({"type": "file", "file": None}, "messages[0].content[1].file"),
        ({"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}}, "messages[0].content[1].type"),
        ({"type": "image_url", "image_url": {}}, "messages[0].content[1].image_url"),
        ({"type": "image_url", "image_url": {"url": "ftp://example.org/a.png"}}, "messages[0].content[1]"),
        ({"type": ["text"], "text": "?"}, "messages[0].content[1].type"),
        ({"type": "text"}, "messages[0].content[1]"),
        ({"text": "?"}, "messages[0].content[1]"),
        ("?", "messages[0].content[1]"),
    ],
)
@pytest.mark.rows("tools", [False, True], ids=["our tools", "its tools"])
def test_a_part_of_a_chat_message_that_no_model_would_see_is_refused(chat: Any, part: Any, field: str, tools: bool) -> None:
    model = STAGE.plays("Not seen.")
    own = {"tools": [{"type": "function", "function": {"name": "f"}}]} if tools else {}
    with pytest.raises(openai.BadRequestError) as refused:
        complete(chat, {"type": "text", "text": "What is this?"}, part, **own)
    assert refused.value.param == field
    assert f"{field}: " in refused.value.message
    assert (refused.value.type, refused.value.code) == ("invalid_request_error", "invalid_request")
    assert model.requests == []


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "assistant", "audio": {"id": "audio_1"}}, "messages[0].audio"),
        (
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "shell", "shell": {"name": "f"}}]},
            "messages[0].tool_calls[0].type",
        ),
        (
            {"role": "system", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
            "messages[0].content[0].type",
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "file", "file": {"file_id": "f"}}]},
            "messages[0].content[0].file.file_id",
        ),
    ],
)
def test_what_an_earlier_chat_message_cannot_carry_is_refused(chat: Any, message: Any, field: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        complete(chat, {"type": "text", "text": "And?"}, before=[message])
    assert refused.value.param == field


# Responses ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "carried"),
    [
        ({"type": "input_text", "text": "Hi."}, {"text": "Hi."}),
        (
            {"type": "input_image", "image_url": PNG, "detail": "auto"},
            {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        ),
        (
            {"type": "input_file", "file_url": "https://example.org/a.pdf"},
            {"fileData": {"fileUri": "https://example.org/a.pdf", "mimeType": "application/pdf"}},
        ),
        (
            {"type": "input_file", "file_data": f"data:text/csv;base64,{WORDS}", "filename": "a.csv"},
            {"inlineData": {"mimeType": "text/csv", "data": WORDS, "displayName": "a.csv"}},
        ),
    ],
)
def test_a_part_of_an_input_reaches_the_model(chat: Any, part: Any, carried: Any) -> None:
    model = STAGE.plays("Seen.")
    assert chat.responses.create(model="callgate", input=[{"role": "user", "content": [part]}]).output_text == "Seen."
    assert seen(model) == [carried]


def test_the_output_of_a_response_can_be_sent_again_as_input(chat: Any) -> None:
    model = STAGE.plays("Seen.")
    record = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
    made = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Look."}]}
    chat.responses.create(model="callgate", input=[{"role": "user", "content": "Draw."}, record, said, made, {
        "role": "user", "content": "Nice.",
    }])  # fmt: skip
    assert model.requests[0].contents == [
        {"role": "user", "parts": [{"text": "Draw."}]},
        {"role": "model", "parts": [{"text": "Look."}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
        {"role": "user", "parts": [{"text": "Nice."}]},
    ]


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}, "input[0].content[0].file_id"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}, "input[0].content[0].file_id"),
        ({"role": "user", "content": [{"type": "input_video", "url": "x"}]}, "input[0].content[0].type"),
        ({"role": "developer", "content": [{"type": "input_image", "image_url": PNG}]}, "input[0].content[0].type"),
        ({"type": "computer_call_output", "call_id": "c", "output": {}}, "input[0].type"),
        (
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file", "file_id": "f"}]},
            "input[0].output[0].file_id",
        ),
        ({"role": "user", "content": [{"type": "input_file", "file_url": "file:///etc/passwd"}]}, "input[0].content[0]"),
    ],
)
def test_an_item_that_no_model_would_see_is_refused(chat: Any, item: Any, field: str) -> None:
    model = STAGE.plays("Not seen.")
    with pytest.raises(openai.BadRequestError) as refused:
        chat.responses.create(model="callgate", input=[item, {"role": "user", "content": "And?"}])
    assert refused.value.param == field
    assert model.requests == []


# Messages -----------------------------------------------------------------------------------------------------------------


def tell(claude: Any, *blocks: Any, **more: Any) -> Any:
    return claude.messages.create(
        model="callgate", max_tokens=100, messages=[{"role": "user", "content": [*blocks]}], **more
    )


@pytest.mark.parametrize(
    ("block", "carried"),
    [
        (
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}, "title": "a"},
            [{"inlineData": {"mimeType": "application/pdf", "data": PDF, "displayName": "a"}}],
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}, "context": "Old."},
            [{"text": "Old."}, {"fileData": {"fileUri": "https://example.org/a.pdf", "mimeType": "application/pdf"}}],
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Words."}, "title": "A"},
            [{"text": "A\n\nWords."}],
        ),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "One."}]}},
            [{"text": "One."}],
        ),
        ({"type": "document", "source": {"type": "content", "content": "Two."}}, [{"text": "Two."}]),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}],
        ),
        (
            {"type": "search_result", "title": "T", "source": "https://example.org", "content": [
                {"type": "text", "text": "Found."},
            ]},
            [{"text": "T https://example.org"}, {"text": "Found."}],
        ),
    ],
)  # fmt: skip
def test_a_block_reaches_the_model(claude: Any, block: Any, carried: Any) -> None:
    model = STAGE.plays("Seen.")
    assert tell(claude, block).content[0].text == "Seen."
    assert seen(model) == carried


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"type": "document", "source": {"type": "file", "file_id": "file_1"}}, "messages.0.content.1.source.file_id"),
        ({"type": "image", "source": {"type": "file", "file_id": "file_1"}}, "messages.0.content.1.source.file_id"),
        ({"type": "image", "source": {"type": "text", "data": "x"}}, "messages.0.content.1.source.type"),
        ({"type": "document", "source": {"type": "url", "url": ""}}, "messages.0.content.1.source.url"),
        ({"type": "document"}, "messages.0.content.1.source.type"),
        ({"type": "image", "source": {"type": "base64", "data": "AAAA"}}, "messages.0.content.1.source.media_type"),
        ({"type": "text"}, "messages.0.content.1"),
        ({"type": "container_upload", "file_id": "file_1"}, "messages.0.content.1.type"),
        (
            {"type": "tool_result", "tool_use_id": "t", "content": [
                {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            ]},
            "messages.0.content.1.content.0.source.file_id",
        ),
    ],
)  # fmt: skip
def test_a_block_that_no_model_would_see_is_refused_in_anthropics_shape(claude: Any, block: Any, field: str) -> None:
    model = STAGE.plays("Not seen.")
    with pytest.raises(anthropic.BadRequestError) as refused:
        tell(claude, {"type": "text", "text": "What is this?"}, block)
    body = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["message"].startswith(f"{field}: ")
    assert model.requests == []


def test_an_instruction_of_anthropics_that_is_no_text_is_refused(claude: Any) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"system\.0\.type: a block of an instruction of type 'image'"):
        tell(claude, {"type": "text", "text": "?"}, system=[{"type": "image", "source": {}}])


def test_an_error_for_a_client_of_anthropic_names_the_request(site: Site, claude: Any) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        tell(claude, {"type": "container_upload", "file_id": "f"}, extra_headers={"X-Request-Id": "mine-1"})
    assert (refused.value.request_id, refused.value.body["request_id"]) == ("mine-1", "mine-1")
    STAGE.plays("Hello.")
    assert tell(claude, {"type": "text", "text": "Hi."}, extra_headers={"X-Request-Id": "mine-2"})._request_id == "mine-2"
    without = site.post("/v1/messages", {}).json
    assert len(without["request_id"]) == 16


# Gemini -------------------------------------------------------------------------------------------------------------------

GENERATE = "/v1beta/models/callgate:generateContent"


def test_a_part_of_a_content_reaches_the_model(gemini: Any) -> None:
    model = STAGE.plays("Seen.")
    part = genai.types.Part.from_uri(file_uri="https://example.org/a.pdf", mime_type="application/pdf")
    assert gemini.models.generate_content(model="callgate", contents=[part]).text == "Seen."
    assert seen(model) == [{"fileData": {"fileUri": "https://example.org/a.pdf", "mimeType": "application/pdf"}}]


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"fileDat": {"fileUri": "x"}}, "contents[0].parts[1]"),
        ({"fileData": {"mimeType": "image/png"}}, "contents[0].parts[1].fileData"),
        ({"inline_data": {"mime_type": "image/png"}}, "contents[0].parts[1].inlineData"),
        ({"hologram": {}, "thought": True}, "contents[0].parts[1]"),
    ],
)
@pytest.mark.parametrize("path", [GENERATE, GENERATE.replace("generateContent", "countTokens")])
def test_a_part_that_no_model_would_see_is_refused_in_googles_shape(site: Site, path: str, part: Any, field: str) -> None:
    refused = post(site, path, {"contents": [{"role": "user", "parts": [{"text": "What is this?"}, part]}]})
    error = refused.json["error"]
    assert (refused.status, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert error["message"].startswith(f"{field}: ")


def test_a_part_without_data_is_no_fault(site: Site) -> None:
    model = STAGE.plays("Seen.")
    parts = [{"text": "Hi."}, {"thoughtSignature": "eA=="}, {"videoMetadata": {"fps": 1}}, {}]
    assert post(site, GENERATE, {"contents": {"parts": parts}}).status == 200
    assert seen(model)[0] == {"text": "Hi."}


# Interactions -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "carried"),
    [
        ({"type": "text", "text": "Hi."}, [{"text": "Hi."}]),
        (
            [{"type": "document", "uri": "https://example.org/a.pdf", "mime_type": "application/pdf"}],
            [{"fileData": {"fileUri": "https://example.org/a.pdf", "mimeType": "application/pdf"}}],
        ),
        ([{"type": "user_input", "content": [{"type": "text", "text": "Hi."}]}], [{"text": "Hi."}]),
        ([{"type": "text", "text": " "}], [{"text": "(The user's message is empty.)"}]),
    ],
)
def test_a_content_of_an_interaction_reaches_the_model(site: Site, given: Any, carried: Any) -> None:
    model = STAGE.plays("Seen.")
    assert post(site, "/v1beta/interactions", {"model": "callgate", "input": given}).json["status"] == "completed"
    assert seen(model) == carried


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"type": "hologram"}, "input.type"),
        ([{"type": "text", "text": "?"}, {"type": "file", "file_id": "f"}], "input[1].type"),
        ([{"type": "image", "file_id": "f"}], "input[0].file_id"),
        ([{"type": "document"}], "input[0]"),
        ([{"role": "user", "content": "?"}], "input[0]"),
        ([{"type": "user_input", "content": [{"type": "hologram"}]}], "input[0].content[0].type"),
        ([{"type": "function_result", "call_id": "c", "result": [{"type": "hologram"}]}], "input[0].result[0].type"),
        ([{"type": "image", "uri": "ftp://example.org/a.png"}], "input[0].content[0]"),
        *(
            (empty, "input")
            for empty in (
                "",
                [],
                {"type": "text", "text": ""},
                [{"type": "text", "text": ""}],
                [{"type": "user_input"}],
                [{"type": "user_input", "content": ""}],
                [{"type": "user_input", "content": [{"type": "text", "text": ""}]}],
            )
        ),
    ],
)
def test_a_content_that_no_model_would_see_is_refused_in_the_shape_of_interactions(
    site: Site, given: Any, field: str
) -> None:
    refused = post(site, "/v1beta/interactions", {"model": "callgate", "input": given})
    assert (refused.status, refused.json["error"]["code"]) == (400, "invalid_request")
    assert refused.json["error"]["message"].startswith(f"{field}: ")


# Page ---------------------------------------------------------------------------------------------------------------------


def test_a_file_of_a_page_that_no_model_could_fetch_is_refused(site: Site) -> None:
    file = {"type": "file", "mediaType": "image/png", "url": "blob:http://localhost/1"}
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "?"}, file]}
    assert post(site, "/api/v1/ui/chat", {"id": "a", "messages": [message]}).error == (400, "invalid_request")
    message["parts"] = [{"type": "text", "text": "?"}, {"type": "hologram"}]
    assert post(site, "/api/v1/ui/chat", {"id": "a", "messages": [message]}).error == (422, "invalid_request")


@pytest.mark.parametrize(
    ("path", "tools", "field"),
    [
        ("/v1/chat/completions", [{"type": "web_search"}], "tools[0]"),
        ("/v1/chat/completions", [{"type": "function", "function": {}}], "tools[0].function"),
        ("/v1/responses", [{"type": "function"}], "tools[0]"),
        ("/v1/messages", [{"name": "f", "input_schema": {}}, {"input_schema": {}}], "tools.1"),
        ("/v1beta/interactions", [{"type": "function"}], "tools[0]"),
    ],
)
def test_a_tool_that_cannot_be_read_is_refused_with_its_place(site: Site, path: str, tools: Any, field: str) -> None:
    said = [{"role": "user", "content": "?"}]
    body = {"model": "callgate", "messages": said, "max_tokens": 1, "tools": tools}
    if path in ("/v1/responses", "/v1beta/interactions"):
        body = {"model": "callgate", "input": "?", "tools": tools}
    refused = post(site, path, body)
    assert refused.status == 400
    assert refused.json["error"]["message"].startswith(f"{field}: ")


# The session --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "..", ". .", "\xe9"])
def test_a_session_that_a_header_cannot_name_is_refused(site: Site, name: str) -> None:
    said = {"contents": [{"parts": [{"text": "?"}]}]}
    headers = {"Authorization": f"Bearer {TOKEN}", "Callgate_Session": name}
    refused = site.post(GENERATE, said, **headers).json["error"]
    assert (refused["code"], refused["message"].partition(":")[0]) == (400, "Callgate-Session")


# The end of a conversation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ([{"role": "model", "parts": [{"text": "I said."}]}], "a message of the user's must follow"),
        (
            [{"role": "user", "parts": [{"text": "?"}]}, {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}],
            "its calls have no results (f)",
        ),
        ([{"role": "user", "parts": [{"thoughtSignature": "eA=="}]}], "says nothing"),
    ],
)
@pytest.mark.parametrize("tools", [[], [{"functionDeclarations": [{"name": "f"}]}]], ids=["our tools", "its tools"])
def test_a_conversation_that_cannot_be_answered_is_refused_for_what_it_ends_with(
    site: Site, contents: Any, told: str, tools: Any
) -> None:
    STAGE.plays("Not said.")
    refused = post(site, GENERATE, {"contents": contents, "tools": tools})
    assert refused.status == 400
    assert told in refused.json["error"]["message"]


# Ids and settings --------------------------------------------------------------------------------------------------------

USER = {"role": "user", "content": "Hi."}
CALLED = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
WITH_IDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "chat result": (
        "/v1/chat/completions", lambda id: {"messages": [USER, {"role": "tool", "tool_call_id": id, "content": "x"}]}
    ),
    "chat call": (
        "/v1/chat/completions",
        lambda id: {"messages": [USER, {"role": "assistant", "tool_calls": [{**CALLED, "id": id}]}, USER]},
    ),
    "responses result": (
        "/v1/responses", lambda id: {"input": [{"type": "function_call_output", "call_id": id, "output": "x"}]}
    ),
    "responses call": (
        "/v1/responses", lambda id: {"input": [{"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}]}
    ),
    "responses item": ("/v1/responses", lambda id: {"input": [{"type": "message", "id": id, **USER}]}),
    "responses approval": (
        "/v1/responses",
        lambda id: {"input": [{"type": "mcp_approval_response", "approval_request_id": id, "approve": True}]},
    ),
    "messages call": (
        "/v1/messages",
        lambda id: {"max_tokens": 9, "messages": [USER, {"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "f", "input": {}}]}]},
    ),
    "messages result": (
        "/v1/messages",
        lambda id: {"max_tokens": 9, "messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": "x"}]}]},
    ),
    "interactions result": (
        "/v1beta/interactions", lambda id: {"input": [{"type": "function_result", "call_id": id, "name": "f", "result": ""}]}
    ),
    "interactions call": (
        "/v1beta/interactions", lambda id: {"input": [{"type": "function_call", "id": id, "name": "f", "arguments": {}}]}
    ),
    "gemini call": (
        "/v1beta/models/callgate:generateContent",
        lambda id: {"contents": [{"role": "model", "parts": [{"functionCall": {"id": id, "name": "f", "args": {}}}]}]},
    ),
    "gemini result": (
        "/v1beta/models/callgate:generateContent",
        lambda id: {"contents": [
            {"role": "user", "parts": [{"functionResponse": {"id": id, "name": "f", "response": {}}}]}]},
    ),
}  # fmt: skip


@pytest.mark.rows("id", [[], ["a"], {}, {"a": 1}, 5, True], ids=str)
@pytest.mark.rows("name", WITH_IDS)
def test_an_id_that_is_no_text_is_refused(site: Site, name: str, id: Any) -> None:
    path, body = WITH_IDS[name]
    assert post(site, path, {"model": "callgate", **body(id)}).status in (400, 422), name


SETTINGS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "chat": ("/v1/chat/completions", lambda value: {"messages": [USER], "max_tokens": value}),
    "chat, newer": ("/v1/chat/completions", lambda value: {"messages": [USER], "max_completion_tokens": value}),
    "responses": ("/v1/responses", lambda value: {"input": "Hi.", "max_output_tokens": value}),
    "messages": ("/v1/messages", lambda value: {"messages": [USER], "max_tokens": value}),
    "interactions": (
        "/v1beta/interactions", lambda value: {"input": "Hi.", "generation_config": {"max_output_tokens": value}}
    ),
    "gemini": (
        "/v1beta/models/callgate:generateContent",
        lambda value: {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}],
                       "generationConfig": {"maxOutputTokens": value}},
    ),
}  # fmt: skip


@pytest.mark.rows("value", [-1, 0, "5", [], {}, True, 1e308, 10**30, 1.5], ids=str)
@pytest.mark.rows("name", SETTINGS)
def test_a_limit_of_tokens_that_is_none_is_refused(site: Site, name: str, value: Any) -> None:
    path, body = SETTINGS[name]
    assert post(site, path, {"model": "callgate", **body(value)}).status in (400, 422), name


BAD_IMAGE = "data:image/png;base64,@@@"


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([USER, {"role": "tool", "tool_call_id": "q", "content": "x"}], "messages[1].tool_call_id"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": BAD_IMAGE}}]}],
         "messages[0].content[0].image_url.url"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,abc"}}]}],
         "messages[0].content[0].image_url.url"),
        ([{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "@", "format": "wav"}}]}],
         "messages[0].content[0].input_audio.data"),
    ],
)  # fmt: skip
def test_a_message_that_openai_refuses_is_refused_with_its_place(site: Site, messages: Any, place: str) -> None:
    answer = post(site, "/v1/chat/completions", {"model": "callgate", "messages": messages})
    assert (answer.status, answer.json["error"]["param"]) == (400, place)


def test_a_result_after_its_call_is_taken(site: Site) -> None:
    STAGE.plays("Seen.", "Seen.")
    messages = [USER, {"role": "assistant", "tool_calls": [CALLED]}, {"role": "tool", "tool_call_id": "a", "content": "x"}]
    assert post(site, "/v1/chat/completions", {"model": "callgate", "messages": messages}).status == 200
    items = [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}, OUTPUT]
    assert post(site, "/v1/responses", {"model": "callgate", "input": items}).status == 200


OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "x"}


@pytest.mark.parametrize(
    ("items", "place"),
    [
        ([OUTPUT], 0),
        ([{"role": "user", "content": "Hi."}, OUTPUT], 1),
        ([OUTPUT, {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}], 0),
        ([{"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"}, OUTPUT], 1),
        ([{"type": "custom_tool_call_output", "call_id": "a", "output": "x"}], 0),
    ],
)
def test_a_result_of_a_response_without_its_call_is_refused_with_its_place(site: Site, items: Any, place: int) -> None:
    model = STAGE.plays("Not said.")
    refused = post(site, "/v1/responses", {"model": "callgate", "input": items})
    assert (refused.status, refused.json["error"]["param"]) == (400, f"input[{place}].call_id")
    assert "No tool call found" in refused.json["error"]["message"]
    assert model.requests == []
