"""The history of a conversation: contents in Gemini's form that can always be sent.

Takes contents; returns a valid history and its encoded bytes. Each content is encoded once, when it is added, and its
bytes are reused for every request; `encoded.py` stores them. Knows nothing of tools or models; it enforces the rules of
the wire:

1. the first content is the user's;
2. a content has at least one part, and no empty ones; calls have names and objects of arguments;
3. a content with function calls is followed by one user content that holds exactly one response per call, in call order,
   with the call's name, and its id if and only if the call has one;
4. responses occur nowhere else, and not with other parts;
5. two model contents do not follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from callgate import strict_json
from callgate.content.build import from_elsewhere
from callgate.content.normalize import as_object, sendable_part, spelled_content
from callgate.content.prompt import Prompt, user_content
from callgate.content.read import (
    call_parts,
    has_data,
    is_nonempty_text,
    is_response,
    is_signed,
    is_sound_text,
    parts_of,
    response_of,
)
from callgate.content.read_call import model_fields
from callgate.content.response import shortened_response
from callgate.errors import ConversationInvalidError, UsageError
from callgate.history.encoded import ContentPrefix, EncodedContents, EncodedHistory
from callgate.history.repair import INTERRUPTED, breaches_of, not_a_response, paired_responses, repaired
from callgate.history.shorten import (
    RESULT_CHARS,
    Kind,
    Outline,
    Shortening,
    fitting_summary,
    is_summary,
    plan_shortening,
)
from callgate.types import Content, JsonObject, Part

__all__ = ["CANCELLED", "Conversation"]

T = TypeVar("T")

_USUAL_FIELDS = frozenset({"role", "parts"})
CANCELLED = "The call was cancelled before it gave a result."


class _SeenContents(ContentPrefix):
    """The contents as one model is sent them."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        super().__init__()
        self.seen: tuple[bytes, ...] = ()


