"""`callgate token`: tokens are printed once, kept as hashes, and revoked by name."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from callgate.cli import main
from callgate.server.access_file import AccessFile


def test_tokens_are_made_listed_and_revoked(tmp_path: Path, capsys) -> None:
    path = tmp_path / "access.toml"
    assert main(["token", "new", "alice", "--file", str(path)]) == 0
    alice = capsys.readouterr().out.strip()
    assert main(["token", "new", "bob@x.y", "--file", str(path), "--right", "approve", "--owner", "alice"]) == 0
    bob = capsys.readouterr().out.strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert alice not in path.read_text()
    access = AccessFile(path)
    principal = asyncio.run(access.principal(bob))
    assert principal is not None
    assert (principal.name, principal.owner, principal.rights) == ("bob@x.y", "alice", frozenset({"approve"}))
    assert main(["token", "list", "--file", str(path)]) == 0
    assert capsys.readouterr().out == "alice  chat  owner alice\nbob@x.y  approve  owner alice\n"
    assert main(["token", "new", "alice", "--file", str(path)]) != 0
    assert main(["token", "revoke", "alice", "--file", str(path)]) == 0
    assert main(["token", "revoke", "alice", "--file", str(path)]) != 0
    access = AccessFile(path)
    assert asyncio.run(access.principal(alice)) is None
    assert asyncio.run(access.principal(bob)) == principal


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    assert main(["token", "new", 'a"]\nx', "--file", str(tmp_path / "access.toml")]) != 0
    assert not (tmp_path / "access.toml").exists()


def test_a_file_with_a_mistake_is_named_and_left_as_it_is(tmp_path: Path, capsys) -> None:
    path = tmp_path / "access.toml"
    for text in ('[tokens.bob]\nsha256 = "short"\n', f'[tokens]\nalice = {{sha256 = "{"0" * 64}"}}\n'):
        path.write_text(text)
        path.chmod(0o600)
        assert main(["token", "new", "alice", "--file", str(path)]) != 0
        said = capsys.readouterr()
        assert said.out == ""
        assert f"{path} was not changed" in said.err
        assert path.read_text() == text
        assert list(tmp_path.iterdir()) == [path]


def test_links_stay_links_and_one_to_nothing_is_refused(tmp_path: Path, capsys) -> None:
    link, place = tmp_path / "link.toml", tmp_path / "access.toml"
    link.symlink_to(place)
    assert main(["token", "new", "alice", "--file", str(link)]) != 0
    assert "which is not there" in capsys.readouterr().err
    assert (link.is_symlink(), place.exists()) == (True, False)
    place.write_text("")
    place.chmod(0o600)
    assert main(["token", "new", "alice", "--file", str(link)]) == 0
    assert link.is_symlink()
    assert '[tokens."alice"]' in place.read_text()
