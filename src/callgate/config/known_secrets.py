"""The secrets that this process knows: one list for every sink that redacts.

Settings, clients and servers put in the keys, tokens and passwords that they are given; logs, the audit log, exports and
spans take them out of what they write, in whatever encoding. Texts go in and come out; nothing is written anywhere.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from callgate.config.secret_names import environment_secrets, is_number, is_secret_name, may_be_count

if TYPE_CHECKING:
    from callgate.config.encoded_secrets import SecretNeedles

__all__ = [
    "known_secrets", "known_version", "redact_known", "redact_known_in", "remember_secrets", "remember_secrets_in",
    "remember_tokens",
]  # fmt: skip

CHARS_MIN = 8
"""Shorter texts are no secrets worth the name, and stand in too many other texts."""
COUNT_MAX = 10_000
_CREDENTIAL_TABLES = ("env", "headers", "environment")

_known: dict[str, None] = {}
_version = [0]


def remember_secrets(*values: str | None) -> None:
    """Add secrets to the list; the oldest go when there are too many."""
    for value in values:
        if value and len(value) >= CHARS_MIN and value not in _known:
            _known[value] = None
            _version[0] += 1
    while len(_known) > COUNT_MAX:
        _known.pop(next(iter(_known)), None)


def remember_secrets_in(value: Any) -> None:
    """Add the passwords of URLs, and what stands in tables of headers and variables, of a setting."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str) and "://" in item:
            from callgate.config.url_secrets import secrets_of_url  # Most programs have no such setting.

            remember_secrets(*secrets_of_url(item))
        elif isinstance(item, Mapping):
            table = cast("Mapping[str, Any]", item)
            waiting += table.values()
            for name in _CREDENTIAL_TABLES:
                if isinstance(table.get(name), Mapping):
                    # `Bearer abc` is known as a whole, and by its token alone.
                    remember_secrets(*(text for held in table[name].values() for text in _whole_and_last(held)))


def remember_tokens(value: Any) -> None:
    """Add the texts of a JSON value that stand under the name of a secret, such as `access_token`."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, item = waiting.pop()
        if isinstance(item, Mapping):
            waiting += cast("Mapping[str, Any]", item).items()
        elif isinstance(item, str) and (is_secret_name(name) or (may_be_count(name) and not is_number(item))):
            remember_secrets(item)


def _whole_and_last(text: Any) -> Iterable[str]:
    return (text, text.rpartition(" ")[2]) if isinstance(text, str) else ()


def known_secrets() -> tuple[str, ...]:
    """Every secret on the list."""
    return tuple(_known)


def known_version() -> int:
    """Changes whenever the list does."""
    return _version[0]


def redact_known(text: str) -> str:
    """Return a text without the secrets of the list and of the environment, however they are encoded in it."""
    return _needles().redact(text) if len(text) >= CHARS_MIN else text


def _needles() -> SecretNeedles:
    """The secrets of the list and of the environment as it is now: a program may set variables at any time."""
    return _needles_of(known_version(), tuple(environment_secrets(os.environ)))


@functools.lru_cache(maxsize=1)
def _needles_of(version: int, environment: tuple[str, ...]) -> SecretNeedles:
    from callgate.config.encoded_secrets import SecretNeedles  # An answer that nobody logs needs no search for secrets.

    return SecretNeedles(text for text in (*environment, *_known) if len(text) >= CHARS_MIN)


def redact_known_in(value: Any) -> Any:
    """Return a JSON value without those secrets, in texts and in keys, and in lists and tables that spell one out."""
    needles = _needles()

    def clean(text: str) -> str:
        return needles.redact(text) if len(text) >= CHARS_MIN else text

    root: list[Any] = [value]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    containers: list[tuple[Any, Any]] = []
    while waiting:
        holder, place = waiting.pop()
        item = holder[place]
        if isinstance(item, str):
            holder[place] = clean(item)
        elif isinstance(item, Mapping):
            table = {clean(key): inner for key, inner in cast("Mapping[str, Any]", item).items()}
            holder[place] = table
            containers.append((holder, place))
            waiting += [(table, key) for key in table]
        elif isinstance(item, (list, tuple)):
            listed = [*cast("list[Any]", item)]
            holder[place] = listed
            containers.append((holder, place))
            waiting += [(listed, index) for index in range(len(listed))]
    _hide_spread(containers, needles)
    return root[0]


def _hide_spread(containers: Sequence[tuple[Any, Any]], needles: SecretNeedles) -> None:
    """Hide what is in the innermost containers whose items together hold a secret."""
    if not needles or not containers:
        return
    from callgate.config.spread_secrets import hidden_items, is_spread_over

    tables = [holder[place] for holder, place in containers if isinstance(holder[place], dict)]
    keys = "".join(key for table in cast("list[dict[str, Any]]", tables) for key in table)
    if not is_spread_over(needles, [keys, containers[0][0][containers[0][1]]]):
        return  # As nearly always: nothing is in all of it together.
    for holder, place in reversed(containers):
        if is_spread_over(needles, holder[place]):
            holder[place] = hidden_items(holder[place])