class Conversation:
    """A history that cannot become invalid by its own methods.

    ```python
    talk = Conversation()
    talk.add_user("Oslo and Rome?")
    talk.add_model(content)                      # as the model sent it
    talk.add_responses([part, part])             # one for each call
    talk.contents                                # what to send next
    ```
    """

    __slots__ = ("_derived", "_encoded", "_open", "_origins", "_writers", "repairs")

    def __init__(self, contents: Iterable[Mapping[str, Any]] = ()) -> None:
        self.repairs: tuple[str, ...] = ()
        """Notes on changes and omissions in the initial contents."""
        self._encoded = EncodedContents()
        self._open: list[JsonObject] = []
        self._origins: list[str | None] = []
        self._writers: set[str | None] = set()
        self._derived: dict[Hashable, Any] = {}
        if contents:
            if isinstance(contents, (str, bytes, Mapping)) or not isinstance(cast("Any", contents), Iterable):
                raise UsageError(f"Conversation takes a list of contents, not {contents!r:.200}")
            kept, notes = repaired(contents)
            self.repairs = tuple(notes)
            for content in kept:
                self._append(content)
                if content["role"] == "model":
                    self._open = call_parts(content)
                    self._writers.add(None)

    def __len__(self) -> int:
        return len(self._origins)

    def __getitem__(self, index: int) -> Content:
        """Return one content. It is shared: treat it as read-only."""
        return self._encoded[index]

    @property
    def contents(self) -> list[Content]:
        """The history. The list is yours, the contents in it are shared: treat them as read-only."""
        return self.history.contents

    @property
    def history(self) -> EncodedHistory:
        """The contents as they are now, to be decoded later or never."""
        return self._encoded.history

    @property
    def encoded(self) -> tuple[bytes, ...]:
        """The JSON text of each content, in order, encoded once. A content keeps its bytes for as long as it is there."""
        return self._encoded.encoded

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was made of this conversation before, under a key that says how; `make` returns an empty one.

        It is dropped with the conversation, and when contents are dropped. Compare it with `encoded`, which changes.
        """
        if key not in self._derived:
            self._derived[key] = make()
        return cast("T", self._derived[key])

    @property
    def newest_exchange(self) -> int | None:
        """The index of the content that starts the newest exchange."""
        return next(filter(self._starts_exchange, range(len(self) - 1, -1, -1)), None)

    def is_model(self, index: int) -> bool:
        """True if the content at the index is the model's; asking does not read it."""
        return self._encoded.is_model(index)

    def encoded_for(self, origin: str, *, vouch: bool = True) -> Sequence[bytes]:
        """Like `encoded`, but without the signatures of other models than `origin`.

        A history of external origin keeps those signatures that are not marked as another API's. With `vouch`, unsigned
        calls are marked as not Gemini's own, which newer models require.
        """
        if self._writers <= {origin}:
            return self.encoded
        made = self.derived((_SeenContents, origin, vouch), _SeenContents)
        encoded = self.encoded
        known = made.shared(encoded)
        new = [self._seen_by(origin, vouch, place, encoded[place]) for place in range(known, len(encoded))]
        made.seen = (*made.seen[:known], *new)
        made.contents = encoded
        return made.seen

    def _seen_by(self, origin: str, vouch: bool, index: int, encoded: bytes) -> bytes:
        written_by = self._origins[index]
        if written_by == origin or not self.is_model(index):
            return encoded
        content = self[index]
        seen = from_elsewhere(content, origin=origin if written_by is None else None, vouch=vouch)
        return encoded if seen == content else strict_json.dump(seen)

    @property
    def last(self) -> Content | None:
        """The newest content, if there is one."""
        return self[-1] if len(self) else None

    @property
    def open_calls(self) -> list[JsonObject]:
        """The function calls of the newest content that have no responses yet."""
        return list(self._open)

    @property
    def size_bytes(self) -> int:
        """The length of the encoded history."""
        return self._encoded.size_bytes

    @property
    def bytes_encoded(self) -> int:
        """The total number of encoded bytes; grows with new contents, not with the length of the history."""
        return self._encoded.bytes_encoded

    def add_user(self, prompt: Prompt) -> None:
        """Add a user content. Open calls are answered as cancelled first."""
        content = user_content(prompt)
        if self._open:
            self.add_responses([], missing=CANCELLED)
        self._append(content)

    def add_journaled(self, content: Content) -> None:
        """Like `add_user`, with a content of the journal. Text is shared with it, other contents are parsed again."""
        parts = parts_of(content)
        if not parts or parts != content["parts"] or content.get("role") != "user" or not all(map(is_nonempty_text, parts)):
            content = user_content(content["parts"], is_journaled=True)
        if self._open:
            self.add_responses([], missing=CANCELLED)
        self._append(content)

    def add_model(self, content: Mapping[str, Any], *, origin: str | None = None, is_plain: bool = False) -> None:
        """Add an answer of the model verbatim; only empty parts without a signature are dropped.

        Calls that could not be sent back are normalized (a name, an object of arguments, a valid id); values that are not
        JSON are replaced. `origin` is the model that wrote it, because signatures are valid for that one only.
        `is_plain` says that the content is known to be plain JSON, as that of a `ModelResponse` is.

        Raises:
            ConversationInvalidError: the content is empty, contains function responses, or is not allowed here.
        """
        parts = parts_of(content) if isinstance(content, dict) and content.keys() <= _USUAL_FIELDS else []
        is_text = bool(parts) and all(part.get("text") and is_sound_text(part) for part in parts)
        if is_text:
            added: Content = {"role": "model", "parts": parts}
        else:
            added = model_fields(as_object(content), is_plain=is_plain)
            added["parts"] = [part for part in added["parts"] if has_data(part) or is_signed(part)]
        if not is_text and not any(map(has_data, added["parts"])):
            raise ConversationInvalidError(["a model content without parts cannot be stored"])
        if not self._origins or self.is_model(-1):
            raise ConversationInvalidError([f"a model content at index {len(self)} must follow a user content"])
        if not is_text and any(map(is_response, added["parts"])):
            raise ConversationInvalidError(
                [f"a model content at index {len(self)}: {breach}" for breach in breaches_of(added)]
            )
        self._append(added, origin, is_finite=is_text or is_plain)
        self._writers.add(origin)
        if not is_text:
            self._open = call_parts(added)

    def add_responses(self, responses: Sequence[Part], *, missing: str = INTERRUPTED) -> None:
        """Add the responses to the open calls as one content, in call order; a call without one gets `missing`.

        Raises:
            ConversationInvalidError: an item is not a response, or belongs to no open call.
        """
        if not self._open:
            raise ConversationInvalidError([f"responses at index {len(self)} follow no function call"])
        responses = cast("list[Part]", spelled_content({"parts": list(responses)})["parts"])
        if breaches := [breach for part in responses for breach in not_a_response(part)]:
            raise ConversationInvalidError([f"responses at index {len(self)}: {breach}" for breach in breaches])
        paired, rest = paired_responses(self._open, [*map(sendable_part, responses)], missing)
        if rest:
            names = ", ".join(repr(response_of(part).get("name")) for part in rest)
            raise ConversationInvalidError([f"response(s) to {names} at index {len(self)} answer no open call"])
        self._append({"role": "user", "parts": paired})

    def cut(self, length: int) -> None:
        """Drop every content from index `length` on, so that a failed turn leaves no trace."""
        self._drop(length, len(self))
        self._open = call_parts(self[-1]) if len(self) and self.is_model(-1) else []

    def trim(self, bytes_max: int) -> int:
        """Drop whole exchanges from the front until the history fits; the newest always stays. Returns how many contents.

        Cuts only between exchanges, so calls and their responses stay together.
        """
        dropped = self.cut_for(bytes_max)
        self.shorten(dropped)
        return dropped

    def cut_for(self, bytes_max: int) -> int:
        """Return how many contents to drop from the front so that the rest fits; as many as possible if it never fits.

        Cuts only between exchanges, so calls and their responses stay together; the newest exchange stays.
        """
        size, dropped, encoded = self.size_bytes, 0, self.encoded
        for start in filter(self._starts_exchange, range(1, len(self))):
            if size <= bytes_max:
                break
            size -= sum(map(len, encoded[dropped:start]))
            dropped = start
        return dropped

    def plan_for(self, bytes_max: int, target: int | None = None) -> Shortening | None:
        """Return a plan to shorten a history of more than `bytes_max` bytes to at most `target` (default: `bytes_max`).

        None if nothing is to be done, or nothing can be. The plan needs no summary, but leaves room for one; after
        `apply`, the next plan is None.
        """
        if self.size_bytes <= bytes_max:
            return None
        outline = Outline(
            kinds=[self._kind_of(index) for index in range(len(self))],
            sizes=[len(encoded) for encoded in self.encoded],
            shortened_size=lambda index, chars: len(strict_json.dump(self._shortened(index, chars))),
        )
        return plan_shortening(outline, bytes_max, bytes_max if target is None else min(target, bytes_max))

    def apply(self, plan: Shortening, summary: str | None = None) -> bool:
        """Apply a plan for this history.

        A summary of the first `plan.summarized` contents, if there is one, becomes a user content in place of the dropped
        ones; it is cut to the room of the plan. Returns whether there is such a content now.
        """
        text = fitting_summary(summary, plan.summary_bytes) if summary and plan.summarized else None
        self.shorten(plan.pairs, text if plan.pairs else None, start=plan.start)
        self.shorten(plan.dropped, None if plan.pairs else text)
        if plan.keep is not None:
            self.shorten_results(keep=plan.keep, chars=RESULT_CHARS)
        if plan.newest_chars is not None:
            self._shorten_results(self._response_places()[-1:], plan.newest_chars)
        return text is not None

    def shorten(self, dropped: int, summary: str | None = None, *, start: int = 0) -> None:
        """Drop this number of contents from `start` on; a summary, if there is one, becomes a user content in their place.

        Raises:
            ConversationInvalidError: the rest would be invalid: calls without responses, or the other way round.
        """
        end = start + dropped
        if not 0 <= start <= end <= len(self) or (dropped and self._is_split(start, end, has_summary=summary is not None)):
            raise ConversationInvalidError([f"contents {start} to {end} cannot be dropped without what belongs to them"])
        if dropped:
            self._drop(start, end)
        if summary is not None:
            self._encoded.insert(start, user_content(summary))
            self._origins.insert(start, None)
            self._derived.clear()

    def shorten_results(self, *, keep: int, chars: int) -> int:
        """Cut the results of all but the newest `keep` response contents to `chars` characters of JSON each.

        Names and ids stay, media are dropped, and the rest says that it was shortened. Returns how many contents changed.
        """
        places = self._response_places()
        return self._shorten_results(places[: max(len(places) - keep, 0)], chars)

    def _shorten_results(self, places: Sequence[int], chars: int) -> int:
        changed = 0
        for index in places:
            content = self._shortened(index, chars)
            if strict_json.dump(content) != self.encoded[index]:
                self._encoded.put(index, content)
                changed += 1
        return changed

    def _shortened(self, index: int, chars: int) -> Content:
        content = self[index]
        return {**content, "parts": [shortened_response(part, chars) for part in parts_of(content)]}

    def _response_places(self) -> list[int]:
        return [*filter(self._encoded.is_responses, range(len(self)))]

    def _is_split(self, start: int, end: int, *, has_summary: bool) -> bool:
        """True if calls or responses would be left without each other, or model contents without a user content between."""
        follows_model = start > 0 and self.is_model(start - 1)
        if end == len(self):
            return False
        if self._encoded.is_responses(end) or (follows_model and call_parts(self[start - 1])):
            return True
        return self.is_model(end) and not has_summary and (start == 0 or follows_model)

    def _drop(self, start: int, end: int) -> None:
        self._encoded.drop(start, end)
        del self._origins[start:end]
        self._derived.clear()

    def _kind_of(self, index: int) -> Kind:
        if self.is_model(index):
            return "model"
        if self._encoded.is_responses(index):
            return "responses"
        return "summary" if is_summary(self[index]) else "user"

    def _starts_exchange(self, index: int) -> bool:
        return self._kind_of(index) == "user"

    def _append(self, content: Content, origin: str | None = None, *, is_finite: bool = False) -> None:
        self._encoded.add(content, is_finite=is_finite)
        self._origins.append(origin)
        self._open = []
