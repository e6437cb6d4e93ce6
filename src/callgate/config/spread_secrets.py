"""Known secrets that are spread over the items of a list or table: numbers, characters, pieces or encoded chunks.

A container of JSON values, whose texts have been searched one by one, and the needles come in; out goes whether its items
together hold a secret. Pure, and linear in the size of the container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from callgate.config.encoded_secrets import REPLACEMENT, SecretNeedles

__all__ = ["hidden_items", "is_spread_over"]

ITEMS_MIN = 2


def is_spread_over(needles: SecretNeedles, container: Any) -> bool:
    """True if the keys of the container, or its values one after another, hold a secret."""
    if not needles:
        return False
    if isinstance(container, Mapping) and needles.are_in("".join(map(str, cast("Mapping[Any, Any]", container)))):
        return True
    words = list(_words_in(container))
    if len(words) < ITEMS_MIN:
        return False
    return needles.are_in("".join(words)) or needles.are_in(", ".join(words))


def hidden_items(container: Any) -> Any:
    """The container without its items."""
    return {REPLACEMENT: None} if isinstance(container, Mapping) else [REPLACEMENT]


def _words_in(container: Any) -> Iterator[str]:
    """Every single value in a container, in order, as text; whole numbers without a fraction, truth values left out."""
    waiting: list[Any] = [container]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            waiting += reversed([*cast("Mapping[Any, Any]", item).values()])
        elif isinstance(item, (list, tuple)):
            waiting += reversed(cast("list[Any]", item))
        elif isinstance(item, str):
            yield item
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            yield str(int(item)) if item == item and abs(item) < 1_000 and item == int(item) else str(item)
