"""Logging in at a server: an authorization server on this machine, a browser that is a thread, and tokens in a file."""

from __future__ import annotations

import asyncio
import importlib.machinery
import importlib.util
import json
import os
import socket
import stat
import sys
import threading
import time
import types
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from callgate import McpServer, UsageError
from callgate.mcp import Host, OAuthClient, oauth, oauth_callback, read_servers
from callgate.mcp.tokens import TokenFile, default_place
from callgate.types import ToolContext


def _oauth_server() -> ModuleType:
    path = Path(__file__).with_name("oauth_server.py")
    spec = importlib.util.spec_from_file_location("oauth_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


authority_module = _oauth_server()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "callgate" / "mcp-tokens.json"


@pytest.fixture
def authority() -> Iterator[Any]:
    made = authority_module.Authority()
    with authority_module.serving(made) as made.url:
        yield made


class Browser:
    """Opens every page that it is sent to, in a thread of its own."""

    def __init__(self) -> None:
        self.visits: list[str] = []
        self.pages: list[bytes] = []
        self._threads: list[threading.Thread] = []

    async def __call__(self, server: str, url: str) -> None:
        self.visits.append(server)
        thread = threading.Thread(target=self._visit, args=[url])
        thread.start()
        self._threads.append(thread)

    def _visit(self, url: str) -> None:
        with urllib.request.urlopen(url) as page:
            self.pages.append(page.read())

    def close(self) -> None:
        for thread in self._threads:
            thread.join()


def outcome(url: str, host: Host | None = None, **more: Any) -> str:
    """What a call gives, or why the server is not there."""

    async def story() -> str:
        box = McpServer("web", url=url, host=host, **more)
        await box.start(story)
        try:
            if box.problem is not None:
                return box.problem
            return str(await box.call("secret", {}, ToolContext(call_id="1", name="secret")))
        finally:
            await box.aclose(story)

    before = open_files()
    said = asyncio.run(asyncio.wait_for(story(), 300))
    # The server lives in this process too, and lets go of its end a little later.
    deadline = time.monotonic() + 60
    while open_files() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_files() <= before
    return said


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


LET_IN = "{'result': 'the cake is real'}"
NEEDS_LOGIN = (
    "it requires a login, and there is no one to ask here: log in once with `callgate mcp login FILE web` at a terminal, or "
    "give it a token in headers"
)


def test_where_nobody_can_be_asked_nobody_is_registered_and_the_sentence_says_what_to_do(authority: Any, state: Path):
    assert outcome(authority.url) == NEEDS_LOGIN
    assert (authority.log, state.exists()) == ([], False)


def test_a_person_logs_in_once_and_the_token_is_used_from_then_on(authority: Any, state: Path):
    browser = Browser()
    assert outcome(authority.url, Host(login=browser)) == LET_IN
    browser.close()
    assert browser.visits == ["web"]
    assert b"You are logged in" in browser.pages[0]
    assert authority.log == [
        "GET /.well-known/oauth-protected-resource/mcp", "GET /.well-known/oauth-authorization-server", "POST /register",
        "GET /authorize", "POST /token authorization_code",
    ]  # fmt: skip
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.parent.stat().st_mode) == 0o700
    authority.log.clear()
    assert outcome(authority.url, Host(login=browser)) == LET_IN  # Nobody is asked again,
    assert outcome(authority.url) == LET_IN  # and nobody needs to be there.
    assert (authority.log, browser.visits) == ([], ["web"])


def test_a_token_that_has_run_out_is_renewed_in_another_process_too(authority: Any, state: Path):
    browser = Browser()
    assert outcome(authority.url, Host(login=browser)) == LET_IN
    browser.close()
    TokenFile().update(authority.url, expires_at=1.5)
    authority.access.clear()
    authority.log.clear()
    assert outcome(authority.url) == LET_IN
    assert authority.log == ["POST /token refresh_token"]


def test_a_token_that_was_taken_back_is_renewed_before_anybody_is_asked(authority: Any):
    browser = Browser()
    assert outcome(authority.url, Host(login=browser)) == LET_IN
    browser.close()
    authority.access.clear()
    authority.log.clear()

    async def story() -> str:
        box = McpServer("web", url=authority.url)
        await box.start(story)
        try:
            return str(await box.call("secret", {}, ToolContext(call_id="1", name="secret")))
        finally:
            await box.aclose(story)

    assert asyncio.run(asyncio.wait_for(story(), 300)) == LET_IN
    assert "POST /token refresh_token" in authority.log
    assert "POST /register" not in authority.log


