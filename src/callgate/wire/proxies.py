"""The proxy that the environment names for a URL, by the usual variables.

A URL comes in, a proxy or nothing goes out. Each URL is decided by itself: what NO_PROXY exempts goes the short way.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

from callgate.errors import UsageError

__all__ = ["Proxy", "proxy_for"]


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy and where it is named."""

    url: str
    variable: str

    @property
    def description(self) -> str:
        """The proxy for a message, without its password."""
        parts = urlsplit(self.url)
        return f"the proxy {parts.scheme}://{parts.netloc.rpartition('@')[2]} of {self.variable}"


def proxy_for(scheme: str, host: str, port: int) -> Proxy | None:
    """The proxy that requests to a host go through, if there is one.

    Raises:
        UsageError: what the environment names is no URL of a proxy.
    """
    if not _may_be_named():
        return None
    import urllib.request

    named = {name: value.strip() for name, value in urllib.request.getproxies().items()}
    which = scheme if named.get(scheme) else "all"
    url = named.get(which)
    if not url or urllib.request.proxy_bypass(f"{host}:{port}") or urllib.request.proxy_bypass(host):
        return None
    if _is_in_network(host, named.get("no", "")):
        return None
    # GNOME writes socks://, which says nothing of the version; any that is in use is 5.
    scheme, colon, rest = url.partition("://")
    if not colon:
        scheme, rest = "http", url
    proxy = Proxy(f"{'socks5' if scheme == 'socks' else scheme}://{rest}", f"{which.upper()}_PROXY")
    _check(proxy)
    return proxy


def _is_in_network(host: str, exempt: str) -> bool:
    """True if the host is an address that NO_PROXY exempts as such or with its network: `::1`, `10.0.0.0/8`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for item in exempt.split(","):
        with contextlib.suppress(ValueError):  # A name, or nonsense.
            if address in ipaddress.ip_network(item.strip().strip("[]"), strict=False):
                return True
    return False


def _check(proxy: Proxy) -> None:
    try:
        parts = urlsplit(proxy.url)
        is_url = bool(parts.hostname) and parts.port != 0
    except ValueError:  # A port that is no number, a bracket that is not closed.
        is_url = False
    if not is_url:
        # Not what it says: there may be a password in it.
        raise UsageError(f"{proxy.variable} names no proxy that can be used: write http://host:port")


def _may_be_named() -> bool:
    """True if a variable, or the settings of the system where it has some, may name a proxy."""
    return sys.platform in ("win32", "darwin") or any(name.lower().endswith("_proxy") for name in os.environ)
