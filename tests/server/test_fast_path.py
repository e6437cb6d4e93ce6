"""Plain requests: what is read without h11 is what h11 reads, and what is answered is what h11 understands."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callgate import Gate, ScriptedModel
from callgate.server import Service, fast_path

from .conftest import Site, serving

lines = st.sampled_from([
    b"Host: x", b"host: y", b"Content-Length: 5", b"content-length: 005", b"Content-Length: 5, 5", b"Content-Length: +5",
    b"Content-Length: 6", b"Content-Length : 5", b"Transfer-Encoding: chunked", b"transfer-encoding:\tchunked",
    b"Transfer-Encoding: gzip", b"Connection: keep-alive", b"Connection: Close", b"Connection: upgrade", b"Upgrade: h2c",
    b"Expect: 100-continue", b"X: \xff", b"X: a\x00b", b" folded", b"X:", b"X:  y  ", b"no colon", b": z", b"X: a\rb",
    b"X\x0b: a", b"Accept: */*", b"X-\xc3\xa9: a",
])  # fmt: skip
starts = st.sampled_from([
    b"POST / HTTP/1.1", b"POST /a%20b?c=d HTTP/1.1", b"GET / HTTP/1.1", b"POST / HTTP/1.0", b"POST  / HTTP/1.1",
    b"POST * HTTP/1.1", b"post / HTTP/1.1", b"POST /\x7f HTTP/1.1", b"POST / HTTP/1.1 ", b"\r\nPOST / HTTP/1.1",
    b"POST http://x/ HTTP/1.1",
])  # fmt: skip
bodies = st.sampled_from([b"hello", b"", b"hell", b"hello!", b"5\r\nhello\r\n0\r\n\r\n", b"helloPOST / HTTP/1.1\r\n\r\n"])
ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"])


def as_h11_reads(data: bytes) -> tuple[bytes, list[tuple[bytes, bytes]], bytes, bool] | None:
    """Target, headers, body and whether the connection closes behind it: of one whole POST with nothing behind it."""
    http = h11.Connection(h11.SERVER)
    http.receive_data(data)
    try:
        request = http.next_event()
        if not isinstance(request, h11.Request) or request.method != b"POST":
            return None
        body = b""
        while isinstance(event := http.next_event(), h11.Data):
            body += bytes(event.data)
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.EndOfMessage) or http.trailing_data[0]:
        return None
    return request.target, list(request.headers), body, http.their_state is h11.MUST_CLOSE


@settings(max_examples=500, deadline=None)
@given(starts, st.lists(lines, max_size=5), bodies, ends)
@example(b"POST / HTTP/1.1", [b"Host: x", b"Content-Length: 5"], b"hello", b"\r\n")
def test_what_is_read_as_plain_is_what_h11_reads(start: bytes, head: list[bytes], body: bytes, end: bytes) -> None:
    data = end.join([start, *head, b"", body])
    found = fast_path.read(data)
    if found is not None:
        assert (found.target, found.headers, found.body, found.is_last) == as_h11_reads(data)


def test_a_usual_request_is_plain_and_one_that_came_in_part_or_with_another_is_not() -> None:
    data = b"POST /a%20b?c=d HTTP/1.1\r\nHost: x\r\nX:  y \r\nContent-Length: 2\r\n\r\n{}"
    request = fast_path.read(data)
    assert request == fast_path.Request(
        b"/a%20b?c=d", [(b"host", b"x"), (b"x", b"y"), (b"content-length", b"2")], b"{}", False
    )
    scope = request.scope({"server": ("x", 80)})
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"c=d")
    assert (scope["method"], scope["server"]) == ("POST", ("x", 80))
    assert [fast_path.read(data[:-1]), fast_path.read(data + b"POST"), fast_path.read(data[:30])] == [None] * 3


def test_a_head_that_comes_again_is_read_as_before_whatever_became_of_the_first_and_whatever_body_it_has() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
    first = fast_path.read(head + b"{}")
    assert first is not None
    first.headers.clear()
    headers = [(b"host", b"x"), (b"content-length", b"2")]
    assert fast_path.read(head + b"[]") == fast_path.Request(b"/", headers, b"[]", False)
    assert fast_path.read(head + b"[1]") is None
    long = b"POST / HTTP/1.1\r\nHost: x\r\nX: %b\r\nContent-Length: 2\r\n\r\n{}" % (b"a" * fast_path.KNOWN_BYTES)
    assert fast_path.read(long) == fast_path.read(long)


# Answers -----------------------------------------------------------------------------------------------------------------


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True


def answered(*messages: dict[str, Any], is_last: bool = False) -> Wire:
    """What is written for the messages of an application."""
    wire = Wire()

    async def story() -> None:
        cycle = cycle_on(wire, is_last=is_last)
        for message in messages:
            await cycle.send(message)

    asyncio.run(story())
    return wire


def cycle_on(wire: Wire, *, is_last: bool = False) -> fast_path.Cycle:
    connection = SimpleNamespace(
        transport=wire, flow=SimpleNamespace(write_paused=False), logger=None,
        server_state=SimpleNamespace(default_headers=[(b"date", b"now")]), on_response_complete=lambda: None,
    )  # fmt: skip
    return fast_path.Cycle(fast_path.Request(b"/", [], b"", is_last), {}, connection)  # pyright: ignore


def start(status: int = 200, **headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


def more(body: bytes, *, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}


def as_h11_sees(data: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes, bool]:
    """Status, headers and body of an answer, and whether the connection can be used again."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=b"POST", target=b"/", headers=[(b"host", b"x"), (b"content-length", b"0")]))
    http.send(h11.EndOfMessage())
    http.receive_data(data)
    response = http.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := http.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage), event
    return response.status_code, list(response.headers), body, http.their_state is h11.DONE


