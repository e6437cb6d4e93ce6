"""The head of a GGUF file: enough to refuse a broken one before llama.cpp sees it, and to know what it will need.

A path comes in; what the file says of itself goes out, or an error that says what is wrong with it. No tensor is read.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass, field
from typing import Any, BinaryIO

__all__ = ["BadFileError", "GgufHead", "kv_bytes", "read_head"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING_BYTES_MAX = 64 * 1024 * 1024
ENTRIES_MAX = 1_000_000
ARRAY_KEPT_MAX = 16
"""Longer lists (a vocabulary) are walked over, not kept."""

_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9

# Type number -> (values in a block, bytes of a block), for the kinds that files are made of; others are not measured.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 30: (1, 2),
}  # fmt: skip


class BadFileError(ValueError):
    """The file is not a whole GGUF file; the message says why."""


@dataclass(frozen=True, slots=True)
class GgufHead:
    """The head of a GGUF file."""

    size: int
    """Bytes of the file."""
    needed: int
    """Bytes up to the end of its last tensor."""
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """The metadata without long lists."""

    @property
    def architecture(self) -> str:
        """The kind of model, such as `llama`."""
        return str(self.values.get("general.architecture", ""))

    @property
    def is_adapter(self) -> bool:
        """True if it is a LoRA adapter and not a model."""
        return self.values.get("general.type") == "adapter"

    @property
    def context_max(self) -> int:
        """The longest context that the model was made for; 0 if it does not say."""
        value = self.values.get(f"{self.architecture}.context_length", 0)
        return value if isinstance(value, int) else 0


def read_head(path: str) -> GgufHead:
    """Read and checks the head of a file.

    Raises:
        BadFileError: it is not GGUF, or it ends too early.
        OSError: it cannot be read.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        try:
            head = _head(file, size)
        except (struct.error, EOFError):
            raise BadFileError(f"it ends after {size} bytes, within its own description: it was not copied whole") from None
        except (UnicodeDecodeError, OverflowError, MemoryError, KeyError) as error:
            raise BadFileError(f"its description cannot be read ({type(error).__name__})") from None
    if head.needed > size:
        raise BadFileError(f"it has {size} bytes and describes {head.needed}: it was not copied whole")
    return head


def _head(file: BinaryIO, size: int) -> GgufHead:
    if file.read(4) != MAGIC:
        raise BadFileError("it does not begin like a GGUF file")
    version, tensors, entries = _unpack(file, "<I"), _unpack(file, "<Q"), _unpack(file, "<Q")
    if version not in VERSIONS:
        raise BadFileError(f"it is of GGUF version {version}; versions 2 and 3 can be read")
    if tensors > ENTRIES_MAX or entries > ENTRIES_MAX:
        raise BadFileError(f"it claims {tensors} tensors and {entries} entries, which no model has")
    values: dict[str, Any] = {}
    for _ in range(entries):
        key = _text(file)
        value = _value(file, _unpack(file, "<I"))
        if value is not None:
            values[key] = value
    last = 0
    for _ in range(tensors):
        _text(file)
        dims = [_unpack(file, "<Q") for _ in range(min(_unpack(file, "<I"), 8))]
        kind, offset = _unpack(file, "<I"), _unpack(file, "<Q")
        per_block, block_bytes = _BLOCKS.get(kind, (1, 0))
        last = max(last, offset + math.prod(dims) // per_block * block_bytes)
    alignment = values.get("general.alignment", 32)
    alignment = alignment if isinstance(alignment, int) and 0 < alignment <= 65536 else 32
    start = -(-file.tell() // alignment) * alignment
    return GgufHead(size=size, needed=start + last if tensors else file.tell(), values=values)


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        return _unpack(file, _SCALARS[kind])
    inner, count = _unpack(file, "<I"), _unpack(file, "<Q")
    if inner in _SCALARS:
        width = struct.calcsize(_SCALARS[inner])
        if count <= ARRAY_KEPT_MAX:
            return [_unpack(file, _SCALARS[inner]) for _ in range(count)]
        _skip(file, count * width)
        return None
    if inner != _STRING or count > ENTRIES_MAX:
        raise BadFileError("its description holds a list that cannot be read")
    kept = [_text(file) if count <= ARRAY_KEPT_MAX else _skip(file, _length(file)) for _ in range(count)]
    return kept if count <= ARRAY_KEPT_MAX else None


def _unpack(file: BinaryIO, form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _length(file: BinaryIO) -> int:
    length = _unpack(file, "<Q")
    if length > STRING_BYTES_MAX:
        raise BadFileError(f"its description claims a text of {length} bytes")
    return length


def _text(file: BinaryIO) -> str:
    length = _length(file)
    data = file.read(length)
    if len(data) < length:
        raise EOFError
    return data.decode("utf-8", "replace")


def _skip(file: BinaryIO, length: int) -> None:
    # Seeking past the end would go unnoticed, and what is claimed need not fit into memory.
    if length > os.fstat(file.fileno()).st_size - file.tell():
        raise EOFError
    file.seek(length, os.SEEK_CUR)


def kv_bytes(head: GgufHead, context: int) -> int:
    """The memory of the key-value cache, at two bytes a number; 0 where the file does not say."""

    def number(name: str) -> int:
        value = head.values.get(f"{head.architecture}.{name}", 0)
        if isinstance(value, list):
            value = max((n for n in value if isinstance(n, int)), default=0)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return value if isinstance(value, int) else 0

    heads, width = number("attention.head_count"), number("embedding_length")
    per_head = width // heads if heads else 0
    keys = number("attention.key_length") or per_head
    values = number("attention.value_length") or per_head
    return number("block_count") * (number("attention.head_count_kv") or heads) * (keys + values) * 2 * context
