"""Every request body that a test of this folder produces is judged three times, by judges that know nothing of callgate.

Google's own Python types (which know every field, and forbid others), Google's protobuf messages (exact, but older: what
they do not know yet is listed, with reasons, in `newer_than_protobuf.json`), and the rules of the fake server (which knows
roles, names and history). A test that means to send something wrong asks for the fixture `unjudged`.
"""

from __future__ import annotations

import base64
import copy
import functools
import json
import re
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate.gemini.surface import Surface
from callgate.testing.fake_gemini import FakeGemini

NEWER = json.loads((Path(__file__).parent / "newer_than_protobuf.json").read_text("utf-8"))
"""Path of a field -> why protobuf does not know it."""


# --- Google's Python types -----------------------------------------------------------------------------------------------


@functools.cache
def google_types() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the import warns of its own deprecations
        from google.genai import types
    return types


def types_problems(body: dict[str, Any]) -> list[str]:
    """What Google's Python types have against a body."""
    types = google_types()
    known: dict[str, Any] = {
        "contents": [types.Content], "systemInstruction": types.Content, "tools": [types.Tool],
        "toolConfig": types.ToolConfig, "generationConfig": types.GenerationConfig, "safetySettings": [types.SafetySetting],
        "serviceTier": types.ServiceTier, "cachedContent": str, "continuationToken": str, "labels": dict,
    }  # fmt: skip
    problems: list[str] = []
    for key, value in body.items():
        kind = known.get(key)
        if kind is None:
            problems.append(f"{key}: Google's types have no such field")
        for item in value if isinstance(kind, list) else [value]:
            one = kind[0] if isinstance(kind, list) else kind
            try:
                _validate(one, item)
            except (ValueError, UserWarning) as error:
                problems.append(f"{key}: {error}")
    return problems


