"""gunicorn's collection of requests: the service refuses what is no request, and reads what is one."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from callgate import Gate, ScriptedModel
from callgate.server import Service, ServiceOptions

from .conftest import Site, serving

FOLDER = Path(__file__).parents[2] / ".venv" / "gunicorn-requests"
REFUSED = {400, 408, 413, 431, 501, 505}
READ_HERE = {
    "006": "longer lines and more headers than gunicorn allows",
    "007": "longer lines and more headers than gunicorn allows",
    "008": "longer lines and more headers than gunicorn allows",
    "009": "longer lines and more headers than gunicorn allows",
    "011": "longer lines and more headers than gunicorn allows",
    "limit_header_default_01": "longer lines and more headers than gunicorn allows",
    "012": "longer lines and more headers than gunicorn allows",
    "040": "underscores in names of headers",
    "041": "two types of one body",
    "rfc9110_trailer_forbidden_cl_01": "trailers, which are dropped",
    "rfc9110_trailer_forbidden_host_01": "trailers, which are dropped",
    "rfc9110_trailer_forbidden_te_01": "trailers, which are dropped",
    "rfc9112_chunked_missing_final_crlf_01": "a body that nobody reads",
}
"""Files that gunicorn refuses and the service reads, and why."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    options = ServiceOptions(hosts=("*",), token="t" * 40)
    with serving(Service(Gate(ScriptedModel([])), options=options)) as running:
        yield running


def files(kind: str) -> list[Path]:
    found = sorted((FOLDER / kind).glob("*.http"))
    if not found:
        pytest.skip("gunicorn's requests are not there: run scripts/judge_packages.py")
    return found


def request_in(path: Path) -> bytes:
    data = path.read_bytes().replace(b"\n", b"").replace(b"\\r\\n", b"\r\n")
    data = data.replace(b"\\0", b"\0").replace(b"\\n", b"\n").replace(b"\\t", b"\t")
    return re.sub(rb"\\x([0-9a-fA-F]{2})", lambda found: bytes.fromhex(found[1].decode()), data)


def status_of(site: Site, data: bytes) -> int:
    """The last status that the service answers; 400 if it closes without a word."""
    with site.connect() as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError:
            return 400
    return int(([b"400", *re.findall(rb"HTTP/1\.1 (\d{3})", answer)])[-1])


def why_refused(data: bytes) -> str:
    """Why the service refuses a request that gunicorn reads; empty if it should not."""
    head = data.lower().partition(b"\r\n\r\n")[0]
    reasons = {
        "no Host in HTTP/1.1": b"\r\nhost:" not in head and b"http/1.1" in head,
        "the PROXY protocol": data.startswith((b"PROXY ", b"\r\n\r\n\0")),
        "folded headers": re.search(rb"\r\n[ \t]", head) is not None,
        "a coding of the body besides chunked": re.search(rb"\r\ntransfer-encoding:(?! *chunked\r?\n?$)", head) is not None,
        "an empty line before the request": data.startswith(b"\r\n"),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


@pytest.mark.judge("gunicorn's requests")
def test_what_is_no_request_is_refused_but_for_what_is_known(site: Site, record_property) -> None:
    paths = files("invalid")
    read = {path.stem for path in paths if status_of(site, request_in(path)) not in REFUSED}
    record_property("judged", [len(paths) - len(read), len(paths)])
    record_property("judge_known", dict(Counter(READ_HERE[name] for name in read if name in READ_HERE)))
    assert read - set(READ_HERE) == set()


@pytest.mark.judge("gunicorn's requests")
def test_what_is_a_request_is_read_but_for_what_is_known(site: Site, record_property) -> None:
    paths = files("valid")
    refused = {path.stem: why_refused(request_in(path)) for path in paths if status_of(site, request_in(path)) in REFUSED}
    record_property("judged", [len(paths) - len(refused), len(paths)])
    record_property("judge_known", dict(Counter(refused.values())))
    assert [name for name, reason in refused.items() if not reason] == []


@pytest.mark.rows(
    "head",
    [
        b"GET /livez HTTP/1.1\nHost: localhost\n\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\x07b\r\n\r\n",
        b"GET livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /livez HTTP/3.0\r\nHost: localhost\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2, 2\r\n\r\n{}",
        b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /livez HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
@pytest.mark.rows("before", [b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_heads_that_others_may_read_differently_are_refused_first_and_after_others(site: Site, head, before) -> None:
    statuses = re.findall(rb"HTTP/1\.1 (\d{3})", site.raw(before + head))
    assert statuses == [b"200"] * bool(before) + [b"400"]


def test_a_head_that_comes_byte_by_byte_is_read(site: Site) -> None:
    with site.connect() as connection:
        for byte in b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert b"".join(iter(lambda: connection.recv(65536), b"")).startswith(b"HTTP/1.1 200")
