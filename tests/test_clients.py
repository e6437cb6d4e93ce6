"""Clients of other people at a running service, as far as `scripts/clients.py` has installed them here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .test_scripts import script

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def clients() -> Any:
    return script("clients")


@pytest.mark.slow
def test_every_client_that_is_installed_gets_what_it_should(clients: Any):
    ready = [client.name for client in clients.CLIENTS if clients.is_ready(client)]
    if not ready:
        pytest.skip("no client is installed; run scripts/clients.py")
    command = [sys.executable, str(ROOT / "scripts" / "clients.py"), *ready]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_row_of_the_table_says_why_a_cell_is_none(clients: Any):
    client = clients.Client("it", "it.py", ("it",), {"chat: abort": "it waits"})
    said = dict.fromkeys(clients.DEEDS, "ok") | {"ours": "- it has none", "its": "- it has none", "abort": "got 3"}
    row = clients.Row(client, "1.0", "chat", said)
    assert row.unexplained() == {}
    assert clients.Row(client, "1.0", "text", said).unexplained() == {"abort": "got 3"}
    assert clients.table([row]).splitlines()[2:] == [
        "| it | 1.0 | chat | yes | yes | yes | - (1) | - (1) | yes | no (2) |",
        "",
        "1. it has none",
        "2. it waits",
    ]
