"""Media that tools return: by bytes, by the path of a file, by an address; what cannot be sent fails the call."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, GeminiModel, Media, ScriptedModel, ToolResult, tool
from callgate.media_files import INLINE_BYTES_MAX
from callgate.testing import FakeGemini, call, text
from callgate.testing.fake_gemini import call as fake_call

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 100


def run(value: Any) -> tuple[Any, Any]:
    def shot():
        """Take a screenshot."""
        return value

    model = ScriptedModel([call("shot"), text("end")])
    reply = asyncio.run(Gate(model, tools=[shot]).run("x"))
    assert reply.calls[0].result is not None
    return reply.calls[0].result, model.requests[1].contents[-1]["parts"][0]["functionResponse"]


def test_a_file_is_read_and_sent_with_its_type_and_name(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(PNG)
    path = str(tmp_path / "x.png")
    blob = {"mimeType": "image/png", "data": base64.b64encode(PNG).decode(), "displayName": "x.png"}
    for value, result in (
        (Media(path=path), {"$ref": "x.png"}),
        ({"shot": [Media(path=path)]}, {"shot": [{"$ref": "x.png"}]}),
    ):
        got, sent = run(value)
        assert (got.status, got.value) == ("finished", result)
        assert sent == {"name": "shot", "response": {"result": result}, "parts": [{"inlineData": blob}]}
    _, sent = run(ToolResult(call_id="", name="", status="finished", value=1, media=(Media(path=path),)))  # pyright: ignore
    assert sent == {"name": "shot", "response": {"result": 1}, "parts": [{"inlineData": blob}]}


def test_an_address_is_sent_as_one() -> None:
    for media in (Media(uri="https://e.com/x.png?a=1"), Media(uri="https://e.com/x.png?a=1", mime_type="image/png")):
        got, sent = run(media)
        assert got.status == "finished"
        assert sent["response"] == {"result": {"uri": "https://e.com/x.png?a=1"}}
        assert sent["parts"] == [{"fileData": {"fileUri": "https://e.com/x.png?a=1", "mimeType": "image/png"}}]


def test_bytes_without_a_type_get_that_of_their_first_bytes() -> None:
    _, sent = run(Media(data=PNG))
    assert sent["parts"][0]["inlineData"]["mimeType"] == "image/png"


def test_media_that_cannot_be_sent_fails_the_call_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "odd").write_bytes(b"odd")
    with open(tmp_path / "large.png", "wb") as large:
        large.truncate(INLINE_BYTES_MAX + 1)
    os.mkfifo(tmp_path / "pipe.png")
    for media, why in {
        Media(path=str(tmp_path / "missing.png")): "'missing.png' cannot be read: No such file or directory",
        Media(path=str(tmp_path)): f"{tmp_path.name!r} cannot be read: Is a directory",
        Media(path=str(tmp_path / "pipe.png")): "'pipe.png' cannot be read: it is not a regular file",
        Media(path=str(tmp_path / "empty.png")): "'empty.png' is empty",
        Media(path=str(tmp_path / "odd")): "the type of 'odd' is not known: pass Media(..., mime_type='image/png')",
        Media(path=str(tmp_path / "large.png")): "'large.png' is too large: a result may have 14,680,064 bytes of media",
        Media(uri="x.png"): "uri='x.png' is not an address that a provider reads: for a file on this machine use path=",
        Media(): "'media' is empty",
        Media(data=b"odd"): "the type of 'media' is not known: pass Media(..., mime_type='image/png')",
    }.items():
        for value in (media, [media], ToolResult(call_id="", name="", status="finished", media=(media,))):  # pyright: ignore
            got, sent = run(value)
            sentence = f"The tool returned media that cannot be sent: {why}."
            assert (got.status, got.error, got.media) == ("failed", sentence, ())
            assert sent == {"name": "shot", "response": {"error": sentence}}


def read_file_in_process(path: str) -> Media:
    """Read."""
    return Media(path=path)


@pytest.mark.slow
def test_a_file_of_a_function_in_a_process_is_sent_too(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(PNG)
    model = ScriptedModel([call("read_file_in_process", path=str(tmp_path / "x.png")), text("end")])
    asyncio.run(Gate(model, tools=[tool(read_file_in_process, isolation="process")]).run("x"))
    sent = model.requests[1].contents[-1]["parts"][0]["functionResponse"]
    assert sent["parts"][0]["inlineData"]["data"] == base64.b64encode(PNG).decode()


def test_the_strict_server_takes_the_media_of_a_result(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(PNG)

    def shot() -> Media:
        """Take a screenshot."""
        return Media(path=str(tmp_path / "x.png"))

    async def main() -> str:
        async with FakeGemini([fake_call("shot"), "seen"]) as fake:
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
            model = GeminiModel("gemini-3.8-flash", env=env)
            return (await Gate(model, tools=[shot]).run("x")).text

    assert asyncio.run(main()) == "seen"