def _validate(kind: Any, item: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("error", UserWarning)  # an unknown member of an enumeration is only warned of
        if hasattr(kind, "model_validate_json"):
            kind.model_validate_json(json.dumps(item))
        elif kind is not None and not isinstance(kind(item), kind):
            raise ValueError(f"{item!r} is no {kind.__name__}")


# --- Google's protobuf ---------------------------------------------------------------------------------------------------


@functools.cache
def google_messages() -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google.ai import generativelanguage
        from google.protobuf import json_format
    return generativelanguage.GenerateContentRequest, json_format


def protobuf_problems(body: dict[str, Any], newer: dict[str, str] = NEWER) -> list[str]:
    """What protobuf has against a body, once exactly the fields that it cannot know are taken out."""
    request, json_format = google_messages()
    known = copy.deepcopy(body)
    for path in newer:
        _remove(known, path.split("."))
    for declaration in _declarations(known):
        if "parameters" in declaration:
            declaration["parameters"] = _upper(declaration["parameters"])
    try:
        json_format.ParseDict(known, request.pb()(), ignore_unknown_fields=False)
    except json_format.ParseError as error:
        return [f"protobuf: {error}"]
    return []


def _remove(value: Any, path: list[str]) -> None:
    """Removes a field such as `tools[].googleSearch.searchTypes`. `name=WORD` removes the field where it holds the word."""
    key, _, word = path[0].removesuffix("[]").partition("=")
    if not isinstance(value, dict) or key not in value:
        return
    if len(path) == 1:
        if not word or value[key] == word:
            del value[key]
        return
    for inner in value[key] if path[0].endswith("[]") else [value[key]]:
        _remove(inner, path[1:])


def _declarations(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for tool in body.get("tools", []):
        yield from tool.get("functionDeclarations", [])


def _upper(schema: Any) -> Any:
    """The service takes type names in any case; protobuf's Python parser wants capitals."""
    if isinstance(schema, list):
        return [_upper(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.upper() if key == "type" and isinstance(value, str)
        else {name: _upper(inner) for name, inner in value.items()} if key == "properties"
        else _upper(value) if key in ("items", "anyOf") else value
        for key, value in schema.items()
    }  # fmt: skip


# --- all of them, always -------------------------------------------------------------------------------------------------


def problems_of(body: dict[str, Any]) -> list[str]:
    """What the two packages have against a body."""
    return [*types_problems(body), *protobuf_problems(body)]


def cache_problems(body: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the body that makes a cached content: its own fields, and those of a request in it."""
    if odd := body.keys() - {"model", "ttl", "contents", "systemInstruction", "tools", "toolConfig", "displayName"}:
        yield f"a cached content has no fields {sorted(odd)}"
    shared = {key: body[key] for key in ("contents", "systemInstruction", "tools", "toolConfig") if key in body}
    yield from problems_of(shared | ({} if "contents" in shared else {"contents": [{"parts": [{"text": "a"}]}]}))


def fake_problems(fake: FakeGemini) -> Iterator[str]:
    """What is wrong with anything that a fake server was sent."""
    for refusal in fake.refusals:
        yield f"the fake refused a request by the rule {refusal.rule!r}: {refusal.message}"
    for number, seen in enumerate(fake.requests):
        if seen.method != "POST" or seen.path.startswith("/upload/") or seen.path.endswith(":cancel"):
            continue
        if seen.path.endswith("/cachedContents"):
            yield from (f"request {number}: {problem}" for problem in cache_problems(seen.json))
            continue
        if seen.path.endswith(":batchGenerateContent"):
            entries = seen.json["batch"]["inputConfig"]["requests"]["requests"]
            bodies = [{key: value for key, value in entry["request"].items() if key != "model"} for entry in entries]
            yield from (f"request {number}: {problem}" for body in bodies for problem in problems_of(body))
            continue
        if not isinstance(seen.json, dict):
            yield f"request {number}: not a JSON object"
            continue
        known: Any = fake._without_own_oddities(seen)  # parts of kinds that nobody knows, sent back as they came
        body = json.loads(known) if isinstance(known, bytes) else known
        yield from (f"request {number}: {problem}" for problem in problems_of(body))


@pytest.fixture
def unjudged() -> None:
    """Ask for this in a test that sends what must be refused, or bodies that are no requests at all."""


@pytest.fixture(autouse=True)
def every_body_is_judged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Judges whatever any fake server received in a test: each when it is closed, so that long tests keep nothing."""
    if "unjudged" in request.fixturenames:
        yield
        return
    problems: list[str] = []
    leave = FakeGemini.__aexit__

    async def judged(fake: FakeGemini, *exc: Any) -> None:
        try:
            await leave(fake, *exc)
        finally:
            problems.extend(fake_problems(fake))

    monkeypatch.setattr(FakeGemini, "__aexit__", judged)
    yield
    assert not problems, "\n".join(problems[:20])


@pytest.fixture(scope="session")
def judge_body() -> Callable[[dict[str, Any]], list[str]]:
    """`judge_body(body)`: what the two packages have against a body."""
    return problems_of


@pytest.fixture(scope="session")
def judge_fake() -> Callable[[FakeGemini], list[str]]:
    """`judge_fake(fake)`: what is wrong with anything that a fake server was sent."""
    return lambda fake: list(fake_problems(fake))


@pytest.fixture(scope="session")
def newer_fields() -> dict[str, str]:
    """The reviewed list of fields that are newer than protobuf."""
    return dict(NEWER)


@pytest.fixture(scope="session")
def protobuf_judges() -> Callable[[dict[str, Any], dict[str, str]], list[str]]:
    """`protobuf_judges(body, newer)`: what protobuf has against a body, with another list of newer fields."""
    return protobuf_problems


# --- surfaces ------------------------------------------------------------------------------------------------------------


class OneToken:
    """Bearer tokens that never change."""

    async def token(self) -> str:
        return "token"


@pytest.fixture(scope="session")
def surface_of() -> Callable[..., Surface]:
    """`surface_of(fake, "vertex")`: that surface, served by a fake."""

    def surface(fake: FakeGemini, kind: Any = "developer") -> Surface:
        if kind == "developer":
            return Surface(kind=kind, base_url=fake.base_url, version="v1beta", api_key="k")
        cloud: dict[str, Any] = {"project": "p", "location": "global", "tokens": OneToken()}
        return Surface(kind=kind, base_url=fake.base_url, version="v1beta1", **cloud)

    return surface


@pytest.fixture(scope="session")
def png() -> bytes:
    """The smallest picture."""
    data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    return base64.b64decode(re.sub(r"\s", "", data))