def test_when_nothing_can_be_renewed_a_person_must_log_in_again(authority: Any):
    browser = Browser()
    assert outcome(authority.url, Host(login=browser)) == LET_IN
    TokenFile().update(authority.url, expires_at=1.5)
    authority.access.clear()
    authority.refresh.clear()
    refused = outcome(authority.url)
    assert refused in (NEEDS_LOGIN, "its token was refused and is being renewed")
    assert outcome(authority.url) == NEEDS_LOGIN
    assert outcome(authority.url, Host(login=browser)) == LET_IN
    browser.close()
    assert browser.visits == ["web", "web"]
    assert len(authority.clients) == 1  # The address that was registered is used again.


def test_a_login_that_is_refused_is_said_and_nobody_is_asked_twice(authority: Any):
    authority.refuses_login = True
    browser = Browser()
    assert outcome(authority.url, Host(login=browser)) == "the login was refused: access_denied not today"
    browser.close()
    assert browser.visits == ["web"]
    assert b"refused" in browser.pages[0]


def test_a_person_who_does_not_come_is_not_waited_for_for_ever(authority: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(oauth, "LOGIN_S", 0.2)

    async def nobody(server: str, url: str) -> None:
        pass

    assert outcome(authority.url, Host(login=nobody)) == "the login was not completed within 0.2 s"


@pytest.mark.slow
def test_the_time_that_a_person_takes_is_not_the_servers(authority: Any):
    browser = Browser()

    async def slow(server: str, url: str) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(10.5, lambda: loop.create_task(browser(server, url)))

    assert outcome(authority.url, Host(login=slow), start_s=10) == LET_IN
    browser.close()


def test_the_callback_listens_before_the_browser_is_opened(authority: Any):
    browser = Browser()

    async def at_once(server: str, url: str) -> None:
        # Without an await before, as a browser that is logged in comes back while `webbrowser.open` still blocks.
        redirect = urlsplit(dict(parse_qsl(urlsplit(url).query))["redirect_uri"])
        socket.create_connection((redirect.hostname, redirect.port), timeout=60).close()
        await browser(server, url)

    assert outcome(authority.url, Host(login=at_once)) == LET_IN
    browser.close()


def test_a_callback_port_that_another_program_took_is_reported_and_nobody_is_sent_away(
    authority: Any, monkeypatch: pytest.MonkeyPatch
):
    # Two programs may bind the same port as long as none of them listens; the first to listen has it.
    browser, other = Browser(), oauth_callback.bound_socket()
    assert other is not None

    def bound_first(port: int | None = None) -> socket.socket | None:
        sock = oauth_callback.bound_socket(port)
        other.listen()
        return sock

    here = f"http://127.0.0.1:{other.getsockname()[1]}/callback"
    TokenFile().update(authority.url, client={"client_id": "x", "redirect_uris": [here]})
    monkeypatch.setattr(oauth, "bound_socket", bound_first)
    assert "the port for a login is taken" in outcome(authority.url, Host(login=browser), transport="http")
    assert browser.visits == []
    # The next attempt finds the port taken, and registers another one.
    assert outcome(authority.url, Host(login=browser)) == LET_IN
    other.close()
    browser.close()


def test_a_token_in_the_headers_needs_no_login(authority: Any):
    authority.access["mine"] = 1e12
    assert outcome(authority.url, headers={"authorization": "Bearer mine"}) == LET_IN
    assert authority.log == []


def test_a_port_that_is_taken_leads_to_another_registration(authority: Any):
    browser = Browser()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        here = f"http://127.0.0.1:{other.getsockname()[1]}/callback"
        TokenFile().update(authority.url, client={"client_id": "x", "redirect_uris": [here]})
        assert outcome(authority.url, Host(login=browser)) == LET_IN
    browser.close()
    assert len(authority.clients) == 1
    assert TokenFile().forget(authority.url)
    assert not TokenFile().forget(authority.url)


def test_a_file_of_tokens_that_cannot_be_read_harms_only_those_who_need_it(authority: Any, state: Path):
    state.parent.mkdir()
    state.write_text("no json")
    assert "delete it and log in again" in outcome(authority.url)
    authority.access["mine"] = 1e12
    assert outcome(authority.url, headers={"authorization": "Bearer mine"}) == LET_IN


def test_what_is_kept_and_makes_no_sense_is_fetched_anew(authority: Any):
    TokenFile().update(authority.url, tokens={"access": 1}, client={"no": "id"}, metadata={}, resource=[])
    browser = Browser()
    assert outcome(authority.url, Host(login=browser)) == LET_IN
    browser.close()
    assert browser.visits == ["web"]


# The file ----------------------------------------------------------------------------------------------------------------


def test_a_file_of_tokens_that_others_may_read_is_closed_again(state: Path):
    TokenFile().update("https://a.example/mcp", tokens={"access_token": "x"})
    state.chmod(0o644)
    assert TokenFile().read("https://me:pw@a.example/mcp#x") == {"tokens": {"access_token": "x"}}
    assert stat.S_IMODE(state.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["no json", "{", "\x00"])
def test_a_file_that_holds_no_tokens_is_said(state: Path, text: str):
    state.parent.mkdir()
    state.write_text(text)
    with pytest.raises(UsageError, match="delete it and log in again"):
        TokenFile().read("https://a.example/mcp")


def test_a_link_or_a_folder_in_place_of_the_file_is_not_followed(state: Path, tmp_path: Path):
    state.parent.mkdir()
    state.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="cannot be read"):
        TokenFile().read("https://a.example/mcp")
    state.unlink()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be kept"):
        TokenFile(tmp_path / "file" / "below" / "tokens.json").update("https://a.example/mcp", tokens={})


