"""What the model has read before: which file is whose, what is kept, and that nothing here can stop anybody."""

from __future__ import annotations

import os
from pathlib import Path

from callgate.embedded.states import KEPT_MAX, States
from callgate.embedded.weights import Files


def states(tmp_path: Path, adapter: str | None = None) -> States:
    base = tmp_path / "base.gguf"
    base.write_bytes(b"weights")
    found = States(Files(str(base), adapter), tmp_path / "states")
    assert found.prepare() == os.path.join(tmp_path / "states", "")
    return found


def keep(found: States, text: str) -> str:
    draft, key = found.draft(), found.key_of(text)
    (found.folder / draft).write_bytes(b"state")
    found.keep(draft, key)
    name = found.find(key)
    assert name is not None
    return name


def test_a_text_has_one_key_for_each_model(tmp_path) -> None:
    found = states(tmp_path)
    key = found.key_of("tools")
    assert key == found.key_of("tools") != found.key_of("other tools")
    (tmp_path / "base.gguf").write_bytes(b"other weights")
    assert found.key_of("tools") != key
    assert states(tmp_path, adapter=str(tmp_path / "base.gguf")).key_of("tools") != states(tmp_path).key_of("tools")


def test_what_was_kept_is_there_for_its_owner_alone(tmp_path) -> None:
    found = states(tmp_path)
    assert found.find(found.key_of("tools")) is None
    name = keep(found, "tools")
    assert (found.folder / name).stat().st_mode & 0o777 == 0o600
    assert found.folder.stat().st_mode & 0o777 == 0o700
    found.drop(name)
    found.drop(name)
    assert found.find(found.key_of("tools")) is None


def test_a_file_that_is_not_whole_is_removed_and_not_used(tmp_path) -> None:
    found = states(tmp_path)
    (found.folder / keep(found, "tools")).write_bytes(b"stat")
    assert found.find(found.key_of("tools")) is None
    assert list(found.folder.iterdir()) == []


def test_the_files_used_last_stay_and_drafts_do_not(tmp_path) -> None:
    found = states(tmp_path)
    names = [keep(found, str(number)) for number in range(KEPT_MAX)]
    for age, name in enumerate(names):
        os.utime(found.folder / name, (1_000 + age, 1_000 + age))
    assert found.find(found.key_of("0")) == names[0]  # and so is used again
    (found.folder / "left.draft").write_bytes(b"half")
    newest = keep(found, "one more")
    assert {path.name for path in found.folder.iterdir()} == {newest, *names} - {names[1]}


def test_where_nothing_can_be_kept_nothing_is(tmp_path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    found = States(Files(str(in_the_way)), in_the_way / "states")
    assert found.prepare() is None
    found.keep("missing.draft", "key")
    assert found.find("key") is None
