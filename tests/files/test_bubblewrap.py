"""Commands in bubblewrap: what they cannot see, reach, signal or leave behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate.errors import UsageError
from callgate.files import bubblewrap
from callgate.files.command import CommandTool

needs_bwrap = pytest.mark.skipif(bubblewrap.problem() is not None, reason=str(bubblewrap.problem()))


@pytest.fixture
def python(tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    command = CommandTool(root, allow=None, sandbox="bwrap", timeout_s=60)

    def run(code: str) -> tuple[int, str]:
        result = command.call_sync({"argv": ["python3", "-c", code]})
        assert result.status == "finished", result
        return result.value["exit_code"], result.value["stdout"].strip() + result.value["stderr"].strip()[-300:]

    yield run
    command.close()


@needs_bwrap
def test_a_machine_that_was_too_busy_to_try_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(argv: list[str], **more: Any) -> None:
        raise subprocess.TimeoutExpired("bwrap", 10)

    bubblewrap._problem.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", late)
        assert bubblewrap.problem() == "bubblewrap cannot be run: Command 'bwrap' timed out after 10 seconds"
    assert bubblewrap.problem() is None


@needs_bwrap
def test_a_command_works_in_its_folder(python, tmp_path) -> None:
    code, said = python("import os; open('a.txt', 'w').write('x'); print(os.path.exists('a.txt'), os.getcwd())")
    assert (code, said) == (0, f"True {tmp_path / 'root'}")
    assert (tmp_path / "root" / "a.txt").read_text() == "x"


@needs_bwrap
def test_files_elsewhere_are_not_there(python, tmp_path) -> None:
    (tmp_path / "secret").write_text("s")
    for path in (tmp_path / "secret", "/etc/shadow", Path.home() / ".ssh", "/root/.bashrc"):
        code, said = python(f"open({str(path)!r}).read()")
        assert code == 1, (path, said)
        assert "No such file" in said or "Permission denied" in said
    code, said = python("open('/usr/x', 'w')")
    assert "Read-only file system" in said or "Permission denied" in said
    before = tmp_path.stat().st_mode
    python(f"import os; os.chmod({str(tmp_path)!r}, 0o777)")
    assert tmp_path.stat().st_mode == before


@needs_bwrap
def test_a_command_holds_no_folder_or_pipe_of_the_host(python, tmp_path) -> None:
    (tmp_path / "secret").write_text("s")
    code = "import os; print([number for number in range(3, 256) if os.path.exists(f'/dev/fd/{number}')])"
    assert python(code) == (0, "[]")
    tries = (
        "for number in range(3, 256):\n    try: print(open(f'/dev/fd/{number}/../secret').read())\n    except OSError: pass"
    )
    assert python(tries) == (0, "")


@needs_bwrap
@pytest.mark.parametrize("folder", ["bin", ".local/bin", "tools"])
def test_a_program_below_the_home_shows_nothing_else_of_it(monkeypatch, tmp_path, folder: str) -> None:
    home, root = tmp_path / "home", tmp_path / "root"
    for place in (home / folder, home / ".ssh", home / ".local" / "share", root):
        place.mkdir(parents=True, exist_ok=True)
    secrets = [home / ".ssh" / "key", home / ".local" / "share" / "keyring", home / "notes"]
    for secret in secrets:
        secret.write_text("s")
    (home / folder / "show").write_text('#!/bin/sh\ncat "$@"; echo ran\n')
    (home / folder / "show").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home / folder}:{os.environ['PATH']}")
    command = CommandTool(root, allow=["show"], sandbox="bwrap", timeout_s=60)
    try:
        result = command.call_sync({"argv": ["show", *map(str, secrets)]})
    finally:
        command.close()
    assert (result.status, result.value["stdout"]) == ("finished", "ran\n"), result
    assert result.value["stderr"].count("No such file") == len(secrets)


@needs_bwrap
def test_there_is_no_network_not_even_loopback(python) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, said = python(f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)")
        assert code == 1, said
        code, said = python(
            f"import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', {port}))\n"
            "print(open('/proc/net/dev').read().count(':'))"
        )
        assert code == 1 or said == "1", said  # A loopback of its own, on which nobody listens.


@needs_bwrap
def test_unix_sockets_outside_cannot_be_reached(python, tmp_path) -> None:
    place, name = str(tmp_path / "s.sock"), f"\0callgate-{os.getpid()}"
    for address in (place, name):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen()
            code, said = python(f"import socket; socket.socket(socket.AF_UNIX).connect({address!r})")
            assert code == 1, said


@needs_bwrap
def test_other_processes_are_neither_seen_nor_signalled(python) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"KEY": "hidden"}) as other:
        code, said = python(f"import os; os.kill({other.pid}, 9)")
        assert code == 1, said
        code, said = python("import os; print([p for p in os.listdir('/proc') if p.isdigit() and int(p) > 20])")
        assert (code, said) == (0, "[]")
        code, said = python(
            "import glob; print([p for p in glob.glob('/proc/[0-9]*/environ') if b'hidden' in open(p, 'rb').read()])"
        )
        assert said.startswith("[]"), said
        assert other.poll() is None
        other.communicate(b"\n")


@needs_bwrap
def test_nothing_is_left_running(python, tmp_path) -> None:
    daemon = "import os, time\nif os.fork() == 0:\n os.setsid()\n os.fork()\n time.sleep(999)\nprint('done')"
    assert python(daemon) == (0, "done")
    mark = str(tmp_path / "root")
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _cwd(pid) == mark]
    assert left == []


def _cwd(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def test_a_sandbox_that_cannot_be_enforced_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(bubblewrap, "problem", lambda: "bubblewrap is not installed")
    with pytest.raises(UsageError, match=r"sandbox='bwrap'.*not installed.*cannot be enforced"):
        CommandTool(tmp_path, allow=None, sandbox="bwrap")
    with pytest.raises(UsageError, match="use True, 'landlock' or 'bwrap'"):
        CommandTool(tmp_path, allow=None, sandbox="docker")  # type: ignore[arg-type]
