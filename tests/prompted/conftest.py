"""How outcomes are compared."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from callgate.prompted import CallError, CallParser, ParsedCall, Text

FILE = json.loads((Path(__file__).parent / "cases.json").read_text("utf-8"))
TOOLS: list[str] = FILE["tools"]


def outcome_of(chunks: Iterable[str], tools: Iterable[str] | None = TOOLS) -> dict[str, Any]:
    """What a parser makes of these chunks, in the form of the file of cases."""
    parser = CallParser(tools)
    found = [outcome for chunk in chunks for outcome in parser.feed(chunk)] + parser.close()
    return {
        "calls": [{"name": item.name, "args": item.args} for item in found if isinstance(item, ParsedCall)],
        "text": "".join(item.text for item in found if isinstance(item, Text)),
        "errors": [{"code": item.code, "name": item.name} for item in found if isinstance(item, CallError)],
    }


@pytest.fixture(scope="session")
def outcome():
    return outcome_of
