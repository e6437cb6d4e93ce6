"""Every fault does what its row says, seen from a bare socket that forgives nothing."""

import asyncio
import gzip
import json
import re
import ssl
import zlib
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callgate.errors import UsageError
from callgate.testing.answers import calls, text
from callgate.testing.exchange import Clock
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.faults import CHAOS_ROWS, ELSEWHERE, FAULTS, Fault, FaultStep, chaos, fault, refused_url, variants
from callgate.testing.faults_content import FINISH_REASONS

PATH = "/v1beta/models/gemini-3.8-flash"
TOOLS = [{"functionDeclarations": [{"name": "wx", "parametersJsonSchema": {"properties": {"city": {"type": "string"}}}}]}]
BODY = {"contents": [{"role": "user", "parts": [{"text": "Oslo?"}]}], "tools": TOOLS}
QUICK = Clock(scale=0.0001)
WHOLE, STREAM, ARRAY = ":generateContent", ":streamGenerateContent?alt=sse", ":streamGenerateContent"


def run(main_of_test: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await main_of_test()

    return asyncio.run(bounded())


async def connect(fake: FakeGemini) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(fake.base_url.rpartition(":")[2]))


async def send(writer: asyncio.StreamWriter, action: str) -> None:
    data = json.dumps(BODY).encode()
    lines = [
        f"POST {PATH}{action} HTTP/1.1",
        "Host: 127.0.0.1:1",
        "x-goog-api-key: secret",
        f"Content-Length: {len(data)}",
        "",
        "",
    ]
    writer.write("\r\n".join(lines).encode() + data)
    await writer.drain()


async def receive(reader: asyncio.StreamReader, limit: int) -> tuple[bytes, str]:
    data = bytearray()
    try:
        while len(data) < limit:
            piece = await reader.read(1 << 20)
            if not piece:
                return bytes(data), "end"
            data += piece
    except ConnectionResetError:
        return bytes(data), "reset"
    return bytes(data), "limit"


def seen(step: FaultStep | str, action: str = WHOLE, limit: int = 1 << 40, clock: Clock = QUICK) -> tuple[bytes, str]:
    """What one request over a connection of its own gets to see, and how it ends: `end`, `reset` or `limit`.

    A server that keeps the connection open would wait for more, so the writing side is closed behind the request.
    """

    async def scene() -> tuple[bytes, str]:
        async with FakeGemini([fault(step) if isinstance(step, str) else step], clock=clock) as fake:
            reader, writer = await connect(fake)
            try:
                await send(writer, action)
                writer.write_eof()
                return await receive(reader, limit)
            except (ConnectionResetError, BrokenPipeError):
                return b"", "reset"
            finally:
                writer.transport.abort()

    return run(scene)


