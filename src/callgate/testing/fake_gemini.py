"""A Gemini server for tests and demonstrations, on loopback: strict like Google, and faulty on demand.

Takes a script, has a base URL. The server implements HTTP/1.1 by hand, so that it can break every rule of it; it checks
requests with `google_rules` and answers them with the steps of its script. Any client of Gemini works with it.

    async with FakeGemini([call("add", a=1, b=2), "The sum is 3."]) as fake:
        client = google.genai.Client(api_key="k", http_options={"base_url": fake.base_url})

    with FakeGemini.in_thread(["Hello."]) as fake: ...                    # from code that is not async
    python -m callgate.testing.fake_gemini --port 8099                    # from a shell; without a script it echoes
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from callgate.testing.answers import Answer, Ready, answer, call, calls, encode_json, raw, text, thought
from callgate.testing.examples import demo
from callgate.testing.exchange import JSON_TYPE, Body, Clock, Exchange, Request
from callgate.testing.fake_batches import FakeBatches
from callgate.testing.fake_embeddings import embedded, embedding_refusal
from callgate.testing.fake_resources import FakeResources, InterruptedUploadError, ResourceResponse
from callgate.testing.fake_server import FakeServer, run_command
from callgate.testing.fault_row import FaultStep
from callgate.testing.faults import fault
from callgate.testing.google_fields import MESSAGES, Surface, as_list, as_object
from callgate.testing.google_rules import Refusal, judge, judge_all, parse_body
from callgate.testing.http_lines import HttpRequest
from callgate.testing.script import Item
from callgate.types import JsonObject

__all__ = [
    "MODELS", "Answer", "Clock", "FakeGemini", "Item", "Ready", "Refusal", "Request", "answer", "call", "calls", "fault",
    "main", "raw", "text", "thought",
]  # fmt: skip

MODELS = (
    "gemini-4-argon", "gemini-3.8-flash", "gemini-3.7-flash", "gemini-3.6-flash", "gemini-3.5-flash-lite",
    "gemini-3.1-pro-preview", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-flash-latest",
)  # fmt: skip
"""The models that the server lists. It accepts any other name too, unless `models` says otherwise."""

_GENERATE = re.compile(
    r"/(?P<version>v1|v1beta|v1beta1)/(?P<cloud>(?:projects/[^/]+/locations/[^/]+/)?publishers/google/)?"
    r"models/(?P<model>[^/:]+):(?P<action>generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)"
)
MODELS_PATH = re.compile(r"/(?P<version>v1|v1beta|v1beta1)/(?:publishers/google/)?models(?:/(?P<model>[^/:]+))?")


@dataclass(eq=False)
class FakeGemini(FakeServer):
    """A fake Gemini server; the paths of its base URL begin at `/v1beta`."""

    _: KW_ONLY
    surface: Surface | None = None
    """The surface whose rules apply. None means by path: cloud paths are checked as Vertex."""

    refusals: list[Refusal] = field(default_factory=list[Refusal], init=False)
    """The refused requests; empty for a correct client."""
    resources: FakeResources = field(init=False)
    """The cached contents and the files."""
    batches: FakeBatches = field(default_factory=FakeBatches, init=False)
    """The batches."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.resources = FakeResources(lambda: self.base_url)

    @property
    def signatures(self) -> set[str]:
        """The thought signatures that count as genuine. Add those of a history that this server did not make."""
        return self._mint.signatures

    def _demo(self, request: JsonObject) -> Answer:
        return demo(request)

    def _exchange(self, http: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        return Exchange(
            request=self._recorded(http),
            reader=reader,
            writer=writer,
            clock=self.clock,
            mint=self._mint,
            compress=self.compress,
            sent=http.body if http.path.startswith("/upload/") else b"",
            cached_tokens=self._cached_tokens,
        )

    def _recorded(self, http: HttpRequest) -> Request:
        found = _GENERATE.fullmatch(http.path)
        is_piece = http.path.startswith("/upload/") and "start" not in http.headers.get("x-goog-upload-command", "start")
        parsed = parse_body(http.body) if http.body and not is_piece else None
        body = b"" if is_piece else http.body  # A piece of a file is not kept.
        request = Request(
            method=http.method, path=http.path, query=http.query, headers=http.headers, body=body,
            http=replace(http, body=body), json=None if isinstance(parsed, Refusal) else parsed,
            model=found["model"] if found else "",
            surface=self.surface or ("vertex" if found and found["cloud"] else "developer"),
            streaming=bool(found and found["action"] == "streamGenerateContent"),
            at=self.clock.now(),
        )  # fmt: skip
        self.requests.append(request)
        return request

    def _cached_tokens(self, body: JsonObject) -> int:
        """The number of tokens that a request takes from its cached content."""
        cache = self.resources.cache(str(body.get("cachedContent") or ""))
        return 0 if cache is None else int(cache["tokens"])

    # Answers ----------------------------------------------------------------------------------------------------------

    async def _answer(self, exchange: Exchange) -> None:
        request = exchange.request
        if self.resources.find(request.path) or self.batches.find(request.path):
            await self._answer_resource(exchange)
        elif (refusal := self._locked(request)) or (refusal := self._missing_resource(request)):
            await _refuse(exchange, refusal)
        elif request.method == "GET":
            await self._list_models(exchange)
        elif request.path.endswith(":countTokens"):
            await self._count(exchange)
        elif request.path.endswith((":embedContent", ":batchEmbedContents")):
            await self._embed(exchange)
        elif refusal := self._judged(request):
            self.refusals.append(refusal)
            await _refuse(exchange, refusal)
        else:
            await self._take_step(exchange)

    async def _answer_resource(self, exchange: Exchange) -> None:
        """Answer a request for caches, files or an upload."""
        request = exchange.request
        # The address of an upload is its own key.
        given = None if "upload_id" in request.query else self._locked(request)
        try:
            if given is None and self.batches.find(request.path):
                given = self._answer_batch(exchange)
            given = given or self.resources.answer(
                request.method, request.path, request.query, request.headers, exchange.sent, request.json
            )
        except InterruptedUploadError:
            exchange.reset()
            return
        if isinstance(given, Refusal):
            self.refusals.append(given)
            await _refuse(exchange, given)
            return
        body = Body(JSON_TYPE, (encode_json(given.body, indent=2),), streamed=False)
        await exchange.send_body(body, 200, given.headers)

    def _answer_batch(self, exchange: Exchange) -> ResourceResponse | Refusal:
        """Answer a request for batches; each of their requests takes an answer of the script."""
        request = exchange.request

        def ask(model: str, body: JsonObject) -> JsonObject:
            one = replace(request, json=body, body=encode_json(body), model=model.removeprefix("models/"), streaming=False)
            refusal = self._judged(one)
            step = None if refusal else self._script.take(body, self.clock)
            if refusal is not None:
                self.refusals.append(refusal)
                return {"error": {"code": 3, "message": refusal.message, "status": refusal.status}}
            if step is None or isinstance(step, FaultStep):
                return {"error": {"code": 13, "message": "An internal error has occurred.", "status": "INTERNAL"}}
            return {"response": json.loads(replace(exchange, request=one).messages(step)[0])}

        made = self.batches.answer(request.method, request.path, as_object(request.json), len(request.body), ask)
        return made if isinstance(made, Refusal) else ResourceResponse(made)

    def _locked(self, request: Request) -> Refusal | None:
        if self.api_key is None:
            return None
        given = request.headers.get("x-goog-api-key") or request.query.get("key")
        if request.surface == "vertex":
            given = request.headers.get("authorization", "").removeprefix("Bearer ") or given
        if given == self.api_key:
            return None
        if request.surface == "vertex":
            return _UNAUTHENTICATED
        return _WRONG_KEY if given else _NO_KEY

    def _missing_resource(self, request: Request) -> Refusal | None:
        generates, lists = _GENERATE.fullmatch(request.path), MODELS_PATH.fullmatch(request.path)
        if not (request.method == "POST" and generates) and not (request.method == "GET" and lists):
            return Refusal(f"Requested entity was not found: {request.method} {request.path}", code=404, status="NOT_FOUND")
        found = generates or lists
        assert found is not None
        model, version = found["model"], found["version"]
        is_unknown = self.models is not None and model not in self.models
        # The aliases that follow the newest model exist only on the beta versions.
        is_alias = self.strict and version == "v1" and (model or "").endswith("-latest")
        if not model or not (is_unknown or is_alias):
            return None
        told = (
            f"models/{model} is not found for API version {version}, or is not supported for generateContent. "
            "Call ListModels to see the list of available models and their supported methods."
        )
        return Refusal(told, code=404, status="NOT_FOUND")

    async def _list_models(self, exchange: Exchange) -> None:
        found = MODELS_PATH.fullmatch(exchange.request.path)
        listed = [_model_entry(name) for name in self.models or MODELS]
        one = found["model"] if found else None
        body = _model_entry(one) if one else {"models": listed}
        await exchange.send_body(Body(JSON_TYPE, (encode_json(body, indent=2),), streamed=False))

    async def _count(self, exchange: Exchange) -> None:
        body = as_object(exchange.request.json)
        counted = as_object(body.get("generateContentRequest")) or body
        if self.strict and (refusal := self.resources.files_refusal(counted)) is not None:
            self.refusals.append(refusal)
            await _refuse(exchange, refusal)
            return
        # Four bytes are about a token; that it grows with the contents is all that a client can rely on.
        tokens = len(encode_json(counted.get("contents"))) // 4
        await exchange.send_body(Body(JSON_TYPE, (encode_json({"totalTokens": tokens}, indent=2),), streamed=False))

    async def _embed(self, exchange: Exchange) -> None:
        request = exchange.request
        body, is_batch = as_object(request.json), request.path.endswith(":batchEmbedContents")
        refusal = embedding_refusal(body, request.model, is_batch=is_batch) if self.strict else None
        if refusal is not None:
            self.refusals.append(refusal)
            await _refuse(exchange, refusal)
            return
        values = [{"values": embedded(one)} for one in (as_list(body.get("requests")) if is_batch else [body])]
        told: JsonObject = {"embeddings": values} if is_batch else {"embedding": values[0]}
        told["usageMetadata"] = {"promptTokenCount": len(encode_json(body)) // 4}
        await exchange.send_body(Body(JSON_TYPE, (encode_json(told),), streamed=False))

    def _judged(self, request: Request) -> Refusal | None:
        if not self.strict:
            return None
        body = as_object(request.json)
        if refusal := self.resources.files_refusal(body):
            return refusal
        if not body.get("cachedContent"):
            return self._judge(self._without_own_oddities(request), request)
        alone = next(
            (found for found in judge_all(body, model=request.model) if found.rule in ("fields", "cached_alone")), None
        )
        whole = alone or self.resources.with_cache(body, request.model)
        return whole if isinstance(whole, Refusal) else self._judge(whole, request)

    def _judge(self, body: Any, request: Request) -> Refusal | None:
        return judge(
            body, model=request.model, surface=request.surface, streaming=request.streaming,
            signatures=self._mint.signatures,
        )  # fmt: skip

    def _without_own_oddities(self, request: Request) -> Any:
        """Return the body to check. Parts of unknown kinds that this server itself sent are legal when they come back
        unchanged.
        """
        body = as_object(request.json)
        if not self._mint.odd_parts or not body:
            return request.body
        contents = [
            as_object(content) | {"parts": [self._known(part) for part in as_list(as_object(content).get("parts"))]}
            for content in as_list(body.get("contents"))
        ]
        return body | {"contents": contents}

    def _known(self, part: Any) -> Any:
        if part not in self._mint.odd_parts:
            return part
        known = {key: value for key, value in part.items() if key in MESSAGES["Part"]}
        return known if known.keys() - {"thought", "thoughtSignature"} else {"text": "odd"} | known


def _model_entry(name: str) -> dict[str, Any]:
    methods = ["generateContent", "streamGenerateContent"]
    return {
        "name": f"models/{name}", "baseModelId": name, "version": "fake", "displayName": name, "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536, "supportedGenerationMethods": methods,
    }  # fmt: skip


async def _refuse(exchange: Exchange, refusal: Refusal) -> None:
    named = {"X_Fake_Gemini_Rule": refusal.rule} if refusal.rule else {}
    await exchange.error(refusal.code, refusal.status, refusal.message, details=refusal.details, **named)


_NO_KEY = Refusal(
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of "
    "API consumer identity to call this API.",
    code=403, status="PERMISSION_DENIED",
)  # fmt: skip
# Google answers a wrong key with 400, not 401.
_WRONG_KEY = Refusal("API key not valid. Please pass a valid API key.", reason="API_KEY_INVALID")
_UNAUTHENTICATED = Refusal(
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
    "authentication credential.",
    code=401, status="UNAUTHENTICATED",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server until it is interrupted: `python -m callgate.testing.fake_gemini [--port N] [--script FILE]`."""
    return run_command(FakeGemini, "fake_gemini", argv)


if __name__ == "__main__":
    sys.exit(main())
