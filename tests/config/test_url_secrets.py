"""Secrets in URLs are found however people write them, and are in nothing that is shown of such a URL."""

from __future__ import annotations

import pytest

from callgate import UsageError
from callgate.config.url_secrets import secrets_of_url, shown_url, without_url_secrets
from callgate.store import open_store

PASSWORD = "Wv3hGq8PzLk2Nd"
URLS = {
    f"postgresql://u:{PASSWORD}@h:1/x": "postgresql://u:***@h:1/x",
    f"POSTGRES://u:{PASSWORD}@h/x?sslmode=require": "POSTGRES://u:***@h/x?sslmode=require",
    f"postgresql://h/x?user=u&password={PASSWORD}": "postgresql://h/x?user=u&password=***",
    f"postgresql://h/x?sslpassword={PASSWORD}&sslmode=require": "postgresql://h/x?sslpassword=***&sslmode=require",
    f"postgresql://u:a@{PASSWORD}@h/x": "postgresql://u:***@h/x",
    f"postgresql://u:{PASSWORD}/y@h/x": "postgresql://u:***@h/x",
    f"postgresql://u:{PASSWORD}#y@h/x": "postgresql://u:***@h/x",
    f"postgresql://u:{PASSWORD}?y@h/x": "postgresql://u:***@h/x",
    f"postgresql://u:{PASSWORD}%zz@h/x": "postgresql://u:***@h/x",
    f"postgresql://u:12345/{PASSWORD}@h/x": "postgresql://u:***@h/x",
    f"mysql://:{PASSWORD}@h/x": "mysql://:***@h/x",
    f"https://u:{PASSWORD}@h:8080/@scope/name": "https://u:***@h:8080/@scope/name",
    f"https://h/mcp?api_key={PASSWORD}#top": "https://h/mcp?api_key=***#top",
    f"https://u:{PASSWORD}/y@h/": "https://u:***@h/",
}
PLAIN = [
    "", "sessions.db", "postgresql://h/x", "postgresql://u@h:5432/x?sslmode=require", "https://h:8080/@scope/name",
    "http://[::1]:80/@a", "https://h/?max_tokens=5", "a@b:c", "postgresql://u:@h/x",
]  # fmt: skip


@pytest.mark.parametrize(("url", "shown"), URLS.items())
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert PASSWORD not in shown_url(url, "")
    assert any(PASSWORD in secret for secret in secrets_of_url(url))
    pieces = f"({PASSWORD}@h, {PASSWORD}/y)" if "%" not in url else ""
    assert PASSWORD not in without_url_secrets(f"cannot reach {url} {pieces}", url)


@pytest.mark.parametrize("url", PLAIN)
def test_what_holds_no_secret_is_shown_as_it_is(url: str) -> None:
    assert (shown_url(url), secrets_of_url(url)) == (url, [])


def test_an_escaped_password_is_found_as_it_is_meant_too() -> None:
    assert secrets_of_url("postgresql://u:pass%40word@h/x") == ["pass%40word", "pass@word"]


@pytest.mark.parametrize("url", [url for url in URLS if not url.lower().startswith("postgres")])
def test_a_store_of_another_kind_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        open_store(url)
    assert PASSWORD not in str(raised.value)
