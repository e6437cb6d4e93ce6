"""llama.cpp in a process of its own: one for each model, shared by everything in this program.

Prompts, grammars and whole chat requests go in; text as it is made comes out. The engine listens on a socket in a folder
that only its owner can enter (on Windows on a port of this machine), and answers only to a secret made for it. Requests are
answered one after another, in the order in which they came. A caller that goes away stops the work within one batch of the
prompt or one token of the answer. This file knows nothing of tools and conversations.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import math
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from callgate.embedded.decoder import Step
from callgate.embedded.states import States
from callgate.embedded.weights import Files, check_memory
from callgate.errors import (
    ConnectionLostError,
    InvalidRequestError,
    LimitExceededError,
    ModelError,
    RateLimitedError,
    UsageError,
)

if TYPE_CHECKING:
    import httpx2

__all__ = ["Engine", "EngineSettings", "close_engines", "on_loop", "shared_engine", "until"]

logger = logging.getLogger("callgate.embedded")

LOAD_WAIT_S = 120.0
SILENCE_S = 600.0
"""The idle time-out of an engine, which covers queueing and the reading of a long prompt."""
WAITING_MAX = 32
"""Requests that may wait for their turn."""
BATCH = 128
LIKELIEST = 120
"""Tokens that a step names, the likeliest ones."""
HOST = [sys.executable, "-m", "callgate.embedded.server_process"]
"""The script that is started: the other end of the pipe."""
LOG_LINE_CHARS_MAX = 2_000


def usable_cores() -> int:
    """Processors that this program may run on."""
    try:
        return max(len(os.sched_getaffinity(0)), 1)
    except AttributeError:  # Not on every system.
        return os.cpu_count() or 1


def idle_cores() -> int:
    """Processors to compute with: all on an idle machine, half of them beside other work.

    The threads of a model wait for one another after each layer. Where another program holds one of the processors, all of
    them wait for it, and a token takes ten times as long as it would on a single processor.
    """
    cores = usable_cores()
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # Not on every system.
        return cores
    return cores if load < cores else max(cores // 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The key of an engine: different values need different engines."""

    files: Files
    context: int
    threads: int = 0
    """0 means one for each processor that may be used, fewer where the machine is busy."""


