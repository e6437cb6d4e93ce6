"""Limits of cost need prices: a run that could never reach its limit is refused before the first request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Gate, Limits, Price, ScriptedModel, UsageError
from callgate.models.chain import ModelChain
from callgate.models.demo import DemoModel
from callgate.models.modes import ByAbility
from callgate.models.prompted import PromptedModel
from callgate.testing import answer, call, text

PRICE = Price(input=1.0, output=1.0)


def scripted(name: str) -> ScriptedModel:
    return ScriptedModel([text("end")] * 2, name=name)


@pytest.mark.parametrize("limits", [Limits(run_cost=1.0), Limits(session_cost=1.0)])
def test_a_model_without_a_price_is_refused_under_a_limit_of_cost(limits: Limits) -> None:
    first, second = scripted("gemini-9-experimental"), scripted("other")
    priced: dict[str, Any] = {"gemini-9-experimental": PRICE}
    for model, prices in (
        (first, None), (first, {"gemini-9-experimental": None}), (ModelChain([first, second]), priced),
        (ByAbility(ModelChain([first, second])), priced), (PromptedModel(second), priced),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=r"cannot be enforced: no price of '.*' is known; pass prices="):
            asyncio.run(Gate(model, limits=limits, prices=prices).run("x"))
    assert first.requests == []
    assert second.requests == []


def test_with_a_price_for_each_model_or_without_a_limit_the_run_goes_on() -> None:
    limits = Limits(run_cost=1.0, session_cost=1.0)
    prices = {"gemini-9-experimental": PRICE, "other": PRICE}
    chain = ModelChain([scripted("gemini-9-experimental"), scripted("other")])
    assert asyncio.run(Gate(chain, limits=limits, prices=prices).run("x")).text == "end"
    assert asyncio.run(Gate(scripted("gemini-3.8-flash"), limits=limits).run("x")).text == "end"
    assert asyncio.run(Gate(scripted("other")).run("x")).text == "end"


def test_a_model_of_this_machine_has_no_price_and_needs_none() -> None:
    from callgate.models import billed_names
    from callgate.models.embedded import EmbeddedModel

    assert EmbeddedModel.is_free
    assert DemoModel.is_free
    assert billed_names(ModelChain([scripted("a"), DemoModel(lambda *parts, **more: {})])) == ["a"]


def test_a_run_that_ends_at_a_limit_of_cost_says_what_it_spent() -> None:
    asked = answer(call("add", a=1, b=2), usage={"promptTokenCount": 1_000_000, "totalTokenCount": 1_000_000})

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def costs(limits: Limits) -> list[tuple[str, float | None]]:
        gate = Gate(ScriptedModel([asked], repeat_last=True, name="m"), [add], limits=limits, prices={"m": PRICE})
        replies = [await gate.run(prompt, session="s") for prompt in ("x", "y")]
        return [(reply.finish_reason, reply.cost) for reply in replies]

    assert asyncio.run(costs(Limits(run_cost=2.5))) == [("cost_limit", 3.0)] * 2
    assert asyncio.run(costs(Limits(run_cost=0.0))) == [("cost_limit", 0.0)] * 2
    assert asyncio.run(costs(Limits(session_cost=2.0))) == [("cost_limit", 2.0), ("cost_limit", 0.0)]
    assert asyncio.run(costs(Limits(session_tokens=1))) == [("token_limit", 1.0), ("token_limit", 0.0)]


@pytest.mark.parametrize(("tier", "factor"), [("flex", 0.5), ("SERVICE_TIER_PRIORITY", 2.0), ("standard", 1.0), (None, 1.0)])
def test_the_service_tier_counts_in_the_cost(tier: str | None, factor: float) -> None:
    answered = answer(text("end"), usage={"promptTokenCount": 1_000_000, "totalTokenCount": 1_000_000})
    gate = Gate(ScriptedModel([answered], name="m"), settings={"service_tier": tier}, prices={"m": PRICE})
    assert asyncio.run(gate.run("x")).cost == pytest.approx(factor)