def unframed(data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an honest response."""
    head, _, rest = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") != "chunked":
        return int(status.split()[1]), headers, rest[: int(headers["content-length"])]
    body = bytearray()
    while size := int(rest.partition(b"\r\n")[0], 16):
        rest = rest.partition(b"\r\n")[2]
        body += rest[:size]
        rest = rest[size + 2 :]
    return int(status.split()[1]), headers, bytes(body)


def body_of(step: FaultStep | str, action: str = WHOLE) -> bytes:
    return unframed(seen(step, action)[0])[2]


def events_of(step: FaultStep | str) -> list[Any]:
    data = body_of(step, STREAM).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events = ["".join(re.findall(r"(?m)^data: ?(.*)$", event)) for event in data.decode("utf-8-sig").split("\n\n")]
    return [json.loads(event) for event in events if event]


def words(messages: list[Any]) -> str:
    return "".join(part.get("text", "") for each in messages for part in each["candidates"][0]["content"]["parts"])


# The table ---------------------------------------------------------------------------------------------------------------


def test_every_row_is_a_step_or_says_where_it_is() -> None:
    rows = {each.row for each in FAULTS} | set(ELSEWHERE)
    assert {f"W{row:02}" for row in range(1, 63)} <= rows


def test_rows_and_names_are_unique_and_both_find_the_fault() -> None:
    keys = [key for each in FAULTS for key in (each.row, each.name)]
    assert len(keys) == len(set(keys))
    assert fault("W07") == fault("internal_error")
    assert fault("W42:null") == fault("odd_body", "null")
    assert len(variants("W44")) == 5 * len(FINISH_REASONS)


@pytest.mark.parametrize(("name", "text_of_error"), [
    ("W99", "W07 internal_error"), ("W15", "refused_url"), ("W42:nothing", "it has empty, object"),
])  # fmt: skip
def test_an_unknown_fault_is_an_error_that_helps(name: str, text_of_error: str) -> None:
    with pytest.raises(UsageError, match=text_of_error):
        fault(name)


SPECIAL = {"W14", "W24", "W25", "W27", "W28", "W50", "W53", "W38"}


@pytest.mark.parametrize("each", [each for each in FAULTS if each.row not in SPECIAL], ids=lambda each: each.name)
def test_every_variant_strikes_every_kind_of_request_and_leaves_nothing_behind(each: Fault) -> None:
    async def scene() -> None:
        for variant in each.variants:
            async with FakeGemini([fault(each.row, variant, times=3)], clock=QUICK) as fake:
                for action in (WHOLE, STREAM, ARRAY):
                    reader, writer = await connect(fake)
                    try:
                        await send(writer, action)
                        writer.write_eof()
                        data, _ = await receive(reader, 1 << 40)
                    except (ConnectionResetError, BrokenPipeError):
                        data = b""
                    assert data or each.row in ("W16", "W17"), (variant, action)
                    writer.transport.abort()
                assert fake.errors == []
            assert fake.open_connections == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scene)


# Refusals ----------------------------------------------------------------------------------------------------------------


def test_two_rate_limits_and_then_the_answer() -> None:
    with FakeGemini.in_thread([fault("W01"), "at last"]) as fake:
        replies = [httpx2.post(f"{fake.base_url}{PATH}{WHOLE}", json=BODY) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [429, 429, 200]
    assert replies[0].json()["error"]["details"][0]["retryDelay"] == "2.5s"


def test_a_fault_without_end_stays() -> None:
    with FakeGemini.in_thread([fault("W08"), "never"]) as fake:
        assert {httpx2.post(f"{fake.base_url}{PATH}{WHOLE}", json=BODY).status_code for _ in range(7)} == {503}


STATUSES = {
    "W02:date": 429, "W03": 429, "W04": 429, "W05:null": 429, "W06": 429, "W07": 500, "W09": 504, "W10": 400,
    "W11:forbidden": 403, "W11:unauthenticated": 401, "W12": 404, "W13:payload": 413, "W14:cancelled": 499,
    "W37:bad_gateway": 502, "W37:captive_portal": 200, "W39": 302, "W40": 200, "W42:empty": 200,
}  # fmt: skip


@pytest.mark.rows("name", STATUSES)
def test_statuses(name: str) -> None:
    assert unframed(seen(name)[0])[0] == STATUSES[name]


def test_retry_after_is_a_number_a_date_or_a_date_in_the_past() -> None:
    assert unframed(seen("W02:seconds")[0])[1]["retry-after"] == "3"
    now = datetime.now(UTC)
    dates = [unframed(seen(f"W02:{name}")[0])[1]["retry-after"] for name in ("past_date", "date")]
    past, soon = (datetime.strptime(date, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC) for date in dates)
    assert past < now - timedelta(seconds=30) < soon


def test_the_key_is_echoed_and_the_model_named() -> None:
    assert b"secret" in body_of("W11:echoes_key")
    assert b"models/gemini-3.8-flash is not found" in body_of("W12")


def test_a_redirect_leads_to_another_origin() -> None:
    assert unframed(seen("W39")[0])[1]["location"] == f"http://localhost:1/redirected{PATH}{WHOLE}"
    assert unframed(seen("W39:metadata")[0])[1]["location"].startswith("http://169.254.169.254/")


# Connections -------------------------------------------------------------------------------------------------------------


def test_a_refused_url_refuses() -> None:
    with refused_url() as url, pytest.raises(httpx2.ConnectError):
        httpx2.post(f"{url}{PATH}{WHOLE}", json=BODY)


@pytest.mark.parametrize("name", ["W16", "W17"])
def test_a_reset_without_a_byte(name: str) -> None:
    assert seen(name) == (b"", "reset")


def test_a_reset_on_accept_comes_before_the_request_and_only_once() -> None:
    async def scene() -> None:
        async with FakeGemini([fault("W16"), "hello"]) as fake:
            reader, writer = await connect(fake)
            assert await receive(reader, 1) == (b"", "reset")
            writer.transport.abort()
            assert fake.requests == []
            async with httpx2.AsyncClient(timeout=600) as client:
                assert (await client.post(f"{fake.base_url}{PATH}{WHOLE}", json=BODY)).status_code == 200
            assert fake.connections == 2

    run(scene)


def test_a_reset_in_the_text_keeps_three_pieces() -> None:
    data, how = seen("W18", STREAM)
    assert how == "reset"
    assert data.count(b"data: {") == 3
    assert b"finishReason" not in data


def test_a_reset_in_a_call_leaves_half_an_event() -> None:
    data, how = seen("W19", STREAM)
    assert how == "reset"
    assert data.count(b"data: ") == 1
    assert not data.endswith(b"\r\n\r\n\r\n")
    assert seen("W19")[1] == "reset"


def test_calls_without_a_finish_reason_end_cleanly() -> None:
    messages = events_of("W20")
    assert [part["functionCall"]["name"] for each in messages for part in each["candidates"][0]["content"]["parts"]] == [
        "wx",
        "wx",
    ]
    assert not any("finishReason" in each["candidates"][0] for each in messages)


def test_a_stale_connection_dies_at_the_next_request_and_takes_no_step() -> None:
    async def scene() -> None:
        async with FakeGemini([fault("W61"), "next"]) as fake:
            reader, writer = await connect(fake)
            await send(writer, WHOLE)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"close" not in head.lower()
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            await send(writer, WHOLE)
            assert (await receive(reader, 1))[0] == b""
            writer.transport.abort()
            assert len(fake.requests) == 1
            assert fake.steps_left == 1

    run(scene)


@pytest.mark.parametrize("name", ["W14", "W25"])
def test_a_held_request_ends_when_the_client_goes(name: str) -> None:
    async def scene() -> None:
        async with FakeGemini([fault(name)]) as fake:
            reader, writer = await connect(fake)
            await send(writer, STREAM)
            if name == "W25":
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            writer.close()
            await writer.wait_closed()
            await fake.until_idle()
            assert fake.open_connections == 0

    run(scene)


# Lengths, framing, time --------------------------------------------------------------------------------------------------


def test_lengths_lie() -> None:
    data, how = seen("W21")
    head, _, body = data.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body) + 100}".encode() in head
    assert how == "end"
    assert b"POISON" not in unframed(seen("W22")[0])[2]
    assert seen("W22")[0].endswith(b'"STOP"}]}')


def test_chunks_are_broken() -> None:
    assert b"\r\nzz\r\n" in seen("W23:bad_size", STREAM)[0]
    assert not seen("W23:no_last_chunk", STREAM)[0].endswith(b"0\r\n\r\n")


def test_waits_take_the_time_of_the_clock() -> None:
    assert words(events_of("W26")) == "The quick brown fox jumps over the lazy dog."
    assert words([json.loads(body_of(fault("W24", answer=text("drop"))))]) == "drop"


@pytest.mark.parametrize("action", [WHOLE, STREAM, ARRAY])
def test_an_endless_answer_does_not_end(action: str) -> None:
    assert seen("W27", action, limit=1 << 21)[1] == "limit"


def test_an_endless_header() -> None:
    assert seen("W28")[0].startswith(b"HTTP/1.1 200 OK\r\nX-Long: xxxxxxxx")
    assert len(seen("W28")[0]) > 1 << 20


@pytest.mark.parametrize("action", [WHOLE, STREAM])
def test_a_body_can_be_cut_at_every_byte(action: str) -> None:
    plan = text("Hi 🦊", signed=False)
    whole = body_of(fault("W29", at=1 << 20, answer=plan), action)

    async def scene() -> None:
        script = [fault("W29", at=at, answer=plan) for at in range(len(whole))]
        async with FakeGemini(script) as fake:
            reader, writer = await connect(fake)
            for at in range(len(whole)):
                await send(writer, action)
                head = await reader.readuntil(b"\r\n\r\n")
                assert f"Content-Length: {at}\r\n".encode() in head
                assert len(await reader.readexactly(at)) == at
            writer.transport.abort()

    run(scene)


@pytest.mark.parametrize("at", [None, 1, 40, 200])
def test_a_split_body_is_still_the_same_body(at: int | None) -> None:
    data = seen(fault("W30", at=at), STREAM)[0]
    assert (
        words([json.loads(event[6:]) for event in unframed(data)[2].decode().split("\r\n\r\n") if event])
        == "Grüße, 東京 🦊 and\nmore"
    )


@pytest.mark.parametrize("step", variants("W31"), ids=lambda step: step.variant)
def test_dialects_say_the_same(step: FaultStep) -> None:
    data = body_of(step, STREAM).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    blocks = data.decode("utf-8-sig").split("\n\n")
    events = ["\n".join(re.findall(r"(?m)^data: ?(.*)$", block)) for block in blocks]
    assert words([json.loads(event) for event in events if event]) == "The quick brown fox jumps over the lazy dog."
    assert words([json.loads(body_of(step))]) == "The quick brown fox jumps over the lazy dog."


def test_odd_events_and_other_framings() -> None:
    assert body_of("W33", STREAM).endswith(b"data: [DONE]\r\n\r\n")
    assert b"data: null\r\n\r\n" in body_of("W33:null", STREAM)
    assert words(json.loads(body_of("W32", STREAM))) == "The quick brown fox jumps over the lazy dog."
    assert unframed(seen("W36")[0])[1]["content-type"] == "text/plain"


def test_compressed_bodies() -> None:
    def packed(name: str) -> bytes:
        return body_of(f"W38:{name}")

    plain = b'"text": "The quick brown fox'
    assert plain in gzip.decompress(packed("gzip"))
    assert plain in gzip.decompress(packed("x_gzip"))
    assert plain in gzip.decompress(packed("members"))
    assert plain in zlib.decompress(gzip.decompress(packed("twice")))
    assert plain in zlib.decompress(packed("raw_deflate"), wbits=-15)
    assert plain in zlib.decompress(packed("deflate"))
    assert plain in packed("not_gzip")
    assert b"content-encoding: gzip" in seen("W38:not_gzip")[0].lower()


def test_stored_brotli_can_be_read_back() -> None:
    brotli = pytest.importorskip("brotli", reason="brotli is not installed")
    assert b"The quick brown fox" in brotli.decompress(body_of("W38:br"))


@pytest.mark.slow
def test_the_bomb_is_small_and_becomes_a_gibibyte() -> None:
    data = unframed(seen("W38:bomb")[0])[2]
    assert len(data) < 2 << 20
    unpacker, total = zlib.decompressobj(wbits=31), 0
    while data:
        total += len(unpacker.decompress(data, 1 << 26))
        data = unpacker.unconsumed_tail
    assert total > 1 << 30


def test_errors_behind_a_200() -> None:
    assert json.loads(body_of("W40"))["error"]["code"] == 429
    first, last = events_of("W40:after_text")
    assert words([first])
    assert last["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert json.loads(body_of("W41"))[0]["error"]["code"] == 429
    assert [body_of(step) for step in variants("W42")] == [b"", b"{}", b"[]", b"null", b'"x"', b"42"]


# Words -------------------------------------------------------------------------------------------------------------------


def parts_of(step: FaultStep | str) -> list[Any]:
    return json.loads(body_of(step))["candidates"][0]["content"]["parts"]


def test_bytes_that_are_not_text() -> None:
    assert b"\xff" in body_of("W34")
    assert b'"args": {"path": "\xff"}' in body_of("W34:args", STREAM)
    assert b'"\\ud800"' in body_of("W35", STREAM)
    assert b"so \\ud800" in body_of("W35:text")


def test_blocks_and_empty_answers() -> None:
    blocked = json.loads(body_of("W43"))
    assert "candidates" not in blocked
    assert blocked["promptFeedback"]["blockReason"] == "SAFETY"
    assert json.loads(body_of("W44:no_content_SAFETY"))["candidates"] == [{"index": 0, "finishReason": "SAFETY"}]
    assert parts_of("W44:empty_text_FOO") == [{"text": ""}]
    assert "default_api.wx" in json.loads(body_of("malformed_call"))["candidates"][0]["finishMessage"]


def test_calls_are_cut_doubled_and_many() -> None:
    whole, cut = parts_of("W45")
    assert (whole["functionCall"]["args"], cut["functionCall"]["args"]) == ({"city": "example"}, {})
    assert [part["functionCall"]["id"] for part in parts_of("W46")] == ["same", "same"]
    assert "id" not in parts_of("W47")[0]["functionCall"]
    first, second, _ = events_of("W48")
    assert first == second
    assert len(parts_of("W49")) == 5_000
    assert body_of("W50").count(b"functionCall") == 100_000


def test_names_and_arguments_are_odd() -> None:
    assert parts_of("W51:dunder")[0]["functionCall"]["name"] == "__class__"
    assert parts_of("W52")[0]["functionCall"].keys() == {"name"}
    assert b'"args": {"n": NaN}' in body_of("W52:nan")
    assert b'"args": {"path": "a", "path": "b"}' in body_of("W52:duplicate_keys", STREAM)
    assert body_of("W53").count(b'{"a":') == 10_000


@pytest.mark.slow
def test_arguments_are_wide_and_long() -> None:
    assert body_of("W53:many_keys").count(b'": 1') >= 1_000_000
    assert len(body_of("W53:long_string")) > 100_000_000


def test_parts_of_every_kind_and_several_candidates() -> None:
    kinds = [next(iter(part)) for part in parts_of("W54")]
    assert {"executableCode", "toolCall", "hologram", "functionCall"} <= set(kinds)
    assert len(json.loads(body_of("W55"))["candidates"]) == 3


def test_endless_calls_differ_unless_told_otherwise() -> None:
    def arguments(name: str) -> list[str]:
        with FakeGemini.in_thread([fault(name)]) as fake:
            replies = [httpx2.post(f"{fake.base_url}{PATH}{WHOLE}", json=BODY).json() for _ in range(5)]
        return [json.dumps(reply["candidates"][0]["content"]["parts"][0]["functionCall"]["args"]) for reply in replies]

    assert len(set(arguments("W56"))) == 5
    assert len(set(arguments("W56:same_args"))) == 1


def test_calls_in_text() -> None:
    expected = 'TOOL_CALL: wx({"city": "example", "note": ")})"})'
    assert words(events_of(fault("W57", at=7))) == words(events_of("W57")) == expected
    assert f"\n{expected}\n```" in words(events_of("W57:fenced"))
    assert len(words([json.loads(body_of("W58"))])) > 1_000_000


def test_an_odd_part_may_come_back_unchanged_and_only_so() -> None:
    with FakeGemini.in_thread([fault("W54"), "good"]) as fake:
        url = f"{fake.base_url}{PATH}{WHOLE}"
        content = httpx2.post(url, json=BODY).json()["candidates"][0]["content"]
        answered = {"role": "user", "parts": [{"functionResponse": {"name": "wx", "response": {"result": 4}}}]}
        changed = content | {"parts": [part | {"depth": 4} if "hologram" in part else part for part in content["parts"]]}
        refused = httpx2.post(url, json=BODY | {"contents": [*BODY["contents"], changed, answered]})
        assert 'Unknown name "hologram"' in refused.json()["error"]["message"]
        assert httpx2.post(url, json=BODY | {"contents": [*BODY["contents"], content, answered]}).status_code == 200


# Chance ------------------------------------------------------------------------------------------------------------------


def test_chaos_is_repeatable_and_ends() -> None:
    script: list[Any] = ["a", calls(("wx", {})), "b"] * 4
    strewn = chaos(script, 7)
    assert strewn == chaos(script, 7)
    assert strewn != chaos(script, 8)
    assert [item for item in strewn if not isinstance(item, FaultStep)] == script
    assert chaos(script, 7, on=0.0) == script
    every = chaos(script, 1, on=1.0, fires=1.0)
    assert {item.fault.row for item in every if isinstance(item, FaultStep)} == set(CHAOS_ROWS)
    assert all(item.times for item in every if isinstance(item, FaultStep))


# TLS ---------------------------------------------------------------------------------------------------------------------


def test_a_server_with_a_certificate_of_its_own_is_not_trusted(tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    start = datetime.now(UTC) - timedelta(days=1)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    certificate = made.not_valid_before(start).not_valid_after(start + timedelta(days=2)).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = tmp_path / "server.pem"
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(secret + certificate.public_bytes(pem))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    with FakeGemini.in_thread(["hello"], tls=tls) as fake:
        assert fake.base_url.startswith("https://")
        with pytest.raises(httpx2.ConnectError):
            httpx2.post(f"{fake.base_url}{PATH}{WHOLE}", json=BODY)
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        assert httpx2.post(f"{fake.base_url}{PATH}{WHOLE}", json=BODY, verify=trusting).status_code == 200
