"""Arguments of a gate and of its runs, before anything is done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from callgate.declaration import BuiltIn, split_built_in
from callgate.definitions.frameworks import framework_of
from callgate.errors import UsageError
from callgate.permission.policy import Policy
from callgate.permission.rates import RateLimits
from callgate.prices import PriceTable, price_table
from callgate.request import ContextCache
from callgate.types import Limits, Price

if TYPE_CHECKING:
    from callgate.permission.cache import ResultCache

__all__ = ["CacheLike", "PricesLike", "split_tools", "usable_caches", "usable_history", "usable_parts", "usable_prices"]

PricesLike: TypeAlias = "Mapping[str, Price | None] | PriceTable | None"
"""Prices of a gate: rows for the built-in table, another table, or None for the built-in one."""

usable_prices = price_table

CacheLike: TypeAlias = "ContextCache | ResultCache | Iterable[ContextCache | ResultCache] | bool | None"
"""Caches of a gate: of tool results, of the beginning of requests, or both. True is `ContextCache()`."""


def usable_caches(given: CacheLike) -> tuple[ResultCache | None, ContextCache | None]:
    """Return the cache of results and the policy of context caching.

    Raises:
        UsageError: there is something else among them, or one kind twice.
    """
    if given is None or given is False:
        return None, None
    from callgate.permission.cache import ResultCache

    items: list[object] = [ContextCache()] if given is True else list(given) if isinstance(given, (list, tuple)) else [given]
    items = [item for item in items if item is not None and item is not False]
    results = [item for item in items if isinstance(item, ResultCache)]
    contexts = [item for item in items if isinstance(item, ContextCache)]
    if len(results) + len(contexts) != len(items) or len(results) > 1 or len(contexts) > 1:
        raise UsageError(f"cache={given!r:.200}: expected a ContextCache, a ResultCache, a list of both, or True")
    return results[0] if results else None, contexts[0] if contexts else None


# An error in one of these would otherwise surface in the middle of a run, or never.
_PARTS: Mapping[str, tuple[Any, str]] = {
    "limits": (Limits, "a Limits object, as in limits=Limits(turns=5)"),
    "policy": (Policy, "a Policy object, as in policy=Policy(default='ask')"),
    "rates": (RateLimits, "a RateLimits object"),
    "settings": (Mapping, "names and values, as in settings={'temperature': 0}"),
    "prices": ((Mapping, PriceTable), "prices by model, as in prices={'gemini-3.8-flash': Price(input=0.3, output=2.5)}"),
    "system": (str, "text"),
    "elicit": (Callable, "a function that is called with a question of an MCP server"),
    "approve": (Callable, "a function that is called with a call, its definition and the reason for asking"),
}


def usable_parts(tools: Any, given: Mapping[str, object]) -> Iterable[object]:
    """Return the tools as a list, after a type check of all arguments of a gate.

    Raises:
        UsageError: an argument has the wrong type; the message says what is expected.
    """
    for name, (kind, expected) in _PARTS.items():
        if given.get(name) is not None and not isinstance(given[name], kind):
            raise UsageError(f"{name}={given[name]!r:.200}: expected {expected}")
    for name in cast("Mapping[Any, Any]", given.get("settings") or {}):
        if not isinstance(name, str):
            raise UsageError(
                f"settings={given['settings']!r:.200}: expected {_PARTS['settings'][1]}; {name!r:.200} is no name"
            )
    _require_three(given.get("approve"))
    if tools is None:
        return ()
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise UsageError(f"tools={tools!r:.200}: expected a list, as in tools=[get_weather, FileTools('.')]")
    return cast("Iterable[object]", tools)


def split_tools(tools: Iterable[object]) -> tuple[list[object], list[BuiltIn]]:
    """Separate tools that run here from built-in ones; a `Tool` of google-genai without functions is one of these."""
    return split_built_in(map(_as_built_in, tools))


def _as_built_in(item: Any) -> object:
    if framework_of(item) != "google_genai" or item.function_declarations:
        return item
    return item.model_dump(mode="json", by_alias=True, exclude_none=True)


def _require_three(approve: Any) -> None:
    """Refuse an `approve` that cannot be called with the three arguments that it gets: it would deny every call."""
    if approve is None:
        return
    import inspect  # Most gates have none.

    try:
        takes = inspect.signature(approve)
    except (TypeError, ValueError):  # Some callables of C have no signature.
        return
    try:
        takes.bind(None, None, None)
    except TypeError as error:
        raise UsageError(f"approve={approve!r:.200} takes {takes}: expected {_PARTS['approve'][1]}") from error


def usable_history(history: Any) -> list[Mapping[str, Any]] | None:
    """Return the contents to start from.

    Raises:
        UsageError: they are not a list of contents, or those of another system, of which nothing would be left.
    """
    if history is None:
        return None
    if isinstance(history, (str, bytes, Mapping)) or not isinstance(history, Iterable):
        raise UsageError(f"history={history!r:.200}: expected a list of contents, such as reply.contents")
    contents = list(cast("Iterable[Any]", history))
    for index, content in enumerate(contents):
        if isinstance(content, Mapping) and "content" in content and "parts" not in content:
            raise UsageError(
                f"history[{index}] has 'content' where Gemini's form has 'parts': convert it first, with "
                "convert(history, target='gemini', kind='history').value"
            )
    return contents