class Engine:
    """A running model. Get one from `shared_engine`.

    It starts with the first request, or with `start`, and ends with the program. May be used from several threads and event
    loops at once.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: str | None = None
        self._secret = ""
        self._address = ""
        self._turns: list[Future[None]] = []
        """The answer that is being made, and those that wait."""
        self._states = States(settings.files)
        self._keeps = False
        self._begun: str | None = None
        """The text that the newest prompt began with, as far as known."""

    @property
    def pid(self) -> int | None:
        """The number of the process, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    # The process -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the model, unless it is loaded; blocks until it can answer.

        Raises:
            UsageError: a file is missing or broken, there is too little memory, or xllamacpp is not installed.
        """
        with self._lock:
            if self.pid is None:
                self._close()
                check_memory(self.settings.files, self.settings.context)
                self._open()

    def _open(self) -> None:
        self._secret, self._address = secrets.token_urlsafe(32), ""
        self._folder = tempfile.mkdtemp(prefix="callgate-")
        states = self._states.prepare()
        self._keeps, self._begun = states is not None, None
        host = "127.0.0.1" if sys.platform == "win32" else os.path.join(self._folder, "s.sock")
        settings = {
            "model": self.settings.files.base,
            "adapter": self.settings.files.adapter,
            "context": self.settings.context,
            "threads": self.settings.threads or idle_cores(),
            "batch": BATCH,
            "verbosity": 3 if logger.isEnabledFor(logging.DEBUG) else -1,
            "host": host,
            "secret": self._secret,
            "states": states,
        }
        self._process = subprocess.Popen(
            HOST,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
        )
        threading.Thread(target=_log_lines, args=(self._process.stderr,), name="callgate-embedded-log", daemon=True).start()
        said = self._first_words(self._process, settings)
        if "address" not in said:
            self._close()
            raise UsageError(f"the embedded model does not start: {said.get('error', 'its process ended')}")
        self._address = str(said["address"])
        logger.debug("the engine listens at %s (process %s)", self._address, self._process.pid)

    def _first_words(self, process: subprocess.Popen[bytes], settings: Mapping[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(LOAD_WAIT_S, process.kill)
        late.daemon = True
        late.start()
        try:
            with contextlib.suppress(OSError):  # It may have ended, and have said why.
                process.stdin.write(json.dumps(settings).encode() + b"\n")
                process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        finally:
            late.cancel()
        try:
            return cast("dict[str, Any]", json.loads(line))
        except ValueError:
            code = process.wait()
            return {"error": f"its process ended with code {code}; the file may be broken, or memory ran out"}

    def _close(self) -> None:
        process, folder, self._process, self._folder = self._process, self._folder, None, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the process. The next request starts another one."""
        with self._lock:
            self._close()

    # Requests --------------------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Load the model without holding up the event loop."""
        # A process that another thread has just begun does not listen yet; `start` waits for it.
        if self.pid is None or not self._address:
            await asyncio.to_thread(self.start)

    async def begin_with(self, text: str) -> None:
        """Read the text that the next prompts begin with: from the disk, if this model has read it before.

        Raises:
            ModelError: the engine refuses the text or is gone.
        """
        if self._begun == text:
            return
        self._begun = text
        key = self._states.key_of(text)
        if self._keeps and (name := await asyncio.to_thread(self._states.find, key)) is not None:
            try:
                await self._whole("/slots/0?action=restore", {"filename": name})
            except ModelError as error:
                logger.debug("%s cannot be used and is read again: %s", name, error)
                self._states.drop(name)
                await self.ready()
            else:
                return
        async for _ in self.stream(
            "/v1/completions", {"prompt": text, "max_tokens": 0, "cache_prompt": True, "stream": True}
        ):
            pass
        if self._keeps:
            draft = self._states.draft()
            try:
                await self._whole("/slots/0?action=save", {"filename": draft})
            except ModelError as error:
                logger.debug("what was read is not kept: %s", error)
            else:
                await asyncio.to_thread(self._states.keep, draft, key)

    async def tokens(self, text: str) -> int:
        """The number of tokens of a text, with the markers of turns."""
        body = {"content": text, "add_special": False, "parse_special": True}
        return len((await self._whole("/tokenize", body)).get("tokens", ()))

    async def properties(self) -> dict[str, Any]:
        """The properties of the model and its chat template, from llama.cpp."""
        return await self._whole("/props", None)

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a streamed answer.

        Raises:
            RateLimitedError: too many requests wait already.
            InvalidRequestError: llama.cpp refuses the request.
            ConnectionLostError: the engine died.
        """
        import httpx2

        try:
            async with self._client() as client, client.stream("POST", path, json=dict(body)) as response:
                if response.status_code != 200:
                    raise _refusal(response.status_code, await response.aread())
                async for line in response.aiter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        yield _event(line[6:])
        except httpx2.HTTPError as error:
            raise self._lost_error(error) from error

    async def step(self, prompt: str, *, count: int = 1, grammar: str | None = None) -> Step:
        """Continue a prompt by a few tokens and return them with the likeliest first ones.

        Raises:
            InvalidRequestError: llama.cpp refuses the request.
            ConnectionLostError: the engine died.
        """
        body: dict[str, Any] = {
            "prompt": prompt, "n_predict": count, "temperature": 0, "cache_prompt": True,
            "n_probs": LIKELIEST if count == 1 else 0, "stop": ["<|im_end|>"],
        }  # fmt: skip
        if grammar is not None:
            body["grammar"] = grammar
        found = await self._whole("/completion", body)
        places: list[dict[str, Any]] = found.get("completion_probabilities") or []
        tops: list[dict[str, Any]] = places[0].get("top_logprobs") or [] if places else []
        tokens = [(bytes(top.get("bytes") or str(top["token"]).encode()), math.exp(top["logprob"])) for top in tops]
        timings: dict[str, Any] = found.get("timings") or {}
        return Step(
            str(found.get("content", "")),
            tokens,
            prompt_tokens=int(found.get("tokens_evaluated") or 0),
            cached_tokens=int(timings.get("cache_n") or 0),
            output_tokens=int(found.get("tokens_predicted") or 0),
        )

    async def _whole(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        import httpx2

        try:
            async with self._client() as client:
                response = await (client.get(path) if body is None else client.post(path, json=dict(body)))
        except httpx2.HTTPError as error:
            raise self._lost_error(error) from error
        if response.status_code != 200:
            raise _refusal(response.status_code, response.content)
        return cast("dict[str, Any]", response.json())

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Have the engine alone for one answer, which takes several requests; answers come in the order of their requests.

        Raises:
            RateLimitedError: too many requests wait already.
        """
        granted: Future[None] = Future()
        with self._lock:
            if len(self._turns) > WAITING_MAX:
                raise RateLimitedError(f"the embedded model is busy and {WAITING_MAX} requests wait for it: try again later")
            self._turns.append(granted)
            if len(self._turns) == 1:
                granted.set_result(None)
        try:
            await asyncio.wrap_future(granted)
            yield
        finally:
            with self._lock:
                is_first = self._turns[0] is granted
                self._turns.remove(granted)
                if is_first and self._turns:
                    _grant(self._turns[0])

    def _client(self) -> httpx2.AsyncClient:
        """A client of its own for each request: they may come from several event loops. It costs about a millisecond."""
        import httpx2

        unix = self._address.startswith("unix://")
        path = self._address.removeprefix("unix://") if unix else None
        transport = httpx2.AsyncHTTPTransport(verify=False, trust_env=False, uds=path)
        return httpx2.AsyncClient(
            transport=transport,
            base_url="http://engine" if unix else self._address,
            headers={"Authorization": f"Bearer {self._secret}"},
            timeout=httpx2.Timeout(SILENCE_S, connect=10.0),
            trust_env=False,
        )

    def _lost_error(self, error: Exception) -> ModelError:
        if self.pid is None:
            return ConnectionLostError(
                "the embedded model's process ended in the middle of its answer; ask again, and it starts again"
            )
        return ConnectionLostError(f"the embedded model does not answer ({type(error).__name__})", retryable=True)


