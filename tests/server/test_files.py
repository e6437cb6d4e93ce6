"""Large media over HTTP: received in pieces, resumed, handed on to the provider, and used in a prompt."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, GeminiModel, ScriptedModel
from callgate.server.access_file import AccessFile, token_hash
from callgate.server.files import PENDING_MAX
from callgate.testing import FakeGemini

DATA = b"\x00\x00\x00\x18ftypmp42" + bytes(range(256)) * 40


@pytest.fixture
def fake() -> Iterator[FakeGemini]:
    with FakeGemini.in_thread(["A film."], repeat_last=True) as fake:
        yield fake


@pytest.fixture
def site(serve: Callable[..., Any], fake: FakeGemini) -> Any:
    return serve(Gate(GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})))


def uploaded(site: Any) -> dict[str, Any]:
    """The part for a file that was uploaded by the service."""
    upload = site.post("/api/v1/files", {"name": "film.mp4", "size": len(DATA)}).json["id"]
    return send(site, upload, 0, DATA).json["part"]


def send(site: Any, upload: str, offset: int, data: bytes) -> Any:
    return site.post(f"/api/v1/files/{upload}", {"offset": offset, "data": base64.b64encode(data).decode()})


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_file_that_was_uploaded_at_one_process_and_used_at_another_goes_with_its_session(
    serve: Callable[..., Any], fake: FakeGemini, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "sessions.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")

    def site() -> Any:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        return serve(Gate(model, store=place))

    here, there = site(), site()
    part = uploaded(here)
    assert there.chat({"prompt": ["What is this?", part], "session": "s"}).status == 200
    assert len(fake.resources.files) == 1
    assert there.request("DELETE", "/api/v1/sessions/s").status == 200
    assert fake.resources.files == {}


def test_a_file_that_no_process_uploaded_is_left_alone(serve: Callable[..., Any], fake: FakeGemini, tmp_path: Path) -> None:
    def site(name: str) -> Any:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        return serve(Gate(model, store=str(tmp_path / name)))

    part = uploaded(site("another.db"))  # As a file that the operator uploaded in another way.
    there = site("sessions.db")
    assert there.chat({"prompt": ["What is this?", part], "session": "s"}).status == 200
    assert there.request("DELETE", "/api/v1/sessions/s").status == 200
    assert len(fake.resources.files) == 1


@pytest.mark.parametrize("how", ["fork", "name"])
def test_a_file_stays_for_as_long_as_another_session_of_the_store_refers_to_it(
    serve: Callable[..., Any], fake: FakeGemini, tmp_path: Path, how: str
) -> None:
    def site() -> Any:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        return serve(Gate(model, store=str(tmp_path / "sessions.db")))

    here, there = site(), site()
    part = uploaded(here)
    assert here.chat({"prompt": ["What is this?", part], "session": "s"}).status == 200
    if how == "fork":
        other = there.post("/api/v1/sessions/s/fork", {}).json["session"]
    else:
        other = "t"
        assert there.chat({"prompt": ["What is this?", part], "session": other}).status == 200
    assert here.request("DELETE", "/api/v1/sessions/s").status == 200
    assert len(fake.resources.files) == 1
    assert there.chat({"prompt": "And?", "session": other}).json["response"] == "A film."
    assert fake.refusals == []


def test_a_file_in_pieces_becomes_a_part_for_a_prompt_and_is_deleted_with_its_session(site: Any, fake: FakeGemini) -> None:
    begun = site.post("/api/v1/files", {"name": "film.mp4", "size": len(DATA)})
    assert begun.status == 201
    upload = begun.json["id"]
    assert send(site, upload, 0, DATA[:1_000]).json["received"] == 1_000
    assert send(site, upload, 0, DATA[:1_000]).error == (409, "wrong_offset")
    assert site.get(f"/api/v1/files/{upload}").json["received"] == 1_000
    done = send(site, upload, 1_000, DATA[1_000:])
    assert done.status == 200
    [file] = fake.resources.files.values()
    assert file.digest.hexdigest() == hashlib.sha256(DATA).hexdigest()
    assert done.json["part"]["fileData"]["mimeType"] == "video/mp4"
    assert site.get(f"/api/v1/files/{upload}").error == (404, "no_such_upload")
    answer = site.chat({"prompt": ["What is this?", done.json["part"]], "session": "s"})
    assert answer.json["response"] == "A film."
    assert fake.refusals == []
    assert site.request("DELETE", "/api/v1/sessions/s").status == 200
    assert fake.resources.files == {}


def test_a_stored_interaction_and_a_stored_response_are_deleted_with_their_files(site: Any, fake: FakeGemini) -> None:
    for path, said in (("/v1beta/interactions", interaction), ("/v1/responses", response)):
        part = uploaded(site)
        assert len(fake.resources.files) == 1
        created = site.post(path, said(part["fileData"]))
        assert (created.status, fake.refusals) == (200, [])
        assert b"fileData" in fake.requests[-1].body
        assert site.request("DELETE", f"{path}/{created.json['id']}").status == 200
        assert fake.resources.files == {}


def interaction(file: dict[str, str]) -> dict[str, Any]:
    video = {"type": "video", "uri": file["fileUri"], "mime_type": file["mimeType"]}
    return {"model": "callgate", "input": [{"type": "text", "text": "What is this?"}, video]}


def response(file: dict[str, str]) -> dict[str, Any]:
    content = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": file["fileUri"]}]
    return {"model": "callgate", "input": [{"role": "user", "content": content}]}


def test_what_does_not_fit_is_refused_and_an_upload_can_be_given_up(site: Any) -> None:
    upload = site.post("/api/v1/files", {"name": "a.png", "size": 3}).json["id"]
    assert send(site, upload, 0, b"1234").error == (422, "invalid_request")
    assert site.post(f"/api/v1/files/{upload}", {"offset": 0, "data": "?"}).error == (422, "invalid_request")
    assert site.post("/api/v1/files", {"name": "a.png", "size": 3 * 1024**3}).error == (422, "invalid_request")
    assert site.request("DELETE", f"/api/v1/files/{upload}").json == {"deleted": upload}
    assert site.get(f"/api/v1/files/{upload}").error == (404, "no_such_upload")


def test_a_model_without_uploads_says_so(serve: Callable[..., Any]) -> None:
    site = serve(Gate(ScriptedModel(["x"])))
    assert site.post("/api/v1/files", {"name": "a.png", "size": 3}).error == (422, "no_uploads")


def test_nobody_keeps_others_from_uploads_and_each_of_them_gets_an_equal_share(
    serve: Callable[..., Any], fake: FakeGemini, tmp_path: Path
) -> None:
    tokens = {name: f"cg_{name}-0123456789abcdef" for name in ("ann", "bob")}
    path = tmp_path / "access.toml"
    path.write_text("".join(f'[tokens.{name}]\nsha256 = "{token_hash(token)}"\n' for name, token in tokens.items()))
    path.chmod(0o600)
    model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
    site = serve(Gate(model, store=str(tmp_path / "sessions.db")), identities=AccessFile(path))

    def begin(name: str) -> Any:
        return site.post("/api/v1/files", {"name": "x.mp4", "size": 10}, Authorization=f"Bearer {tokens[name]}")

    def shown(name: str, upload: str) -> int:
        return site.get(f"/api/v1/files/{upload}", Authorization=f"Bearer {tokens[name]}").status

    def send_as(name: str, upload: str, data: str) -> int:
        body = {"offset": 0, "data": data}
        return site.post(f"/api/v1/files/{upload}", body, Authorization=f"Bearer {tokens[name]}").status

    of_ann = [begin("ann").json["id"] for _ in range(PENDING_MAX)]
    assert begin("ann").error == (503, "busy")
    assert send_as("ann", of_ann[0], "") == 200  # Nothing came, so that it is still the oldest.
    assert send_as("ann", of_ann[1], "eHg=") == 200
    of_bob = [begin("bob") for _ in range(PENDING_MAX // 2 + 1)]
    assert [answer.status for answer in of_bob] == [201] * (PENDING_MAX // 2) + [503]
    assert [shown("ann", upload) for upload in of_ann] == [404, 200] + [404] * 7 + [200] * 7
    assert begin("ann").error == (503, "busy")
    assert {shown("bob", answer.json["id"]) for answer in of_bob[:-1]} == {200}
