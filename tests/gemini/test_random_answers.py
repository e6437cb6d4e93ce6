"""Any JSON anywhere in an answer: whatever a model says, its session goes on, here and in another process.

Each case has a number from which it can be made again: `CALLGATE_SEED=n` repeats just that one.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Limits, Policy, sessions, strict_json
from callgate.errors import CallgateError
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.history.repair import validate
from callgate.machine.machine import RunMachine
from callgate.models.gemini import GeminiModel
from callgate.testing.exchange import JSON_TYPE, SSE_TYPE, Body, Exchange
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fault_row import FaultStep, row
from callgate.wire.endpoint_health import EndpointHealth

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
ONE_SEED = os.environ.get("CALLGATE_SEED")
NET_S = 60.0

# --- any JSON ------------------------------------------------------------------------------------------------------------

WORDS = (
    "", "wx", "city", "Oslo", "STOP", "model", "user", "text/plain", "\ud800", "a\udc00b", "\x00", "é東🦊", "c2ln", "1",
    "{}", '{"city": "Oslo"}', "x" * 3_000, "default_api.wx", "../wx", "$.city", "MALFORMED_FUNCTION_CALL", "None",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, 5e-324)
PARTS = (
    "text", "thought", "thoughtSignature", "thought_signature", "functionCall", "function_call", "functionResponse",
    "function_response", "inlineData", "inline_data", "fileData", "file_data", "executableCode", "executable_code",
    "codeExecutionResult", "toolCall", "toolResponse", "videoMetadata", "mediaResolution", "hologram", "\ud800",
)  # fmt: skip
CALL = ("id", "name", "args", "partialArgs", "partial_args", "willContinue", "will_continue", "response", "scheduling", "")
CANDIDATE = (
    "content", "finishReason", "finish_reason", "finishMessage", "finish_message", "index", "tokenCount", "safetyRatings",
    "citationMetadata", "groundingMetadata", "avgLogprobs", "continuationToken",
)  # fmt: skip
ANSWER = (
    "candidates", "promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata", "modelVersion", "responseId",
    "error", "createTime",
)  # fmt: skip
USAGE = (
    "promptTokenCount", "candidatesTokenCount", "totalTokenCount", "thoughtsTokenCount", "cachedContentTokenCount",
    "toolUsePromptTokenCount", "prompt_token_count",
)  # fmt: skip


class Dice(random.Random):
    """Makes JSON: mostly of the right shape, and sometimes anything at all."""

    odd = 0.15

    def any_json(self, depth: int = 4) -> Any:
        kind = self.randrange(9 if depth else 6)
        if kind == 0:
            return None
        if kind == 1:
            return self.random() < 0.5
        if kind in (2, 3):
            return self.choice(WORDS)
        if kind == 4:
            return self.choice(NUMBERS)
        if kind == 5:
            return self.deep(self.choice([20, 99, 101, 300]))
        if kind == 6:
            return [self.any_json(depth - 1) for _ in range(self.randrange(4))]
        return {self.choice(WORDS): self.any_json(depth - 1) for _ in range(self.randrange(4))}

    def deep(self, levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value] if self.random() < 0.5 else {"a": value}
        return value

    def maybe(self, make: Callable[[], Any]) -> Any:
        """What `make` makes, or anything."""
        return self.any_json() if self.random() < self.odd else make()

    def fields(self, names: tuple[str, ...], makers: dict[str, Callable[[], Any]], most: int = 4) -> dict[str, Any]:
        chosen = self.sample(names, self.randrange(1, most + 1))
        return {name: self.maybe(makers.get(name, self.any_json)) for name in chosen}

    def arguments(self) -> Any:
        return {"city": "Oslo", "days": 2} if self.random() < 0.5 else {"city": self.any_json(), "days": self.any_json()}

    def call(self) -> dict[str, Any]:
        made = self.fields(CALL, {"name": lambda: "wx", "args": self.arguments, "id": lambda: f"i{self.randrange(3)}"})
        return {"name": "wx", "args": self.arguments(), **made} if self.random() < 0.6 else made

    def part(self) -> Any:
        blob = {"mimeType": "image/png", "data": "iVBORw0KGgo="}
        makers: dict[str, Callable[[], Any]] = {
            "text": lambda: "Well.", "thought": lambda: True, "thoughtSignature": lambda: "c2ln",
            "thought_signature": lambda: "c2ln", "functionCall": self.call, "function_call": self.call,
            "functionResponse": lambda: {"name": "wx", "response": {}}, "inlineData": lambda: dict(blob),
            "fileData": lambda: {"fileUri": "gs://x/y", "mimeType": "image/png"},
            "executableCode": lambda: {"language": "PYTHON", "code": "1"},
        }  # fmt: skip
        return self.fields(PARTS, makers, most=2)

    def content(self) -> Any:
        parts = self.maybe(lambda: [self.maybe(self.part) for _ in range(self.randrange(4))])
        return {
            "role": self.maybe(lambda: "model"),
            "parts": parts,
            **({"x": self.any_json()} if self.random() < 0.2 else {}),
        }

    def candidate(self) -> Any:
        makers: dict[str, Callable[[], Any]] = {
            "content": self.content, "finishReason": lambda: self.choice(["STOP", "STOP", "MAX_TOKENS", "SAFETY", "NEW"]),
            "index": lambda: 0, "finishMessage": lambda: "print(default_api.wx(city='Oslo'))",
        }  # fmt: skip
        made = self.fields(CANDIDATE, makers)
        return {"content": self.maybe(self.content), "finishReason": "STOP", **made} if self.random() < 0.8 else made

    def answer(self) -> Any:
        makers: dict[str, Callable[[], Any]] = {
            "candidates": lambda: [self.maybe(self.candidate) for _ in range(self.choice([0, 1, 1, 1, 2]))],
            "usageMetadata": lambda: self.fields(USAGE, {name: lambda: 7 for name in USAGE}),
            "promptFeedback": lambda: {"blockReason": self.maybe(lambda: "SAFETY")},
            "modelVersion": lambda: "gemini-3.8-flash",
        }  # fmt: skip
        made = self.fields(ANSWER, makers, most=3) if self.random() < 0.5 else {}
        return self.maybe(lambda: {"candidates": [self.maybe(self.candidate)], **made})


def chunks_of(seed: int) -> list[Any]:
    dice = Dice(seed)
    return [dice.answer() for _ in range(dice.choice([1, 1, 2, 4]))]


SOUND = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Still here."}]}, "finishReason": "STOP"}]}


# --- two ways in ---------------------------------------------------------------------------------------------------------


class OwnModel:
    """A model of somebody's own, that hands on whatever it is given."""

    name = "own"

    def __init__(self) -> None:
        self.next: list[Any] = []

    async def generate(self, request: Any) -> AsyncIterator[Any]:
        assert validate(request.contents, sendable=True) == []
        strict_json.dump(request.contents)
        said, self.next = self.next, [SOUND]
        for chunk in said:
            yield chunk


