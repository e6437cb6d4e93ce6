"""Answers that another process was receiving when it ended: taken up by the id that the journal has."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interactions.conftest import Clock, model_for, run

from callgate import Gate, tool
from callgate.events import CallArgsDelta, TextDelta
from callgate.machine import facts
from callgate.store import MemoryStore
from callgate.testing.fake_interactions import FakeInteractions, call, fault

STORED: dict[str, Any] = {"mode": "native", "settings": {"store": True}}


class GoneError(Exception):
    """The process is gone, as far as the run is concerned."""


async def cut_off(fake: FakeInteractions, store: MemoryStore, tools: Any = (), *, at: Any = TextDelta) -> str:
    """Leave a run as a process leaves it that dies in the middle of a stream; return the id that the journal has."""
    async with Gate(model_for(fake, Clock()), [*tools], store=store, **STORED) as gate:

        async def watch(event: Any) -> None:
            if isinstance(event, at):
                gate.interrupt("s", GoneError())

        with pytest.raises(GoneError):
            await gate.run("Search.", session="s", watch=watch)
    [accepted] = [fact for fact in await store.load("s") if isinstance(fact, facts.ModelAccepted)]
    return accepted.id


def test_an_answer_whose_process_ended_in_mid_stream_is_taken_up_by_its_id() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Found.", "Again."]) as fake:
            kept = await cut_off(fake, store)
            async with Gate(model_for(fake, Clock()), store=store, **STORED) as gate:
                reply = await gate.run(session="s")
                assert (reply.text, len(fake.creations)) == ("Found.", 1)
                await gate.run("And?", session="s")
            assert fake.creations[-1]["previous_interaction_id"] == kept

    run(story)


def test_calls_of_an_answer_that_is_taken_up_run_once() -> None:
    ran: list[int] = []

    @tool
    def act(number: int) -> str:
        """Has an effect."""
        ran.append(number)
        return "done"

    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions([call("act", number=1), "Done."]) as fake:
            await cut_off(fake, store, [act], at=CallArgsDelta)
            assert ran == []
            async with Gate(model_for(fake, Clock()), [act], store=store, **STORED) as gate:
                reply = await gate.run(session="s")
            assert (reply.text, ran, len(fake.creations)) == ("Done.", [1], 2)

    run(story)


@pytest.mark.parametrize("how", ["forgotten", "in progress"])
def test_an_answer_that_the_server_has_not_completed_is_asked_for_again(how: str) -> None:
    async def story() -> None:
        store = MemoryStore()
        notices: list[Any] = []

        async def watch(event: Any) -> None:
            notices.append(getattr(event, "code", None))

        async with FakeInteractions(["Lost.", "Found."]) as fake:
            kept = await cut_off(fake, store)
            if how == "forgotten":
                fake.forget()
            else:
                fake.state.stored[kept].status, fake.state.stored[kept].polls_left = "in_progress", 10**6
            async with Gate(model_for(fake, Clock()), store=store, **STORED) as gate:
                reply = await gate.run(session="s", watch=watch)
            assert (reply.text, len(fake.creations), notices.count("state_lost")) == ("Found.", 2, 1)

    run(story)


def test_the_id_of_an_answer_that_nobody_took_up_is_deleted_with_its_session() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Lost."]) as fake:
            assert await cut_off(fake, store) in fake.state.stored
            async with Gate(model_for(fake, Clock()), store=store, **STORED) as gate:
                assert await gate.delete("s")
            assert fake.state.stored == {}

    run(story)


def test_another_question_after_a_cut_is_not_given_the_answer_to_the_one_before() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["To the first.", "To the second."]) as fake:
            await cut_off(fake, store)
            async with Gate(model_for(fake, Clock()), store=store, **STORED) as gate:
                reply = await gate.run("Another?", session="s")
            assert (reply.text, len(fake.creations)) == ("To the second.", 2)

    run(story)


def test_the_rest_of_an_answer_in_pieces_is_not_taken_for_the_answer() -> None:
    async def story() -> None:
        store = MemoryStore()
        script = [fault("IF61:same", times=1), "Two.", "Whole."]
        async with FakeInteractions(script) as fake:
            async with Gate(model_for(fake, Clock()), store=store, **STORED) as gate:
                texts: list[str] = []

                async def watch(event: Any) -> None:
                    texts.extend([event.text] if isinstance(event, TextDelta) else [])
                    if isinstance(event, TextDelta) and len(fake.creations) == 2:
                        gate.interrupt("s", GoneError())

                with pytest.raises(GoneError):
                    await gate.run("Search.", session="s", watch=watch)
            origins = [fact.origin for fact in await store.load("s") if isinstance(fact, facts.ModelAccepted)]
            assert [origin.endswith(" rest") for origin in origins] == [False, True]
            async with Gate(model_for(fake, Clock()), store=store, **STORED) as gate:
                reply = await gate.run(session="s")
                assert reply.text == "Whole."
                assert await gate.delete("s")
            assert fake.state.stored == {}

    run(story)
