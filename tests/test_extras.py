"""Each extra in an environment of its own: the wheel and what it asks for, nothing else, and one real use."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FAKE = """
import asyncio, sys
from callgate import Gate, GeminiModel
from callgate.gemini.surface import GoogleTokens, Surface
from callgate.testing.fake_gemini import FakeGemini

async def ask(fake, **surface):
    surface = {"kind": "developer", "version": "v1beta", "api_key": "k"} | surface
    print((await Gate(GeminiModel("m", surface=Surface(base_url=fake.base_url, **surface))).run("Go.")).text)
"""
ASK = (
    FAKE
    + """
async def main():
    async with FakeGemini(["Hello."]) as fake:
        await ask(fake)
asyncio.run(main())
"""
)
CLI = """
import os, subprocess, sys
env = {**os.environ, "CALLGATE_PROVIDER": "demo"}
command = [sys.executable, "-I", "-m", "callgate", "chat", "-p", "What is 20 + 22?"]
said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
assert said.returncode == 0 and "42" in said.stdout, said
print("Hello.")
"""
FILES = """
import asyncio, pathlib, sys
from callgate import FileTools, Gate
from callgate.testing import ScriptedModel, call

async def main():
    pathlib.Path("note.txt").write_text("Hello.")
    model = ScriptedModel([call("read_file", path="note.txt"), "Done."])
    reply = await Gate(model, [FileTools(".")]).run("Go.")
    assert "Hello." in str(reply.calls[0].result.value), reply
    print("Hello.")
asyncio.run(main())
"""
MCP = """
import asyncio, pathlib, sys
from callgate import Gate, McpServer
from callgate.testing import ScriptedModel, call

SERVER = '''
import asyncio
from callgate import Policy, tool
from callgate.mcp.pipes import serve_pipes
from callgate.mcp.serve import ToolServer

@tool(read_only=True)
def greet(name: str) -> str:
    "Greet somebody."
    return f"Hello, {name}."

asyncio.run(serve_pipes(ToolServer.of([greet], policy=Policy(default="allow"))))
'''

async def main():
    pathlib.Path("server.py").write_text(SERVER)
    server = McpServer("own", command=[sys.executable, "-I", "server.py"], trust=True, start_s=120)
    async with Gate(ScriptedModel([call("greet", name="Ada"), "Done."]), [server]) as gate:
        reply = await gate.run("Go.")
    assert "Hello, Ada." in str(reply.calls[0].result.value), reply
    print("Hello.")
asyncio.run(main())
"""
SERVER = """
import asyncio, socket
import httpx2, uvicorn
from callgate import Gate
from callgate.server.app import create_app
from callgate.server.service import Service
from callgate.testing import ScriptedModel

async def main():
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(Service(Gate(ScriptedModel(["Hello."]))))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="error"))
    serving = asyncio.create_task(server.serve([listening]))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1/chat"
    async with httpx2.AsyncClient(timeout=120, trust_env=False) as http:
        answer = await http.post(url, json={"prompt": "Go."})
    server.should_exit = True
    await serving
    assert answer.status_code == 200 and "Hello." in answer.text, answer.text
    print("Hello.")
asyncio.run(main())
"""
VERTEX = (
    FAKE
    + """
from google.oauth2.credentials import Credentials

async def token(reader, writer):
    # Google's own client fetches a token here and shows it to the model.
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\\r\\n")[0])
    assert b"refresh_token=r" in await reader.readexactly(size)
    body = b'{"access_token": "token-of-google", "expires_in": 3600, "token_type": "Bearer"}'
    head = "HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n"
    writer.write((head % len(body)).encode() + body)
    await writer.drain()
    writer.close()

async def main():
    async with await asyncio.start_server(token, "127.0.0.1", 0) as server, FakeGemini(["Hello."]) as fake:
        uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
        found = Credentials(None, refresh_token="r", token_uri=uri, client_id="c", client_secret="s")
        surface = {"kind": "vertex", "version": "v1", "api_key": None, "project": "p", "location": "global"}
        await ask(fake, **surface, tokens=GoogleTokens(found))
        assert fake.requests[-1].headers["authorization"] == "Bearer token-of-google", fake.requests[-1].headers
asyncio.run(main())
"""
)
POSTGRES = """
import asyncio, sys
from callgate import Gate
from callgate.store import open_store
from callgate.testing import ScriptedModel

async def main():
    async with Gate(ScriptedModel(["Hello.", "Hello again."]), store=open_store(sys.argv[1])) as gate:
        await gate.run("Go.", session="extras")
    async with Gate(ScriptedModel(["Hello."]), store=open_store(sys.argv[1])) as gate:
        assert len((await gate.run("And?", session="extras")).contents) == 4
    print("Hello.")
asyncio.run(main())
"""
OTEL = (
    FAKE
    + """
import contextlib
from opentelemetry import trace

