"""The ground that the other tests stand on: tests/conftest.py."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import settings


def nowhere(_program: object) -> None:
    return None


def test_a_program_that_is_there_is_given_by_its_path(home: ModuleType) -> None:
    assert home.need("node", environ={}, locate=lambda program: f"/opt/{program.commands[0]}") == "/opt/node"


def test_a_missing_program_skips_with_a_line_that_says_what_to_install(home: ModuleType) -> None:
    with pytest.raises(pytest.skip.Exception) as skipped:
        home.need("postgres", environ={}, locate=nowhere)
    assert str(skipped.value) == "PostgreSQL is not installed (apt-get install postgresql); this part was not tested"


def test_a_missing_program_fails_where_everything_is_required(home: ModuleType) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"Chromium is not installed \(apt-get install chromium\)"):
        home.need("chromium", environ={"CALLGATE_REQUIRE_ALL": "1"}, locate=nowhere)


def test_an_unknown_program_is_named_with_those_that_are_known(home: ModuleType) -> None:
    with pytest.raises(KeyError, match=r"'chrome'.*chromium, firefox, node, npm, pgbouncer, postgres"):
        home.need("chrome", environ={})


def test_programs_outside_of_path_are_found_newest_version_first(home: ModuleType, tmp_path, monkeypatch) -> None:
    for version in ("9", "15", "16"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        if version != "16":  # a folder that a removed package left behind
            (folder / "server").write_text("#!/bin/sh\n")
            (folder / "server").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    program = home.Program("Server", ("server",), "server", folders=str(tmp_path / "*" / "bin"))
    assert home.locate(program) == str(tmp_path / "15" / "bin" / "server")
    assert home.locate(home.Program("Server", ("server",), "server")) is None


@pytest.mark.parametrize("name", ["chromium", "node", "postgres"])
def test_the_programs_that_tests_drive_say_their_version(name: str, needs: Callable[[str], str]) -> None:
    done = subprocess.run([needs(name), "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert re.search(r"\d+\.\d+", done.stdout)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "localhost", "LOCALHOST.", b"127.0.0.1", None],
)
def test_this_machine_is_local(home: ModuleType, host: object) -> None:
    assert home.is_local(host)


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "example.org", "localhost.example.org", b"a.test"]
)
def test_other_machines_are_not_local(home: ModuleType, host: object) -> None:
    assert not home.is_local(host)


def test_connecting_to_another_machine_is_refused(home: ModuleType) -> None:
    with socket.socket() as sock:
        with pytest.raises(home.NetworkRefusedError, match=r"192\.0\.2\.1"):
            sock.connect(("192.0.2.1", 80))
        with pytest.raises(home.NetworkRefusedError):
            sock.connect_ex(("192.0.2.1", 80))


def test_sending_a_datagram_to_another_machine_is_refused(home: ModuleType) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises(home.NetworkRefusedError):
        sock.sendto(b"x", ("192.0.2.1", 53))


def test_looking_up_a_name_elsewhere_is_refused(home: ModuleType) -> None:
    with pytest.raises(home.NetworkRefusedError, match=r"example\.org"):
        socket.getaddrinfo("example.org", 443)


def test_asyncio_is_refused_too(home: ModuleType) -> None:
    with pytest.raises(home.NetworkRefusedError):
        asyncio.run(asyncio.open_connection("192.0.2.1", 80))


def test_this_machine_can_be_reached() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=60) as client,
    ):
        assert client.getpeername() == server.getsockname()


def test_property_tests_are_repeatable_at_scale_one_and_print_how_to_repeat_a_failure(scale: int) -> None:
    assert settings().print_blob
    assert settings().deadline is None
    assert settings().derandomize == (scale == 1)


def test_the_scale_is_a_positive_number(scale: int) -> None:
    assert scale >= 1


@pytest.mark.rows("number", [1, 2])
@pytest.mark.rows(("name", "length"), [("a", 1), pytest.param("bc", 2, id="two letters")])
def each_product(number: int, name: str, length: int, faults: set[tuple[int, str]]) -> None:
    assert len(name) == length
    assert (number, name) not in faults


def test_all_rows_of_a_table_are_tried_and_those_that_fail_are_named(home: ModuleType) -> None:
    marks = each_product.pytestmark  # type: ignore[attr-defined]
    faults: set[tuple[int, str]] = set()
    options = SimpleNamespace(verbose=0)
    sections: list[tuple[str, ...]] = []
    item = SimpleNamespace(
        iter_markers=lambda _: marks,
        funcargs={"faults": faults},
        obj=each_product,
        config=SimpleNamespace(option=options),
        add_report_section=lambda *section: sections.append(section),
        _fixtureinfo=SimpleNamespace(argnames=["faults"]),
    )
    assert home.pytest_pyfunc_call(item) is True
    assert sections == []
    options.verbose = 1
    assert home.pytest_pyfunc_call(item) is True
    assert sections == [("call", "rows", "0: a, 1; 0: 1\n0: a, 1; 1: 2\n1: two letters; 0: 1\n1: two letters; 1: 2")]
    faults.add((2, "bc"))
    with pytest.raises(AssertionError) as one:
        home.pytest_pyfunc_call(item)
    assert one.value.__notes__ == ["in row 1: two letters; 1: 2"]
    faults.add((1, "a"))
    with pytest.raises(ExceptionGroup, match="2 of 4 rows fail") as several:
        home.pytest_pyfunc_call(item)
    assert [error.__notes__[0] for error in several.value.exceptions] == [
        "in row 0: a, 1; 0: 1",
        "in row 1: two letters; 1: 2",
    ]


def test_a_table_without_rows_is_refused(home: ModuleType) -> None:
    with pytest.raises(ValueError, match="a table of number without rows tests nothing"):
        home.rows_of("number", [])


def test_an_authority_of_a_tests_own_is_trusted_and_those_of_the_world_are_not_read() -> None:
    certifi = pytest.importorskip("certifi")
    context = ssl.create_default_context(cafile=certifi.where())
    assert context.get_ca_certs() == []
    certificates = Path(certifi.where()).read_text("utf-8").partition("-----END CERTIFICATE-----\n")
    context.load_verify_locations(cadata=certificates[0] + certificates[1])
    assert len(context.get_ca_certs()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("required", "outcome"), [("1", "1 failed"), ("", "1 skipped")])
def test_any_skip_for_something_not_installed_fails_where_everything_is_required(
    tmp_path: Path, required: str, outcome: str
) -> None:
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text("utf-8"), "utf-8")
    (tmp_path / "test_it.py").write_text("import pytest\ndef test_it():\n    pytest.skip('openssl is not installed')\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_it.py")]
    env = {**os.environ, "CALLGATE_REQUIRE_ALL": required}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert outcome in done.stdout


HANGING = """
import os, threading

