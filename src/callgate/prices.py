"""Prices of the usual models, in US dollars for a million tokens, so that costs and budgets work without a table of yours.

The table has a date; prices change. `Gate(prices={...})` adds and replaces rows, `Gate(prices=PriceTable(...))` replaces all
of it. Sound in the input has a price of its own where the model bills it by another rate. Models that bill what they make by
several rates, such as images, are not in it: no cost is better than a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

from callgate.base_errors import UsageError
from callgate.types import Price

__all__ = ["BATCH_FACTOR", "PRICES", "PRICES_DATE", "PriceTable", "price_table"]

PRICES_DATE = "2026-11-17"
"""The day on which the prices were last compared with those that the providers publish."""

BATCH_FACTOR = 0.5
"""The part of the usual price that Gemini and OpenAI bill for a request of a batch."""

Row: TypeAlias = "tuple[tuple[str, Price], ...]"
"""Prices of a model, oldest first, each with the first day on which it applies; an empty day means always."""

# Names of versions, previews and days; what is left is the name in the table.
_ENDING = re.compile(r"(?:-\d{2,4}-\d{2,4}(?:-\d{2,4})?|-\d{3}|-latest|-customtools|-preview|@[\w.-]+)$|-preview(?=-tts$)")


class PriceTable:
    """A table of prices by model.

    ```python
    Gate("my-model", prices=PriceTable({"my-model": Price(input=0.1, output=0.4)}, date="2026-11-01"))
    ```
    """

    def __init__(self, rows: Mapping[str, Price | Row | None], *, date: str = "") -> None:
        for name, row in rows.items():
            if row is not None and not isinstance(row, (Price, tuple)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(
                    f"the price of {name!r} is {row!r:.100}: use Price(input=..., output=...), or None for none"
                )
        self._rows: dict[str, Row] = {
            name: (("", row),) if isinstance(row, Price) else row for name, row in rows.items() if row is not None
        }
        self.date = date
        """The day of the table."""

    def find(self, model: str, on: str = "9999-12-31") -> Price | None:
        """Return the price of a model on a day (`2026-11-17`), by its name or by its name without a version.

        A row for a preview or a dated version takes precedence over the one of the model.
        """
        name = model.rpartition("/")[2]
        while name not in self._rows:
            shorter = _ENDING.sub("", name)
            if shorter == name:
                return None
            name = shorter
        return next((price for since, price in reversed(self._rows[name]) if since <= on), None)

    def with_rows(self, rows: Mapping[str, Price | None]) -> PriceTable:
        """Return the table with other rows for some models; None removes one."""
        return PriceTable({**self._rows, **rows}, date=self.date)


def price_table(given: Mapping[str, Price | None] | PriceTable | None) -> PriceTable:
    """Return the table of a gate: the built-in one, with other rows, or another table."""
    if isinstance(given, PriceTable):
        return given
    return PRICES.with_rows(given) if given else PRICES


_Long: TypeAlias = "tuple[int, float, float, float | None]"
# Model, first day, input, output, cached input; then, above so many tokens of input: input, output, cached input.
_ROWS: tuple[tuple[str, str, float, float, float | None, _Long | None], ...] = (
    ("gemini-2.0-flash", "", 0.1, 0.4, 0.025, None),
    ("gemini-2.0-flash-lite", "", 0.075, 0.3, None, None),
    ("gemini-2.5-flash", "", 0.3, 2.5, 0.03, None),
    ("gemini-2.5-flash-lite", "", 0.1, 0.4, 0.01, None),
    ("gemini-2.5-flash-lite-preview-tts", "", 0.5, 10, None, None),
    ("gemini-2.5-flash-tts", "", 0.5, 10, None, None),
    ("gemini-2.5-pro", "", 1.25, 10, 0.125, (200_000, 2.5, 15, 0.25)),
    ("gemini-2.5-pro-tts", "", 1, 20, None, None),
    ("gemini-3-flash", "", 0.5, 3, 0.05, None),
    ("gemini-3-pro", "", 2, 12, 0.2, (200_000, 4, 18, 0.4)),
    ("gemini-3.1-flash-lite", "", 0.25, 1.5, 0.025, None),
    ("gemini-3.1-flash-tts", "", 1, 20, None, None),
    ("gemini-3.1-pro", "", 2, 12, 0.2, (200_000, 4, 18, 0.4)),
    ("gemini-3.5-flash", "", 1.5, 9, 0.15, None),
    ("gemini-3.5-flash-lite", "", 0.3, 2.5, 0.03, None),
    ("gemini-3.6-flash", "", 0.75, 3.75, 0.075, None),
    ("gemini-3.6-flash", "2027-01-01", 1.5, 7.5, 0.15, None),
    ("gemini-3.7-flash", "", 0.75, 3.75, 0.075, None),
    ("gemini-3.7-flash", "2027-01-01", 1.5, 7.5, 0.15, None),
    ("gemini-3.8-flash", "", 0.75, 3.75, 0.075, None),
    ("gemini-3.8-flash", "2027-01-01", 1.5, 7.5, 0.15, None),
    ("gemini-3.8-flash-lite-tts", "", 0.5, 6, None, None),
    ("gemini-3.8-flash-lite-tts", "2027-01-01", 1, 12, None, None),
    ("gemini-3.8-flash-tts", "", 0.5, 9, None, None),
    ("gemini-3.8-flash-tts", "2027-01-01", 1, 18, None, None),
    ("gemini-4-argon", "", 2, 10, 0.1, None),
    ("gemini-4-argon", "2026-12-01", 4, 20, 0.2, None),
    ("gpt-4.1", "", 2, 8, 0.5, None),
    ("gpt-4.1-mini", "", 0.4, 1.6, 0.1, None),
    ("gpt-4.1-nano", "", 0.1, 0.4, 0.025, None),
    ("gpt-4o", "", 2.5, 10, 1.25, None),
    ("gpt-4o-mini", "", 0.15, 0.6, 0.075, None),
    ("gpt-5", "", 1.25, 10, 0.125, None),
    ("gpt-5-mini", "", 0.25, 2, 0.025, None),
    ("gpt-5-nano", "", 0.05, 0.4, 0.005, None),
    ("gpt-5-pro", "", 15, 120, None, None),
    ("gpt-5.1", "", 1.25, 10, 0.125, None),
    ("gpt-5.2", "", 1.75, 14, 0.175, None),
    ("gpt-5.2-pro", "", 21, 168, None, None),
    ("gpt-5.3", "", 1.75, 14, 0.175, None),
    ("gpt-5.4", "", 2.5, 15, 0.25, (272_000, 5, 22.5, 0.5)),
    ("gpt-5.4-mini", "", 0.75, 4.5, 0.075, None),
    ("gpt-5.4-nano", "", 0.2, 1.25, 0.02, None),
    ("gpt-5.4-pro", "", 30, 180, None, (272_000, 60, 270, None)),
    ("gpt-5.5", "", 5, 30, 0.5, (272_000, 10, 45, 1)),
    ("gpt-5.5-pro", "", 30, 180, None, (272_000, 60, 270, None)),
    ("gpt-5.6-luna", "", 0.2, 1.2, 0.02, (272_000, 0.4, 1.8, 0.04)),
    ("gpt-5.6-sol", "", 4, 20, 0.4, (272_000, 8, 30, 0.8)),
    ("gpt-5.6-terra", "", 2, 12, 0.2, (272_000, 4, 18, 0.4)),
    ("gpt-6-astra", "", 10, 50, 1, (272_000, 20, 75, 2)),
    ("gpt-6-luna", "", 0.1, 0.5, 0.01, (272_000, 0.2, 0.75, 0.02)),
    ("gpt-6-sol", "", 2, 10, 0.2, (272_000, 4, 15, 0.4)),
    ("gpt-6.1-sol", "", 2, 10, 0.1, (272_000, 4, 15, 0.2)),
    ("gpt-6.1-terra", "", 1, 5, 0.05, (272_000, 2, 7.5, 0.1)),
    ("o3", "", 2, 8, 0.5, None),
    ("o3-mini", "", 1.1, 4.4, 0.55, None),
    ("o3-pro", "", 20, 80, None, None),
    ("o4-mini", "", 1.1, 4.4, 0.275, None),
)  # fmt: skip

# Model, sound in the input, cached sound; others bill sound like text.
_SOUND: Mapping[str, tuple[float, float]] = {
    "gemini-2.0-flash": (0.7, 0.175), "gemini-2.5-flash": (1.0, 0.1), "gemini-2.5-flash-lite": (0.3, 0.03),
    "gemini-3-flash": (1.0, 0.1), "gemini-3.1-flash-lite": (0.5, 0.05),
}  # fmt: skip


def _read(rows: Iterable[tuple[str, str, float, float, float | None, _Long | None]]) -> dict[str, Price | Row | None]:
    found: dict[str, Price | Row | None] = {}
    for name, since, given, made, cached, long in rows:
        above = None if long is None else (long[0], Price(input=long[1], output=long[2], cached=long[3]))
        audio, cached_audio = _SOUND.get(name, (None, None))
        earlier = cast("Row", found.get(name) or ())
        price = Price(input=given, output=made, cached=cached, above=above, audio=audio, cached_audio=cached_audio)
        found[name] = (*earlier, (since, price))
    return found


PRICES = PriceTable(_read(_ROWS), date=PRICES_DATE)
"""The built-in prices."""
