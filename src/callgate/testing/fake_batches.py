"""Batches of a fake Gemini: kept as Google keeps them, and refused as Google refuses them.

Takes requests for `batchGenerateContent` and `batches`; returns JSON bodies or refusals. How one request of a batch is
answered is the server's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from callgate.testing.google_declarations import Refusal
from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject

__all__ = ["FakeBatches"]

INLINE_BYTES_MAX = 20_000_000

_CREATE = re.compile(r"/v1(?:beta)?/(?P<model>models/[^/:]+):batchGenerateContent")
_BATCH = re.compile(r"/v1(?:beta)?/(?P<name>batches/[\w-]+)(?P<action>:cancel)?")


@dataclass(slots=True)
class FakeBatches:
    """The batches of one fake server."""

    polls: int = 1
    """Polls of a new batch that report it in progress before it is done."""
    ends: str = "SUCCEEDED"
    """The state in which batches end."""
    known: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """Batches by name, as they are shown, with `polls_left`."""
    sizes: list[int] = field(default_factory=list[int])
    """The number of requests of each batch."""
    cancelled: list[str] = field(default_factory=list[str])
    """The names of cancelled batches."""

    def find(self, path: str) -> bool:
        """True if a path belongs here."""
        return _CREATE.fullmatch(path) is not None or _BATCH.fullmatch(path) is not None

    def answer(
        self, method: str, path: str, body: JsonObject, size: int, ask: Callable[[str, JsonObject], JsonObject]
    ) -> JsonObject | Refusal:
        """The answer to a request; `ask` answers one request of a batch to a model."""
        if (creation := _CREATE.fullmatch(path)) is not None:
            return self._create(creation["model"], body, size, ask)
        found = _BATCH.fullmatch(path)
        assert found is not None
        batch = self.known.get(found["name"])
        if batch is None:
            return Refusal("Requested entity was not found.", code=404, status="NOT_FOUND")
        if found["action"]:
            self.cancelled.append(batch["name"])
            batch["state"] = "CANCELLED" if batch["polls_left"] else batch["state"]
            return {}
        if method == "DELETE":
            del self.known[batch["name"]]
            return {}
        batch["polls_left"] = max(0, batch["polls_left"] - 1)
        return self._shown(batch)

    def _create(
        self, model: str, body: JsonObject, size: int, ask: Callable[[str, JsonObject], JsonObject]
    ) -> JsonObject | Refusal:
        batch = as_object(body.get("batch"))
        odd = sorted({*body} - {"batch"}) + sorted({*batch} - {"displayName", "inputConfig", "priority", "model"})
        if odd:
            return Refusal(f"Invalid JSON payload received. Unknown name \"{odd[0]}\" at 'batch': Cannot find field.")
        if not batch.get("displayName"):
            return Refusal("* BatchGenerateContentRequest.batch.display_name: must not be empty")
        if size > INLINE_BYTES_MAX:
            return Refusal("Request payload size exceeds the limit: 20971520 bytes.")
        listed = as_list(as_object(as_object(batch.get("inputConfig")).get("requests")).get("requests"))
        if not listed or any({*as_object(entry)} - {"request", "metadata"} for entry in listed):
            return Refusal("* BatchGenerateContentRequest.batch.input_config: must hold requests")
        name = f"batches/fake{len(self.sizes) + 1}"
        self.sizes.append(len(listed))
        entries = [
            ask(model, as_object(as_object(entry).get("request"))) | {"metadata": as_object(entry).get("metadata")}
            for entry in listed
        ]
        made = {"name": name, "model": model, "entries": entries, "polls_left": self.polls + 1, "state": self.ends}
        self.known[name] = made
        return self._shown(made)

    def _shown(self, batch: JsonObject) -> JsonObject:
        is_over = not batch["polls_left"] or batch["state"] == "CANCELLED"
        state = f"BATCH_STATE_{batch['state'] if is_over else 'RUNNING'}"
        metadata: JsonObject = {"name": batch["name"], "model": batch["model"], "state": state}
        shown: JsonObject = {"name": batch["name"], "metadata": metadata}
        if not is_over:
            return shown
        if batch["state"] != "SUCCEEDED":
            return shown | {"done": True}
        output = {"inlinedResponses": {"inlinedResponses": batch["entries"]}}
        return shown | {"done": True, "metadata": metadata | {"output": output}, "response": output}
