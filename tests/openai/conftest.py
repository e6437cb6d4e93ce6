"""Every request body that a test of this folder sends to a fake server is judged by the types of the official SDK.

A test that means to send something that they do not take asks for the fixture `unjudged`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callgate.testing.fake_openai import FakeOpenAI


def _judge() -> ModuleType:
    name = "callgate_openai_judge"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("judge.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def judge() -> ModuleType:
    return _judge()


@pytest.fixture
def unjudged() -> None:
    """For tests that send what the types of the SDK refuse, or that OpenAI would."""


@pytest.fixture(autouse=True)
def judged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    pytest.importorskip("openai", reason="the openai SDK is not installed; nothing judged these requests")
    problems: list[str] = []
    leave = FakeOpenAI.__aexit__

    async def exit_judged(fake: FakeOpenAI, *args: Any) -> None:
        for sent in fake.requests:
            api = sent.path.rpartition("/")[2]
            body = sent.json if isinstance(sent.json, dict) else {}
            problems.extend(_judge().sdk_problems(body, api) if body else ["a body that is no object"])
            problems.extend(_judge().strange_keys(body, api))
        problems.extend(refusal.message for refusal in fake.refusals)
        await leave(fake, *args)

    monkeypatch.setattr(FakeOpenAI, "__aexit__", exit_judged)
    yield problems
    if "unjudged" not in request.fixturenames:
        assert problems == []
