"""Prices of the usual models: dated, found by versions too, and replaceable."""

from __future__ import annotations

import asyncio
import re

import pytest

from callgate import Gate, GeminiModel, Price
from callgate.prices import PRICES, PRICES_DATE, PriceTable
from callgate.testing import FakeGemini
from callgate.types import Usage

FLASH = Price(input=0.3, output=2.5, cached=0.03, audio=1.0, cached_audio=0.1)


@pytest.mark.parametrize(
    ("model", "on", "price"),
    [
        ("gemini-3.8-flash", "2026-11-17", Price(input=0.75, output=3.75, cached=0.075)),
        ("gemini-3.8-flash", "2027-01-01", Price(input=1.5, output=7.5, cached=0.15)),
        ("models/gemini-4-argon", "2026-11-30", Price(input=2, output=10, cached=0.1)),
        ("gemini-4-argon", "2026-12-01", Price(input=4, output=20, cached=0.2)),
        ("publishers/google/models/gemini-2.5-flash-001", "2026-11-17", FLASH),
        ("gemini-2.5-flash-preview-09-2025", "2026-11-17", FLASH),
        ("gemini-2.5-flash-preview-tts", "2026-11-17", Price(input=0.5, output=10)),
        ("gemini-2.5-pro-preview-tts", "2026-11-17", Price(input=1, output=20)),
        ("gpt-4.1-2025-04-14", "2026-11-17", Price(input=2, output=8, cached=0.5)),
        ("gemini-2.5-flash-image", "2026-11-17", None),
        ("gemini-flash-latest", "2026-11-17", None),
        ("my-model", "2026-11-17", None),
    ],
)
def test_the_price_of_a_model_on_a_day(model: str, on: str, price: Price | None) -> None:
    assert PRICES.find(model, on=on) == price


def test_the_table_says_of_which_day_it_is() -> None:
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", PRICES_DATE)
    assert PRICES.date == PRICES_DATE


def test_a_long_prompt_has_the_price_of_long_prompts() -> None:
    price = PRICES.find("gemini-2.5-pro")
    assert price is not None
    assert price.of(Usage(input_tokens=200_000, output_tokens=1_000)) == pytest.approx(0.26)
    assert price.of(Usage(input_tokens=300_000, cached_tokens=100_000, output_tokens=1_000)) == pytest.approx(0.54)


def test_rows_of_a_gate_are_added_to_the_table_and_a_table_replaces_it() -> None:
    mine = Price(input=1, output=1)
    table = PRICES.with_rows({"mine": mine, "gemini-3.8-flash": None})
    assert (table.find("mine"), table.find("gemini-3.8-flash")) == (mine, None)
    assert table.find("gemini-2.5-pro") is not None
    assert PriceTable({"mine": mine}).find("gemini-2.5-pro") is None


def test_a_run_has_its_cost_and_its_budget_without_a_table() -> None:
    async def run() -> tuple[float | None, float | None]:
        async with FakeGemini(["one", "two"]) as fake:
            model = GeminiModel("gemini-2.5-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
            first = await Gate(model).run("a")
            other = await Gate(model, prices=PriceTable({})).run("a")
            assert first.cost == PRICES.find("gemini-2.5-flash").of(first.usage)  # pyright: ignore[reportOptionalMemberAccess]
        return first.cost, other.cost

    cost, none = asyncio.run(run())
    assert cost is not None
    assert cost > 0
    assert none is None


@pytest.mark.parametrize(("model", "text", "sound"), [("gemini-2.5-flash", 0.3, 1.0), ("gemini-2.5-pro", 2.5, 2.5)])
def test_sound_in_the_input_costs_what_the_model_bills_for_it(model: str, text: float, sound: float) -> None:
    def billed(modality: str) -> dict[str, object]:
        details = [{"modality": modality, "tokenCount": 1_000_000}]
        counts = {"promptTokenCount": 1_000_000, "totalTokenCount": 1_000_000, "promptTokensDetails": details}
        said = {"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP", "index": 0}
        return {"candidates": [said], "usageMetadata": counts}

    async def run() -> list[float | None]:
        async with FakeGemini([billed("TEXT"), billed("AUDIO")]) as fake:
            gate = Gate(GeminiModel(model, api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url}))
            return [(await gate.run("a")).cost, (await gate.run("b")).cost]

    assert asyncio.run(run()) == [pytest.approx(text), pytest.approx(sound)]


def test_cached_sound_has_its_own_price() -> None:
    usage = Usage(input_tokens=3_000_000, cached_tokens=2_000_000, audio_tokens=2_000_000, cached_audio_tokens=1_000_000)
    assert Price(input=1, output=0, cached=0.5, audio=4, cached_audio=2).of(usage) == pytest.approx(0.5 + 2 + 4)
    assert Price(input=1, output=0, cached=0.5, audio=4).of(usage) == pytest.approx(0.5 + 4 + 4)
    assert Price(input=1, output=0, cached=0.5).of(usage) == pytest.approx(2)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(input_tokens=1_000_000, cached_tokens=9_000_000, total_tokens=1_000_000), 0.1),
        (Usage(input_tokens=1_000_000, audio_tokens=5_000_000, total_tokens=1_000_000), 2.0),
        (Usage(total_tokens=500_000), 0.5),
        (Usage(), 0.0),
    ],
    ids=["more_cached_than_sent", "more_sound_than_sent", "only_a_total", "nothing"],
)
def test_odd_counts_of_a_server_neither_earn_money_nor_hide_a_total(usage: Usage, cost: float) -> None:
    assert Price(input=1, output=5, cached=0.1, audio=2).of(usage) == pytest.approx(cost)
