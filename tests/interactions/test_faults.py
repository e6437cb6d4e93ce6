"""Every fault of the Interactions API has one outcome: a typed error or an answer, no call from a cut stream, nothing twice.

Each fault strikes the second turn of a conversation, without and with state at the server.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.interactions.conftest import MODEL, run, scene_of

from callgate import Limits
from callgate.errors import InvalidRequestError, ModelError
from callgate.events import CallFinished, CallProposed, TextDelta
from callgate.interactions.failures import unknown_step
from callgate.interactions.request import BodyBuilder
from callgate.testing.fake_interactions import fault
from callgate.testing.interaction_faults import INTERACTION_FAULTS

FOX = "The quick brown fox jumps over the lazy dog."
CUT = "The quick brown fox jump"
FINE = ("Fine.", 0)
CALLED = ("Fine.", 1)
"""An answer, and how many calls ran before it."""

# Fault -> its outcome without state at the server, and with it if that is another one: a text and the number of calls that
# ran, or the error and the text that was shown before it.
OUTCOMES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("IF01", "IF02:seconds", "IF02:date", "IF04", "IF05", "IF06", "IF15", "IF16", "IF17"), (FINE,)),
    **dict.fromkeys(("IF02:day", "IF03", "IF12:402"), (("RateLimitedError", ""),)),
    **dict.fromkeys(("IF07", "IF08", "IF09", "IF10", "IF18"), (("InvalidRequestError", ""), FINE)),
    "IF11": (("InvalidRequestError", ""),),
    **dict.fromkeys(("IF13", "IF14", "IF19:400"), (("InvalidRequestError", ""), FINE)),
    **dict.fromkeys(("IF12:401", "IF12:key"), (("AuthError", ""),)),
    "IF12:403": (("AuthError", ""), FINE),
    **dict.fromkeys(("IF19:503", "IF19:429"), (FINE,)),
    **dict.fromkeys(("IF19:safety", "IF23"), (("BlockedError", ""),)),
    **dict.fromkeys(("IF20", "IF20:held"), (("ServerUnavailableError", CUT), (FOX, 0))),
    **dict.fromkeys(("IF21", "IF26:call", "IF28"), (FINE, CALLED)),
    "IF22": (FINE, (FOX, 0)),
    "IF24": (("RequestTimeoutError", CUT), (FOX, 0)),
    **dict.fromkeys(("IF25", "IF62", "IF63"), (("ConnectionLostError", CUT), (FOX, 0))),
    "IF26:text": (("ProtocolError", CUT), (FOX, 0)),
    **dict.fromkeys(
        ("IF27", "IF30", "IF31:text", "IF36", "IF36:held", "IF37", "IF40", "IF41", "IF43", "IF44:changes"), ((FOX, 0),)
    ),
    "IF29": (CALLED,),
    "IF31:arguments": (("ProtocolError", ""),),
    "IF32": (("ProtocolError", ""), (FOX, 0)),
    "IF33": (("Fine.", 2),),
    "IF34": (("ProtocolError", ""), CALLED),
    "IF35:429": (("RateLimitedError", CUT),),
    "IF35:503": (("ServerUnavailableError", CUT), (FOX, 0)),
    "IF38": (("ProtocolError", CUT),),
    "IF39": (("ProtocolError", ""),),
    "IF39:split": (("Füchse springen über größere Hunde.", 0),),
    "IF39:surrogate": ((f"{FOX[:12]}\N{REPLACEMENT CHARACTER}{FOX[12:]}", 0),),
    "IF42:silence": (("RequestTimeoutError", ""), (FOX, 0)),
    "IF42:endless": (("LimitExceededError", ""),),
    **dict.fromkeys(("IF42:drip", "IF42:lines"), ((FOX, 0),)),
    "IF44:empty": (FINE,),
    **dict.fromkeys(("IF45", "IF46:list", "IF46:trailing", "IF46:nan", "IF46:deep", "IF48", "IF49:name", "IF51"), (FINE,)),
    **dict.fromkeys(("IF46:twice", "IF47", "IF49:id", "IF49:huge", "IF49:empty", "IF53", "IF57"), (CALLED,)),
    **dict.fromkeys(("IF49:unnamed", "IF54:cut"), (FINE,)),
    "IF50": (("Fine.", 2),),
    **dict.fromkeys(("IF52", "IF54:incomplete", "IF55:event", "IF55:failed", "IF58", "IF70:null"), (FINE,)),
    **dict.fromkeys(("IF54:budget", "IF54:cancelled", "IF59"), (("", 0),)),
    "IF56": (("Fine.", 128),),
    "IF60": (("Done already.", 0),),
    "IF61:same": (("ProtocolError", "Part.Part."),),
    "IF61:none": (("Part.", 0),),
    "IF61:refused": (("InvalidRequestError", "Part."),),
    "IF64": (("ConnectionLostError", CUT),),
    "IF65": (("RequestTimeoutError", ""),),
    "IF66": (("ServerUnavailableError", ""),),
    "IF67": (("No.", 0),),
    "IF68": (("ProtocolError", "Hm."), ("RequestTimeoutError", "Hm.")),
    **dict.fromkeys(("IF69:absent", "IF69:null", "IF69:negative"), (FINE,)),
    "IF70:error": (("ServerUnavailableError", "Half."),),
    "IF71": ((FOX, 0),),
}
BACKGROUND = {"IF65": (False, True), "IF66": (False, True), "IF67": (True,), "IF68": (True,)}
NAMES = [
    each.row if variant == "usual" else f"{each.row}:{variant}" for each in INTERACTION_FAULTS for variant in each.variants
]
SLOW = ("IF42", "IF56", "IF62", "IF65", "IF68")


def cases() -> list[Any]:
    return [
        pytest.param(name, store, id=f"{name}{'-stored' if store else ''}",
                     marks=[pytest.mark.slow] if store or name[:4] in SLOW else [])
        for name in NAMES
        for store in (False, True)
    ]  # fmt: skip


def test_the_table_has_every_fault() -> None:
    assert set(OUTCOMES) == set(NAMES)
    assert len(INTERACTION_FAULTS) == 71


@pytest.mark.parametrize(("name", "store"), cases())
def test_a_fault_has_one_outcome(name: str, store: bool) -> None:
    is_behind = store in BACKGROUND.get(name, ())
    settings = {"background": True} if is_behind else {"store": store}
    limits = Limits(attempts=3, backoff_s=0.01, backoff_max_s=5.0, idle_s=0.5, background_s=60.0)
    proposed: list[str] = []
    finished: list[str] = []

    async def story() -> tuple[Any, Any, list[str], list[str]]:
        shown: list[str] = []

        async def watch(event: Any) -> None:
            if isinstance(event, TextDelta):
                shown.append(event.text)
            if isinstance(event, CallProposed):
                proposed.append(event.call.id)
            if isinstance(event, CallFinished):
                finished.append(event.call.id)

        script = ["One.", fault(name), "Fine."]
        async with scene_of(script, settings=settings, fake={"repeat_last": True}, model={"limits": limits}) as it:
            await it.gate.run("First?", session="s")
            try:
                reply = await it.gate.run("1 + 2?", session="s", watch=watch)
            except ModelError as error:
                return type(error).__name__, error.partial, it.ran, shown
            return reply.text, len(it.ran), it.ran, shown

    first, second, ran, shown = run(story)
    assert (first, second) == OUTCOMES[name][-1 if store else 0]
    # Nothing is shown twice: what was shown is the answer, or the part of it that the error has.
    assert "".join(shown) == (second if isinstance(second, str) else first)
    assert len(ran) <= 128
    assert sorted(finished) == sorted(proposed)


@pytest.mark.usefixtures("unjudged")
@pytest.mark.parametrize("settings", [{}, {"store": True}], ids=str)
def test_a_step_that_the_server_does_not_take_back_is_left_out_and_the_session_goes_on(settings: Any) -> None:
    async def story() -> None:
        script = [fault("unknown_types", answer="One."), "Two.", "Three."]
        async with scene_of(script, settings=settings) as it:
            for said in ("One.", "Two.", "Three."):
                assert (await it.ask("Go on.", session="s")).text == said
            assert it.notices.count("adapted") == 1
            assert [refusal.rule for refusal in it.fake.refusals] == ["IR13"]
            assert all("holodeck" not in str(body["input"]) for body in it.fake.creations[2:])

    run(story)


@pytest.mark.parametrize("kind", ["thought", "model_output", "user_input"])
def test_a_step_that_a_history_needs_is_never_left_out(kind: str) -> None:
    error = InvalidRequestError(f"The value '{kind}' is not supported for 'type' at 'input[3]'.")
    assert unknown_step(error) == kind
    assert not BodyBuilder(MODEL, "developer").leave_out_steps(kind)
