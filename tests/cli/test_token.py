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
