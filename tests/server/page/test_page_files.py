"""The files of the page as they are sent: what kind, how long they keep, and what they forbid the browser."""

from __future__ import annotations

import asyncio
import gzip
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from callgate.errors import CallgateError
from callgate.server import page
from callgate.server.errors import response_to

STATIC = Path(page.__file__).parent / "static"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src blob:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


async def _told(request: Request, error: Exception) -> Response:
    response = response_to(error, request.scope)
    assert response is not None
    return response


def get(path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request to the page's routes."""
    app = Starlette(routes=page.routes(None), exception_handlers={CallgateError: _told})  # pyright: ignore
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": raw,
        "root_path": "", "scheme": "http", "server": ("127.0.0.1", 80), "http_version": "1.1",
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])


def test_the_page_is_sent_with_a_policy_that_lets_nothing_in() -> None:
    status, headers, body = get("/")
    assert status == 200
    assert body == (STATIC / "index.html").read_bytes()
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"] == CSP
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_every_file_is_sent_as_what_it_is(path: Path) -> None:
    kinds = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
             ".html": "text/html; charset=utf-8"}  # fmt: skip
    status, headers, body = get(f"/static/{path.name}")
    assert (status, headers["content-type"], body) == (200, kinds[path.suffix], path.read_bytes())
    assert headers["content-security-policy"] == CSP


@pytest.mark.parametrize(
    ("accepted", "zipped"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("deflate, *", True), ("", False), ("br", False), ("gzip;q=0", False),
     ("gzip; q=0.000, br", False), ("identity", False)],
)  # fmt: skip
def test_a_file_is_compressed_for_those_who_say_that_they_read_it(accepted: str, zipped: bool) -> None:
    status, headers, body = get("/static/app.js", accept_encoding=accepted)
    assert (status, headers.get("content-encoding"), headers["vary"]) == (200, "gzip" if zipped else None, "Accept-Encoding")
    assert (gzip.decompress(body) if zipped else body) == (STATIC / "app.js").read_bytes()
    assert int(headers["content-length"]) == len(body)
    assert get("/static/app.js", accept_encoding=accepted, if_none_match=headers["etag"])[0] == 304


def test_the_whole_page_weighs_less_than_200_kilobytes() -> None:
    assert sum(len(get(f"/static/{path.name}", accept_encoding="gzip")[2]) for path in STATIC.iterdir()) < 200_000


def test_the_page_is_one_script_one_style_and_what_asks_early_and_no_file_is_left_out() -> None:
    index = (STATIC / "index.html").read_text("utf-8")
    named = re.findall(r'(?:<script[^>]* src|rel="stylesheet" href)="/static/([\w.]+)"', index)
    assert named == ["early.js", "bundle.css", "bundle.js"]
    script, style = (get(f"/static/bundle.{kind}")[2].decode() for kind in ("js", "css"))
    wrapped = re.findall(r"^const \$\$(\w+) =", script, re.MULTILINE)
    assert sorted([*wrapped, "app", "early"]) == sorted(path.stem for path in STATIC.glob("*.js"))
    assert all(path.read_text("utf-8") in style for path in STATIC.glob("*.css"))
    assert "import" not in re.findall(r"^\w+", script, re.MULTILINE)


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    _, headers, _ = get("/static/app.js")
    tag = headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        status, again, body = get("/static/app.js", if_none_match=known)
        assert (status, again["etag"], body) == (304, tag, b"")
    assert get("/static/app.js", if_none_match='"other"')[0] == 200
    assert get("/", method="HEAD")[0] == 200


@pytest.mark.parametrize("name", ["nothing.js", "..", "%2e%2e", "../page.py", "a/b.js", "__init__.py", ".", "\0"])
def test_what_the_package_does_not_ship_is_not_found(name: str) -> None:
    assert get(f"/static/{name}")[0] == 404


def test_nothing_in_the_files_needs_another_origin_or_inline_code() -> None:
    for path in STATIC.iterdir():
        text = path.read_text("utf-8")
        known = ("http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML")
        addresses = [found for found in re.findall(r"https?://[\w.]+[^\s\"'`)\\]*", text) if found not in known]
        assert addresses == [], path.name
        makes_code = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
        assert not re.search(makes_code, text), path.name
    index = (STATIC / "index.html").read_text("utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", index)


def test_modules_import_only_what_is_there_and_every_file_is_used() -> None:
    files = {path.name: path.read_text("utf-8") for path in STATIC.iterdir()}
    used = set(re.findall(r'(?:src|href)="/static/([\w.]+)"', files["index.html"])) - {"bundle.js", "bundle.css"}
    used |= {page.ENTRY, *page.STYLES}
    for name, text in files.items():
        if name.endswith(".js"):
            imported = set(re.findall(r'from "\./([\w.]+)"', text))
            assert imported <= set(files), name
            used |= imported
    assert used | {"index.html"} == set(files)


def test_every_name_that_a_module_imports_is_exported_and_used() -> None:
    files = {path.name: path.read_text("utf-8") for path in STATIC.glob("*.js")}
    for name, text in files.items():
        for names, source in re.findall(r'import \{([^}]+)\} from "\./([\w.]+)"', text):
            for one in filter(None, (each.strip() for each in names.split(","))):
                assert re.search(rf"export (?:async )?(?:function|class|const|let) {one}\b", files[source]), (name, one)
                assert len(re.findall(rf"\b{one}\b", text)) > 1, f"{name} imports {one} and does not use it"


@pytest.mark.slow
def test_the_wheel_ships_the_files(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    root = Path(__file__).resolve().parents[3]
    (built,) = WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        shipped = {name.rpartition("/")[2] for name in wheel.namelist() if "callgate/server/static/" in name}
    assert shipped == {path.name for path in STATIC.iterdir()}