def _grant(turn: Future[None]) -> None:
    # A waiting answer that was cancelled takes itself out, and lets the next one in then.
    with contextlib.suppress(InvalidStateError):
        turn.set_result(None)


def _event(text: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(text)
    if "error" in event:
        raise _error_of(cast("Mapping[str, Any]", event["error"]))
    return event


def _refusal(status: int, content: bytes) -> ModelError:
    try:
        error: Any = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        error = {"message": f"status {status}"}
    return _error_of(error)


def _error_of(error: Mapping[str, Any]) -> ModelError:
    message = str(error.get("message", "no reason given"))[:500]
    if error.get("type") == "exceed_context_size_error":
        return LimitExceededError(f"the prompt does not fit into the model's context: {message}", is_of_request=True)
    return InvalidRequestError(f"llama.cpp refused the request: {message}", status=str(error.get("type", "")))


def _environment() -> dict[str, str]:
    """The environment of the process: what this program can import it can too, and no key of anybody is in it."""
    env = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_TOKEN", "_SECRET"))}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    # Threads that spin while they wait for one another make it ten times slower on a machine with other work; threads that
    # sleep at once take three times as long for a token on an idle one. A few microseconds of spinning are right for both.
    return {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "3000"} | env


def _log_lines(stream: Any) -> None:
    with contextlib.suppress(OSError, ValueError), stream:
        for line in stream:
            logger.debug("%s", line[:LOG_LINE_CHARS_MAX].decode("utf-8", "replace").rstrip())


# Time --------------------------------------------------------------------------------------------------------------------


def on_loop(at: float) -> float | None:
    """A time of the monotonic clock on the event loop's clock."""
    return None if at == math.inf else asyncio.get_running_loop().time() + at - time.monotonic()


async def until(events: AsyncGenerator[dict[str, Any], None], at: float) -> AsyncGenerator[dict[str, Any], None]:
    """The events that come before a time of the monotonic clock.

    Raises:
        TimeoutError: there would have been more.
    """
    async with contextlib.aclosing(events):
        while True:
            async with asyncio.timeout_at(on_loop(at)):
                event = await anext(events, None)
            if event is None:
                return
            yield event


# One for all -------------------------------------------------------------------------------------------------------------

_engines: dict[EngineSettings, Engine] = {}
_engines_lock = threading.Lock()
_owner = os.getpid()


def shared_engine(settings: EngineSettings) -> Engine:
    """The engine with these settings: the same object for everybody in this program."""
    with _engines_lock:
        return _engines.setdefault(settings, Engine(settings))


def close_engines() -> None:
    """End all engines of this program."""
    with _engines_lock:
        engines = list(_engines.values())
        _engines.clear()
    for engine in engines:
        engine.close()


def _at_exit() -> None:
    # A forked child has these objects too, and must leave its parent's engines alone.
    if os.getpid() == _owner:
        close_engines()


atexit.register(_at_exit)
