"""Many runs in batches: half the price, tools between batches, and nothing left at the server when they are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from google import genai
from google.genai import types as genai_types

from callgate import Gate, GeminiModel, Media, OpenAIModel, Price, UsageError, tool
from callgate.content.prompt import user_content
from callgate.errors import InvalidRequestError, ModelError, ServerUnavailableError
from callgate.events import Notice
from callgate.gemini import batches
from callgate.gemini.client import GeminiClient
from callgate.gemini.resources import ResourceClient
from callgate.gemini.surface import surface_from_environment
from callgate.history.conversation import Conversation
from callgate.machine.facts import ModelAccepted
from callgate.models.batch import BatchModel, batched
from callgate.request import Accepted, ModelRequest
from callgate.store import MemoryStore
from callgate.testing import FakeGemini, call

MODEL = "gemini-3.8-flash"
NEVER_S = 1e9


class Clock:
    """Virtual time, but for waits that are to last."""

    at = 1_000.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        if seconds == NEVER_S:
            await asyncio.Event().wait()
        self.at += seconds
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "LINGER_S", NEVER_S)


def model_of(fake: FakeGemini) -> GeminiModel:
    surface = surface_from_environment({"GOOGLE_GEMINI_BASE_URL": fake.base_url}, api_key="k")
    return GeminiModel(MODEL, client=GeminiClient(surface, clock=Clock()))


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await body()

    asyncio.run(bounded())


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def echo(body: Any) -> Any:
    """Call `add` when a sum is asked for; say its result; else say what was said."""
    part = body["contents"][-1]["parts"][0]
    if "functionResponse" in part:
        return f"It is {part['functionResponse']['response']['result']}."
    return call("add", a=1, b=2) if "+" in part["text"] else f"You said {part['text']}"


def test_runs_share_batches_and_cost_half() -> None:
    async def story() -> None:
        async with FakeGemini([echo], repeat_last=True) as fake:
            prices = {MODEL: Price(input=1_000_000.0, output=0.0)}
            async with Gate(model_of(fake), [add], prices=prices) as gate:
                replies = await gate.run_many(["One.", "1 + 2?", "Three."], batch=True)
                single = await gate.run("One.")
            assert [reply.text for reply in replies] == ["You said One.", "It is 3.", "You said Three."]
            assert (fake.batches.sizes, fake.refusals, fake.batches.cancelled) == ([3, 1], [], [])
            assert [reply.cost for reply in replies] == [reply.usage.input_tokens / 2 for reply in replies]
            assert single.cost == single.usage.input_tokens

    run(story)


def test_the_bytes_of_a_batch_are_those_that_googles_sdk_sends_and_reads() -> None:
    async def story() -> None:
        async with FakeGemini(["One.", "One."]) as fake:
            async with Gate(model_of(fake)) as gate:
                await gate.run_many(["First?"], batch=True)
            client = genai.Client(api_key="k", http_options=genai_types.HttpOptions(base_url=fake.base_url))
            said: Any = {"contents": [{"role": "user", "parts": [{"text": "First?"}]}]}
            job = await client.aio.batches.create(model=MODEL, src=[said], config={"display_name": "one"})
            while job.state is not None and job.state.name == "JOB_STATE_RUNNING":
                job = await client.aio.batches.get(name=job.name or "")
            await client.aio.aclose()
            found: Any = job.dest
            assert [one.response.text for one in found.inlined_responses] == ["One."]
            ours, theirs = (one.json["batch"] for one in fake.requests if one.path.endswith(":batchGenerateContent"))
            entry = ours["inputConfig"]["requests"]["requests"][0]
            assert entry["request"]["contents"] == theirs["inputConfig"]["requests"]["requests"][0]["request"]["contents"]
            assert (ours.keys(), entry.keys()) == ({"displayName", "inputConfig"}, {"request", "metadata"})

    run(story)


def test_one_failed_request_of_a_batch_is_one_error() -> None:
    async def story() -> None:
        async with FakeGemini(["One."]) as fake, Gate(model_of(fake)) as gate:
            first, second = await gate.run_many(["First?", "Second?"], batch=True, return_errors=True)
            assert getattr(first, "text", "") == "One."
            assert isinstance(second, ServerUnavailableError)

    run(story)


def test_a_fault_that_keeps_a_batch_from_being_sent_is_the_error_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*given: Any, **more: Any) -> Any:
        raise ImportError("no certificates")

    async def story() -> None:
        async with FakeGemini([]) as fake, Gate(model_of(fake)) as gate:
            monkeypatch.setattr(ResourceClient, "call", broken)
            [failed] = await gate.run_many(["First?"], batch=True, return_errors=True)
            assert (type(failed), str(failed)) == (ImportError, "no certificates")

    run(story)


@pytest.mark.parametrize(
    ("state", "said"), [("EXPIRED", "expired"), ("CANCELLED", "was cancelled"), ("FAILED", "no answers")]
)
def test_a_batch_that_ends_badly_is_an_error_of_each_run(state: str, said: str) -> None:
    async def story() -> None:
        async with FakeGemini(["One.", "Two."]) as fake, Gate(model_of(fake)) as gate:
            fake.batches.ends = state
            found = await gate.run_many(["First?", "Second?"], batch=True, return_errors=True)
            assert [said in str(error) for error in found] == [True, True]
            assert all(isinstance(error, ModelError) for error in found)

    run(story)


def test_large_requests_are_divided_into_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES_MAX", 600)

    async def story() -> None:
        async with FakeGemini([echo], repeat_last=True) as fake, Gate(model_of(fake)) as gate:
            replies = await gate.run_many([f"{number} {'x' * 200}" for number in range(4)], batch=True)
            assert [reply.text[:10] for reply in replies] == [f"You said {number}" for number in range(4)]
            assert fake.batches.sizes == [2, 2]

    run(story)


def test_answers_of_many_megabytes_are_read_whole() -> None:
    async def story() -> None:
        long = "x" * 1_500_000
        async with FakeGemini([long], repeat_last=True) as fake, Gate(model_of(fake)) as gate:
            replies = await gate.run_many(["First?", "Second?"], batch=True)
            assert [reply.text == long for reply in replies] == [True, True]

    run(story)


def test_a_batch_that_nobody_waits_for_any_more_is_cancelled_at_the_server() -> None:
    async def story() -> None:
        begun = asyncio.Event()

        def begin(body: Any) -> str:
            begun.set()
            return "One."

        async with FakeGemini([begin], repeat_last=True) as fake:
            fake.batches.polls = 10**9
            async with Gate(model_of(fake)) as gate:
                asked = asyncio.create_task(gate.run_many(["First?", "Second?"], batch=True))
                await begun.wait()
                asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked
            assert fake.batches.cancelled == ["batches/fake1"]

    run(story)


def test_the_batch_of_a_run_is_journalled_and_asked_for_again_by_its_name() -> None:
    async def story() -> None:
        async with FakeGemini(["One."]) as fake:
            store = MemoryStore()
            async with Gate(model_of(fake), store=store) as gate:
                reply = (await gate.run_many(["First?"], batch=True))[0]
            facts = await store.load(reply.session)
            accepted = next(fact for fact in facts if isinstance(fact, ModelAccepted))
            owner = model_of(fake)
            model: BatchModel = batched(owner)
            again = ModelRequest(
                conversation=Conversation([{"role": "user", "parts": [{"text": "First?"}]}]),
                accepted=Accepted(accepted.id, accepted.origin),
            )
            items = [item async for item in model.generate(again)]
            last: Any = items[-1]
            assert items[0] == Accepted(accepted.id, accepted.origin)
            assert last["candidates"][0]["content"]["parts"][0]["text"] == "One."
            assert fake.batches.sizes == [1]
            await model.aclose()
            await owner.aclose()

    run(story)


def test_what_takes_no_batches_says_so() -> None:
    async def story() -> None:
        async with FakeGemini(["One."]) as fake:
            with pytest.raises(UsageError, match="is for Gemini models"):
                await Gate(OpenAIModel("gpt-5.2", api_key="k")).run_many(["a"], batch=True)
            on_vertex = surface_from_environment({"GOOGLE_GENAI_USE_VERTEXAI": "1"}, api_key="k")
            with pytest.raises(UsageError, match="Cloud Storage"):
                await Gate(GeminiModel(MODEL, surface=on_vertex)).run_many(["a"], batch=True)
            with pytest.raises(UsageError, match="headers= cannot"):
                await Gate(model_of(fake), settings={"headers": {"X-A": "b"}}).run_many(["a"], batch=True)
            with pytest.raises(UsageError, match="this is one"):
                await Gate(model_of(fake)).run_many("a", batch=True)

    run(story)


FILE_GONE = "You do not have permission to access the File lost or it may not exist."


def with_file(fake: FakeGemini) -> list[Any]:
    film = Media(uri=f"{fake.base_url}/v1beta/files/lost", mime_type="video/mp4")
    return [user_content(["Look.", film]), {"role": "model", "parts": [{"text": "A film."}]}]


def test_a_request_of_a_batch_is_sent_again_without_a_file_that_the_server_does_not_have_any_more(unjudged: None) -> None:
    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake, Gate(model_of(fake)) as gate:
            replies = await gate.run_many(["a", "b"], history=with_file(fake), batch=True)
            assert [reply.text for reply in replies] == ["ok", "ok"]
            assert fake.batches.sizes == [2, 2]
            assert {refusal.rule for refusal in fake.refusals} == {"file_exists"}

    run(body)


@pytest.mark.parametrize("code", [403, 7])
def test_a_batch_that_is_refused_for_a_file_of_one_request_is_sent_again_with_all(
    monkeypatch: pytest.MonkeyPatch, unjudged: None, code: int
) -> None:
    refused: list[int] = []
    create = batches.BatchQueue._create

    async def refusing(self: batches.BatchQueue, tickets: Any) -> None:
        if not any(b"files/lost" in ticket.body for ticket in tickets):
            return await create(self, tickets)
        refused.append(len(tickets))
        error = {"code": code, "message": FILE_GONE, **({"status": "PERMISSION_DENIED"} if code == 403 else {})}
        for ticket in tickets:
            try:
                batches._checked({"error": error}, MODEL)
            except ModelError as raised:
                ticket.place.set_exception(raised)

    monkeypatch.setattr(batches.BatchQueue, "_create", refusing)

    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake:
            model = batched(model_of(fake))
            model.expect(2)
            asked = [Conversation([*with_file(fake), user_content("a")]), Conversation([user_content("b")])]
            found = await asyncio.gather(*[collected(model, ModelRequest(conversation=talk)) for talk in asked])
            codes = [[item.code for item in items if isinstance(item, Notice)] for items in found]
            assert codes == [["file_gone", "progress"], ["progress"]]
            assert (refused, fake.batches.sizes) == ([2], [2])

    run(body)


def test_a_file_that_stays_gone_is_the_error_of_the_batch(monkeypatch: pytest.MonkeyPatch, unjudged: None) -> None:
    async def refuse(self: batches.BatchQueue, tickets: Any) -> None:
        for ticket in tickets:
            ticket.place.set_exception(InvalidRequestError(FILE_GONE, gone_file="files/lost"))

    monkeypatch.setattr(batches.BatchQueue, "_create", refuse)

    async def body() -> None:
        async with FakeGemini(["ok"]) as fake:
            model = batched(model_of(fake))
            model.expect(1)
            with pytest.raises(InvalidRequestError, match="lost"):
                await collected(model, ModelRequest(conversation=Conversation([user_content("b")])))

    run(body)


async def collected(model: BatchModel, request: ModelRequest) -> list[Any]:
    return [item async for item in model.generate(request)]
