"""Server cards: what a remote server says of itself before anybody connects, and the entry of a file that follows from it.

The address of a card, or of a site whose catalog names one, comes in; a `ServerCard` goes out. A card is a stranger's word:
it gives an address and the names of headers, and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from callgate import strict_json
from callgate.errors import JsonError, UsageError
from callgate.mcp.errors import is_safe_page
from callgate.types import JsonObject

__all__ = ["ServerCard", "read_card"]

CARD_TYPE = "application/mcp-server-card+json"
CATALOGS = ("/.well-known/ai-catalog.json", "/.well-known/mcp/catalog.json")
BYTES_MAX = 1024 * 1024
FETCH_S = 10.0
TEXT_CHARS_MAX = 200
_TRANSPORTS = {"streamable-http": "http", "sse": "sse"}
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCard:
    """The card of a server."""

    name: str
    """Its name, as in `com.example/weather`."""
    version: str
    """Its version."""
    description: str
    """A sentence about it."""
    url: str
    """The address to connect to; `{NAME}` in it is for the user to fill in."""
    transport: str
    """`http` or `sse`."""
    headers: Mapping[str, str | None]
    """Headers that it wants; None for a value that the user has to give."""

    def entry(self, name: str) -> tuple[JsonObject, list[str]]:
        """The entry of an `mcpServers` file for a server that is called `name`, and the variables that it needs."""
        unset: dict[str, None] = {}

        def variable(what: str) -> str:
            word = re.sub(r"[^A-Za-z0-9]+", "_", f"{name}_{what}").strip("_").upper()
            unset[word] = None
            return f"${{{word}}}"

        row: JsonObject = {"type": self.transport, "url": _PLACE.sub(lambda found: variable(found[1]), self.url)}
        if self.headers:
            row["headers"] = {key: variable(key) if value is None else value for key, value in self.headers.items()}
        return row, list(unset)


async def read_card(url: str) -> ServerCard:
    """The card at an address, or the only one that the catalog of a site names.

    Raises:
        UsageError: there is no card, or it cannot be used; the message says why.
    """
    if not is_safe_page(url):
        raise UsageError(f"{url!r} is no address of a card: it must be https, or on this machine")
    if urlsplit(url).path.strip("/"):
        return _card(await _fetched(url), url)
    listed = await _listed(url)
    if len(listed) != 1:
        known = ", ".join(map(repr, listed)) or "none"
        raise UsageError(f"the catalog of {url!r} must name one server, or name the card itself; it names {known}")
    if not is_safe_page(listed[0]):
        raise UsageError(f"the catalog of {url!r} names a card at {listed[0]!r}, which is not encrypted")
    return _card(await _fetched(listed[0]), listed[0])


async def _listed(site: str) -> list[str]:
    problem = UsageError("")
    for path in CATALOGS:
        try:
            catalog = await _fetched(urljoin(site, path))
        except UsageError as error:
            problem = error
            continue
        entries: Any = catalog.get("entries")
        rows = [cast("JsonObject", one) for one in cast("list[Any]", entries or []) if isinstance(one, dict)]
        return [str(row.get("url")) for row in rows if row.get("type") == CARD_TYPE]
    raise UsageError(f"{site!r} has no catalog of servers ({problem})")


async def _fetched(url: str) -> JsonObject:
    import httpx2

    headers = {"Accept": f"{CARD_TYPE}, application/json", "Accept-Encoding": "identity"}
    body = b""
    try:
        async with (
            httpx2.AsyncClient(timeout=FETCH_S, headers=headers) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != 200:
                raise UsageError(f"{url!r} answers {response.status_code}")
            async for data in response.aiter_raw():
                body += data
                if len(body) > BYTES_MAX:
                    raise UsageError(f"what is at {url!r} has more than {BYTES_MAX >> 20} MiB")
        read: Any = strict_json.parse(body)
    except httpx2.HTTPError as error:
        raise UsageError(f"{url!r} cannot be read: {type(error).__name__} {error}".rstrip()) from error
    except JsonError as error:
        raise UsageError(f"what is at {url!r} is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise UsageError(f"what is at {url!r} is not a JSON object")
    return cast("JsonObject", read)


def _card(body: JsonObject, place: str) -> ServerCard:
    remotes: Any = body.get("remotes")
    listed = [cast("JsonObject", one) for one in cast("list[Any]", remotes or []) if isinstance(one, dict)]
    known = [one for one in listed if one.get("type") in _TRANSPORTS and isinstance(one.get("url"), str)]
    if not known:
        raise UsageError(f"the card at {place!r} names no address that can be connected to")
    remote = min(known, key=lambda one: list(_TRANSPORTS).index(one["type"]))
    url = str(remote["url"])
    if "$" in url or not url.isprintable():  # In a file it would be read as a variable of the environment.
        raise UsageError(f"the card at {place!r} names the address {url!r}, which is none")
    # A variable may stand for the beginning too; it is checked when it is filled in.
    if not url.startswith("{") and not is_safe_page(url):
        raise UsageError(f"the card at {place!r} names the address {url!r}, which is not encrypted")
    return ServerCard(
        name=_text(body.get("name")),
        version=_text(body.get("version")),
        description=_text(body.get("description")),
        url=url,
        transport=_TRANSPORTS[remote["type"]],
        headers=_headers(remote.get("headers"), place),
    )


def _headers(given: Any, place: str) -> dict[str, str | None]:
    rows: Sequence[Any] = cast("list[Any]", given) if isinstance(given, list) else []
    found: dict[str, str | None] = {}
    for row in rows:
        header: JsonObject = cast("JsonObject", row) if isinstance(row, dict) else {}
        if not _HEADER.fullmatch(str(header.get("name", ""))):
            raise UsageError(f"the card at {place!r} names a header that is none: {str(header.get('name'))[:64]!r}")
        value: Any = header.get("value", header.get("default"))
        is_plain = isinstance(value, str) and value.isprintable() and not _PLACE.search(value) and "$" not in value
        if is_plain and not header.get("isSecret"):
            found[header["name"]] = value
        elif header.get("isRequired"):
            found[header["name"]] = None
    return found


def _text(value: Any) -> str:
    return " ".join(value.split())[:TEXT_CHARS_MAX] if isinstance(value, str) else ""