class Tracer(trace.Tracer):
    def start_span(self, *given, **more):
        return trace.NonRecordingSpan(trace.SpanContext(1 << 100, 1 << 50, False, trace.TraceFlags(1)))

    @contextlib.contextmanager
    def start_as_current_span(self, *given, **more):
        with trace.use_span(self.start_span()) as span:
            yield span

class Provider(trace.TracerProvider):
    def get_tracer(self, *given, **more):
        return Tracer()

trace.set_tracer_provider(Provider())

async def main():
    async with FakeGemini(["Hello."]) as fake:
        await ask(fake)
        assert format(1 << 100, "032x") in fake.requests[-1].headers["traceparent"], fake.requests[-1].headers
asyncio.run(main())
"""
)
LOCAL = """
import xllamacpp
from callgate.embedded.weights import FilesMissingError
from callgate.models.embedded import EmbeddedModel

xllamacpp.CommonParams()  # Its library can be loaded.
try:
    EmbeddedModel().load()
except FilesMissingError as error:
    assert "callgate model fetch" in str(error) or "pip" in str(error), error
print("Hello.")
"""
SOCKS = (
    FAKE
    + """
import os

async def proxy(reader, writer):
    async def copy(source, target):
        while data := await source.read(65536):
            target.write(data)
        target.close()
    _, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    writer.write(b"\\x05\\x00")
    assert (await reader.readexactly(4))[3] == 1
    host = ".".join(map(str, await reader.readexactly(4)))
    there, back = await asyncio.open_connection(host, int.from_bytes(await reader.readexactly(2), "big"))
    writer.write(b"\\x05\\x00\\x00\\x01" + bytes(6))
    seen.append(host)
    await asyncio.gather(copy(reader, back), copy(there, writer))

seen = []
async def main():
    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server, FakeGemini(["Hello."]) as fake:
        os.environ["ALL_PROXY"] = f"socks5://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await ask(fake)
        assert seen == ["127.0.0.1"], seen
asyncio.run(main())
"""
)
KEYRING = """
import keyring
from keyring.backend import KeyringBackend
from callgate.mcp.tokens import TokenFile

class Box(KeyringBackend):
    priority = 5
    held = {}
    def get_password(self, service, username):
        return self.held.get((service, username))
    def set_password(self, service, username, password):
        self.held[service, username] = password
    def delete_password(self, service, username):
        del self.held[service, username]

keyring.set_keyring(Box())
tokens = TokenFile("tokens.json")
tokens.update("https://a.example/mcp", tokens={"access_token": "Hello."})
assert len(Box.held) == 1 and "Hello." not in open("tokens.json").read()
print(TokenFile("tokens.json").read("https://a.example/mcp")["tokens"]["access_token"])
"""
USES = {
    "": ASK, "cli": CLI, "files": FILES, "mcp": MCP, "server": SERVER, "vertex": VERTEX, "postgres": POSTGRES, "otel": OTEL,
    "local": LOCAL, "socks": SOCKS, "keyring": KEYRING, "all": CLI,
}  # fmt: skip
"""A real use of each extra, which ends with a greeting."""
DEV_ONLY = ("pytest", "hypothesis", "google.genai", "openai", "ruff", "numpy", "uvloop")
"""Packages of the dev group that no extra brings: what works only with them does not work."""


def run(*command: object, cwd: object = "/", timeout: float = 600) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, cwd=str(cwd))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
@pytest.mark.parametrize("extra", USES)
def test_an_extra_works_with_nothing_but_what_it_asks_for(
    extra: str, wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    more = [request.getfixturevalue("postgres_url")] if extra == "postgres" else []
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    wanted = f"callgate[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    installed = run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)
    if installed.returncode:
        last = (installed.stderr.strip().splitlines() or ["no reason was given"])[-1]
        sentence = f"callgate[{extra}] cannot be installed here ({last[:200]}); it was not tested"
        if os.environ.get("CALLGATE_REQUIRE_ALL") == "1":
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)
    absent = (
        "import importlib.util as u, sys\n"
        "def has(name):\n"
        "    try: return u.find_spec(name) is not None\n"
        "    except ModuleNotFoundError: return False\n"
        f"sys.exit(', '.join(name for name in {DEV_ONLY!r} if has(name)) or 0)"
    )
    there = run(python, "-I", "-c", absent)
    unexpected = there.stderr.strip()
    # xllamacpp and mcp may bring numpy or the like along; what is asked for must not be missing, so only strangers count.
    assert not (set(unexpected.split(", ")) & {"pytest", "hypothesis", "google.genai", "ruff", "uvloop"}), unexpected
    (tmp_path / "use.py").write_text(USES[extra])
    used = run(python, "-I", "use.py", *more, cwd=tmp_path)
    assert used.returncode == 0, used.stderr[-3_000:]
    assert used.stdout.strip().endswith("Hello."), used.stdout
