"""Base URLs, keys and headers: validated before use, redacted from errors.

Text comes in, the same text or a sentence goes out. This file knows no server.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from callgate.config.known_secrets import redact_known, remember_secrets
from callgate.errors import UsageError

__all__ = [
    "checked_base_url",
    "checked_headers",
    "checked_key",
    "expect_key",
    "is_local",
    "redact",
    "secrets_of",
    "split_login",
]

_BASE_URL = re.compile(r"https?://[^\s/?#]+[^\s?#]*", re.IGNORECASE)
_LOGIN = re.compile(r"^([a-z]+://)?.*@", re.IGNORECASE | re.DOTALL)
_KEY = re.compile(r"[\x21-\x7e]+")
_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-z]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
_NOT_YOURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "content-type"})
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password")
# Shorter secrets or prefixes reveal nothing, and match parts of ordinary words by chance.
_SECRET_CHARS_MIN = 8


def checked_base_url(url: str) -> str:
    """Validate a base URL and return it.

    Raises:
        UsageError: it is no base URL.
    """
    try:
        parts = urlsplit(url)
        labels = (parts.hostname or "").removesuffix(".").split(".")
        is_plain = url.isprintable() and all(char.isascii() for char in parts.netloc if char.isdigit())
        is_one = (
            is_plain
            and _BASE_URL.fullmatch(url) is not None
            and parts.port != 0
            and all(0 < len(label) < 64 for label in labels)
        )
    except ValueError:  # A port that is no number, half of a bracket.
        is_one = False
    if not is_one:
        shown = _LOGIN.sub(r"\1", url)  # It may hold a password.
        raise UsageError(f"the base URL {shown!r} is not valid: use https://host or https://host:port/path, without a query")
    return url


def is_local(url: str) -> bool:
    """True if a URL leads to this machine."""
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
        return address.is_loopback or address.is_unspecified
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def checked_key(key: str, whose: str) -> str:
    """Validate a key for use in a header and return it.

    Raises:
        UsageError: it cannot.
    """
    if not _KEY.fullmatch(key):
        # The key itself is not shown: a part of it may be right.
        raise UsageError(f"the key for {whose} is empty or holds characters that no key has; copy it again")
    remember_secrets(key)
    return key


def expect_key(key: object) -> None:
    """Check that a key which a program passes is text.

    Raises:
        UsageError: it is something else, which is not shown: it may hold a secret.
    """
    if key is not None and not isinstance(key, str):
        raise UsageError(f"api_key= is of the type {type(key).__name__!r}: pass text")


def split_login(url: str) -> tuple[str, dict[str, str]]:
    """Split a base URL into the URL without user and password, and a Basic authorization header."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    user, _, password = login.partition(":")
    remember_secrets(unquote(password))
    encoded = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode("ascii")
    return parts._replace(netloc=host).geturl(), {"authorization": f"Basic {encoded}"}


def checked_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Validate the headers of a program and return them by name in lower case.

    Raises:
        UsageError: one cannot be sent, or is not the program's to set.
    """
    checked: dict[str, str] = {}
    given: Any = {} if headers is None else headers
    if not isinstance(given, Mapping):
        raise UsageError(f"headers={type(given).__name__}: give a mapping of names to values, such as {{'x-team': 'blue'}}")
    for name, value in cast("Mapping[Any, Any]", given).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise UsageError(f"the header {str(name)[:100]!r} cannot be sent: names and values are strings")
        lower = name.lower()
        if lower in _NOT_YOURS:
            raise UsageError(f"the header {name!r} is written by callgate itself; leave it out of headers=")
        if not _HEADER_NAME.fullmatch(lower) or not _HEADER_VALUE.fullmatch(value):
            raise UsageError(f"the header {name[:100]!r} cannot be sent: names and values are plain ASCII in one line")
        checked[lower] = value
    remember_secrets(*secrets_of(checked))
    return checked


def secrets_of(headers: Mapping[str, str]) -> list[str]:
    """The secret values among some headers, which must appear in no error."""
    found = [value for name, value in headers.items() if _SECRET_HEADER.search(name.lower())]
    return [value.removeprefix("Bearer ").removeprefix("Basic ") for value in found]


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in the text, and the beginning of one at its very end, where the text was cut off."""
    for secret in secrets:
        text = text.replace(secret, "[key]") if len(secret) >= _SECRET_CHARS_MIN else text
        for length in range(min(len(secret) - 1, len(text)), _SECRET_CHARS_MIN - 1, -1):
            if text.endswith(secret[:length]):
                text = text[:-length] + "[key]"
                break
    return redact_known(text)
