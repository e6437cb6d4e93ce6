"""Map tool names to names that a format allows, and back.

Deterministic: a legal name stays as it is, and an alias carries a hash wherever two names would collide. Knows no format.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["NameRule"]


@dataclass(frozen=True, slots=True)
class NameRule:
    """The names that a format allows. As a function: names in, legal name -> own name out, in order."""

    legal: re.Pattern[str]
    illegal: re.Pattern[str]
    """Characters replaced by an underscore."""
    chars_max: int = 64
    first: str = "_"
    """The prefix of a name whose first character is not allowed there."""

    def __call__(self, names: Sequence[str]) -> dict[str, str]:
        """The aliases of these names."""
        plain = {name: self._alias(name) for name in dict.fromkeys(names)}
        wanted = Counter(plain.values())
        taken = {alias for name, alias in plain.items() if alias == name or wanted[alias] == 1}
        result: dict[str, str] = {}
        for name, alias in plain.items():
            if alias != name and wanted[alias] > 1:
                alias = self._free(alias, name, taken)
            result[alias] = name
        return result

    def _alias(self, name: str) -> str:
        if self.legal.fullmatch(name):
            return name
        alias = self.illegal.sub("_", name).strip("_") or "tool"
        alias = alias if self.legal.match(alias[:1]) else f"{self.first}{alias}"
        # The replaced or truncated characters may be the only difference between two names.
        if len(alias) > self.chars_max or not name.isascii():
            return f"{alias[: self.chars_max - 9]}_{_hash(name)}"
        return alias

    def _free(self, alias: str, name: str, taken: set[str]) -> str:
        hashes = (_hash(name + "\0" * again) for again in itertools.count())
        free = next(found for h in hashes if (found := f"{alias[: self.chars_max - 9]}_{h}") not in taken)
        taken.add(free)
        return free


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