def test_answers_that_are_ready_in_the_same_round_leave_when_all_of_them_are() -> None:
    wire = Wire()

    async def answer(number: int) -> None:
        cycle = cycle_on(wire)
        await cycle.send(start(content_length="1"))
        wire.writes.append(b"%d is ready" % number)
        await cycle.send(more(b"%d" % number, is_last=True))

    async def story() -> None:
        await asyncio.gather(*map(answer, range(3)))

    asyncio.run(story())
    answers = [b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 1\r\n\r\n%d" % number for number in range(3)]
    assert wire.writes == [b"0 is ready", b"1 is ready", b"2 is ready", *answers]


def test_nothing_is_written_to_a_client_that_left_while_its_answer_waited_for_the_others() -> None:
    wire = Wire()

    async def story() -> None:
        cycle = cycle_on(wire)
        await cycle.send(start(content_length="1"))
        sending = asyncio.create_task(cycle.send(more(b"1", is_last=True)))
        await asyncio.sleep(0)
        cycle.disconnected = True
        await sending

    asyncio.run(story())
    assert wire.writes == []


@pytest.mark.rows("pieces", [[b""], [b"hello"], [b"he", b"", b"llo"]], ids=["nothing", "one", "three"])
@pytest.mark.rows("status", [200, 404, 503])
@pytest.mark.rows("told", [True, False], ids=["length", "chunks"])
@pytest.mark.rows("is_last", [True, False], ids=["last", "kept"])
def test_an_answer_is_what_h11_sees(pieces: list[bytes], status: int, told: bool, is_last: bool) -> None:
    whole = b"".join(pieces)
    headers = {"content_length": str(len(whole))} if told else {}
    bodies = [more(piece, is_last=index == len(pieces) - 1) for index, piece in enumerate(pieces)]
    wire = answered(start(status, x="\xe9", **headers), *bodies, is_last=is_last)
    framing = (b"content-length", b"%d" % len(whole)) if told else (b"transfer-encoding", b"chunked")
    close = [(b"connection", b"close")] if is_last else []
    expected = [(b"date", b"now"), (b"x", b"\xe9"), *([framing] if told else []), *close, *([] if told else [framing])]
    assert as_h11_sees(b"".join(wire.writes)) == (status, expected, whole, not is_last)
    assert wire.is_closed == is_last
    # What is ready in one leaves in one; a head whose body may take long does not wait for it.
    assert len(wire.writes) == len(pieces) if told else wire.writes[0].endswith(b"\r\n\r\n")


def test_an_answer_without_a_body_has_none_and_one_that_says_close_closes() -> None:
    wire = answered(start(204), more(b"", is_last=True))
    assert b"".join(wire.writes) == b"HTTP/1.1 204 No Content\r\ndate: now\r\n\r\n"
    wire = answered(start(503, connection="close", content_length="2"), more(b"{}", is_last=True))
    assert (as_h11_sees(b"".join(wire.writes))[3], wire.is_closed) == (False, True)


@pytest.mark.parametrize(
    "messages",
    [
        [start(x="a\r\nb: c")],
        [start(x="a\nb")],
        [start(**{"x\r\ny": "a"})],
        [start(**{"x y": "a"})],
        [start(99)],
        [start(content_length="1"), more(b"ab", is_last=True)],
        [start(content_length="3"), more(b"ab", is_last=True)],
        [more(b"ab")],
        [start(), start()],
        [start(), more(b"", is_last=True), more(b"x")],
    ],
    ids=["line", "feed", "name", "blank", "status", "long", "short", "no_head", "two_heads", "behind"],
)
def test_an_answer_that_would_be_another_one_is_refused(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(RuntimeError):
        answered(*messages)


# On a real port ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(Service(Gate(ScriptedModel([])))) as running:
        yield running


def test_requests_that_are_sent_before_the_answers_come_are_answered_in_order(site: Site) -> None:
    def asking(path: str, *, last: bool) -> bytes:
        close = "Connection: close\r\n" if last else ""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n{close}\r\n"
        )
        return head.encode() + b"{}"

    with site.connect() as connection:
        for path in ("/first", "/second", "/third"):
            connection.sendall(asking(path, last=path == "/third"))
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    together = site.raw(asking("/first", last=False) + asking("/second", last=False) + asking("/third", last=True))
    for answers in (data, together):
        found = [
            json.loads(b"{" + part.partition(b"{")[2].partition(b"}")[0] + b"}") for part in answers.split(b"HTTP/1.1 ")[1:]
        ]
        assert [answer["code"] for answer in found] == [404, 404, 404]
        assert [answer["message"].split(";")[0].rpartition("/")[2] for answer in found] == ["first", "second", "third"]


def test_one_connection_carries_requests_of_every_kind(site: Site) -> None:
    """A plain request, one in chunks, one without a body, one in two packets, and a plain one again."""
    head = b"Host: localhost\r\nContent-Type: application/json\r\n"
    requests = [
        [b"POST /a HTTP/1.1\r\n" + head + b"Content-Length: 2\r\n\r\n{}"],
        [b"POST /b HTTP/1.1\r\n" + head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"],
        [b"GET /c HTTP/1.1\r\nHost: localhost\r\n\r\n"],
        [b"POST /d HTTP/1.1\r\n" + head + b"Content-Length: 2\r\n\r\n{", b"}"],
        [b"POST /e HTTP/1.1\r\n" + head + b"Content-Length: 2\r\n\r\n{}"],
    ]
    with site.connect() as connection, connection.makefile("rb") as answers:
        for pieces in requests:
            for piece in pieces:
                connection.sendall(piece)
            assert answers.readline() == b"HTTP/1.1 404 Not Found\r\n"
            length = 0
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            assert f"/{chr(pieces[0].split()[1][1])};" in json.loads(answers.read(length))["message"]


_JSON = b"Host: localhost\r\nContent-Type: application/json\r\n"
KINDS = (
    b"POST /a HTTP/1.1\r\n" + _JSON + b"Content-Length: 2\r\n\r\n{}",
    b"POST /b HTTP/1.1\r\n" + _JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"GET /c HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /d HTTP/1.1\r\n" + _JSON + b"Content-Length: 9\r\nX: 1\r\n\r\n" + b"\r\n\r\n\r\n\r\n ",
    b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\n"
    + b"POST / HTTP/1.1\r\nHost: evil\r\n\r\n         ",
)
"""A plain request, one in chunks, one without a body, and two with bodies that look like heads."""
LAST = b"POST /z HTTP/1.1\r\n" + _JSON + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"


@settings(max_examples=80, deadline=None)
@given(chosen=st.lists(st.sampled_from(KINDS), max_size=4), cuts=st.lists(st.integers(0, 600), max_size=6))
def test_requests_in_any_order_cut_anywhere_are_answered_as_they_are_one_by_one(site, chosen, cuts) -> None:
    data = b"".join(chosen) + LAST
    places = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    with site.connect() as connection:
        for begin, end in itertools.pairwise(places):
            connection.sendall(data[begin:end])
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    expected = [b"200" if b"/livez" in request.split(b"\r\n")[0] else b"404" for request in (*chosen, LAST)]
    assert re.findall(rb"HTTP/1\.1 (\d{3}) ", answers) == expected