def test_many_writers_lose_nothing(state: Path):
    threads = [
        threading.Thread(target=TokenFile().update, args=[f"https://{n}.example/"], kwargs={"tokens": {"n": n}})
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads(state.read_bytes())["servers"]) == 16


def test_the_place_of_the_file_follows_the_environment(tmp_path: Path):
    assert default_place({"XDG_STATE_HOME": "/s"}) == Path("/s/callgate/mcp-tokens.json")
    assert default_place({"XDG_STATE_HOME": "not/absolute"}) == Path.home() / ".local/state/callgate/mcp-tokens.json"


# The page that a browser comes back to -----------------------------------------------------------------------------------


def test_only_the_visitor_who_knows_the_state_is_heard():
    async def visit(port: int, line: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(line + b"\r\n\r\n")
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    async def story() -> tuple[list[bytes], dict[str, str]]:
        sock = oauth_callback.bound_socket()
        assert sock is not None
        port = sock.getsockname()[1]
        waiting = oauth_callback.expect_redirect(sock, "s1")
        lines = [
            b"GET /callback?state=wrong&code=1 HTTP/1.1", b"POST /callback?state=s1&code=2 HTTP/1.1",
            b"GET /elsewhere?state=s1&code=3 HTTP/1.1", b"nonsense", b"GET " + b"x" * 20_000, b"",
            b"GET /callback?state=s1&code=7&iss=me HTTP/1.1",
        ]  # fmt: skip
        answers = [(await visit(port, line))[:12] for line in lines]
        return answers, await waiting

    answers, told = asyncio.run(asyncio.wait_for(story(), 30))
    assert answers[-1] == b"HTTP/1.1 200"
    assert all(not answer or answer == b"HTTP/1.1 404" for answer in answers[:-1])
    assert told == {"state": "s1", "code": "7", "iss": "me"}


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
def test_a_client_that_was_registered_beforehand_logs_in_with_its_secret_and_scopes(method: str, tmp_path: Path):
    secret = "" if method == "none" else "s3cret: of client"
    made = authority_module.Authority(secrets_of={"me": secret.replace(":", "%3A").replace(" ", "%20")}, methods=(method,))
    if method != "client_secret_basic":  # Only there it is quoted.
        made.secrets_of = {"me": secret}
    with authority_module.serving(made) as url:
        row = {"url": url, "oauth": {"clientId": "me", "scopes": ["read", "write"]}}
        if secret:
            row["oauth"]["clientSecret"] = "$MY_SECRET"
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {"web": row}}))
        browser = Browser()
        read = read_servers(file, {"MY_SECRET": secret})
        (settings,) = (server._oauth for server in read.servers)
        assert (outcome(url, Host(login=browser), oauth=settings), read.warnings) == (LET_IN, [])
        browser.close()
        assert (made.scopes, "POST /register" in made.log) == (["read write"], False)
        assert outcome(url, oauth=settings) == LET_IN  # The token is kept,
        assert outcome(url, oauth=OAuthClient(client_id="other")).startswith("it requires a login")  # for this client.


def test_a_client_may_log_in_for_itself_where_nobody_can_be_asked():
    made = authority_module.Authority(secrets_of={"robot": "s3cret"}, methods=("client_secret_basic",))
    with authority_module.serving(made) as url:
        robot = OAuthClient(client_id="robot", client_secret="s3cret", grant="client_credentials", issuer=made.base)
        assert outcome(url, oauth=robot) == LET_IN
        assert made.log[-1] == "POST /token client_credentials"


def test_a_secret_is_sent_to_no_other_authorization_server_than_its_own():
    made = authority_module.Authority(secrets_of={"robot": "s3cret"}, methods=("client_secret_basic",))
    with authority_module.serving(made) as url:
        issuer = "https://login.example"
        robot = OAuthClient(client_id="robot", client_secret="s3cret", grant="client_credentials", issuer=issuer)
        assert LET_IN not in outcome(url, oauth=robot)
        assert [line for line in made.log if "token" in line] == []