class VirtualClock:
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        await asyncio.sleep(0)


def wx(city: str, days: int = 1) -> str:
    """The weather of a city."""
    return f"{city}: rain for {days} days"


class Case:
    """Gates on one file, and what their model says next."""

    def __init__(self, model: Any, say: Callable[[list[Any]], None], file: Path) -> None:
        limits = Limits(turns=3, idle_s=5, first_byte_s=5, attempts=2)
        options: dict[str, Any] = {"policy": Policy(default="allow"), "limits": limits}
        self.say = say
        self.gate = Gate(model, [wx], store=file, **options)
        self.other = Gate(model, [wx], store=file, **options)

    async def judge(self, seed: int) -> str:
        session = f"s{seed}"
        self.say(chunks_of(seed))
        try:
            if seed % 2:
                ending = (await self.gate.run("Hello.", session=session)).finish_reason
            else:
                events = [event async for event in self.gate.stream("Hello.", session=session)]
                ending = events[-1].reply.finish_reason  # pyright: ignore
        except CallgateError as error:
            ending = type(error).__name__
        for gate in (self.gate, self.other):
            self.say([SOUND])
            reply = await gate.run("And now?", session=session)
            assert (reply.text, reply.finish_reason) == ("Still here.", "STOP")
            assert validate(reply.contents) == []
        found = await sessions.load(self.other.store, session)
        assert (found.state, found.reply.text) == ("idle", "Still here.")
        journal = await self.other.store.load(session)
        assert not RunMachine(journal).quarantined
        return ending

    async def judge_all(self, seeds: range) -> Counter[str]:
        endings: Counter[str] = Counter()
        async with self.gate, self.other:
            for seed in [int(ONE_SEED)] if ONE_SEED else seeds:
                try:
                    async with asyncio.timeout(NET_S):
                        endings[await self.judge(seed)] += 1
                except BaseException as error:
                    said = json.dumps(chunks_of(seed))[:2_000]
                    error.add_note(f"This was seed {seed}; CALLGATE_SEED={seed} repeats it. It was said: {said}")
                    raise
        return endings


