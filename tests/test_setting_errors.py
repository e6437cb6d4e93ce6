"""Bad values of settings, wherever a program passes them: a UsageError, which is a ValueError too."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from callgate import (
    ContextCache,
    Executor,
    FileTools,
    Gate,
    GeminiModel,
    InteractionsModel,
    Limits,
    McpServer,
    Media,
    OpenAIModel,
    Policy,
    Price,
    ScriptedModel,
    WorkerPool,
    tool,
)
from callgate.errors import UsageError
from callgate.gemini.surface import Surface
from callgate.permission import AuditLog, Hook, Rate, RateLimits, ResultCache, Rule
from callgate.store import MemoryStore, open_store
from callgate.types import ModelSettings
from callgate.workers.job import WorkerLimits


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def gate(**given: Any) -> Gate:
    return Gate(**{"model": ScriptedModel(["Hello."]), **given})


def OPENAI(**given: Any) -> Any:
    return OpenAIModel(**{"name": "m", "base_url": "http://127.0.0.1", "api_key": "k", **given})


def GEMINI(**given: Any) -> Any:
    return GeminiModel(**{"name": "gemini-3.8-flash", "api_key": "k", **given})


def INTERACTIONS(**given: Any) -> Any:
    return InteractionsModel(**{"name": "gemini-3.8-flash", "api_key": "k", **given})


NOT_NUMBERS: tuple[Any, ...] = ("x", True, [], object(), math.nan, math.inf, -1)
NOT_TEXTS: tuple[Any, ...] = (True, 5, [], object())
NOT_LISTS: tuple[Any, ...] = ("x", b"x", {"a": 1}, 5, True, object())
NOT_MAPPINGS: tuple[Any, ...] = ("x", 5, True, ["x"], object())
NO_OBJECTS: tuple[Any, ...] = ("x", 5, True, object())

# What is made, with which setting, and values that it cannot have.
TABLE: list[tuple[Callable[..., Any], str, tuple[Any, ...]]] = [
    *[(Limits, name, NOT_NUMBERS) for name in Limits.__slots__],
    *[(WorkerLimits, name, NOT_NUMBERS) for name in WorkerLimits.__slots__],
    *[(Rate, name, NOT_NUMBERS) for name in ("per_s", "burst", "concurrent")],
    *[(RateLimits, name, NOT_NUMBERS) for name in ("waiting", "patience_s", "requests_per_minute", "tokens_per_minute")],
    *[(RateLimits, name, (*NOT_MAPPINGS, {"a": 5})) for name in ("tools", "kinds")],
    (RateLimits, "total", NO_OBJECTS),
    (RateLimits, "when_used_up", ("x", 5)),
    *[(ContextCache, name, NOT_NUMBERS) for name in ("min_tokens", "uses", "ttl_s")],
    (ContextCache, "history", ("x", 5)),
    *[(Policy, name, NOT_LISTS) for name in ("rules", "sensitive", "runs_code", "hooks")],
    (Policy, "default", NO_OBJECTS),
    (Policy, "mode", NO_OBJECTS),
    (Policy, "nobody", NOT_TEXTS),
    (lambda **given: Rule(verdict="ask", **given), "kind", NO_OBJECTS),
    (lambda **given: Rule(**given), "verdict", NO_OBJECTS),
    (lambda **given: Hook(command=["true"], **given), "environment", NOT_LISTS),
    (lambda **given: Hook(command=["true"], **given), "timeout_s", NOT_NUMBERS),
    (lambda **given: Hook(command=["true"], **given), "output_bytes", NOT_NUMBERS),
    (lambda **given: Hook(command=["true"], **given), "when", NO_OBJECTS),
    (lambda **given: Hook(**given), "command", ([], "", 5)),
    *[(lambda **given: Price(**{"input": 1, "output": 1, **given}), name, NOT_NUMBERS) for name in ("input", "cached")],
    (lambda **given: Price(input=1, output=1, **given), "above", (5, "x", (1, 2), (Price(input=1, output=1), 1))),
    (lambda **given: Media(data=b"x", **given), "path", ("/tmp/x",)),
    (Media, "path", (5, object())),
    (Media, "data", (5, "x", object())),
    *[(lambda **given: tool(**given)(add), name, NO_OBJECTS[1:]) for name in ("name", "isolation", "run_in")],
    (lambda **given: tool(**given)(add), "timeout_s", NOT_NUMBERS),
    *[(gate, name, NO_OBJECTS) for name in ("limits", "policy", "rates", "settings", "prices", "approve", "compaction")],
    (gate, "approve", (lambda: "yes", lambda _call: "yes", lambda _call, _definition, _reason, _more: "yes")),
    (gate, "mode", NO_OBJECTS),
    *[(gate, name, NO_OBJECTS[1:]) for name in ("model", "system", "store", "audit", "tools")],
    (gate, "cache", ("x", 5, object())),
    (Executor, "limits", NO_OBJECTS),
    (WorkerPool, "modules", NOT_LISTS),
    (WorkerPool, "limits", NO_OBJECTS),
    (WorkerPool, "size", NOT_NUMBERS),
    (lambda **given: McpServer(**{"command": ["x"], **given}), "name", (*NOT_TEXTS, "", "a b")),
    (lambda **given: McpServer("s", **given), "command", ("x", b"x", 5, [], [5], {"a": 1})),
    *[(lambda **given: McpServer("s", command=["x"], **given), name, NOT_MAPPINGS) for name in ("env", "headers")],
    (lambda **given: McpServer("s", command=["x"], **given), "timeout_s", NOT_NUMBERS),
    (FileTools, "root", NOT_TEXTS),
    *[
        (lambda make=make, **given: make(**{"name": "gemini-3.8-flash", "api_key": "k", **given}), name, values)
        for make in (GeminiModel, InteractionsModel)
        for name, values in (
            ("name", NOT_TEXTS), ("api_key", (5, True, object())), ("limits", NO_OBJECTS), ("surface", NO_OBJECTS),
            ("headers", NOT_MAPPINGS), ("http", NO_OBJECTS), ("ssl", NO_OBJECTS),
        )
    ],
    *[
        (lambda **given: OpenAIModel(**{"name": "m", "base_url": "http://127.0.0.1", "api_key": "k", **given}), name, values)
        for name, values in (
            ("name", NOT_TEXTS), ("base_url", (5, True, object(), "x")), ("api_key", (5, True, object())),
            ("limits", NO_OBJECTS), ("headers", NOT_MAPPINGS), ("http", NO_OBJECTS),
        )
    ],
    (ScriptedModel, "script", NOT_LISTS),
    *[
        (lambda **given: Surface(**{"kind": "developer", "base_url": "http://x", "version": "v1", **given}), name, values)
        for name, values in (
            ("kind", NO_OBJECTS), ("base_url", (*NOT_TEXTS, None, "http://x\0y", "http://\u0663.0.0.1")),
            ("version", NOT_TEXTS), ("api_key", NOT_TEXTS), ("project", NOT_TEXTS), ("location", NOT_TEXTS),
        )
    ],
    *[(make, "client", NO_OBJECTS[:3]) for make in (OPENAI, GEMINI, INTERACTIONS)],
    *[(partial(make, "m"), "env", NO_OBJECTS[:3]) for make in (OpenAIModel, GeminiModel, InteractionsModel)],
    *[(make, "name", ("\ud800", "a\0b")) for make in (GEMINI, INTERACTIONS)],
    (gate, "tools_shown", NOT_NUMBERS),
    (ResultCache, "tools", (5, 1.5)),
    (ResultCache, "touches", ("x", 5, 1.5)),
    (ResultCache, "ttl_s", ("x", [], object())),
    (AuditLog, "path", (5, 1.5, [], "a\0b")),
    (lambda **given: AuditLog("x", **given), "secrets", (5, 1.5)),
    (WorkerPool, "name", (5, 1.5, [])),
    (WorkerPool, "cluster", (5, 1.5, [])),
    (lambda **given: McpServer("s", **{"url": "http://x", **given}), "oauth", NO_OBJECTS),
    (lambda **given: McpServer("s", **given), "url", (5, 1.5, [])),
    *[(lambda **given: McpServer("s", command=["x"], **given), name, (5, 1.5)) for name in ("include", "exclude")],
    (Executor, "tools", (5, 1.5)),
    (MemoryStore, "sessions_max", (*NOT_NUMBERS, 0)),
    (lambda **given: open_store(None, **given), "durable", NO_OBJECTS),
    (Policy, "hooks", ([None], [5])),
    (Policy, "parts", (5, [5], [None])),
    *[(Limits, name, (10**400, 1e308)) for name in Limits.__slots__ if name.endswith("_s")],
    (lambda **given: gate().interrupt("s", **given), "error", (None, "x", SystemExit)),
]  # fmt: skip

CASES = [
    pytest.param(make, name, value, id=f"{number}-{name}-{type(value).__name__}-{place}")
    for number, (make, name, values) in enumerate(TABLE)
    for place, value in enumerate(values)
]


@pytest.mark.rows(("make", "name", "value"), CASES)
def test_a_bad_value_of_a_setting_is_a_usage_error(make: Callable[..., Any], name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        make(**{name: value})
    assert isinstance(caught.value, ValueError)
    assert str(caught.value)


OPTIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("session", (5, True, "", object())),
    ("history", ("x", 5, True)),
    ("tool_choice", (5, True, "sometimes", object())),
    ("answers", ("x", 5, ["x"])),
    ("tools", ("x", 5, True)),
    ("instructions", (5, True)),
    ("headers", ("x", 5, ["x"])),
    ("output", ("x", 5)),
    ("watch", ("x", 5, True)),
]


@pytest.mark.parametrize(("name", "values"), OPTIONS)
def test_a_bad_value_of_an_option_of_a_run_is_a_usage_error(name: str, values: tuple[Any, ...]) -> None:
    async def story() -> None:
        for value in values:
            with pytest.raises(UsageError):
                await gate().run("Hi.", **{name: value})

    asyncio.run(story())


def test_a_key_of_the_wrong_type_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        GeminiModel("gemini-3.8-flash", api_key=["key-that-nobody-may-see"])  # pyright: ignore[reportArgumentType]
    assert "nobody" not in str(caught.value)


def test_sensible_values_are_taken() -> None:
    Limits(run_cost=0, retries_malformed=0)
    Price(input=0, output=0.5, cached=0, above=(200_000, Price(input=1, output=2)))
    Policy(rules=iter(["ask add"]), sensitive=("*.pem",), hooks=[Hook(command="true")])
    RateLimits(tools={"a*": Rate(per_s=1)}, kinds={}, total=Rate(concurrent=2))
    Media(data=b"x", mime_type="image/png")
    gate(audit=None, cache=[ResultCache(), ContextCache()])


def test_an_argument_that_there_is_not_stays_a_type_error() -> None:
    with pytest.raises(TypeError, match="nonsense") as caught:
        GeminiModel("gemini-3.8-flash", api_key="k", nonsense=5)  # type: ignore[call-arg]
    assert not isinstance(caught.value, UsageError)


@pytest.mark.parametrize("model", [GEMINI, INTERACTIONS, OPENAI])
def test_every_setting_of_a_model_has_a_type(model: Callable[[], Any]) -> None:
    typed = {*ModelSettings.__annotations__}
    assert [name for name in model().known_settings if name not in typed] == []
