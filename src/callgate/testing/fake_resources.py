"""Cached contents and uploaded files of a fake Gemini: kept as Google keeps them, and refused as Google refuses them.

Takes requests for `cachedContents`, `files` and the resumable upload; returns JSON bodies and headers, or refusals. Of an
uploaded file only its size and hash are kept.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from callgate.testing.answers import encode_json
from callgate.testing.google_declarations import Refusal
from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject

__all__ = ["FakeFile", "FakeResources", "InterruptedUploadError", "ResourceResponse"]

CACHE_TOKENS_MIN = 1_024
"""The least number of tokens of a cached content."""
FILE_TTL_S = 48 * 3600.0
PIECE_BYTES = 256 * 1024
"""Pieces of an upload but the last have a multiple of this size."""

_PATH = re.compile(r"/(?:upload/)?v1(?:beta1?)?/(?:projects/[^/]+/locations/[^/]+/)?(cachedContents|files)(?:/([\w-]+))?")
_MISSING = "CachedContent not found (or permission denied)"


@dataclass(frozen=True, slots=True)
class ResourceResponse:
    """An answer: a JSON body and headers."""

    body: JsonObject
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True, kw_only=True)
class FakeFile:
    """A file of the Files API."""

    id: str
    """The id in its name, `files/...`."""
    mime_type: str
    """The type that was announced."""
    display_name: str
    """The name for people that was announced."""
    size: int
    """The size that was announced, in bytes."""
    created_s: float
    """Time of its creation, in seconds of the server's clock."""
    digest: Any = field(default_factory=hashlib.sha256)
    """The hash of what was received."""
    received: int = 0
    """The bytes that were received."""
    is_final: bool = False
    """True once all of it was received."""
    polls_left: int = 0
    """Remaining polls that report it in processing."""


class InterruptedUploadError(Exception):
    """The connection is to be broken here."""