def by_own_model(file: Path, seeds: range) -> Counter[str]:
    async def main() -> Counter[str]:
        model = OwnModel()
        return await Case(model, lambda chunks: setattr(model, "next", chunks), file).judge_all(seeds)

    return asyncio.run(main())


def by_wire(file: Path, seeds: range, surface_of: Callable[..., Surface]) -> Counter[str]:
    said: list[Any] = []

    async def send(exchange: Exchange) -> None:
        chunks = said[0]
        said[0] = [SOUND]
        texts = [json.dumps(chunk).encode() for chunk in chunks]
        if exchange.request.streaming:
            body = Body(SSE_TYPE, tuple(b"data: %b\r\n\r\n" % one for one in texts), streamed=True)
        else:
            body = Body(JSON_TYPE, (texts[0] if len(texts) == 1 else b"[" + b",".join(texts) + b"]",), streamed=False)
        await exchange.send_body(body)

    async def main() -> Counter[str]:
        clock: Any = VirtualClock()
        step = FaultStep(fault=row("ANY", "any JSON", "", send), variant="usual", times=None)
        async with FakeGemini([step], strict=False) as fake:
            limits = Limits(idle_s=5, first_byte_s=5, attempts=2)
            client = GeminiClient(
                surface_of(fake), limits=limits, clock=clock, health=EndpointHealth(clock), dice=random.Random(1)
            )
            model = GeminiModel("gemini-3.8-flash", client=client)
            said.append([])
            return await Case(model, lambda chunks: said.__setitem__(0, chunks), file).judge_all(seeds)

    return asyncio.run(main())


def is_varied(endings: Counter[str], cases: int) -> bool:
    """Whether the cases have found answers as well as errors of several kinds."""
    print({ending[:30]: count for ending, count in endings.items()})
    return bool(ONE_SEED) or (endings["STOP"] > cases / 10 and len(endings) > 3)


QUICK = 150


def test_any_json_of_an_own_model_leaves_the_session_usable(tmp_path: Path) -> None:
    assert is_varied(by_own_model(tmp_path / "db", range(QUICK)), QUICK)


def test_any_json_over_the_wire_leaves_the_session_usable(
    tmp_path: Path, surface_of: Callable[..., Surface], unjudged: None
) -> None:
    assert is_varied(by_wire(tmp_path / "db", range(QUICK), surface_of), QUICK)


@pytest.mark.slow
def test_much_more_json_leaves_every_session_usable(
    tmp_path: Path, surface_of: Callable[..., Surface], unjudged: None
) -> None:
    cases = 1_500 * SCALE
    assert is_varied(by_own_model(tmp_path / "own", range(QUICK, QUICK + cases)), cases)
    assert is_varied(by_wire(tmp_path / "wire", range(QUICK + cases, QUICK + 2 * cases), surface_of), cases)
