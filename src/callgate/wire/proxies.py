"""The proxy that the environment names for a URL, by the usual variables.

A URL comes in, a proxy or nothing goes out. Each URL is decided by itself: what NO_PROXY exempts goes the short way.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

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
    """The proxy that requests to a host go through, if there is one."""
    if not _may_be_named():
        return None
    import urllib.request

    named = urllib.request.getproxies()
    which = scheme if named.get(scheme) else "all"
    url = named.get(which, "").strip()
    if not url or urllib.request.proxy_bypass(f"{host}:{port}") or urllib.request.proxy_bypass(host):
        return None
    # GNOME writes socks://, which says nothing of the version; any that is in use is 5.
    scheme, colon, rest = url.partition("://")
    if not colon:
        scheme, rest = "http", url
    return Proxy(f"{'socks5' if scheme == 'socks' else scheme}://{rest}", f"{which.upper()}_PROXY")


def _may_be_named() -> bool:
    """True if a variable, or the settings of the system where it has some, may name a proxy."""
    return sys.platform in ("win32", "darwin") or any(name.lower().endswith("_proxy") for name in os.environ)
