"""Media that is too large for a request: uploaded in pieces, resumed, waited for, reused, and deleted with its session."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from google import genai
from google.genai import types as genai_types

import callgate.gemini.files
import callgate.media_files
import callgate.run.media
from callgate import Gate, GeminiModel, Media, ScriptedModel, UsageError
from callgate.events import Event, Notice
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import surface_from_environment
from callgate.history.conversation import Conversation
from callgate.media_files import with_type
from callgate.request import ModelRequest
from callgate.sessions import fork
from callgate.testing import FakeGemini

MODEL = "gemini-3.8-flash"
PIECE = 256 * 1024
VIDEO = b"\x00\x00\x00\x18ftypmp42" + bytes(range(256)) * 4 * 1024


class Clock:
    """Time that passes when somebody sleeps."""

    at = 1_000.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def model_of(fake: FakeGemini) -> GeminiModel:
    surface = surface_from_environment({"GOOGLE_GEMINI_BASE_URL": fake.base_url}, api_key="k")
    return GeminiModel(MODEL, client=GeminiClient(surface, clock=Clock()))


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body())


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callgate.gemini.files, "PIECE_BYTES", PIECE)
    monkeypatch.setattr("callgate.media_files.INLINE_BYTES_MAX", 1_000)


@pytest.fixture
def video(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(VIDEO)
    return path


def pieces(fake: FakeGemini) -> list[tuple[str, str]]:
    found = [request.headers for request in fake.requests if request.path.startswith("/upload/")]
    return [(headers["x-goog-upload-command"], headers.get("x-goog-upload-offset", "")) for headers in found]


def test_a_large_file_is_uploaded_in_pieces_with_progress_waited_for_and_referred_to(video: Path) -> None:
    async def body() -> None:
        events: list[Event] = []

        async def watch(event: Event) -> None:
            events.append(event)

        async with FakeGemini(["A film."]) as fake, Gate(model_of(fake)) as gate:
            fake.resources.processing_polls = 3
            reply = await gate.run(["What is this?", video], watch=watch)
            assert fake.refusals == []
            [file] = fake.resources.files.values()
            sent = fake.requests[-1].json["contents"][0]["parts"]
        assert reply.text == "A film."
        assert sent == [
            {"text": "What is this?"},
            {"fileData": {"fileUri": f"{fake.base_url}/v1beta/files/{file.id}", "mimeType": "video/mp4"}},
        ]
        genai_types.Part.model_validate(sent[1])
        assert (file.size, file.digest.hexdigest(), file.display_name) == (
            len(VIDEO), hashlib.sha256(VIDEO).hexdigest(), "film.mp4",
        )  # fmt: skip
        assert [command for command, _ in pieces(fake)] == ["start", *["upload"] * 4, "upload, finalize"]
        told = [event.message for event in events if isinstance(event, Notice)]
        assert told[0] == f"Uploading film.mp4: 0 % of {len(VIDEO):,} bytes."
        assert told[-1] == f"Uploading film.mp4: 100 % of {len(VIDEO):,} bytes."

    run(body)


def test_a_prompt_with_a_part_that_cannot_be_sent_is_refused_before_anything_is_uploaded(video: Path) -> None:
    async def body() -> None:
        async with FakeGemini(["A film."]) as fake, Gate(model_of(fake)) as gate:
            with pytest.raises(UsageError, match="no field 'txt'"):
                await gate.run([video, {"txt": "What is this?"}])
            assert fake.requests == []

    run(body)


def test_an_upload_whose_connection_breaks_goes_on_where_the_server_stands(video: Path) -> None:
    async def body() -> None:
        async with FakeGemini(["A film."]) as fake, Gate(model_of(fake)) as gate:
            fake.resources.interrupt_at = [PIECE * 2 + 5, PIECE * 3 + 1]
            await gate.run(["What is this?", Media(path=str(video))])
            [file] = fake.resources.files.values()
            assert file.digest.hexdigest() == hashlib.sha256(VIDEO).hexdigest()
            assert [command for command, _ in pieces(fake)].count("query") == 2
            assert [command for command, _ in pieces(fake)].count("start") == 1

    run(body)


def test_an_upload_that_was_given_up_is_resumed_by_the_next_run(video: Path) -> None:
    async def body() -> None:
        async with FakeGemini(["A film."]) as fake:
            model = model_of(fake)
            stopped = asyncio.Event()

            async def stop(event: Event) -> None:
                if isinstance(event, Notice) and "49 %" in event.message:
                    stopped.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(Gate(model).run(["What?", video], watch=stop))
            await stopped.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            before = len(pieces(fake))
            await Gate(model).run(["What?", video])
            assert pieces(fake)[before][0] == "query"
            assert [command for command, _ in pieces(fake)].count("start") == 1
            assert [command for command, _ in pieces(fake)].count("upload") == 4

    run(body)


def test_an_upload_that_was_given_up_in_processing_is_waited_for_by_the_next_run(
    video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with FakeGemini(["A film."]) as fake:
            fake.resources.processing_polls = 3
            model = model_of(fake)
            waits = asyncio.Event()

            async def forever(clock: Clock, seconds: float) -> None:
                waits.set()
                await asyncio.Event().wait()

            with monkeypatch.context() as patch:
                patch.setattr(Clock, "sleep", forever)
                task = asyncio.create_task(Gate(model).run(["What?", video]))
                await waits.wait()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert (await Gate(model).run(["What?", video])).text == "A film."
            assert len(fake.resources.files) == 1
            assert [command for command, _ in pieces(fake)].count("start") == 1

    run(body)


def test_the_same_bytes_are_uploaded_once_and_deleted_with_the_last_session_that_refers_to_them(tmp_path: Path) -> None:
    async def body() -> None:
        async with FakeGemini(["one", "two", "three"]) as fake, Gate(model_of(fake), store=tmp_path / "s.db") as gate:
            await gate.run(["What?", Media(data=VIDEO, mime_type="video/mp4")], session="a")
            await gate.run(["And this?", VIDEO], session="b")
            assert len(fake.resources.files) == 1
            await fork(gate.store, "a", "c")
            assert await gate.delete("c")
            assert len(fake.resources.files) == 1, "a fork does not own the file"
            assert await gate.delete("a")
            assert len(fake.resources.files) == 1, "the other session refers to it"
            assert await gate.delete("b")
            assert fake.resources.files == {}
            assert not await gate.delete("b")

    run(body)


@pytest.mark.usefixtures("unjudged")
def test_a_file_that_expired_or_was_deleted_at_the_server_is_uploaded_again_in_silence(
    video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with FakeGemini(["Fine."], repeat_last=True) as fake, Gate(model_of(fake)) as gate:
            now = fake.resources.now
            assert (await gate.run(["Look.", video])).text == "Fine."
            fake.resources.files.clear()  # as another process does that deletes its session
            assert (await gate.run(["Look.", video])).text == "Fine."
            monkeypatch.setattr(fake.resources, "now", lambda: now() + 49 * 3600)
            assert (await gate.run(["Look.", video])).text == "Fine."
            assert (await gate.run(["Look.", video])).text == "Fine."
            assert [command for command, _ in pieces(fake)].count("start") == 3
            assert [refusal.rule for refusal in fake.refusals] == ["", ""], "of the two looks at it, and of no model request"

    run(body)


def test_runs_that_send_the_same_file_at_the_same_time_share_one_upload(video: Path) -> None:
    async def body() -> None:
        async with FakeGemini(["Fine."], repeat_last=True) as fake, Gate(model_of(fake)) as gate:
            replies = await gate.run_many([["Look.", video]] * 3)
            assert [reply.text for reply in replies] == ["Fine."] * 3
            assert [command for command, _ in pieces(fake)].count("start") == 1

    run(body)


def test_the_same_bytes_of_another_type_are_another_file(video: Path) -> None:
    async def body() -> None:
        async with FakeGemini(["Fine."], repeat_last=True) as fake, Gate(model_of(fake)) as gate:
            for kind in ("video/mp4", "video/quicktime"):
                await gate.run(["Look.", Media(path=str(video), mime_type=kind)])
            asked = [request.json for request in fake.requests if request.path.endswith(":generateContent")]
            sent = [body["contents"][0]["parts"][1]["fileData"]["mimeType"] for body in asked]
            assert sent == ["video/mp4", "video/quicktime"]

    run(body)


def test_small_files_bytes_and_addresses_are_parts_of_the_request(tmp_path: Path) -> None:
    async def body() -> None:
        picture = tmp_path / "p.png"
        picture.write_bytes(b"\x89PNG\r\n\x1a\nrest")
        async with FakeGemini(["Seen."]) as fake, Gate(model_of(fake)) as gate:
            await gate.run(["Look.", picture, b"%PDF-1.7", Media(uri="https://x.example/v.mp4")])
            parts = fake.requests[-1].json["contents"][0]["parts"]
            assert fake.refusals == []
        assert [part.get("inlineData", {}).get("mimeType") for part in parts] == [None, "image/png", "application/pdf", None]
        assert parts[3] == {"fileData": {"fileUri": "https://x.example/v.mp4", "mimeType": "video/mp4"}}

    run(body)


@pytest.mark.parametrize(
    ("uri", "mime_type"),
    [
        ("gs://bucket/my%20film.MP4?x=1#part", "video/mp4"), ("https://e.com/a.png#top", "image/png"),
        ("https://www.example.com", ""), ("gs://bucket.pdf", ""), ("https://e.com/film", ""), ("https://[", ""),
    ],
)  # fmt: skip
def test_an_address_in_a_prompt_has_the_type_that_its_last_name_says(uri: str, mime_type: str) -> None:
    assert with_type(Media(uri=uri)).mime_type == mime_type


@pytest.mark.parametrize("uri", ["/etc/hosts", "film.mp4", "file:///etc/hosts", "C:/film.mp4", "C:\\film.mp4", ""])
def test_a_path_that_is_passed_as_an_address_is_refused_before_anything_is_sent(uri: str) -> None:
    async def body() -> None:
        async with FakeGemini(["Seen."]) as fake, Gate(model_of(fake)) as gate:
            with pytest.raises(UsageError, match="for a file on this machine use path="):
                await gate.run(["Look.", Media(uri=uri)])
            assert fake.requests == []

    run(body)


def test_what_cannot_be_uploaded_is_said_before_anything_is_sent(tmp_path: Path, video: Path) -> None:
    async def body() -> None:
        empty, odd = tmp_path / "e.png", tmp_path / "odd"
        empty.write_bytes(b"")
        odd.write_bytes(b"?")
        async with FakeGemini([]) as fake:
            gate = Gate(model_of(fake))
            for item, said in (
                (tmp_path / "no.png", "cannot be read"),
                (empty, "is empty"),
                (odd, "type of 'odd' is not known"),
            ):
                with pytest.raises(UsageError, match=said):
                    await gate.run(["a", item])
            assert fake.requests == []
        with pytest.raises(UsageError, match="has no uploads"):
            await Gate(ScriptedModel(["x"])).run(["a", video])
        vertex = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": "k"}
        with pytest.raises(UsageError, match="gs://"):
            await Gate(GeminiModel(MODEL, env=vertex)).run(["a", video])
        with pytest.raises(ValueError, match="one of data="):
            Media(data=b"a", path="b")

    run(body)


@pytest.mark.usefixtures("unjudged")
def test_google_genai_uploads_to_the_same_server_and_the_file_is_refused_when_it_is_gone(video: Path) -> None:
    async def body() -> None:
        async with FakeGemini(["one"]) as fake:
            client = genai.Client(api_key="k", http_options=genai_types.HttpOptions(base_url=fake.base_url))
            file = await client.aio.files.upload(file=str(video))
            await client.aio.models.generate_content(model=MODEL, contents=["a", file])
            assert fake.refusals == []
            await client.aio.files.delete(name=file.name)
            with pytest.raises(genai.errors.ClientError, match="may not exist"):
                await client.aio.models.generate_content(model=MODEL, contents=["a", file])
            await client.aio.aclose()
            client.close()

    run(body)


@pytest.mark.slow
def test_a_file_of_a_gigabyte_needs_less_than_64_mib_and_survives_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callgate.gemini.files, "PIECE_BYTES", 8 * 1024 * 1024)
    path = tmp_path / "big.mp4"
    with path.open("wb") as file:
        file.write(VIDEO[:64])
        file.truncate(1024**3)
    with FakeGemini.in_thread(["Long."]) as fake:
        fake.resources.interrupt_at = [700 * 1024 * 1024 + 3]
        tracemalloc.start()
        try:
            asyncio.run(Gate(model_of(fake)).run(["What?", path]))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        [kept] = fake.resources.files.values()
        assert (kept.size, kept.received) == (1024**3, 1024**3)
        assert peak < 64 * 1024 * 1024


def test_a_conversation_goes_on_without_a_file_that_the_server_does_not_have_any_more(
    monkeypatch: pytest.MonkeyPatch, unjudged: None
) -> None:
    monkeypatch.setattr(callgate.media_files, "INLINE_BYTES_MAX", PIECE)

    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake, Gate(model_of(fake)) as gate:
            for number in (1, 2):
                await gate.run(["look", Media(data=VIDEO + b"%d" % number, mime_type="video/mp4")], session="s")
            fake.resources.files.clear()
            events = [event async for event in gate.stream("and now?", session="s")]
            codes = [event.code for event in events if isinstance(event, Notice)]
            assert codes == ["file_gone", "file_gone"]
            last: Any = fake.requests[-1].json
            left_out = {"text": "(A file of type video/mp4 was here. It is not available any more.)"}
            said = [content["parts"] for content in last["contents"] if content["role"] == "user"]
            assert said == [[{"text": "look"}, left_out], [{"text": "look"}, left_out], [{"text": "and now?"}]]
            requests = len(fake.requests)
            assert (await gate.run("still?", session="s")).text == "ok"
            assert len(fake.requests) == requests + 1

    asyncio.run(body())


def test_a_file_that_changes_during_its_upload_is_refused_and_nothing_of_it_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callgate.gemini.files, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(callgate.media_files, "INLINE_BYTES_MAX", PIECE)
    path = tmp_path / "film.mp4"
    original = VIDEO[:64] + bytes(4 * PIECE)
    path.write_bytes(original)

    async def body() -> None:
        async with FakeGemini(["ok"]) as fake, Gate(model_of(fake)) as gate:

            async def change(event: Event) -> None:
                if isinstance(event, Notice) and event.code == "uploading" and path.read_bytes() == original:
                    path.write_bytes(original[:-3] + b"new")

            with pytest.raises(UsageError, match="has changed while it was uploaded"):
                await gate.run(["What?", path], watch=change)
            assert fake.resources.files == {}
            path.write_bytes(original)
            assert (await gate.run(["What?", path])).text == "ok"
            [kept] = fake.resources.files.values()
            assert kept.digest.hexdigest() == hashlib.sha256(original).hexdigest()

    asyncio.run(body())


def test_a_file_that_changed_between_two_halves_of_its_upload_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callgate.gemini.files, "PIECE_BYTES", PIECE)
    path = tmp_path / "film.mp4"
    original = VIDEO[:64] + bytes(4 * PIECE)
    path.write_bytes(original)

    async def body() -> None:
        async with FakeGemini(["ok"]) as fake:
            files = model_of(fake).files

            async def change(sent: int, size: int) -> None:
                if sent == PIECE:
                    path.write_bytes(original[: PIECE + 5] + b"new" + original[PIECE + 8 :])
                if sent == 3 * PIECE:
                    raise RuntimeError("stopped")

            with pytest.raises(RuntimeError, match="stopped"):
                await files.upload(Media(path=str(path), mime_type="video/mp4"), change)
            path.write_bytes(original)
            with pytest.raises(UsageError, match="has changed while it was uploaded"):
                await files.upload(Media(path=str(path), mime_type="video/mp4"))
            assert (await files.upload(Media(path=str(path), mime_type="video/mp4"))).size == len(original)

    asyncio.run(body())


def test_tokens_are_counted_without_files_that_the_server_does_not_have_any_more(unjudged: None) -> None:
    async def body() -> None:
        async with FakeGemini(["ok"]) as fake:
            talk = Conversation()
            uris = [f"{fake.base_url}/v1beta/files/lost{number}" for number in (1, 2)]
            talk.add_user(["What?", *(Media(uri=uri, mime_type="video/mp4") for uri in uris)])
            assert await model_of(fake).count_tokens(ModelRequest(conversation=talk)) > 0
            assert [refusal.rule for refusal in fake.refusals] == ["file_exists"] * 2
            counted: Any = fake.requests[-1].json
            left_out = {"text": "(A file of type video/mp4 was here. It is not available any more.)"}
            assert counted["generateContentRequest"]["contents"][0]["parts"] == [{"text": "What?"}, left_out, left_out]

    asyncio.run(body())


def test_media_of_the_whole_conversation_counts_for_what_is_sent_in_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callgate.media_files, "INLINE_BYTES_MAX", len(VIDEO) + 100)

    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake, Gate(model_of(fake)) as gate:
            first = await gate.run(["a", Media(data=VIDEO, mime_type="video/mp4")], session="s")
            assert fake.resources.files == {}
            await gate.run(["b", Media(data=VIDEO, mime_type="video/mp4")], session="s")
            assert len(fake.resources.files) == 1
            await gate.run(["c", Media(data=VIDEO, mime_type="video/mp4")], history=first.contents)
            other: Any = fake.requests[-1].json
            assert "fileData" in other["contents"][-1]["parts"][1]
            assert fake.refusals == []

    asyncio.run(body())


def test_a_batch_uploads_what_is_too_large_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callgate.media_files, "INLINE_BYTES_MAX", PIECE)

    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake, Gate(model_of(fake)) as gate:
            [reply] = await gate.run_many([["a", Media(data=VIDEO, mime_type="video/mp4")]], batch=True)
            assert reply.text == "ok"
            assert len(fake.resources.files) == 1

    asyncio.run(body())


def test_prompts_of_a_conversation_on_vertex_are_sent_although_it_has_no_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callgate.media_files, "INLINE_BYTES_MAX", len(VIDEO) + 100)

    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake:
            env = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": "k", "GOOGLE_VERTEX_BASE_URL": fake.base_url}
            gate = Gate(GeminiModel(MODEL, env=env))
            for _ in range(2):
                await gate.run(["a", Media(data=VIDEO, mime_type="video/mp4")], session="s")
            last: Any = fake.requests[-1].json
            assert ["inlineData" in content["parts"][1] for content in last["contents"][::2]] == [True, True]

    run(body)