@dataclass(slots=True)
class FakeResources:
    """The caches and files of one fake server."""

    base_url: Callable[[], str]
    """The address of the server, once it is known."""
    now: Callable[[], float] = time.time
    """The time in seconds since 1970 by which caches and files expire."""
    caches: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """Cached contents by name, as they were created, with `expires_s`."""
    files: dict[str, FakeFile] = field(default_factory=dict[str, FakeFile])
    """Uploaded files by id. `files.clear()` lets them expire."""
    processing_polls: int = 0
    """Polls of a new file that report it in processing before it is active."""
    interrupt_at: list[int] = field(default_factory=list[int])
    """Bytes of an upload after which its connection breaks, each once."""
    count: int = 0
    """Caches that were ever made."""

    def find(self, path: str) -> re.Match[str] | None:
        """Return the match of a path that belongs here."""
        return _PATH.fullmatch(path)

    def answer(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes, json: Any
    ) -> ResourceResponse | Refusal:
        """Return the answer to a request.

        Raises:
            InterruptedUploadError: the connection is to be broken.
        """
        found = _PATH.fullmatch(path)
        assert found is not None
        kind, name = found[1], found[2]
        if path.startswith("/upload/"):
            return self._upload(query, headers, body, as_object(json))
        if kind == "files":
            return self._file(method, name)
        return self._cache(method, name, as_object(json))

    # Caches ---------------------------------------------------------------------------------------------------------------

    def _cache(self, method: str, name: str | None, body: JsonObject) -> ResourceResponse | Refusal:
        if method == "POST" and name is None:
            return self._create_cache(body)
        if method == "GET" and name is None:
            return ResourceResponse({"cachedContents": [self._cache_json(cache) for cache in self.caches.values()]})
        cache = self.cache(f"cachedContents/{name}")
        if cache is None:
            return Refusal(_MISSING, code=403, status="PERMISSION_DENIED")
        if method == "DELETE":
            del self.caches[cache["name"]]
            return ResourceResponse({})
        if method == "PATCH":
            if set(body) - {"ttl", "expireTime", "name"}:
                return Refusal("Only expiration can be updated.", "cached_content")
            cache["expires_s"] = self.now() + float(str(body.get("ttl", "3600s")).removesuffix("s"))
        return ResourceResponse(self._cache_json(cache))

    def _create_cache(self, body: JsonObject) -> ResourceResponse | Refusal:
        known = {"model", "contents", "systemInstruction", "tools", "toolConfig", "ttl", "expireTime", "displayName"}
        if odd := sorted(set(body) - known):
            return Refusal(
                f"Invalid JSON payload received. Unknown name \"{odd[0]}\" at 'cached_content': Cannot find field."
            )
        model = str(body.get("model", ""))
        if not re.fullmatch(r"(?:models/|publishers/|projects/).+", model):
            return Refusal("* CreateCachedContentRequest.cached_content.model: unexpected model name format\n")
        if "gemini-4" in model:
            return Refusal(f"{model} is not supported for createCachedContent.", code=404, status="NOT_FOUND")
        if (refusal := self.files_refusal(body)) is not None:
            return refusal
        tokens = self._tokens(body)
        if tokens < CACHE_TOKENS_MIN:
            told = f"Cached content is too small. total_token_count={tokens}, min_total_token_count={CACHE_TOKENS_MIN}"
            return Refusal(told)
        self.count += 1
        name = f"cachedContents/fake{self.count}"
        ttl_s = float(str(body.get("ttl", "3600s")).removesuffix("s"))
        self.caches[name] = {**body, "name": name, "tokens": tokens, "expires_s": self.now() + ttl_s}
        return ResourceResponse(self._cache_json(self.caches[name]))

    def _tokens(self, body: JsonObject) -> int:
        return len(encode_json([body.get(key) for key in ("contents", "systemInstruction", "tools")])) // 4

    def _cache_json(self, cache: JsonObject) -> JsonObject:
        return {
            "name": cache["name"], "model": cache["model"], "expireTime": _time(cache["expires_s"]),
            "createTime": _time(self.now()), "updateTime": _time(self.now()),
            "usageMetadata": {"totalTokenCount": cache["tokens"]},
        }  # fmt: skip

    def cache(self, name: str) -> JsonObject | None:
        """Return a cached content that has not expired."""
        cache = self.caches.get("cachedContents/" + name.rpartition("cachedContents/")[2])
        return cache if cache is not None and cache["expires_s"] > self.now() else None

    def with_cache(self, body: JsonObject, model: str) -> JsonObject | Refusal:
        """Return a request together with its cached content, or the refusal of it."""
        cache = self.cache(str(body["cachedContent"]))
        if cache is None:
            return Refusal(_MISSING, "cached_content", "cache_exists", code=403, status="PERMISSION_DENIED")
        if cache["model"].rpartition("/")[2] != model:
            used = f"Model used by GenerateContent request (models/{model})"
            told = f"{used} and CachedContent ({cache['model']}) has to be the same."
            return Refusal(told, "cached_content", "cache_model")
        merged = {key: cache[key] for key in ("systemInstruction", "tools", "toolConfig") if key in cache}
        rest = {key: value for key, value in body.items() if key != "cachedContent"}
        return rest | merged | {"contents": [*as_list(cache.get("contents")), *as_list(body.get("contents"))]}

    # Files ----------------------------------------------------------------------------------------------------------------

    def _file(self, method: str, name: str | None) -> ResourceResponse | Refusal:
        if name is None:
            return ResourceResponse({"files": [self._file_json(file) for file in self.files.values() if file.is_final]})
        file = self._known_file(name)
        if file is None:
            return Refusal(_no_file(name), code=403, status="PERMISSION_DENIED")
        if method == "DELETE":
            del self.files[name]
            return ResourceResponse({})
        answer = ResourceResponse(self._file_json(file))
        file.polls_left = max(0, file.polls_left - 1)
        return answer

    def _known_file(self, name: str) -> FakeFile | None:
        """Return a file that is complete and has not expired."""
        file = self.files.get(name)
        return file if file is not None and file.is_final and file.created_s + FILE_TTL_S > self.now() else None

    def _upload(
        self, query: dict[str, str], headers: dict[str, str], body: bytes, json: JsonObject
    ) -> ResourceResponse | Refusal:
        command = headers.get("x-goog-upload-command", "")
        if command == "start":
            return self._begin_upload(headers, as_object(json.get("file")))
        file = self.files.get(query.get("upload_id", ""))
        if file is None:
            return Refusal("The upload does not exist.", code=404, status="NOT_FOUND")
        status = {"X-Goog-Upload-Status": "final" if file.is_final else "active"}
        if command == "query":
            return ResourceResponse({}, {**status, "X-Goog-Upload-Size-Received": str(file.received)})
        if command not in ("upload", "upload, finalize"):
            return Refusal(f"Unknown upload command {command!r}.")
        if headers.get("x-goog-upload-offset") != str(file.received):
            return Refusal(f"Expected the offset {file.received}.")
        if command == "upload" and len(body) % PIECE_BYTES:
            return Refusal(f"A piece must have a multiple of {PIECE_BYTES} bytes.")
        place = next((at for at in self.interrupt_at if file.received <= at < file.received + len(body)), None)
        if place is not None:
            self.interrupt_at.remove(place)
            taken = (place - file.received) // PIECE_BYTES * PIECE_BYTES
            file.digest.update(body[:taken])
            file.received += taken
            raise InterruptedUploadError
        file.digest.update(body)
        file.received += len(body)
        if command == "upload":
            return ResourceResponse({}, status)
        if file.received != file.size:
            return Refusal(f"The file has {file.received} bytes, not {file.size}.")
        file.is_final = True
        return ResourceResponse({"file": self._file_json(file)}, {"X-Goog-Upload-Status": "final"})

    def _begin_upload(self, headers: dict[str, str], wanted: JsonObject) -> ResourceResponse | Refusal:
        if headers.get("x-goog-upload-protocol") != "resumable":
            return Refusal("Only the resumable protocol is known here.")
        size, kind = (
            headers.get("x-goog-upload-header-content-length", ""),
            headers.get("x-goog-upload-header-content-type", ""),
        )
        if not size.isdigit() or not kind:
            return Refusal("The length and the type of the file are needed.")
        self.count += 1
        name = f"fake{self.count}"
        self.files[name] = FakeFile(
            id=name, mime_type=kind, display_name=str(wanted.get("displayName", "")), size=int(size), created_s=self.now(),
            polls_left=self.processing_polls,
        )  # fmt: skip
        url = f"{self.base_url()}/upload/v1beta/files?upload_id={name}&upload_protocol=resumable"
        return ResourceResponse(
            {},
            {
                "X-Goog-Upload-URL": url,
                "X-Goog-Upload-Status": "active",
                "X-Goog-Upload-Chunk-Granularity": str(PIECE_BYTES),
            },
        )

    def _file_json(self, file: FakeFile) -> JsonObject:
        digest = base64.b64encode(file.digest.hexdigest().encode()).decode()
        return {
            "name": f"files/{file.id}", "displayName": file.display_name, "mimeType": file.mime_type,
            "sizeBytes": str(file.size), "createTime": _time(file.created_s), "updateTime": _time(file.created_s),
            "expirationTime": _time(file.created_s + FILE_TTL_S), "sha256Hash": digest,
            "uri": f"{self.base_url()}/v1beta/files/{file.id}", "state": "PROCESSING" if file.polls_left else "ACTIVE",
            "source": "UPLOADED",
        }  # fmt: skip

    def files_refusal(self, body: JsonObject) -> Refusal | None:
        """Return the refusal of a request that refers to a file which does not exist, or is not ready."""
        for content in as_list(body.get("contents")):
            for part in as_list(as_object(content).get("parts")):
                data = as_object(as_object(part).get("fileData") or as_object(part).get("file_data"))
                uri = str(data.get("fileUri") or data.get("file_uri") or "")
                if (refusal := self.uri_refusal(uri)) is not None:
                    return refusal
        return None

    def uri_refusal(self, uri: str) -> Refusal | None:
        """Return the refusal of the address of a file which does not exist here, or is not ready."""
        if not uri.startswith(f"{self.base_url()}/v1beta/files/"):
            return None
        name = uri.rpartition("/")[2]
        file = self._known_file(name)
        if file is None:
            return Refusal(_no_file(name), rule="file_exists", code=403, status="PERMISSION_DENIED")
        if file.polls_left:
            return Refusal(f"The File {name} is not in an ACTIVE state and usage is not allowed.", rule="file_active")
        return None


def _no_file(name: str) -> str:
    return f"You do not have permission to access the File {name} or it may not exist."


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
