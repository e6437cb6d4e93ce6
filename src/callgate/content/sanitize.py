"""Sanitize values of programs, as JSON that can be journalled and sent: results of tools, and edited arguments.

Takes any Python object. A result always becomes a valid one; arguments that are not JSON are refused, with the place.
Knows nothing of how a tool ran or who edited a call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from callgate import strict_json
from callgate.content.build import media_part
from callgate.content.json_safe import NOTES_MAX, Encoder, ReadMedia, UnsendableMediaError, json_safe
from callgate.content.normalize import spelled_part
from callgate.content.read import display_names, media_of
from callgate.content.read_call import ARGS_VALUES_MAX
from callgate.errors import UsageError
from callgate.types import FunctionCall, Media, Part, PlainJson, ResultStatus, ToolResult

__all__ = ["ENCODED_BYTES_MIN", "plain_json", "sanitize_args", "sanitize_result"]

ENCODED_BYTES_MIN = 2_000
"""Longer JSON of a value is kept instead of a second value, so that it is encoded once."""

NO_REASON = "The tool failed without saying why."

_STATUSES: tuple[str, ...] = get_args(ResultStatus)


# Results -----------------------------------------------------------------------------------------------------------------


def sanitize_result(
    result: object,
    *,
    call: FunctionCall,
    depth_max: int = strict_json.DEPTH_MAX,
    duration_s: float | None = None,
    read_media: ReadMedia | None = None,
) -> ToolResult:
    """Build the result of a call from its tool's return value: a plain value, or a `ToolResult`.

    Values become JSON by the table of `json_safe`. An unknown status makes a failed result; an error has a message and no
    value; notes are texts, and media are parts that can be sent.

    Raises:
        UnsendableMediaError: `read_media` cannot read media of the result.
    """
    if not isinstance(result, ToolResult):
        return _finished(call, result, depth_max, duration_s=duration_s or 0.0, read_media=read_media)
    notes = _notes(result.notes)
    duration_s = _seconds(result.duration_s) if duration_s is None else duration_s
    media, left_out = _media(result.media, read_media)
    if left_out:
        notes = (*notes, f"{left_out} media item(s) that cannot be sent were left out.")
    if result.status == "finished":
        if error := _text(result.error):
            notes = (*notes, f"The tool also reported an error: {error}")
        value = result.known_json or result.value
        return _finished(call, value, depth_max, notes=notes, media=media, duration_s=duration_s, read_media=read_media)
    if result.value is not None:
        notes = (*notes, "The value that the tool returned beside its error was left out.")
    status, error = result.status, _text(result.error) or NO_REASON
    if not isinstance(cast("Any", status), str) or status not in _STATUSES:
        unknown = f"The tool gave a result with the status {_text(status)!r}, which is none of {', '.join(_STATUSES)}."
        status, error = "failed", f"{unknown} {error}" if result.error else unknown
    return ToolResult(
        call_id=call.id,
        name=call.name,
        status=status,
        error=error,
        notes=notes,
        media=media,
        duration_s=duration_s,
    )


def plain_json(value: Any) -> PlainJson:
    """Mark a value as plain JSON, with its text if that is long. The value must not be changed afterwards."""
    encoded = b"" if isinstance(value, str) else strict_json.dump_pieces(value, is_finite=True)
    return PlainJson.of(value, encoded if len(encoded) > ENCODED_BYTES_MIN else None)


def _known(value: object, encoder: Encoder) -> PlainJson:
    """A value as JSON: the text alone of a long one, if nothing in it has to be converted."""
    text = encoder.text(value)
    if text is None:
        return plain_json(encoder.encode(value, 0))
    return PlainJson(None, text) if len(text) > ENCODED_BYTES_MIN else PlainJson.of(strict_json.parse_own(text))


def _finished(
    call: FunctionCall,
    value: object,
    depth_max: int,
    *,
    notes: tuple[str, ...] = (),
    media: tuple[Part, ...] = (),
    duration_s: float,
    read_media: ReadMedia | None = None,
) -> ToolResult:
    encoder = Encoder(depth_max, display_names(media), read_media)
    known = value if isinstance(value, PlainJson) else _known(value, encoder)
    return ToolResult.of_known(
        known,
        call_id=call.id,
        name=call.name,
        status="finished",
        notes=(*notes, *encoder.notes),
        media=(*media, *encoder.media),
        duration_s=duration_s,
    )


def _notes(notes: Any) -> tuple[str, ...]:
    """Return a tuple of texts, whatever is in its place."""
    plain: Any = notes if isinstance(notes, str) else json_safe(notes).value
    texts = [_text(note) for note in (cast("list[Any]", plain) if isinstance(plain, list) else [plain])]
    return tuple([text for text in texts if text][: 5 * NOTES_MAX])


def _media(media: Any, read_media: ReadMedia | None) -> tuple[tuple[Part, ...], int]:
    """The media that can be sent, and how many cannot."""
    given: list[Any] = list(cast("Iterable[Any]", media)) if isinstance(media, (list, tuple)) else [media] if media else []
    parts = [part for item in given if (part := _media_part(item, read_media)) is not None]
    return tuple(parts), len(given) - len(parts)


def _media_part(item: Any, read_media: ReadMedia | None) -> Part | None:
    if isinstance(item, Media):
        try:
            item = media_part(Encoder(1, read_media=read_media).readable(item))
        except UnsendableMediaError:
            if read_media is not None:
                raise
            return None
        except (TypeError, ValueError, AttributeError):  # Not bytes, or not text.
            return None
    if not isinstance(item, Mapping):
        return None
    part: Part = spelled_part(strict_json.without_bad(strict_json.isolate(item)))
    about = media_of(part)
    return part if about and ("uri" in about or about.keys() >= {"data", "mime_type"}) else None


def _text(value: Any) -> str:
    """A value as text that can be stored; empty for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return strict_json.without_surrogates(str.__str__(value))
    if isinstance(value, BaseException):
        return strict_json.without_surrogates(f"{type(value).__name__}: {_message_of(value)}")
    plain = json_safe(value).value
    return plain if isinstance(plain, str) else strict_json.dump(plain).decode()


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # its own code failed
        return "(no message)"