def test_before():
    pass

def test_hangs():
    if os.fork() == 0:
        try:
            open("until_the_end").close()  # What a test forked may outlive it.
        finally:
            os._exit(0)
    threading.Event().wait()

def test_after():
    pass
"""


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_a_test_that_hangs_ends_and_is_named(tmp_path: Path, processes: int) -> None:
    (tmp_path / "test_a.py").write_text(HANGING)
    for name in "bcde":
        (tmp_path / f"test_{name}.py").write_text("def test_is_well():\n    pass\n")
    (tmp_path / "pytest.ini").touch()
    os.mkfifo(tmp_path / "until_the_end")
    words = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "conftest", "-p", "xdist", "-n", str(processes)]
    words += ["-p", "scripts.whole_files", "-p", "scripts.progress", "--dist", "loadfile"] if processes else []
    mine = {"CALLGATE_TEST_LIMIT_S": "2", "CALLGATE_SCALE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    mine["TMPDIR"] = str(tmp_path)  # What hangs is ended before it can remove its folders.
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": f"{here}:{here.parent}", **mine}
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        done = subprocess.run(words, cwd=tmp_path, env=env, stdout=out, stderr=err, timeout=240, check=False)
    os.close(os.open(tmp_path / "until_the_end", os.O_WRONLY | os.O_NONBLOCK))  # Fails if nobody has outlived it.
    assert done.returncode == 1
    assert re.search(r'test_a.py", line 13 in test_hangs', (tmp_path / "err").read_text("utf-8"))
    if processes:
        said = (tmp_path / "out").read_text("utf-8")
        assert re.search(r"crashed while running '.*test_a.py::test_hangs'", said)
        assert "1 failed, 6 passed" in said