def test_a_server_at_which_no_client_can_register_says_what_to_do():
    made = authority_module.Authority(secrets_of={})
    with authority_module.serving(made) as url:
        said = outcome(url, Host(login=Browser()))
    assert said == (
        "it requires a login, and does not let clients register themselves: get a client id from its operator, and add "
        'it to the entry of \'web\' as "oauth": {"clientId": "..."}, with "clientSecret" if there is one'
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"client_secret": "x"}, "needs a client_id"),
        ({"client_id": "a", "grant": "client_credentials"}, "either a client_secret or a private_key"),
        ({"client_id": "a", "private_key": "x"}, "for the grant client_credentials"),
        ({"client_id": "a", "grant": "password"}, "the grant 'password' is not known"),
        ({"client_id": "a", "callback_port": 0}, "0 is not a port"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        OAuthClient(**fields)


# A keyring ---------------------------------------------------------------------------------------------------------------


class Keyring:
    """A keyring with the functions of the package of that name."""

    priority = 5.0

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], str] = {}
        self.problem: Exception | None = None

    def get_password(self, service: str, name: str) -> str | None:
        if self.problem:
            raise self.problem
        return self.held.get((service, name))

    def set_password(self, service: str, name: str, password: str) -> None:
        if self.problem:
            raise self.problem
        self.held[service, name] = password

    def delete_password(self, service: str, name: str) -> None:
        del self.held[service, name]


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch, state: Path) -> Keyring:
    box = Keyring()
    module = types.ModuleType("keyring")
    module.__spec__ = importlib.machinery.ModuleSpec("keyring", None)
    module.get_keyring = lambda: box  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "keyring", module)
    return box


def test_a_login_is_kept_in_the_keyring_and_the_file_has_the_address_only(keyring: Keyring, state: Path):
    TokenFile().update("https://a.example/mcp", tokens={"access_token": "hush"})
    TokenFile().update("https://me:pw@a.example/mcp", expires_at=5)
    assert TokenFile().read("https://a.example/mcp") == {"tokens": {"access_token": "hush"}, "expires_at": 5}
    assert list(keyring.held) == [("callgate mcp", "https://a.example/mcp")]
    assert json.loads(state.read_text())["servers"] == {"https://a.example/mcp": {"keyring": True}}
    assert TokenFile().forget("https://a.example/mcp")
    assert (keyring.held, TokenFile().read("https://a.example/mcp")) == ({}, {})


def test_a_login_of_the_file_moves_to_the_keyring_with_its_next_change(
    keyring: Keyring, state: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as before:
        before.setattr(keyring, "priority", 0.5)  # A plain file of the package's, which is no better than ours.
        TokenFile().update("https://a.example/mcp", tokens={"access_token": "hush"})
    assert b"hush" in state.read_bytes()
    assert TokenFile().read("https://a.example/mcp") == {"tokens": {"access_token": "hush"}}
    TokenFile().update("https://a.example/mcp", expires_at=5)
    assert b"hush" not in state.read_bytes()
    assert TokenFile().read("https://a.example/mcp") == {"tokens": {"access_token": "hush"}, "expires_at": 5}


def test_a_keyring_that_takes_nothing_costs_no_login(keyring: Keyring, state: Path, caplog: pytest.LogCaptureFixture):
    keyring.problem = RuntimeError("locked")
    TokenFile().update("https://a.example/mcp", tokens={"access_token": "hush"})
    assert TokenFile().read("https://a.example/mcp") == {"tokens": {"access_token": "hush"}}
    assert "the keyring does not take a login" in caplog.text


def test_a_keyring_that_is_locked_or_gone_is_a_sentence(keyring: Keyring, monkeypatch: pytest.MonkeyPatch):
    TokenFile().update("https://a.example/mcp", tokens={"access_token": "hush"})
    keyring.problem = RuntimeError("locked")
    with pytest.raises(UsageError, match="the keyring cannot be read: locked"):
        TokenFile().read("https://a.example/mcp")
    monkeypatch.setattr(keyring, "priority", 0)
    with pytest.raises(UsageError, match="is kept in the keyring of the system, which is not there"):
        TokenFile().read("https://a.example/mcp")


def test_a_package_that_finds_no_keyring_is_no_error(keyring: Keyring, state: Path, monkeypatch: pytest.MonkeyPatch):
    def none() -> None:
        raise RuntimeError("no backend")

    monkeypatch.setattr(sys.modules["keyring"], "get_keyring", none)
    TokenFile().update("https://a.example/mcp", tokens={"access_token": "hush"})
    assert b"hush" in state.read_bytes()