def _seconds(value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and abs(value) < 2**53 else 0.0


# Arguments ---------------------------------------------------------------------------------------------------------------


def sanitize_args(args: object) -> dict[str, Any]:
    """Convert arguments built by a program to plain JSON; tuples become lists, lone surrogates U+FFFD.

    Raises:
        UsageError: they are not an object, or contain something that is not JSON; the message names its place.
    """
    if not isinstance(args, Mapping):
        raise UsageError(f"arguments must be a dict, not {type(args).__name__!r}")
    return _Arguments().object(cast("Mapping[Any, Any]", args), "", 0)


class _Arguments:
    """One walk through arguments, with a budget."""

    def __init__(self) -> None:
        self.left = ARGS_VALUES_MAX

    def value(self, value: Any, path: str, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return strict_json.without_surrogates(str.__str__(value))
        if isinstance(value, (Mapping, list, tuple)):
            items = cast("Mapping[Any, Any] | list[Any] | tuple[Any, ...]", value)
            if isinstance(items, Mapping):
                return self.object(items, path, depth)
            self.enter(items, path, depth)
            return [self.value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(items)]
        if isinstance(value, (int, float)):
            plain = int.__int__(value) if isinstance(value, int) else float.__float__(value)
            if strict_json.is_sound(plain):
                return plain
            raise _not_json(
                path, "a number that is not finite" if isinstance(plain, float) else "an integer that is too long"
            )
        raise _not_json(path, f"a value of the type {type(value).__name__!r}")

    def object(self, items: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        self.enter(items, path, depth)
        plain: dict[str, Any] = {}
        for key, item in items.items():
            if not isinstance(key, str):
                raise _not_json(path, f"an object with a key of the type {type(key).__name__!r}")
            name = strict_json.without_surrogates(str.__str__(key))
            plain[name] = self.value(item, f"{path}.{name}" if path else name, depth + 1)
        return plain

    def enter(self, items: Mapping[Any, Any] | list[Any] | tuple[Any, ...], path: str, depth: int) -> None:
        self.left -= len(items)
        if self.left < 0:
            raise _not_json("", f"an object of more than {ARGS_VALUES_MAX:,} values")
        if depth >= strict_json.DEPTH_MAX:
            raise _not_json(path[:200], f"nested deeper than {strict_json.DEPTH_MAX} levels")


def _not_json(path: str, what: str) -> UsageError:
    place = f"{path!r} is" if path else "they are"
    return UsageError(f"the arguments cannot be used: {place} {what}; use plain JSON values (text, numbers, lists, dicts)")
